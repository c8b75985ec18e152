"""Determines a partition's transactions from its batches. Does no I/O. Callers pass the batch headers and control
batches in the order of the log.

A transaction begins with a transactional batch of a producer that has no open transaction, and ends with that
producer's marker. A read_committed consumer sees no aborted transaction, and nothing at or above the last stable
offset, which is the first offset of the oldest open transaction. Source: docs/spec/transactions.md#s4-9.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.protocol.batch_header import CONTROL, NO_PRODUCER_ID, TRANSACTIONAL, BatchHeader
from odradek.protocol.control_records import Marker, read_marker
from odradek.protocol.struct import Buffer


class AbortedRange(NamedTuple):
    """An aborted transaction. It consists of the producer's batches from the first offset to the marker."""

    producer_id: int
    first_offset: int
    last_offset: int  # offset of the marker


@dataclass(slots=True)
class PartitionTransaction:
    """One transaction in one partition. It describes only the batches that are still in the log.

    `marker` is None while the transaction is open. `records` and `size_bytes` are sums over the batches. Timestamps are
    in ms.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    first_timestamp: int
    last_data_offset: int
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    marker: Marker | None = None

    def add(self, header: BatchHeader) -> None:
        self.producer_epoch = header.producer_epoch
        self.last_data_offset = header.last_offset
        self.batches += 1
        self.records += header.record_count
        self.size_bytes += header.size_bytes


@dataclass(slots=True)
class Transactions:
    """A partition's transactions. Every batch must be added, in the order of the log.

    open      open transactions by producer id
    aborted   aborted transactions in ascending order of their last offset
    """

    open: dict[int, PartitionTransaction] = field(default_factory=dict)
    aborted: list[AbortedRange] = field(default_factory=list)

    @classmethod
    def after_snapshot(cls, snapshot: Mapping[int, int]) -> Transactions:
        """Creates the state at a snapshot in the middle of a log. `snapshot` maps the producer id of each open
        transaction to its first offset."""
        return cls({each: PartitionTransaction(each, -1, first, -1, first) for each, first in snapshot.items()})

    def add(self, header: BatchHeader, data: Buffer | None) -> PartitionTransaction | None:
        """Adds a batch; `data` is needed for control batches. Returns the transaction that the batch has ended, or
        None."""
        attributes = header.attributes
        if not attributes & TRANSACTIONAL or header.producer_id == NO_PRODUCER_ID:
            return None
        if attributes & CONTROL:
            marker = None if data is None else read_marker(data, 0, header)
            return None if marker is None else self.end(marker)
        transaction = self.open.get(header.producer_id)
        if transaction is None:
            transaction = self.open[header.producer_id] = PartitionTransaction(
                header.producer_id, header.producer_epoch, header.base_offset, header.base_timestamp, header.last_offset
            )
        transaction.add(header)
        return None

    def end(self, marker: Marker) -> PartitionTransaction | None:
        """Ends a transaction. Returns None if no open transaction of the producer is known, for example because the
        transaction began before the start of the log."""
        transaction = self.open.pop(marker.producer_id, None)
        if transaction is not None:
            transaction.marker = marker
            if not marker.is_commit:
                self.aborted.append(AbortedRange(marker.producer_id, transaction.first_offset, marker.offset))
        return transaction

    def last_stable_offset(self, end_offset: int) -> int:
        return min((each.first_offset for each in self.open.values()), default=end_offset)


def overlapping(aborted: Sequence[AbortedRange], start_offset: int, end_offset: int) -> list[AbortedRange]:
    """Returns the transactions that overlap [start_offset, end_offset). `aborted` must be sorted by last offset."""
    first = bisect_left(aborted, start_offset, key=lambda each: each.last_offset)
    return [each for each in aborted[first:] if each.first_offset < end_offset]
