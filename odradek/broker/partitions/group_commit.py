"""Group commit: one write per partition and loop tick, and one fdatasync for all replies that wait for it.

    append, append, … → (end of the tick) write each dirty partition → replies → parked fetches
                                           └ where settings ask: fdatasync in a thread → replies → parked fetches

A write to the page cache costs less than a thread hop, so it stays on the loop; an fdatasync does not. While one is
under way the next group gathers; those of other logs run beside it.
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
MOST_BITS: Final = 64  # of a time in µs


class ParkedFetch(Protocol):
    """A fetch that found too little, and waits for appends to its partitions."""

    def appended(self, size_bytes: int) -> bool:
        """Count bytes that became readable in one partition; True once when that may be enough."""

    def wake(self) -> None:
        """Look again; after all writes of a tick, or because a partition changed in another way."""


class Dirty(Protocol):
    """A partition with batches that are not written."""

    def write(self, woken: list[ParkedFetch]) -> None:
        """Adds the parked fetches that may now have enough."""


class Unsynced(Protocol):
    """A partition for whose fdatasync somebody waits."""

    @property
    def log(self) -> Log: ...

    @property
    def is_deleted(self) -> bool: ...

    def sync_ended(self, ticket: SyncTicket) -> None: ...


def _nothing() -> None:
    pass


class AppendFlush:
    """Writes, at the end of the loop tick, every partition that was appended to during it."""

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        timed: Callable[[Callable[[], None]], Callable[[], None]] = lambda flush: flush,
    ) -> None:
        """
        soon   runs an action after those that the loop has already queued: `loop.call_soon`
        timed  makes of the writes of a tick something that is timed
        """
        self._soon = soon
        self._flush = timed(self.flush)
        self._dirty: list[Dirty] = []

    def add(self, partition: Dirty) -> None:
        """Takes a partition, once per tick: it knows itself whether it is in the list."""
        if not self._dirty:
            self._soon(self._flush)
        self._dirty.append(partition)

    def end(self) -> None:
        """Lets go of what was made of it: nothing is appended any more."""
        self._flush = _nothing

    def flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        woken: list[ParkedFetch] = []
        try:
            while dirty:
                dirty.pop().write(woken)
        finally:
            if dirty:  # one of them raised, which is a bug; the others must not be forgotten over it
                self._dirty += dirty
                self._soon(self._flush)
        # After all writes, so that a fetch of several partitions is answered once, with all of them.
        for wait in woken:
            wait.wake()


class LogSyncs:
    """Runs fdatasync for the partitions that ask for it, one at a time of each log and a few in all.

    Of all syncs of partitions so far: `time_s`, and how many took so long, those of `took[n]` less than 2 to
    the power of n µs, and not less than half of that.
    """

    def __init__(self, workers: Workers, monotonic_s: Callable[[], float] = perf_counter) -> None:
        """workers: threads of its own, so that a sync need not wait behind work that takes longer"""
        self.time_s = 0.0
        self.took = [0] * MOST_BITS
        self._workers = workers
        self._monotonic_s = monotonic_s
        self._waiting: dict[Unsynced, None] = {}  # for a thread; what is written meanwhile is part of the sync
        self._running: set[Unsynced] = set()
        self._asked_again: set[Unsynced] = set()  # of those that are running

    def add(self, partition: Unsynced) -> None:
        """Syncs, soon, all that is written to its log by then."""
        if partition in self._running:
            self._asked_again.add(partition)
        else:
            self._waiting[partition] = None
            self._begin()

    def _begin(self) -> None:
        waiting, running = self._waiting, self._running
        while waiting and len(running) < PARALLEL_SYNCS:
            partition = next(iter(waiting))
            del waiting[partition]
            if partition.is_deleted:
                continue
            ticket = partition.log.start_sync()
            running.add(partition)
            self._workers.run(partial(timed, ticket, self._monotonic_s), partial(self._ended, partition, ticket))

    def _ended(self, partition: Unsynced, ticket: SyncTicket, outcome: JobResult[float]) -> None:
        time_s = outcome.result()
        self.time_s += time_s
        self.took[int(time_s * 1e6).bit_length()] += 1
        self._running.discard(partition)
        if partition in self._asked_again:
            self._asked_again.discard(partition)
            self._waiting[partition] = None
        try:
            partition.sync_ended(ticket)
        finally:
            self._begin()


def timed(ticket: SyncTicket, monotonic_s: Callable[[], float]) -> float:
    """Syncs, in a thread. Returns how long that took, in seconds."""
    begin_s = monotonic_s()
    ticket.run()
    return monotonic_s() - begin_s
