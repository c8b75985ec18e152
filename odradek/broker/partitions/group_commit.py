"""Implements group commit: clients' appends in the same turn of the loop share one write per partition, and all replies
waiting for the disk share one fdatasync.

    append, append, … → (end of the turn) write each dirty partition → replies → parked fetches
                                           └ if configured: fdatasync in a thread → replies → parked fetches

A write to the page cache costs less than switching to a thread, so writes run on the loop. Each fdatasync runs in a
thread. While an fdatasync is running, the next group of appends accumulates. Syncs of different logs run in parallel.

Markers and coordinators' records do not join a group. `Partition.append_now` writes them immediately, after the batches
that are already staged. They share only the fdatasync.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.runtime.workers import JobResult, Workers

if TYPE_CHECKING:
    from odradek.storage.log import Log, SyncTicket

PARALLEL_SYNCS: Final = 4
MAX_BITS: Final = 64  # maximum bit length of a duration in µs


class ParkedFetch(Protocol):
    """A fetch that has found too few bytes and is waiting for appends to its partitions."""

    def count_appended(self, size_bytes: int) -> bool:
        """Counts bytes that have become readable in one partition. Returns True once, when the fetch may have enough
        bytes."""

    def wake(self) -> None:
        """Makes the fetch read its partitions again. Called after all writes of a turn, or when a partition has changed
        in another way."""


class DirtyPartition(Protocol):
    """A partition with unwritten batches."""

    def write(self, woken: list[ParkedFetch]) -> None:
        """Writes the batches. Adds parked fetches that may now have enough bytes to `woken`."""


class UnsyncedPartition(Protocol):
    """A partition that needs an fdatasync."""

    @property
    def log(self) -> Log: ...

    @property
    def is_deleted(self) -> bool: ...

    def sync_ended(self, ticket: SyncTicket) -> None: ...


def _no_observer() -> None:
    pass


class AppendFlush:
    """At the end of each turn of the loop, writes every partition that was appended to during the turn."""

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        timed: Callable[[Callable[[], None]], Callable[[], None]] = lambda flush: flush,
    ) -> None:
        """Creates a flush with no partitions to write.

        soon   schedules an action after the actions that the loop has already queued, as `loop.call_soon` does
        timed  wraps the writes of a turn so that their duration is measured
        """
        self._soon = soon
        self._flush = timed(self.flush)
        self._dirty: list[DirtyPartition] = []

    def add(self, partition: DirtyPartition) -> None:
        """Adds a partition. The partition ensures that it is added only once per turn."""
        if not self._dirty:
            self._soon(self._flush)
        self._dirty.append(partition)

    def end(self) -> None:
        """Drops the callback that flushes, because no more records will be appended.

        The callback and this object refer to each other. Once the callback is dropped, both can be freed immediately.
        """
        self._flush = _no_observer

    def flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        woken: list[ParkedFetch] = []
        try:
            while dirty:
                dirty.pop().write(woken)
        finally:
            # Even if a write raises an error, which is a bug, the remaining partitions must be written.
            if dirty:
                self._dirty += dirty
                self._soon(self._flush)
        # Fetches are woken after all writes. A fetch of several partitions is then answered only once, with all of
        # their new records.
        for wait in woken:
            wait.wake()


class LogSyncs:
    """Runs the partitions' fdatasyncs, one at a time for each log and a few logs in parallel.

    Also counts all syncs so far. `time_s` is their total duration, and `durations[n]` is the number of syncs that took
    at least 2^(n-1) and less than 2^n µs.
    """

    def __init__(self, workers: Workers, monotonic_s: Callable[[], float] = perf_counter) -> None:
        """Initialises the object. `workers` are threads that only run syncs, so that a sync need not wait for longer
        work."""
        self.time_s = 0.0
        self.durations = [0] * MAX_BITS
        self._workers = workers
        self._monotonic_s = monotonic_s
        # Partitions that are waiting for a thread. Data written while they wait is included in the sync.
        self._waiting: dict[UnsyncedPartition, None] = {}
        self._running: set[UnsyncedPartition] = set()
        # Partitions for which another sync was requested during a sync.
        self._asked_again: set[UnsyncedPartition] = set()

    def add(self, partition: UnsyncedPartition) -> None:
        """Requests a sync of everything that has been written to the partition's log by the time the sync begins."""
        if partition in self._running:
            self._asked_again.add(partition)
        else:
            self._waiting[partition] = None
            self._start_syncs()

    def _start_syncs(self) -> None:
        waiting, running = self._waiting, self._running
        while waiting and len(running) < PARALLEL_SYNCS:
            partition = next(iter(waiting))
            del waiting[partition]
            if partition.is_deleted:
                continue
            ticket = partition.log.start_sync()
            running.add(partition)
            self._workers.run(
                partial(timed_sync, ticket, self._monotonic_s), partial(self._sync_ended, partition, ticket)
            )

    def _sync_ended(self, partition: UnsyncedPartition, ticket: SyncTicket, outcome: JobResult[float]) -> None:
        time_s = outcome.result()
        self.time_s += time_s
        self.durations[int(time_s * 1e6).bit_length()] += 1
        self._running.discard(partition)
        if partition in self._asked_again:
            self._asked_again.discard(partition)
            self._waiting[partition] = None
        try:
            partition.sync_ended(ticket)
        finally:
            self._start_syncs()


def timed_sync(ticket: SyncTicket, monotonic_s: Callable[[], float]) -> float:
    """Runs a sync in the calling thread. Returns its duration in seconds."""
    begin_s = monotonic_s()
    ticket.run()
    return monotonic_s() - begin_s
