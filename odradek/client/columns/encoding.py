"""Encodes columns of keys and values as record batches, without a Python object per record.

Numpy computes the few bytes of lengths and deltas around each key and value. Arrow's string join then concatenates all
the pieces.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.columns.binaries import Bytes, Int64s, content_of, from_rows, varint_columns, varint_sizes, zigzag
from odradek.client.columns.records import HEADERS_TYPE
from odradek.protocol.batch_header import (
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    seal_batch,
)
from odradek.protocol.compression import Compression, compress

_NO_HEADERS = pa.scalar(bytes(1), pa.binary())
_NOTHING = pa.scalar(b"", pa.binary())
_TOGETHER_BYTES = 4 * 1024 * 1024  # bytes of records to join in one step; more would not fit into the CPU's caches
_AROUND_BYTES = 1 + 5 + 10 + 5 + 5 + 5 + 5  # maximum size of a record's attributes, lengths and deltas


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A record batch with the base offset 0. It has no producer id or sequence until `seal` is called with them."""

    data: bytearray
    first_row: int
    record_count: int
    base_timestamp: int  # ms
    max_timestamp: int
    compression: Compression

    def seal(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
    ) -> bytearray:
        """Writes the final header, with the CRC and the given producer. Returns the complete batch."""
        seal_batch(
            self.data,
            0,
            NO_LEADER_EPOCH,
            self.compression.value | (TRANSACTIONAL if is_transactional else 0),
            self.record_count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.record_count,
        )
        return self.data


def encode(
    values: pa.Array,
    timestamps: pa.Array,
    *,
    keys: pa.Array | None = None,
    headers: pa.Array | None = None,
    batch_bytes: int = 1024 * 1024,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
) -> Iterator[EncodedBatch]:
    """Encodes the rows in order, in as many batches as necessary.

    values, keys   binary or string; nulls are allowed
    timestamps     int64, ms, without nulls
    headers        HEADERS_TYPE; a null list means no headers, and a key must not be null
    batch_bytes    size limit of a batch before compression; a larger record gets a separate batch

    Raises ValueError if the columns have different lengths, or if a timestamp or a header key is null.
    """
    count = len(values)
    for name, column in (("timestamps", timestamps), ("keys", keys), ("headers", headers)):
        if column is not None and len(column) != count:
            raise ValueError(f"there are {count} values, but {len(column)} {name}")
    if timestamps.null_count:
        raise ValueError("a record has no timestamp")
    if not count:
        return
    rows = _Rows(
        keys=pa.nulls(count, pa.binary()) if keys is None else _binary(keys),
        values=_binary(values),
        tails=None if headers is None else _encoded_headers(headers),
        times=np.asarray(timestamps.cast(pa.int64())),
    )
    first_rows = _cut(rows.largest_sizes(), batch_bytes - HEADER_BYTES)
    maxima = np.maximum.reduceat(rows.times, first_rows).tolist()
    counts = np.diff(np.append(first_rows, count))
    payloads = rows.payloads(first_rows, counts)
    for first, row_count, max_timestamp, opened in zip(
        first_rows.tolist(), counts.tolist(), maxima, payloads, strict=True
    ):
        data = bytearray(HEADER_BYTES)
        data += opened if compression is Compression.NONE else compress(compression, bytes(opened), compression_level)
        batch = EncodedBatch(data, first, row_count, int(rows.times[first]), max_timestamp, compression)
        batch.seal()
        yield batch


@dataclass(slots=True)
class _Rows:
    keys: pa.Array
    values: pa.Array
    tails: pa.Array | None  # the bytes after each value; None if no row has a header
    times: Int64s

    def largest_sizes(self) -> Int64s:
        """Returns the maximum size of each record. The actual size depends on the record's position in its batch."""
        return self._content_sizes() + _AROUND_BYTES

    def payloads(self, first_rows: Int64s, counts: Int64s) -> Iterator[memoryview]:
        """Yields the uncompressed records of each batch."""
        base_rows = np.repeat(first_rows, counts)
        before_values = _varints(_sizes(self.values))
        before_keys, sizes = _before_keys(
            timestamp_deltas=self.times - self.times[base_rows],
            offset_deltas=np.arange(len(base_rows)) - base_rows,
            key_sizes=_sizes(self.keys),
            body_sizes=self._content_sizes() + before_values.sizes(),
        )
        tails = _NO_HEADERS if self.tails is None else self.tails
        pieces = [before_keys, _filled(self.keys), before_values.array(), _filled(self.values), tails]
        ends = np.cumsum(sizes)
        joined, joined_from, joined_to = memoryview(b""), 0, 0  # records of several batches, and their byte range
        for first, after in zip(first_rows.tolist(), (first_rows + counts).tolist(), strict=True):
            start, end = int(ends[first - 1]) if first else 0, int(ends[after - 1])
            if end > joined_to:
                until = max(after, int(np.searchsorted(ends, start + _TOGETHER_BYTES)))
                joined = content_of(pc.binary_join_element_wise(*_between(pieces, first, until), _NOTHING))
                joined_from, joined_to = start, int(ends[until - 1])
            yield joined[start - joined_from : end - joined_from]

    def _content_sizes(self) -> Int64s:
        sizes = np.maximum(_sizes(self.keys), np.int64(0)) + np.maximum(_sizes(self.values), np.int64(0))
        return sizes + (np.int64(1) if self.tails is None else _sizes(self.tails))


@dataclass(slots=True)
class _Varints:
    rows: Bytes
    used: np.ndarray[tuple[int, int], np.dtype[np.bool_]]

    def array(self) -> pa.Array:
        return from_rows(self.rows, self.used)

    def sizes(self) -> Int64s:
        sizes: Int64s = self.used.sum(axis=1, dtype=np.int64)
        return sizes


def _varints(values: Int64s) -> _Varints:
    zigzagged = zigzag(values)
    return _Varints(*varint_columns(zigzagged, varint_sizes(zigzagged)))


def _before_keys(
    *, timestamp_deltas: Int64s, offset_deltas: Int64s, key_sizes: Int64s, body_sizes: Int64s
) -> tuple[pa.Array, Int64s]:
    """Builds the bytes before each key, beginning with the record's length. Returns these bytes and the size of each
    record, including its length prefix.

    body_sizes   size of everything after the length of the key
    """
    fields = [_varints(timestamp_deltas), _varints(offset_deltas), _varints(key_sizes)]
    lengths = 1 + sum(field.sizes() for field in fields) + body_sizes
    length = _varints(lengths)
    count = len(lengths)
    attributes = np.zeros((count, 1), dtype=np.uint8)
    rows = np.concatenate([length.rows, attributes, *(field.rows for field in fields)], axis=1)
    used = np.concatenate([length.used, np.ones((count, 1), dtype=np.bool_), *(field.used for field in fields)], axis=1)
    return from_rows(rows, used), lengths + length.sizes()


def _cut(sizes: Int64s, limit: int) -> Int64s:
    """Returns the first row of each batch. A batch holds all rows that fit into `limit` bytes, but at least one row."""
    ends = np.cumsum(sizes)
    first_rows, first, before = [], 0, 0
    while first < len(sizes):
        first_rows.append(first)
        first = max(first + 1, int(np.searchsorted(ends, before + limit, side="right")))
        before = int(ends[first - 1])
    return np.array(first_rows, dtype=np.int64)


def _binary(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.cast(pa.binary())


def _sizes(column: pa.Array) -> Int64s:
    sizes: Int64s = np.asarray(pc.fill_null(pc.binary_length(column), -1)).astype(np.int64)
    return sizes


def _filled(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, b"") if column.null_count else column


def _between(pieces: list[pa.Array | pa.Scalar], first: int, until: int) -> list[pa.Array | pa.Scalar]:
    """Slices each array to the same rows. Leaves scalars unchanged, because a scalar applies to all rows."""
    return [piece[first:until] if isinstance(piece, pa.Array) else piece for piece in pieces]


def _encoded_headers(headers: pa.Array) -> pa.Array:
    """Builds the bytes after each value: the number of headers, followed by each header, with the sizes of its key and
    value."""
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    headers = headers.cast(HEADERS_TYPE)
    counts = np.asarray(pc.fill_null(pc.list_value_length(headers), 0)).astype(np.int64)
    flat = headers.flatten()
    names, contents = flat.field("key").cast(pa.binary()), flat.field("value")
    if names.null_count:
        raise ValueError("a header has no key")
    each = pc.binary_join_element_wise(
        _varints(_sizes(names)).array(), names, _varints(_sizes(contents)).array(), _filled(contents), _NOTHING
    )
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    offsets[1:] = np.cumsum(counts)
    return pc.binary_join_element_wise(
        _varints(counts).array(), pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), each), b""), _NOTHING
    )
