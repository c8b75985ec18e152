"""Loads batches of the metadata log, or of a snapshot, into an image.

Records between BeginTransaction and EndTransaction are applied together or not at all (KIP-868). Records that cannot be
understood, because a newer Kafka wrote them, are skipped and reported once.
"""

from collections.abc import Iterable

from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.records import PassedOver, decode_record
from odradek.protocol.batch_header import batches, crc_ok
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.records import records_of
from odradek.protocol.struct import Buffer, Message


class CorruptMetadata(Exception):
    """The metadata log contradicts itself. The broker cannot start on it: it would forget topics."""


class Loader:
    """Feeds one image, in the order of the log."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._transaction: list[Message] | None = None  # records of a transaction that has not ended
        self.not_understood: set[tuple[int, int]] = set()  # record types and versions
        self.last_timestamp = -1  # ms, of the last record
        self.highest_levels: dict[str, int] = {}  # of each feature, in the log itself, now in effect or not

    @property
    def is_in_transaction(self) -> bool:
        return self._transaction is not None

    def load(self, portions: Iterable[Buffer], *, from_offset: int = 0, moves_offset: bool = True) -> None:
        """Replay whole batches; those that begin below `from_offset` are skipped.

        moves_offset  whether their offsets are those of the metadata log; a snapshot's are its own
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
                    raise CorruptMetadata(f"offset {header.base_offset} follows where {next_offset} is due")
                next_offset = header.next_offset
                if not header.is_control:
                    for record in records_of(portion, position):
                        self._take(record.value, record.offset, is_of_log=moves_offset)
                    self.last_timestamp = header.max_timestamp
                if moves_offset:
                    self._image.next_offset = next_offset

    def _take(self, value: bytes | None, offset: int, *, is_of_log: bool) -> None:
        try:
            record = decode_record(value or b"")
            if isinstance(record, PassedOver):
                if not record.is_known:
                    self.not_understood.add((record.record_type, record.version))
                return
            if is_of_log and isinstance(record, FeatureLevelRecord):
                self.highest_levels[record.name] = max(self.highest_levels.get(record.name, 0), record.feature_level)
            self._apply(record)
        except (MalformedMessage, KeyError, IndexError, ValueError) as error:
            raise CorruptMetadata(f"the record at offset {offset}: {type(error).__name__}: {error}") from error

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
