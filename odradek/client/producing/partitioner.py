"""Chooses the partitions of records without a key, as Kafka's Java client does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

Partitioner: TypeAlias = Callable[[str, bytes | None, int], int]
"""A function (topic, key, the topic's number of partitions) -> partition index."""


class StickyChoice:
    """Chooses partitions for records without a key. Uses one partition for about `batch_size` bytes and then switches
    to another, so that batches become full and all partitions get equal shares (KIP-794)."""

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
