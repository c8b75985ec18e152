"""Control batches: what the broker writes between clients' records, and clients skip.

A control record's key says its kind: int16 version (0), int16 type. A transaction's end is a marker (ABORT or COMMIT);
the rest belongs to the KRaft metadata log. Source: transactions-behaviour 4.8; Kafka's metadata log as dumped.
"""

import struct
from dataclasses import dataclass
from enum import Enum

from protocol.batch_header import NO_LEADER_EPOCH, BatchHeader, read_batch_header
from protocol.compression import Bytes
from protocol.errors import MalformedMessage
from protocol.records import NewRecord, build_batch, records_of

_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class ControlType(Enum):
    """The type in a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of one producer's transaction in one partition."""

    offset: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    timestamp: int  # ms


def marker_batch(
    *,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The 78 bytes that end a transaction."""
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    return build_batch(
        [NewRecord(_KEY.pack(0, kind.value), _MARKER_VALUE.pack(0, coordinator_epoch), timestamp_ms)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def control_type(key: bytes | None) -> ControlType | None:
    """The kind that a control record's key names; None for a kind we do not know, which readers skip.

    Higher key versions and further bytes are accepted. Raises MalformedMessage for a key that is too short.
    """
    if key is None or len(key) < _KEY.size:
        raise MalformedMessage("a control record whose key is too short")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise MalformedMessage(f"a control record of key version {version}")
    try:
        return ControlType(kind)
    except ValueError:
        return None


def read_marker(batch: Bytes, position: int = 0, header: BatchHeader | None = None) -> Marker | None:
    """The marker in the control batch at `position`; None when it is empty (compaction may leave it so) or its record
    is no marker. Higher versions and further bytes are accepted."""
    header = header or read_batch_header(batch, position)
    if header.record_count == 0:
        return None
    record = next(records_of(batch, position))
    kind = control_type(record.key)
    if kind is not ControlType.COMMIT and kind is not ControlType.ABORT:
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise MalformedMessage("a transaction marker whose value is too short")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    if version < 0:
        raise MalformedMessage(f"a transaction marker of version {version}")
    return Marker(
        offset=record.offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        is_commit=kind is ControlType.COMMIT,
        coordinator_epoch=coordinator_epoch,
        timestamp=record.timestamp,
    )


def leader_change_batch(
    *, leader_id: int, voter_ids: list[int], timestamp_ms: int, base_offset: int, leader_epoch: int
) -> bytearray:
    """What a KRaft leader writes first in its epoch: who leads, who may vote, and who voted for it (all)."""
    voters = bytearray([len(voter_ids) + 1])
    for voter_id in voter_ids:
        voters += struct.pack(">ib", voter_id, 0)
    value = struct.pack(">hi", 0, leader_id) + voters + voters + b"\x00"
    return build_batch(
        [NewRecord(_KEY.pack(0, ControlType.LEADER_CHANGE.value), value, timestamp_ms)],
        base_offset=base_offset,
        is_control=True,
        leader_epoch=leader_epoch,
    )
