"""Reads record batches into a table with one row per record.

Only the search for the start of each record loops over records, and it finds the starts of many records of equal size
in one step. All fields are read column by column, about a megabyte of records at a time.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from odradek.client.columns.binaries import (
    PADDING_BYTES,
    VARINT_BYTES,
    VARLONG_BYTES,
    Bytes,
    Int64s,
    gather,
    read_varints,
)
from odradek.client.columns.headers import Buffer, visible_batches
from odradek.protocol.batch_header import HEADER_BYTES, BatchHeader
from odradek.protocol.compression import DECOMPRESSED_LIMIT_BYTES, decompress
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.fetch_response import AbortedTransaction
from odradek.protocol.records import read_varint

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RECORD_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),  # ms
        ("timestamp_type", pa.int8()),  # 0 CreateTime, 1 LogAppendTime
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)
# Bytes of decompressed records to process in one step. With four times as many bytes, columns of numbers would no
# longer fit into the CPU's caches.
_TOGETHER_BYTES = 1024 * 1024
_SMALLEST_RECORD_BYTES = 7
# Minimum number of batches that are worth processing in parallel: one numpy step costs about as much as this many steps
# for single batches.
_SIDE_BY_SIDE = 48
_SINGLY = 32  # number of records to read one by one before checking for a run of records of equal size


def read_records(
    data: Buffer,
    *,
    aborted: Iterable[AbortedTransaction] = (),
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Collection[str] = tuple(RECORD_SCHEMA.names),
    check_crcs: bool = True,
) -> pa.Table:
    """Returns the visible records of complete batches with start_offset <= offset < end_offset, in the order of the
    log.

    aborted   transactions to leave out, as in a Fetch response; if empty, none is left out (read_uncommitted)
    columns   columns of RECORD_SCHEMA to build, in its order

    Raises CorruptBatch for a wrong CRC, MalformedMessage for other bytes that are not record batches, and ValueError
    for an unknown column. The table does not refer to `data`.
    """
    unknown = set(columns) - set(RECORD_SCHEMA.names)
    if unknown:
        raise ValueError(f"no such column: {', '.join(sorted(unknown))}")
    schema = pa.schema([column for column in RECORD_SCHEMA if column.name in columns])
    tables = [
        _Stretch(opened).read(schema, start_offset, end_offset)
        for opened in _opened(data, visible_batches(data, aborted, start_offset, end_offset, check_crcs=check_crcs))
    ]
    return pa.Table.from_batches(tables, schema)


@dataclass(slots=True)
class _Opened:
    """The decompressed and concatenated records of several batches."""

    headers: list[BatchHeader] = field(default_factory=list)
    payloads: list[Buffer] = field(default_factory=list)
    size_bytes: int = 0


def _opened(data: Buffer, visible: Iterable[tuple[int, BatchHeader]]) -> Iterator[_Opened]:
    view = memoryview(data)
    opened = _Opened()
    for position, header in visible:
        payload: Buffer = view[position + HEADER_BYTES : position + header.size_bytes]
        if header.is_compressed:
            payload = decompress(header.compression, payload, DECOMPRESSED_LIMIT_BYTES)
        if header.record_count < 0 or header.record_count * _SMALLEST_RECORD_BYTES > len(payload):
            raise MalformedMessage(f"{header.record_count} records cannot fit into {len(payload)} bytes")
        opened.headers.append(header)
        opened.payloads.append(payload)
        opened.size_bytes += len(payload)
        if opened.size_bytes >= _TOGETHER_BYTES:
            yield opened
            opened = _Opened()
    if opened.headers:
        yield opened


class _Stretch:
    """The records of several batches, read column by column. Each column begins where the previous one ended."""

    def __init__(self, opened: _Opened) -> None:
        self._headers = opened.headers
        self._data = b"".join((*opened.payloads, bytes(PADDING_BYTES)))
        self._bytes: Bytes = np.frombuffer(self._data, dtype=np.uint8)
        try:
            self._starts, self._ends = self._boundaries([len(payload) for payload in opened.payloads])
        except IndexError:
            raise MalformedMessage("a record is cut short") from None

    def read(self, schema: pa.Schema, start_offset: int | None, end_offset: int | None) -> pa.RecordBatch:
        try:
            offsets, batch = self._read(schema)
        except IndexError:
            raise MalformedMessage("a record is cut short") from None
        inside = np.ones(len(offsets), dtype=np.bool_)
        if start_offset is not None:
            inside &= offsets >= start_offset
        if end_offset is not None:
            inside &= offsets < end_offset
        return batch if inside.all() else batch.filter(pa.array(inside))

    def _read(self, schema: pa.Schema) -> tuple[Int64s, pa.RecordBatch]:
        _, at = read_varints(self._bytes, self._starts)
        # the timestamp delta follows the record's attributes
        timestamp_deltas, at = read_varints(self._bytes, at + 1, VARLONG_BYTES)
        offset_deltas, at = read_varints(self._bytes, at)
        key_sizes, key_starts = read_varints(self._bytes, at)
        value_sizes, value_starts = read_varints(self._bytes, key_starts + np.maximum(key_sizes, 0))
        header_counts, at = read_varints(self._bytes, value_starts + np.maximum(value_sizes, 0))
        if (at > self._ends).any() or ((at != self._ends) & (header_counts == 0)).any():
            raise MalformedMessage("the parts of a record do not fill its length")
        # checked before memory for the headers is allocated
        if ((header_counts < 0) | (header_counts > self._ends - at)).any():
            raise MalformedMessage("a record has too few bytes for its number of headers")
        offsets = self._of_batch([h.base_offset for h in self._headers]) + offset_deltas
        columns = {}
        for name in schema.names:
            match name:
                case "offset":
                    columns[name] = pa.array(offsets)
                case "timestamp":
                    columns[name] = pa.array(self._timestamps(timestamp_deltas))
                case "timestamp_type":
                    columns[name] = pa.array(
                        self._of_batch([h.is_log_append_time for h in self._headers]).astype(np.int8)
                    )
                case "key":
                    columns[name] = self._gather(key_starts, key_sizes)
                case "value":
                    columns[name] = self._gather(value_starts, value_sizes)
                case "headers":
                    columns[name] = self._record_headers(header_counts, at)
        return offsets, pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _boundaries(self, payload_sizes: list[int]) -> tuple[Int64s, Int64s]:
        """Returns the start and end of each record."""
        if len(payload_sizes) >= _SIDE_BY_SIDE:
            counts = np.array([header.record_count for header in self._headers], dtype=np.int64)
            ends = np.cumsum(np.array(payload_sizes, dtype=np.int64))
            begins = ends - np.array(payload_sizes, dtype=np.int64)
            joined = _starts_side_by_side(self._data, self._bytes, begins, ends, counts)
            return joined, np.append(joined[1:], ends[-1])
        starts: list[Int64s] = []
        base = 0
        for header, size in zip(self._headers, payload_sizes, strict=True):
            starts += _record_starts(self._data, self._bytes, base, base + size, header.record_count)
            base += size
        joined = np.concatenate(starts)
        return joined, np.append(joined[1:], base)  # a batch begins where the previous one ends

    def _of_batch(self, values: list[int]) -> Int64s:
        return np.repeat(np.array(values, dtype=np.int64), [header.record_count for header in self._headers])

    def _timestamps(self, deltas: Int64s) -> Int64s:
        base = self._of_batch([h.max_timestamp if h.is_log_append_time else h.base_timestamp for h in self._headers])
        if any(header.is_log_append_time for header in self._headers):
            deltas = np.where(self._of_batch([h.is_log_append_time for h in self._headers]), 0, deltas)
        return base + deltas

    def _gather(self, starts: Int64s, sizes: Int64s) -> pa.Array:
        return gather(pa.py_buffer(self._data), self._bytes, starts, sizes)

    def _record_headers(self, counts: Int64s, at: Int64s) -> pa.Array:
        """Returns a list of headers for each record. Reads in rounds: the first header of every record, then the second
        header of every record, and so on."""
        offsets = np.zeros(len(counts) + 1, dtype=np.int32)
        offsets[1:] = np.cumsum(counts)
        total = int(offsets[-1])
        keys, values = np.zeros((2, total), dtype=np.int64), np.zeros((2, total), dtype=np.int64)
        at = at.copy()
        for index in range(int(counts.max(initial=0))):
            rows = np.flatnonzero(counts > index)
            places = offsets[rows] + index
            key_sizes, key_starts = read_varints(self._bytes, at[rows])
            value_sizes, value_starts = read_varints(self._bytes, key_starts + np.maximum(key_sizes, 0))
            if (key_sizes < 0).any():
                raise MalformedMessage("a header has no key")
            keys[:, places] = key_starts, key_sizes
            values[:, places] = value_starts, value_sizes
            at[rows] = value_starts + np.maximum(value_sizes, 0)
            if (at[rows] > self._ends[rows]).any():
                raise MalformedMessage("a header reaches beyond its record")
        if (at != self._ends).any():
            raise MalformedMessage("the parts of a record do not fill its length")
        content = pa.StructArray.from_arrays(
            [_as_text(self._gather(*keys)), self._gather(*values)], fields=list(HEADERS_TYPE.value_type)
        )
        return pa.ListArray.from_arrays(pa.array(offsets), content).cast(HEADERS_TYPE)


def _as_text(array: pa.Array) -> pa.Array:
    """Decodes the values. Bytes that are not UTF-8 become U+FFFD, as in the Java client."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in array.to_pylist()], pa.string())


def _starts_side_by_side(data: bytes, source: Bytes, begins: Int64s, ends: Int64s, counts: Int64s) -> Int64s:
    """Like `_record_starts`, but for many batches side by side. In each step, every batch advances by one record."""
    found = np.empty(int(counts.sum()), dtype=np.int64)
    # Sort by the number of records, descending, so that the batches that still have records are always a prefix.
    order = np.argsort(-counts, kind="stable")
    places, at, counts = (np.cumsum(counts) - counts)[order], begins[order], counts[order]
    ends = ends[order]
    step, smallest, most, tries_at = 0, np.int64(0), int(counts[0]), 1
    # for each `step`, the number of batches that have more than `step` records
    more_than = np.searchsorted(-counts, -np.arange(most + 1), side="left").tolist()
    while (remaining := more_than[step]) >= _SIDE_BY_SIDE:
        here = at[:remaining].copy()
        found[places[:remaining] + step] = here
        at[:remaining], sizes_min = _next_records(source, here)
        smallest = min(smallest, sizes_min)
        step += 1
        if step >= tries_at and (remaining := more_than[step]) >= _SIDE_BY_SIDE:
            left = int(counts[remaining - 1]) - step
            alike = _alike_side_by_side(source, here[:remaining], at[:remaining], left)
            found[(places[:remaining] + step)[:, None] + np.arange(alike.shape[1])] = alike
            at[:remaining] += (at[:remaining] - here[:remaining]) * alike.shape[1]
            step += alike.shape[1]
            tries_at = step + (1 if alike.shape[1] > _SINGLY else _SINGLY)
    if smallest < 0 or (at[remaining:] != ends[remaining:]).any():
        raise MalformedMessage("the records do not fill their batch")
    for row in range(remaining):
        rest = _record_starts(data, source, int(at[row]), int(ends[row]), int(counts[row]) - step)
        place = int(places[row]) + step
        found[place : place + int(counts[row]) - step] = np.concatenate(rest)
    return found


def _next_records(source: Bytes, here: Int64s) -> tuple[Int64s, np.int64]:
    """For each record that starts at a position in `here`, returns the position of the next record. Also returns a
    number that is negative if any of the records has a negative length."""
    first = source[here]
    size = first.astype(np.int64)
    longer = first >= 0x80
    if longer.any():
        second = source[here + 1].astype(np.int64)
        if (second[longer] >= 0x80).any():
            sizes, behind = read_varints(source, here)
            return behind + sizes, sizes.min()
        size = np.where(longer, (size & 0x7F) | second << 7, size)
    if (size & 1).any():
        raise MalformedMessage("a record has a negative length")
    return here + 1 + longer + (size >> 1), np.int64(0)


def _alike_side_by_side(source: Bytes, before: Int64s, at: Int64s, most: int) -> Int64s:
    """Finds runs of records of equal size in several batches side by side. Returns the starts of the next records of
    each batch, as long as every batch continues with a record of the same length as its record at `before`.

    The result has one row per batch and at most `most` columns. The first column is `at`, where the next record of each
    batch begins.
    """
    first, second = source[before], source[before + 1]
    is_alike = (source.take(at, mode="clip") == first).all() and not (second[first >= 0x80] >= 0x80).any()
    if not is_alike:
        return np.empty((len(at), 0), dtype=np.int64)
    rows = at[:, None] + (at - before)[:, None] * np.arange(most)
    same = source.take(rows, mode="clip") == first[:, None]
    if (first >= 0x80).any():
        same &= (source.take(rows + 1, mode="clip") == second[:, None]) | (first < 0x80)[:, None]
    different = np.flatnonzero(~same.all(axis=0))
    return rows[:, : int(different[0])] if different.size else rows


def _record_starts(data: bytes, source: Bytes, start: int, end: int, count: int) -> list[Int64s]:
    """Returns the starts of the `count` records in data[start:end]. Raises MalformedMessage if the records do not fill
    this range exactly.

    A producer's records tend to have the same size. After some records have been read one by one, all following records
    with the same length are found in one step.
    """
    found: list[Int64s] = []
    at, left = start, count
    while left:
        singly: list[int] = []
        for _ in range(min(left, _SINGLY)):
            singly.append(at)
            byte = data[at]
            if byte < 0x80:
                at += 1
            elif data[at + 1] < 0x80:
                byte = byte & 0x7F | data[at + 1] << 7
                at += 2
            else:
                size, at = read_varint(data, at)
                byte = size << 1 if size >= 0 else 1
            if byte & 1 or at > end:
                raise MalformedMessage("a record has a negative length, or extends beyond its batch")
            at += byte >> 1
        found.append(np.array(singly, dtype=np.int64))
        left -= len(singly)
        if left and len(singly) > 1 and (size := at - singly[-1]) == singly[-1] - singly[-2]:
            alike = _alike(source, singly[-1], size, min(left, (end - at) // size))
            found.append(np.arange(at, at + alike * size, size, dtype=np.int64))
            at += alike * size
            left -= alike
    if at != end:
        raise MalformedMessage("the records do not fill their batch")
    return found


def _alike(source: Bytes, start: int, size: int, most: int) -> int:
    """Counts the records after the record at `start` that have the same length prefix. Each of these records begins
    `size` bytes after the previous record. Returns at most `most`."""
    alike = most
    for index in range(VARINT_BYTES):
        column = source[start + index : start + index + most * size + 1 : size]
        other = np.flatnonzero(column[1 : alike + 1] != column[0])
        if other.size:
            alike = int(other[0])
        if column[0] < 0x80 or not alike:
            break
    return alike
