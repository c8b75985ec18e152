"""Builds a metadata snapshot for Kafka. The snapshot is written when a feature is lowered to a level that some Kafka
release supports.

Kafka replays its metadata log from the start, and terminates at a FeatureLevelRecord with an unsupported level even if
a later record lowers the level. If there is a snapshot, Kafka reads only the snapshot and the part of the log after it.

The snapshot repeats the records of the log byte for byte and in order, including unknown records, with these
exceptions:

    feature levels            the last level of each feature, before all other records
    transactions (KIP-868)    without brackets; omitted if they were aborted
    no-ops                    omitted
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.broker.metadata.files import snapshot
from odradek.broker.metadata.records import IgnoredRecord, decode_record
from odradek.broker.metadata.supported_features import SHARE_TRANSACTIONS, SHARE_VERSION, SHARE_VERSION_GROUPS
from odradek.protocol.batch_header import batches
from odradek.protocol.control_records import ControlType, control_type
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.records import NewRecord, records_of
from odradek.protocol.struct import Buffer, Message

# Maps each feature that reaches a higher level in Odradek than in some Kafka release to the highest level that this
# release supports. For share.version, the release is Kafka 4.3.1. No Kafka release has Odradek's own feature.
HIGHEST_OF_KAFKA = {SHARE_VERSION: SHARE_VERSION_GROUPS, SHARE_TRANSACTIONS: 0}
QUORUM_TYPES = (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)
NO_OP_RECORD = 20
BEGIN, END, ABORT = 23, 24, 25  # types of the records that begin and end metadata transactions


def is_lowered_for_kafka(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Returns whether any feature was lowered from a level above HIGHEST_OF_KAFKA to a level that Kafka supports.

    Features are checked independently, because Kafka 4.4.0 accepts a directory whose share.version is still 2.

    before  each feature's level before the change, or its highest level in the log
    """
    return any(before.get(name, 0) > most >= after.get(name, 0) for name, most in HIGHEST_OF_KAFKA.items())


def levels_after(levels: Mapping[str, int], records: Iterable[Message]) -> dict[str, int]:
    return {**levels, **{each.name: each.feature_level for each in records if isinstance(each, FeatureLevelRecord)}}


class MetadataSnapshot(NamedTuple):
    name: str
    content: bytes


def snapshot_for_kafka(portions: Iterable[Buffer]) -> MetadataSnapshot:
    """Builds the snapshot. `portions` consist of whole batches. The newest snapshot comes first, if there is one,
    followed by the part of the log after it."""
    repeated = _SnapshotBuilder()
    for portion in portions:
        repeated.add_portion(portion)
    return repeated.snapshot()


class _SnapshotBuilder:
    def __init__(self) -> None:
        self._levels: dict[str, bytes] = {}
        self._records: list[bytes] = []
        self._quorum: dict[ControlType, NewRecord] = {}
        self._begun_at: tuple[dict[str, bytes], int] | None = None  # state before the open transaction
        self._end_offset = 0
        self._leader_epoch = 0
        self._last_timestamp = -1

    def add_portion(self, portion: Buffer) -> None:
        for position, header in batches(portion):
            self._end_offset, self._leader_epoch = header.next_offset, header.leader_epoch
            for record in records_of(portion, position):
                if not header.is_control:
                    self._add_record(bytes(record.value or b""))
                elif (kind := control_type(record.key)) in QUORUM_TYPES:
                    self._quorum[kind] = NewRecord(record.key, record.value, record.timestamp)
            if not header.is_control:
                self._last_timestamp = header.max_timestamp

    def _add_record(self, value: bytes) -> None:
        record = decode_record(value)
        kind = record.record_type if isinstance(record, IgnoredRecord) else record.API_KEY
        if isinstance(record, FeatureLevelRecord):
            self._levels[record.name] = value
        elif kind == BEGIN:
            self._begun_at = (dict(self._levels), len(self._records))
        elif kind == END:
            self._begun_at = None
        elif kind == ABORT and self._begun_at is not None:
            self._levels, count = self._begun_at
            del self._records[count:]
            self._begun_at = None
        elif kind not in (ABORT, NO_OP_RECORD):
            self._records.append(value)

    def snapshot(self) -> MetadataSnapshot:
        return MetadataSnapshot(
            f"{self._end_offset:020}-{self._leader_epoch:010}.checkpoint",
            snapshot(
                [*self._levels.values(), *self._records],
                self._last_timestamp,
                leader_epoch=self._leader_epoch,
                quorum=self._quorum.values(),
            ),
        )
