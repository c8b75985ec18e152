"""Rows of a Spark task as columns for the producer: topic and partition of each, and a digest of them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from odradek.client.columns.records import HEADERS_TYPE
from odradek.spark.options import OptionError

_M = np.uint64(0x5BD1E995)
_32_BITS = np.uint64(0xFFFF_FFFF)
_BYTE, _2_BYTES, _3_BYTES = np.uint64(8), np.uint64(16), np.uint64(24)
_SEED = 0x9747B28C
_NO_KEY = 1  # seeds of the digest
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Group:
    """Rows for one partition, in their order."""

    topic: str
    partition: int
    keys: pa.Array | None
    values: pa.Array
    headers: pa.Array | None

    def digest(self) -> int:
        """Does not depend on the order of the rows, nor on how they lie in batches."""
        digest = xxhash.xxh3_64_intdigest
        topic = digest(self.topic.encode())
        keys = [None] * len(self.values) if self.keys is None else self.keys.to_pylist()
        total = 0
        for key, value in zip(keys, self.values.to_pylist(), strict=True):
            seed = topic ^ (_NO_KEY if key is None else digest(key))
            total += seed if value is None else digest(value, seed)
        return total & _MASK


def groups(
    batch: pa.RecordBatch, topic: str | None, partition_count: Callable[[str], int], rng: random.Random
) -> Iterator[Group]:
    """The columns are those of Spark's Kafka sink: value, and key, headers, topic, partition if there are any; the
    option `topic` goes before the column. Raises OptionError for columns that cannot be written."""
    names = set(batch.schema.names)
    if "value" not in names:
        raise OptionError("a column 'value' (string or binary) has to be written")
    if topic is None and "topic" not in names:
        raise OptionError("there is neither an option nor a column 'topic'")
    values = _bytes(batch, "value")
    keys = _bytes(batch, "key") if "key" in names else None
    headers = batch.column("headers").cast(HEADERS_TYPE) if "headers" in names else None
    for name, rows in _by_topic(batch, topic):
        count = partition_count(name)
        own_keys = None if keys is None else keys.take(rows)
        chosen = _partitions(own_keys, len(rows), count, rng)
        if "partition" in names:
            column = batch.column("partition").take(rows)
            given = np.asarray(pc.fill_null(column, -1)).astype(np.int64)
            chosen = np.where(given >= 0, given, chosen)
        for partition in np.unique(chosen).tolist():
            own = rows.take(pa.array(np.flatnonzero(chosen == partition)))
            yield Group(
                name,
                partition,
                None if keys is None else keys.take(own),
                values.take(own),
                None if headers is None else headers.take(own),
            )


def partitions_for_keys(keys: pa.Array, partition_count: int) -> NDArray[np.int64]:
    """As `partition_for_key`, for a binary array without nulls."""
    offsets = np.frombuffer(keys.buffers()[1], dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(int)
    content = np.frombuffer(keys.buffers()[2] or b"", dtype=np.uint8)
    lengths = np.diff(offsets)
    hashes = np.zeros(len(keys), dtype=np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _murmur2(content[offsets[rows][:, None] + np.arange(length)])
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partition_count


def _murmur2(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Of keys that have one length, a row each. In 64 bits, so that a product is whole before it is cut."""
    count, length = rows.shape
    wide = rows.astype(np.uint64)
    hashed = np.full(count, _SEED ^ length, dtype=np.uint64)
    for at in range(0, length - length % 4, 4):
        word = wide[:, at] | wide[:, at + 1] << _BYTE | wide[:, at + 2] << _2_BYTES | wide[:, at + 3] << _3_BYTES
        word = word * _M & _32_BITS
        word = (word ^ word >> _3_BYTES) * _M & _32_BITS
        hashed = hashed * _M & _32_BITS ^ word
    rest = length % 4
    if rest:
        for index in range(rest):
            hashed ^= wide[:, length - rest + index] << np.uint64(8 * index)
        hashed = hashed * _M & _32_BITS
    hashed = (hashed ^ hashed >> np.uint64(13)) * _M & _32_BITS
    return (hashed ^ hashed >> np.uint64(15)).astype(np.uint32)


def _partitions(keys: pa.Array | None, count: int, partition_count: int, rng: random.Random) -> NDArray[np.int64]:
    """By the hash of the key; rows without one go to one partition together, another one each time."""
    chosen = np.full(count, rng.randrange(partition_count), dtype=np.int64)
    if keys is not None:
        rows = np.flatnonzero(np.asarray(keys.is_valid()))
        if rows.size:
            chosen[rows] = partitions_for_keys(keys.take(pa.array(rows)), partition_count)
    return chosen


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Any]]:
    if topic is not None:
        yield topic, pa.array(np.arange(len(batch)))
        return
    column = batch.column("topic")
    if column.null_count:
        raise OptionError("a row without a topic: set the option topic, or the column in every row")
    for name in pc.unique(column).to_pylist():
        yield name, pa.array(np.flatnonzero(np.asarray(pc.equal(column, name))))


def _bytes(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if not (
        pa.types.is_string(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_string(column.type)
    ):
        raise OptionError(f"the column {name!r} is {column.type}, but has to be string or binary")
    return column.cast(pa.binary())
