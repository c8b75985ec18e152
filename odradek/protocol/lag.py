"""Computes a consumer group's lag, which is the number of records that the group has yet to read. The page and the
commands use this module.

As in `kafka-consumer-groups`, the lag of a partition is the distance from the committed offset to the high watermark. A
partition without a committed offset has no lag, because only the members' configuration determines where they would
start (auto.offset.reset). These partitions are counted separately. If they were left out, the group would appear to
have read more than it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class GroupLag(NamedTuple):
    """The total lag. `records` is None if no partition's lag is known. `uncommitted` is the number of partitions
    without a committed offset."""

    records: int | None
    uncommitted: int


def partition_lag(committed_offset: int | None, high_watermark: int | None) -> int | None:
    """Returns the lag of one partition, or None if it has no committed offset or its high watermark is unknown."""
    if committed_offset is None or high_watermark is None:
        return None
    return max(0, high_watermark - committed_offset)


def group_lag(partitions: Iterable[tuple[int | None, int | None]]) -> GroupLag:
    """Adds up the lags of a group's partitions. Each partition is given as its committed offset and its high
    watermark."""
    records, uncommitted = None, 0
    for committed_offset, high_watermark in partitions:
        lag = partition_lag(committed_offset, high_watermark)
        if lag is not None:
            records = (records or 0) + lag
        elif committed_offset is None:
            uncommitted += 1
    return GroupLag(records, uncommitted)
