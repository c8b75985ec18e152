"""Chooses the partition of a record, as Kafka's Java client does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

Partitioner: TypeAlias = Callable[[str, bytes | None, int], int]
"""A function (topic, key, number of partitions of the topic) -> index of the partition."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns the unsigned 32-bit MurmurHash2 by Austin Appleby, with the seed of Kafka's clients."""
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ k
    if length != whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Returns the partition of a key, the same as in every client that hashes like the Java client."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChoice:
    """Chooses partitions for records without a key: stays with one partition for about `batch_size` bytes, then takes
    another, so that batches become full and all partitions get the same share (KIP-794)."""

    __slots__ = ("_batch_size", "_bytes", "_partition", "_rng")

    def __init__(self, batch_size: int, rng: random.Random) -> None:
        self._batch_size = batch_size
        self._rng = rng
        self._partition = -1
        self._bytes = 0

    def partition(self, size_bytes: int, partition_count: int) -> int:
        """Returns the partition for a record of about this many bytes."""
        if self._bytes >= self._batch_size or not 0 <= self._partition < partition_count:
            self._partition = self._rng.randrange(partition_count)
            self._bytes = 0
        self._bytes += size_bytes
        return self._partition
