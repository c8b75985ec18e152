"""The records of a fetched batch, as the application gets them.

Everything that a consumer returns passes through here, so this is written for speed. Records of one topic tend to look
alike, and such records are taken out of the batch by columns: all values at once, all keys at once (0.2 µs for a record
of 100 bytes). Other records are read one by one (1 µs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from itertools import repeat

from odradek.client.common.values import ConsumerRecord
from odradek.protocol.batch_header import HEADER_BYTES, BatchHeader
from odradek.protocol.compression import DECOMPRESSED_LIMIT_BYTES, decompress
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.record_walk import Run, find_run, timestamp_delta
from odradek.protocol.varint import read_varint, read_varlong

_SMALLEST_RECORD_BYTES = 7
_PAUSE = 64  # records that are read one by one before a run of alike ones is looked for again
_NOT_UTF8 = "surrogateescape"  # header keys are text; bytes that are not UTF-8 survive a round trip

_record_of = partial(tuple.__new__, ConsumerRecord)  # what ConsumerRecord(...) ends in, without its arguments' names


def records_in(batch: memoryview, header: BatchHeader, topic: str, partition: int) -> list[ConsumerRecord]:
    """All records of one batch (exactly), opened when they are compressed.

    Raises MalformedMessage. The CRC is the caller's to check. Keys and values are copies: nothing keeps `batch`.
    """
    payload = batch[HEADER_BYTES:]
    data = bytes(decompress(header.compression, payload, DECOMPRESSED_LIMIT_BYTES) if header.is_compressed else payload)
    count = header.record_count
    if count < 0 or count * _SMALLEST_RECORD_BYTES > len(data):
        raise MalformedMessage(f"{count} records cannot stand in {len(data)} bytes")
    try:
        return _read(data, count, header, topic, partition)
    except IndexError:
        raise MalformedMessage("a record is cut short") from None


def _read(data: bytes, count: int, header: BatchHeader, topic: str, partition: int) -> list[ConsumerRecord]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    end = len(data)
    found: list[ConsumerRecord] = []
    at = last_size = next_try = 0
    while len(found) < count:
        start = at
        size = data[at]  # in zigzag
        if size < 0x80:
            at += 1
        elif data[at + 1] < 0x80:
            size = size & 0x7F | data[at + 1] << 7
            at += 2
        else:
            size, at = _read_zigzag(data, at)
        stop = at + (size >> 1)
        if size & 1 or stop > end:
            raise MalformedMessage("a record that has less than no bytes, or reaches beyond its batch")
        delta = data[at + 1]  # of the timestamp; the byte before it, the attributes, means nothing
        if delta < 0x80:
            delta = delta >> 1 ^ -(delta & 1)
            at += 2
        else:
            delta, at = read_varlong(data, at + 1)
        timestamp = base_timestamp + delta if append_time is None else append_time
        delta = data[at]
        if delta < 0x80:
            offset = base_offset + (delta >> 1 ^ -(delta & 1))
            at += 1
        elif data[at + 1] < 0x80:
            delta = delta & 0x7F | data[at + 1] << 7
            offset = base_offset + (delta >> 1 ^ -(delta & 1))
            at += 2
        else:
            delta, at = read_varint(data, at)
            offset = base_offset + delta
        size = data[at]
        if size < 0x80:
            size = size >> 1 ^ -(size & 1)
            at += 1
        else:
            size, at = read_varint(data, at)
        key_at, key_size = at, size
        key = None
        if size >= 0:  # any negative size means null
            at += size
            key = data[key_at:at]
        size = data[at]
        if size < 0x80:
            size = size >> 1 ^ -(size & 1)
            at += 1
        elif data[at + 1] < 0x80:
            size = size & 0x7F | data[at + 1] << 7
            size = size >> 1 ^ -(size & 1)
            at += 2
        else:
            size, at = read_varint(data, at)
        value_at, value_size = at, size
        value = None
        if size >= 0:
            at += size
            value = data[value_at:at]
        headers: tuple[tuple[str, bytes | None], ...] = ()
        has_headers = data[at] != 0
        if has_headers:
            headers, at = _headers(data, at, stop)
        else:
            at += 1
        if at != stop:
            raise MalformedMessage("a record whose parts do not fill its length")
        found.append(_record_of((topic, partition, offset, timestamp, key, value, headers)))
        size, index = stop - start, len(found)
        if size == last_size and index >= next_try and not has_headers:
            run = find_run(data, start, size, index, count)
            if run.length:
                alike = memoryview(data)[at : at + run.length * size]
                at += len(alike)
                found += map(
                    _record_of,
                    zip(
                        repeat(topic),
                        repeat(partition),
                        range(base_offset + index, base_offset + index + run.length),
                        repeat(append_time) if append_time is not None else _timestamps(run, base_timestamp),
                        _column(alike, size, key_at - start, key_size),
                        _column(alike, size, value_at - start, value_size),
                        repeat(()),
                        strict=False,  # some are infinite
                    ),
                )
            else:
                next_try = index + _PAUSE
        last_size = size
    if at != end:
        raise MalformedMessage(f"{end - at} bytes behind the last record")
    return found


def _timestamps(run: Run, base_timestamp: int) -> Iterable[int]:
    deltas = list(run.timestamp_deltas())
    timestamps = {parts: base_timestamp + timestamp_delta(parts) for parts in set(deltas)}
    return map(timestamps.__getitem__, deltas)


def _column(records: memoryview, size: int, at: int, width: int) -> Iterable[bytes | None]:
    """What stands at `at` of each of the records, which have `size` bytes; a negative width means null."""
    if width < 0:
        return repeat(None)
    return [cell for (cell,) in struct.iter_unpack(f"{at}x{width}s{size - at - width}x", records)]


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(data, at)
    return (value << 1 if value >= 0 else ~(value << 1)), at


def _headers(data: bytes, at: int, stop: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """The headers whose count stands at `at`, and the position behind them."""
    count, at = read_varint(data, at)
    if count < 0 or count > stop - at:
        raise MalformedMessage(f"{count} headers")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0:
            raise MalformedMessage("a header without a key")
        key = data[at : at + size].decode("utf-8", _NOT_UTF8)
        at += size
        size, at = read_varint(data, at)
        value = None
        if size >= 0:
            value = data[at : at + size]
            at += size
        found.append((key, value))
    return tuple(found), at
