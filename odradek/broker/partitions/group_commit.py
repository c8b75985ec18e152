"""Group commit: one write per partition and loop tick, and one fdatasync for all replies that wait for it.

    append, append, … → (end of the tick) write each dirty partition → replies → parked fetches
                                           └ where settings ask: fdatasync in a thread → replies

A write to the page cache costs less than a thread hop, so it stays on the loop; an fdatasync does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from odradek.broker.runtime.workers import JobResult, Workers

if TYPE_CHECKING:
    from odradek.storage.log import Log, SyncTicket

PARALLEL_SYNCS = 4
MOST_BITS = 64  # of a time in µs


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

    def sync_ended(self, ticket: SyncTicket) -> None: ...


class AppendFlush:
    """Writes, at the end of the loop tick, every partition that was appended to during it."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """`soon` runs an action after those that the loop has already queued: `loop.call_soon`."""
        self._soon = soon
        self._dirty: list[Dirty] = []

    def add(self, partition: Dirty) -> None:
        """Once per partition and tick: the partition knows whether it is in the list."""
        if not self._dirty:
            self._soon(self.flush)
        self._dirty.append(partition)

    def flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        woken: list[ParkedFetch] = []
        try:
            while dirty:
                dirty.pop().write(woken)
        finally:
            if dirty:  # one of them raised, which is a bug; the others must not be forgotten over it
                self._dirty += dirty
                self._soon(self.flush)
        # After all writes, so that a fetch of several partitions is answered once, with all of them.
        for wait in woken:
            wait.wake()


class SyncRounds:
    """Runs fdatasync for all partitions that asked for it; those that ask meanwhile share the next round.

    Of all syncs of partitions so far: `time_s`, and how many took so long, those of `took[n]` less than 2 to
    the power of n µs, and not less than half of that.
    """

    def __init__(self, workers: Workers, monotonic_s: Callable[[], float] = perf_counter) -> None:
        self.time_s = 0.0
        self.took = [0] * MOST_BITS
        self._workers = workers
        self._monotonic_s = monotonic_s
        self._asked: dict[Unsynced, None] = {}
        self._running = 0

    def add(self, partition: Unsynced) -> None:
        self._asked[partition] = None
        if not self._running:
            self._begin()

    def _begin(self) -> None:
        asked, self._asked = list(self._asked), {}
        self._running = min(len(asked), PARALLEL_SYNCS)
        for first in range(self._running):
            share = [(partition, partition.log.start_sync()) for partition in asked[first::PARALLEL_SYNCS]]
            self._workers.run(partial(run_syncs, share, self._monotonic_s), self._share_ended)

    def _share_ended(self, outcome: JobResult[tuple[list[tuple[Unsynced, SyncTicket]], list[float]]]) -> None:
        share, times_s = outcome.result()
        self.time_s += sum(times_s)
        for time_s in times_s:
            self.took[int(time_s * 1e6).bit_length()] += 1
        for partition, ticket in share:
            partition.sync_ended(ticket)
        self._running -= 1  # only now: a log is synced by one round at a time
        if self._asked and not self._running:
            self._begin()


def run_syncs(
    share: list[tuple[Unsynced, SyncTicket]], monotonic_s: Callable[[], float]
) -> tuple[list[tuple[Unsynced, SyncTicket]], list[float]]:
    """In a thread. The second result is how long each took, in seconds."""
    times_s = []
    for _, ticket in share:
        begin_s = monotonic_s()
        ticket.run()
        times_s.append(monotonic_s() - begin_s)
    return share, times_s
