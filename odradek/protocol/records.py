"""Reads records and record batches and builds new ones.

Related modules: odradek/protocol/batch_header.py (the fixed header and in-place changes),
odradek/protocol/compression.py (the codecs) and odradek/protocol/control_records.py (markers and other control
records). The names that most callers need are re-exported here.

The end of this module contains the functions for records' varints, which are zigzag-encoded with seven bits per byte,
least significant first. The functions that read a varint return the value and the next position. Callers need not check
for the end of the data at each step: an index beyond the buffer raises IndexError, which callers in this package turn
into MalformedMessage.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from odradek.protocol.batch_header import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    assign,
    batches,
    computed_crc,
    crc_ok,
    pack_batch,
    read_batch_header,
    seal_batch,
    set_log_append_time,
    set_max_timestamp,
    small_batch,
)
from odradek.protocol.compression import (
    DECOMPRESSED_LIMIT_BYTES,
    NO_RECORD_LIMIT_BYTES,
    Bytes,
    Compression,
    DecompressedTooLarge,
    compress,
    decompress,
)
from odradek.protocol.errors import MalformedMessage

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Compression",
    "NewRecord",
    "Record",
    "append_record",
    "append_varint",
    "assign",
    "batch_of_one",
    "batches",
    "build_batch",
    "computed_crc",
    "crc_ok",
    "pack_batch",
    "plain_batch",
    "read_batch_header",
    "read_varint",
    "read_varlong",
    "records_of",
    "set_log_append_time",
    "set_max_timestamp",
]

# Header keys are text. With this error handler, bytes that are not valid UTF-8 survive a round trip.
_NOT_UTF8: Final = "surrogateescape"
NO_HEADERS: Final = bytes(1)
NULL: Final = b"\x01"  # encoding of the size -1
_BEFORE_THE_KEY_OF_ONE: Final = bytes(3)  # attributes, timestamp delta and offset delta, all 0
_NO_DISTANCE_IN_TIME: Final = bytes(2)  # attributes and timestamp delta, both 0


Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record in the log. It is a named tuple, because loading a log can create millions of records and named tuples
    are cheap to create."""

    offset: int
    timestamp: int  # in ms; the append time if the batch has LogAppendTime
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record to be written. Its offset is determined by its position in the batch."""

    key: bytes | None
    value: bytes | None
    timestamp: int  # in ms
    headers: Headers = ()


def record_too_large(size_bytes: int, limit_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"a record has {size_bytes} bytes after decompression; the limit is {limit_bytes}")


def records_of(
    batch: Bytes,
    position: int = 0,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    record_limit_bytes: int = NO_RECORD_LIMIT_BYTES,
) -> Iterator[Record]:
    """Yields the records of the batch at `position`, after decompressing them if necessary.

    limit_bytes         maximum total size of the records when decompressed
    record_limit_bytes  maximum size of one record in a compressed batch, without its length field

    Raises MalformedMessage, possibly after yielding some records, and DecompressedTooLarge above a limit. The CRC is
    not checked.
    """
    header = read_batch_header(batch, position)
    end = position + header.size_bytes
    if end > len(batch):
        raise MalformedMessage("a record batch is cut short")
    payload = memoryview(batch)[position + HEADER_BYTES : end]
    # The records are copied once, so that keys and values are plain slices of bytes.
    data = bytes(decompress(header.compression, payload, limit_bytes) if header.is_compressed else payload)
    if header.record_count < 0 or header.record_count * 7 > len(data):  # the smallest record has 7 bytes
        raise MalformedMessage(f"{header.record_count} records cannot fit into {len(data)} bytes")
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    is_limited = header.is_compressed and len(data) > record_limit_bytes
    at = 0
    for _ in range(header.record_count):
        try:
            if is_limited and (size := read_varint(data, at)[0]) > record_limit_bytes:
                raise record_too_large(size, record_limit_bytes)
            record, at = _read_record(data, at, base_offset, base_timestamp, append_time)
        except IndexError:
            raise MalformedMessage("a record is cut short") from None
        yield record
    if at != len(data):
        raise MalformedMessage(f"{len(data) - at} bytes follow the last record")


def _read_record(
    data: bytes, at: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[Record, int]:
    """Returns one record and the position after it. Raises IndexError if `data` ends within the record."""
    length, at = read_varint(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise MalformedMessage(f"a record has the invalid length {length}")
    at += 1  # skip the record's attributes, which are currently unused
    timestamp_delta, at = read_varlong(data, at)
    offset_delta, at = read_varint(data, at)
    key, at = _read_bytes(data, at, end)
    value, at = _read_bytes(data, at, end)
    count, at = read_varint(data, at)
    headers: Headers = ()
    if count:
        if count < 0 or count > end - at:
            raise MalformedMessage(f"{count} headers")
        headers_read = []
        for _ in range(count):
            name, at = _read_bytes(data, at, end)
            if name is None:
                raise MalformedMessage("a header has no key")
            content, at = _read_bytes(data, at, end)
            headers_read.append((name.decode("utf-8", _NOT_UTF8), content))
        headers = tuple(headers_read)
    if at != end:
        raise MalformedMessage("the parts of a record do not fill its length")
    timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
    return Record(base_offset + offset_delta, timestamp, key, value, headers), end


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        return None, at  # Kafka treats any negative size as null
    stop = at + length
    if stop > end:
        raise MalformedMessage("a key, value or header reaches beyond its record")
    return data[at:stop], stop


def build_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Builds a batch of one or more records, with consecutive offsets from `base_offset`.

    log_append_time_ms  the time for a batch with LogAppendTime; None if each record keeps its own timestamp
                        (CreateTime)
    delete_horizon_ms   the horizon set by compaction, to which the timestamp deltas are then relative
    """
    batch = bytearray(HEADER_BYTES)
    base_timestamp = delete_horizon_ms
    max_timestamp = NO_TIMESTAMP
    count = 0
    for key, value, timestamp, headers in records:
        if base_timestamp is None:
            base_timestamp = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        append_record(batch, count, timestamp - base_timestamp, key, value, headers)
        count += 1
    if base_timestamp is None or count == 0:
        raise ValueError("a batch must have at least one record")
    if compression is not Compression.NONE:
        batch[HEADER_BYTES:] = compress(compression, memoryview(batch)[HEADER_BYTES:].tobytes(), compression_level)
    attributes = (
        compression.value
        | (LOG_APPEND_TIME if log_append_time_ms is not None else 0)
        | (TRANSACTIONAL if is_transactional else 0)
        | (CONTROL if is_control else 0)
        | (DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    seal_batch(
        batch,
        base_offset,
        leader_epoch,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp if log_append_time_ms is None else log_append_time_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return batch


def batch_of_one(
    key: bytes, value: bytes | None, timestamp: int, base_sequence: int = NO_SEQUENCE, headers: Headers = ()
) -> tuple[bytearray, BatchHeader]:
    """Like `build_batch` for one record without a producer, but takes half the time and also returns the header. Most
    batches written by coordinators have this form."""
    stored_value = NULL if value is None else size_varint(len(value)) + value
    own_headers = stored_headers(headers) if headers else NO_HEADERS
    record = _BEFORE_THE_KEY_OF_ONE + size_varint(len(key)) + key + stored_value + own_headers
    records = size_varint(len(record)) + record
    nobody, no_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    return small_batch(records, 0, NO_LEADER_EPOCH, 0, 0, timestamp, timestamp, nobody, no_epoch, base_sequence, 1)


def plain_batch(
    records: Iterable[tuple[bytes, bytes | None, Headers]], timestamp: int, base_sequence: int = NO_SEQUENCE
) -> tuple[bytearray, BatchHeader]:
    """Like `batch_of_one`, but for one or more records with the same timestamp."""
    stored = bytearray()
    count = 0
    for key, value, headers in records:
        stored_value = NULL if value is None else size_varint(len(value)) + value
        own_headers = stored_headers(headers) if headers else NO_HEADERS
        record = _NO_DISTANCE_IN_TIME + size_varint(count) + size_varint(len(key)) + key + stored_value + own_headers
        stored += size_varint(len(record)) + record
        count += 1
    last, nobody, no_epoch = count - 1, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    return small_batch(
        stored, 0, NO_LEADER_EPOCH, 0, last, timestamp, timestamp, nobody, no_epoch, base_sequence, count
    )


@lru_cache(1024)
def size_varint(size: int) -> bytes:
    """Encodes a size. The result is cached, because a few sizes occur very often."""
    out = bytearray()
    append_varint(out, size)
    return bytes(out)


def append_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> None:
    """Appends one record, beginning with its length, to the uncompressed records of a batch."""
    record = bytearray(1)  # attributes, which are always 0
    append_varint(record, timestamp_delta)
    append_varint(record, offset_delta)
    _append_bytes(record, key)
    _append_bytes(record, value)
    headers = headers if isinstance(headers, tuple) else tuple(headers)
    record += stored_headers(headers) if headers else NO_HEADERS
    append_varint(out, len(record))
    out += record


def stored_headers(headers: Headers) -> bytes:
    out = size_varint(len(headers))
    for name, content in headers:
        key = name.encode("utf-8", _NOT_UTF8)
        out += size_varint(len(key)) + key
        out += NULL if content is None else size_varint(len(content)) + content
    return out


def _append_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)  # the size -1
        return
    append_varint(out, len(content))
    out += content


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    """Decodes a 32-bit varint. Raises IndexError if the data ends within the varint, and MalformedMessage if it has
    more than 5 bytes."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift, position = byte & 0x7F, 7, position + 1
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Like Kafka, drop the bits of the fifth byte that do not fit into 32 bits.
            value &= 0xFFFF_FFFF
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 28:
            raise MalformedMessage("a varint has more than 5 bytes")


def read_varlong(data: Bytes, position: int) -> tuple[int, int]:
    """Decodes a 64-bit varint. Raises IndexError if the data ends within the varint, and MalformedMessage if it has
    more than 10 bytes."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift, position = byte & 0x7F, 7, position + 1
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFF_FFFF_FFFF_FFFF
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise MalformedMessage("a varlong has more than 10 bytes")


def append_varint(out: bytearray, value: int) -> None:
    """Appends a value that fits into a signed 64-bit integer as a varint. 32-bit and 64-bit varints have the same
    encoding."""
    value = value << 1 if value >= 0 else ~(value << 1)
    if value < 0x80:
        out.append(value)
        return
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
