"""Reads and writes the 61 bytes before the records of a batch (magic 2), and changes batches in place without touching
their records.

docs/formats/record-batch.md describes the bytes. In this module, a *batch* is a buffer that begins with a batch header.
The buffer may be longer than the batch, whose size is in the header.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import Bytes, Compression
from odradek.protocol.errors import MalformedMessage

HEADER_BYTES: Final = 61
LOG_OVERHEAD: Final = 12  # number of bytes at the start of a batch that `batch_length` does not count
# The CRC covers all bytes from this position to the end. The base offset and the leader epoch, which the broker can
# change, come before it.
CRC_START: Final = 21
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
INT32_MAX: Final = 2**31 - 1

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_TO_CRC: Final = struct.Struct(">qiibI")
_FROM_ATTRIBUTES: Final = struct.Struct(">hiqqqhii")  # the last part of the header, which is covered by the CRC
_LENGTH: Final = struct.Struct(">i")
_PLACE: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_CRC: Final = struct.Struct(">I")
_LENGTH_AT: Final = 8
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35


@dataclass(slots=True)
class BatchHeader:
    """The fields of a batch header, in the order of the protocol. As in the protocol, -1 means "none"."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the complete batch, including its header."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The compression type. Raises MalformedMessage for the three undefined values."""
        try:
            return Compression(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise MalformedMessage(f"unknown compression type {self.attributes & COMPRESSION_MASK}") from None

    @property
    def is_compressed(self) -> bool:
        return self.attributes & COMPRESSION_MASK != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time (ms) at which this batch's tombstones and markers may be removed, or None if the batch has no delete
        horizon. It is stored in place of the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The last record's sequence, or -1 if the batch has no sequences. Sequences wrap around from 2**31 - 1 to
        0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX


def unpack_batch_header(data: Bytes, position: int = 0) -> BatchHeader:
    """Returns the header at `position` without checking the magic or the length. Raises struct.error if the data ends
    within the header."""
    return BatchHeader(*_HEADER.unpack_from(data, position))


def read_batch_header(data: Bytes, position: int = 0) -> BatchHeader:
    """Returns the header at `position`. Raises MalformedMessage if the header is incomplete, has the wrong magic, or
    contains a length that is too small.

    Only the header is read, so neither the CRC nor the presence of all records is checked.
    """
    try:
        header = unpack_batch_header(data, position)
    except struct.error:
        raise MalformedMessage("a record batch ends within its header") from None
    if header.magic != MAGIC:
        raise MalformedMessage(f"the record batch has the unsupported magic {header.magic}")
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD:
        raise MalformedMessage(f"the record batch has length {header.batch_length}, which is less than its header")
    return header


def batches(data: Bytes, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields every complete batch with its position. An incomplete batch at the end of `data` ends the iteration
    without an error, because a Fetch response or a torn segment can end like this. Raises MalformedMessage for any
    other damage."""
    end = len(data)
    while position + HEADER_BYTES <= end:
        header = read_batch_header(data, position)
        next_position = position + header.batch_length + LOG_OVERHEAD
        if next_position > end:
            return
        yield position, header
        position = next_position


def batch_size_at(data: Bytes, position: int) -> int:
    """Returns the size of the batch at `position` according to its length field, which is not checked."""
    length: int = _LENGTH.unpack_from(data, position + _LENGTH_AT)[0]
    return length + LOG_OVERHEAD


def computed_crc(data: Bytes, position: int, size_bytes: int) -> int:
    """Computes the CRC-32C of the batch at `position`, which is `size_bytes` long, without copying the batch."""
    return crc32c(memoryview(data)[position + CRC_START : position + size_bytes])


def crc_ok(data: Bytes, position: int, size_bytes: int) -> bool:
    stored: int = int.from_bytes(data[position + _CRC_AT : position + CRC_START], "big")
    return stored == computed_crc(data, position, size_bytes)


def pack_batch(header: BatchHeader, payload: Bytes) -> bytearray:
    """Builds a batch from the header and the records in `payload`, which must already be compressed if the header
    requires it. Fills in the length and the magic, and computes the CRC."""
    batch = bytearray(HEADER_BYTES)
    batch += payload
    seal_batch(
        batch,
        header.base_offset,
        header.leader_epoch,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    return batch


def seal_batch(
    batch: bytearray,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Writes the header into the first 61 bytes of a batch that already contains its records. Fills in the length and
    the magic, and computes the CRC."""
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _seal(batch, 0)


def small_batch(
    records: bytes | bytearray,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> tuple[bytearray, BatchHeader]:
    """Builds a batch from encoded records and returns it with its header, so that the log need not parse the header.
    The records are copied, which is faster than `seal_batch` up to a few KiB."""
    rest_of_header: bytes = _FROM_ATTRIBUTES.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    covered = rest_of_header + records
    length, crc = CRC_START - LOG_OVERHEAD + len(covered), crc32c(covered)
    header = BatchHeader(
        base_offset,
        length,
        leader_epoch,
        MAGIC,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    return bytearray(_TO_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc) + covered), header


def assign(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Sets the base offset and the leader epoch of a batch in place. `batch` must contain exactly one batch. The CRC
    remains valid, because it does not cover these fields."""
    _PLACE.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD, leader_epoch)


def set_log_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Changes a batch's timestamp type to LogAppendTime, with the time `now_ms`. Changes the batch in place and updates
    the CRC. `batch` must contain exactly one batch."""
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, struct.unpack_from(">h", batch, _ATTRIBUTES_AT)[0] | LOG_APPEND_TIME)
    struct.pack_into(">q", batch, _MAX_TIMESTAMP_AT, now_ms)
    _seal(batch, 0)


def set_max_timestamp(batch: bytearray | memoryview, max_timestamp: int) -> None:
    """Sets a batch's largest timestamp, and its timestamp type to CreateTime. Changes the batch in place and updates
    the CRC. `batch` must contain exactly one batch."""
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, struct.unpack_from(">h", batch, _ATTRIBUTES_AT)[0] & ~LOG_APPEND_TIME)
    struct.pack_into(">q", batch, _MAX_TIMESTAMP_AT, max_timestamp)
    _seal(batch, 0)


def _seal(batch: bytearray | memoryview, position: int) -> None:
    _CRC.pack_into(batch, position + _CRC_AT, crc32c(memoryview(batch)[position + CRC_START :]))
