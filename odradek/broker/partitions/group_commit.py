"""Group commit: clients' appends in one turn of the loop share one write per partition, and all replies that wait for
the disk share one fdatasync.

    append, append, … → (end of the turn) write each dirty partition → replies → parked fetches
                                           └ if configured: fdatasync in a thread → replies → parked fetches

A write to the page cache costs less than switching to a thread, so it runs on the loop; an fdatasync does not. While
one fdatasync is running, the next group accumulates. Syncs of different logs run in parallel.

Markers and the records of coordinators are not part of a group: `Partition.append_now` writes them at once, after the
batches that are already staged. Only their fdatasync is shared.
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
MOST_BITS: Final = 64  # number of bits of a time in µs


class ParkedFetch(Protocol):
    """A fetch that found too few bytes and waits for appends to its partitions."""

    def count_appended(self, size_bytes: int) -> bool:
        """Counts bytes that became readable in one partition. Returns True, once, when the bytes may suffice."""

    def wake(self) -> None:
        """Makes the fetch look again, after all writes of a turn, or because a partition has changed in another way."""


class DirtyPartition(Protocol):
    """A partition with unwritten batches."""

    def write(self, woken: list[ParkedFetch]) -> None:
        """Writes the batches. Adds to `woken` the parked fetches that may have enough bytes now."""


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
    """Writes, at the end of a turn of the loop, every partition that was appended to during the turn."""

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        timed: Callable[[Callable[[], None]], Callable[[], None]] = lambda flush: flush,
    ) -> None:
        """Creates a flush without partitions.

        soon   runs an action after the actions that the loop has already queued: `loop.call_soon`
        timed  wraps the writes of a turn in a measurement of time
        """
        self._soon = soon
        self._flush = timed(self.flush)
        self._dirty: list[DirtyPartition] = []

    def add(self, partition: DirtyPartition) -> None:
        """Adds a partition. The partition makes sure that it is added only once per turn."""
        if not self._dirty:
            self._soon(self._flush)
        self._dirty.append(partition)

    def end(self) -> None:
        """Ends the flush, since nothing is appended any more, and breaks its reference cycle."""
        self._flush = _no_observer

    def flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        woken: list[ParkedFetch] = []
        try:
            while dirty:
                dirty.pop().write(woken)
        finally:
            if dirty:  # A write raised an error, which is a bug. The remaining partitions must still be written.
                self._dirty += dirty
                self._soon(self._flush)
        # Fetches are woken after all writes, so that a fetch of several partitions is answered once, with the records
        # of all.
        for wait in woken:
            wait.wake()


class LogSyncs:
    """Runs the fdatasync of partitions, one at a time for each log and a few in parallel.

    Counts all syncs so far: `time_s` is their total duration, `took[n]` the number that took at least 2^(n-1) and less
    than 2^n µs.
    """

    def __init__(self, workers: Workers, monotonic_s: Callable[[], float] = perf_counter) -> None:
        """Creates an object without syncs. `workers` are threads for syncs only, so that a sync need not wait for
        longer work."""
        self.time_s = 0.0
        self.durations = [0] * MOST_BITS
        self._workers = workers
        self._monotonic_s = monotonic_s
        # Partitions that wait for a thread. Data that is written meanwhile is part of the sync.
        self._waiting: dict[UnsyncedPartition, None] = {}
        self._running: set[UnsyncedPartition] = set()
        self._asked_again: set[UnsyncedPartition] = set()  # partitions with a running sync that was requested again

    def add(self, partition: UnsyncedPartition) -> None:
        """Requests a sync of everything that is written to the partition's log when the sync begins."""
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
    """Runs a sync in a thread. Returns the duration of the sync in seconds."""
    begin_s = monotonic_s()
    ticket.run()
    return monotonic_s() - begin_s
