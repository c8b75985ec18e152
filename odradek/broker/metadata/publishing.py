"""Publishing what was committed: records are replayed into the image, then the listeners are told what has changed.

Many records are published in slices, so that clients are served in between. A slice ends before a topic or the removal
of one, so that every topic appears with all its partitions and settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.metadata.image import MetadataImage, TopicImage
from odradek.protocol.struct import Message

SLICE_RECORDS: Final = 100  # some 2 ms: 50 topics, with their logs
BEGINNINGS: Final = frozenset({"TopicRecord", "RemoveTopicRecord"})


class MetadataListener(Protocol):
    """Told after a commit, in the order of the records, what it changed. On return the change has taken effect."""

    def topic_created(self, topic: TopicImage) -> None: ...

    def partitions_added(self, topic: TopicImage) -> None: ...

    def topic_deleted(self, topic: TopicImage) -> None: ...

    def topic_config_changed(self, topic: str) -> None: ...

    def broker_config_changed(self) -> None: ...

    def features_changed(self) -> None: ...

    def client_quotas_changed(self) -> None: ...


News = dict[tuple[str, object], Callable[[MetadataListener], None]]
BROKER_CONFIG: Final = ("broker config", "")


def slices(records: Sequence[Message]) -> Iterator[Sequence[Message]]:
    first = 0
    for at, record in enumerate(records):
        if at - first >= SLICE_RECORDS and type(record).__name__ in BEGINNINGS:
            yield records[first:at]
            first = at
    if first < len(records):
        yield records[first:]


def replay(image: MetadataImage, records: Sequence[Message]) -> News:
    """Returns what there is to be told, in order; several records may make one piece of news."""
    news: News = {}
    for record in records:
        removed = _removed_topic(image, record)
        image.replay(record)
        if removed is not None:
            news["deleted", removed.topic_id] = _deleted(removed)
        else:
            _note(news, image, record)
    return news


def _removed_topic(image: MetadataImage, record: Message) -> TopicImage | None:
    if type(record).__name__ != "RemoveTopicRecord":
        return None
    return image.topics_by_id[record.topic_id]  # type: ignore[attr-defined]


def _note(news: News, image: MetadataImage, record: Any) -> None:
    match type(record).__name__:
        case "TopicRecord":
            news["created", record.topic_id] = _created(image.topics_by_id[record.topic_id])
        case "PartitionRecord" if ("created", record.topic_id) not in news:
            news["grown", record.topic_id] = _grown(image.topics_by_id[record.topic_id])
        case "ConfigRecord" if record.resource_type == ConfigResourceType.TOPIC.value:
            topic = image.topics.get(record.resource_name)
            if topic is not None and ("created", topic.topic_id) not in news:
                news["topic config", record.resource_name] = _config_changed(record.resource_name)
        case "ConfigRecord" if record.resource_type == ConfigResourceType.BROKER.value:
            news[BROKER_CONFIG] = _broker_config_changed
        case "FeatureLevelRecord":
            news["features", ""] = _features_changed
        case "ClientQuotaRecord":
            news["client quotas", ""] = _client_quotas_changed


def _created(topic: TopicImage) -> Callable[[MetadataListener], None]:
    return lambda listener: listener.topic_created(topic)


def _grown(topic: TopicImage) -> Callable[[MetadataListener], None]:
    return lambda listener: listener.partitions_added(topic)


def _deleted(topic: TopicImage) -> Callable[[MetadataListener], None]:
    return lambda listener: listener.topic_deleted(topic)


def _config_changed(topic: str) -> Callable[[MetadataListener], None]:
    return lambda listener: listener.topic_config_changed(topic)


def _broker_config_changed(listener: MetadataListener) -> None:
    listener.broker_config_changed()


def _features_changed(listener: MetadataListener) -> None:
    listener.features_changed()


def _client_quotas_changed(listener: MetadataListener) -> None:
    listener.client_quotas_changed()
