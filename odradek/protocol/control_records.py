"""Builds and reads control batches, which the broker itself writes and which clients skip.

The key of a control record consists of two int16 values, the version (0) and the type. The types ABORT and COMMIT are
for the markers that end a transaction. The other types belong to the KRaft metadata log. Sources:
docs/spec/transactions.md#s4-8; dumps of Kafka's metadata log.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.protocol.batch_header import (
    CONTROL,
    HEADER_BYTES,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    read_batch_header,
    small_batch,
)
from odradek.protocol.compression import Bytes
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import NewRecord, build_batch, records_of

_KEY: Final = struct.Struct(">hh")  # version, type
_MARKER_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
# A marker's single record, which always has the same size. It consists of the bytes before the key; the version and
# type; the size of the value; the version and coordinator epoch; and an empty list of headers.
_MARKER_RECORD: Final = struct.Struct(">5shhBhiB")
_BEFORE_KEY: Final = bytes((2 * 16, 0, 0, 0, 2 * _KEY.size))  # sizes are zigzag-encoded
_VALUE_SIZE: Final = 2 * _MARKER_VALUE.size
_MARKER_ATTRIBUTES: Final = TRANSACTIONAL | CONTROL
MARKER_BYTES: Final = HEADER_BYTES + _MARKER_RECORD.size


class ControlType(Enum):
    """The type of a control record, as stored in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_ABORT, _COMMIT = ControlType.ABORT.value, ControlType.COMMIT.value


@dataclass(slots=True)
class Marker:
    """The marker that ends one producer's transaction in one partition."""

    offset: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    timestamp: int  # in ms


def sealed_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> tuple[bytearray, BatchHeader]:
    """Builds the 78 bytes of a transaction marker, and returns them with the batch header."""
    kind = _COMMIT if is_commit else _ABORT
    return small_batch(
        _MARKER_RECORD.pack(_BEFORE_KEY, 0, kind, _VALUE_SIZE, 0, coordinator_epoch, 0),
        base_offset,
        leader_epoch,
        _MARKER_ATTRIBUTES,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )


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
    """Like `sealed_marker`, but returns only the batch."""
    return sealed_marker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_commit=is_commit,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )[0]


def control_type(key: bytes | None) -> ControlType | None:
    """Returns the type of a control record, or None for an unknown type, which readers must skip.

    Accepts later versions of the key and additional bytes. Raises MalformedMessage if the key is too short.
    """
    if key is None or len(key) < _KEY.size:
        raise MalformedMessage("the key of a control record is too short")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise MalformedMessage(f"the key of a control record has the invalid version {version}")
    try:
        return ControlType(kind)
    except ValueError:
        return None


def read_marker(batch: Bytes, position: int = 0, header: BatchHeader | None = None) -> Marker | None:
    """Returns the marker in the control batch at `position`. Returns None if the batch is empty (after compaction) or
    its record is not a marker. Accepts later versions and additional bytes. Raises MalformedMessage."""
    header = header or read_batch_header(batch, position)
    if header.record_count == 0:
        return None
    if header.batch_length == MARKER_BYTES - LOG_OVERHEAD and header.attributes == _MARKER_ATTRIBUTES:
        usual = _usual_marker(batch, position, header)
        if usual is not None:
            return usual
    record = next(records_of(batch, position))
    kind = control_type(record.key)
    if kind is not ControlType.COMMIT and kind is not ControlType.ABORT:
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise MalformedMessage("the value of a transaction marker is too short")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    if version < 0:
        raise MalformedMessage(f"a transaction marker has the invalid version {version}")
    return Marker(
        offset=record.offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        is_commit=kind is ControlType.COMMIT,
        coordinator_epoch=coordinator_epoch,
        timestamp=record.timestamp,
    )


def _usual_marker(batch: Bytes, position: int, header: BatchHeader) -> Marker | None:
    """Reads a batch of the form that `marker_batch` writes. Returns None for a batch in any other form."""
    try:
        fields = _MARKER_RECORD.unpack_from(batch, position + HEADER_BYTES)
    except struct.error:  # the batch is too short
        return None
    before_key, key_version, kind, value_size, value_version, coordinator_epoch, headers = fields
    if before_key != _BEFORE_KEY or value_size != _VALUE_SIZE or key_version or value_version or headers:
        return None
    if kind != _COMMIT and kind != _ABORT:
        return None
    return Marker(
        header.base_offset,
        header.producer_id,
        header.producer_epoch,
        kind == _COMMIT,
        coordinator_epoch,
        header.base_timestamp,
    )


def leader_change_batch(
    *, leader_id: int, voter_ids: list[int], timestamp_ms: int, base_offset: int, leader_epoch: int
) -> bytearray:
    """Builds the batch that a KRaft leader writes at the beginning of its epoch. It contains the leader and the voters,
    all of which are recorded as having voted for the leader."""
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
