"""Applies records of the metadata log or of a snapshot to the image: the complete log at startup, and each committed
change after that.

Records between BeginTransaction and EndTransaction are applied together or not at all (KIP-868). Unknown records from a
newer Kafka are skipped and reported once.

After a commit, the listeners are notified of the changes. If a commit has many records, they are published in slices,
so that clients are served between slices. A new slice begins only with the creation or removal of a topic or with a
change to a partition, so each new topic appears together with all its partitions and settings. Listeners can take
several turns of the event loop to process a topic's partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.metadata.earlier_share_version import EarlierShareVersion
from odradek.broker.metadata.image import MetadataImage, TopicImage
from odradek.broker.metadata.records import IgnoredRecord, decode_record
from odradek.protocol.batch_header import batches, crc_ok
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.records import records_of
from odradek.protocol.struct import Buffer, Message


class CorruptMetadata(Exception):
    """Raised if the metadata log contradicts itself. The broker must not start with this log, because it would lose
    topics."""


class Loader:
    """Loads records into an image in log order."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        # The records of an unfinished metadata transaction, or None if there is no such transaction.
        self._transaction: list[Message] | None = None
        self.not_understood: set[tuple[int, int]] = set()  # unknown record types and versions
        self.last_timestamp = -1  # timestamp of the last record, in ms
        # Highest level of each feature in the log, even if that level is no longer in effect.
        self.highest_levels: dict[str, int] = {}
        self.earlier_share_version = EarlierShareVersion()

    @property
    def is_in_transaction(self) -> bool:
        return self._transaction is not None

    def load(self, portions: Iterable[Buffer], *, from_offset: int = 0, moves_offset: bool = True) -> None:
        """Runs all steps of `loading`."""
        for _ in self.loading(portions, from_offset=from_offset, moves_offset=moves_offset):
            pass

    def loading(self, portions: Iterable[Buffer], *, from_offset: int = 0, moves_offset: bool = True) -> Iterator[None]:
        """Replays whole batches, one record in each step. Batches that begin below `from_offset` are skipped.

        moves_offset  whether the batches have offsets of the metadata log; a snapshot has its own offsets
        raises        CorruptMetadata
        """
        next_offset = from_offset
        for portion in portions:
            for position, header in batches(portion):
                if header.base_offset < from_offset:
                    continue
                if not crc_ok(portion, position, header.size_bytes):
                    raise CorruptMetadata(f"the batch at offset {header.base_offset} has a wrong checksum")
                if moves_offset and header.base_offset != next_offset:
                    raise CorruptMetadata(f"offset {header.base_offset} follows, but {next_offset} was expected")
                next_offset = header.next_offset
                if not header.is_control:
                    for record in records_of(portion, position):
                        self._load_record(record.value, record.offset, is_of_log=moves_offset)
                        yield
                    self.last_timestamp = header.max_timestamp
                if moves_offset:
                    self._image.next_offset = next_offset

    def _load_record(self, value: bytes | None, offset: int, *, is_of_log: bool) -> None:
        try:
            record = decode_record(value or b"")
            if isinstance(record, IgnoredRecord):
                if not record.is_known:
                    self.not_understood.add((record.record_type, record.version))
                return
            if is_of_log and isinstance(record, FeatureLevelRecord):
                self.highest_levels[record.name] = max(self.highest_levels.get(record.name, 0), record.feature_level)
            self.earlier_share_version.follow_record(record)
            self._apply(record)
        except (MalformedMessage, KeyError, IndexError, ValueError) as error:
            raise CorruptMetadata(
                f"the record at offset {offset} cannot be replayed: {type(error).__name__}: {error}"
            ) from error

    def _apply(self, record: Message) -> None:
        match type(record).__name__:
            case "BeginTransactionRecord":
                self._transaction = []
            case "EndTransactionRecord":
                records, self._transaction = self._transaction or [], None
                for one in records:
                    self._image.replay(one)
            case "AbortTransactionRecord":
                self._transaction = None
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._image.replay(record)


SLICE_RECORDS: Final = 100  # minimum number of records in a slice; creating 50 topics with their logs takes about 2 ms
FIRST_RECORD_TYPES: Final = frozenset({"TopicRecord", "RemoveTopicRecord", "PartitionChangeRecord"})


class MetadataListener(Protocol):
    """An object that is notified of changes after a commit, in record order. A change has taken effect when the
    listener's method returns. If the method returns steps, the change has taken effect when all steps are done."""

    def topic_created(self, topic: TopicImage) -> StepsOfListener: ...

    def partitions_added(self, topic: TopicImage) -> StepsOfListener: ...

    def topic_deleted(self, topic: TopicImage) -> StepsOfListener: ...

    def topic_config_changed(self, topic: str) -> None: ...

    def group_config_changed(self, group_id: str) -> None: ...

    def broker_config_changed(self) -> None: ...

    def features_changed(self) -> None: ...

    def client_quotas_changed(self) -> None: ...


StepsOfListener: TypeAlias = Iterator[None] | None
News = dict[tuple[str, object], Callable[[MetadataListener], StepsOfListener]]
BROKER_CONFIG: Final = ("broker config", "")


def slices(records: Sequence[Message]) -> Iterator[Sequence[Message]]:
    first = 0
    for at, record in enumerate(records):
        if at - first >= SLICE_RECORDS and type(record).__name__ in FIRST_RECORD_TYPES:
            yield records[first:at]
            first = at
    if first < len(records):
        yield records[first:]


def replay(image: MetadataImage, records: Sequence[Message]) -> News:
    """Replays the records. Returns the changes for the listeners, in order. Several records can form one change."""
    news: News = {}
    for record in records:
        removed = _removed_topic(image, record)
        image.replay(record)
        if removed is not None:
            news["deleted", removed.topic_id] = _topic_deletion(removed)
        else:
            _add_change(news, image, record)
    return news


def _removed_topic(image: MetadataImage, record: Message) -> TopicImage | None:
    if type(record).__name__ != "RemoveTopicRecord":
        return None
    return image.topics_by_id[record.topic_id]  # type: ignore[attr-defined]


def _add_change(news: News, image: MetadataImage, record: Any) -> None:
    match type(record).__name__:
        case "TopicRecord":
            created = image.topics_by_id[record.topic_id]
            news["created", record.topic_id] = lambda listener: listener.topic_created(created)
        case "PartitionRecord" if ("created", record.topic_id) not in news:
            grown = image.topics_by_id[record.topic_id]
            news["grown", record.topic_id] = lambda listener: listener.partitions_added(grown)
        case "ConfigRecord" if record.resource_type == ConfigResourceType.TOPIC.value:
            topic, name = image.topics.get(record.resource_name), record.resource_name
            if topic is not None and ("created", topic.topic_id) not in news:
                news["topic config", name] = lambda listener: listener.topic_config_changed(name)
        case "ConfigRecord" if record.resource_type == ConfigResourceType.GROUP.value:
            group_id = record.resource_name
            news["group config", group_id] = lambda listener: listener.group_config_changed(group_id)
        case "ConfigRecord" if record.resource_type == ConfigResourceType.BROKER.value:
            news[BROKER_CONFIG] = lambda listener: listener.broker_config_changed()
        case "FeatureLevelRecord":
            news["features", ""] = lambda listener: listener.features_changed()
        case "ClientQuotaRecord":
            news["client quotas", ""] = lambda listener: listener.client_quotas_changed()


def _topic_deletion(topic: TopicImage) -> Callable[[MetadataListener], StepsOfListener]:
    return lambda listener: listener.topic_deleted(topic)
