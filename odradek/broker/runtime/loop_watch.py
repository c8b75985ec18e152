"""Measures how late the event loop runs, and which work delayed it.

While a piece of work runs on the loop, every client has to wait. Two measurements are made, neither of which adds to
the cost of a request:

- A timer is set repeatedly. If it fires late, a request that arrived at the due time would have waited just as long.
- Work that is timed anyway (requests) or that runs rarely (writes at the end of a turn, chores, garbage collection) is
  counted by name if it took longer than LONG_S.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from odradek.broker.runtime.clock import Scan, TimerHandle, Timers

logger = logging.getLogger("odradek.loop")

LONG_S = 0.005
WARN_S = 1.0
BUSY_TICK_MS = 50
IDLE_TICK_MS = 1000  # interval of the ticks while no requests arrive
MAX_BITS = 64  # maximum bit length of a delay in µs
GARBAGE_COLLECTION = "garbage collection"


@dataclass(slots=True)
class LongRuns:
    """Statistics about the runs of one kind of work that took longer than LONG_S."""

    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0


class LoopWatch:
    """Counts the loop's delays since the broker started.

    `tick_delays[n]` is the number of ticks that were late by at least 2^(n-1) and less than 2^n µs, and `late_s` is the
    total of these delays. `blocking` holds the long runs, keyed by the name of the work.
    """

    def __init__(self, timers: Timers, monotonic_s: Callable[[], float] = perf_counter) -> None:
        self.tick_delays = [0] * MAX_BITS
        self.late_s = 0.0
        self.blocking: dict[str, LongRuns] = {}
        self._timers = timers
        self.monotonic_s = monotonic_s
        self.slices = asyncio.Lock()  # held during each slice of a loop over many items, and for one turn after it
        self._requests: Callable[[], int] = lambda: 0
        self._requests_before = 0
        self._slowest: tuple[float, str] | None = None  # the longest run since the last tick, and its name
        self._collection_began_s = 0.0
        self._tick: TimerHandle | None = None

    def start(self, requests: Callable[[], int]) -> None:
        """Starts the ticks.

        requests  returns the number of requests so far. While this number does not change, the ticks are rare, so that
                  an idle broker uses hardly any CPU time
        """
        self._requests = requests
        gc.callbacks.append(self._collecting)
        self._arm(BUSY_TICK_MS)

    def stop(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            gc.callbacks.remove(self._collecting)
            self._tick = None

    def record_duration(self, name: str, time_s: float) -> None:
        """Records that work with this name ran on the loop for `time_s`. Called by code that measures the duration
        itself."""
        if time_s < LONG_S:
            return
        of = self.blocking.get(name)
        if of is None:
            of = self.blocking[name] = LongRuns()
        of.count += 1
        of.total_s += time_s
        of.max_s = max(of.max_s, time_s)
        if self._slowest is None or time_s > self._slowest[0]:
            self._slowest = time_s, name
        if time_s >= WARN_S:
            logger.warning("no client was served for %.1f s, because the event loop was blocked by: %s", time_s, name)
        else:
            logger.debug("the event loop was blocked for %.1f ms by: %s", time_s * 1000, name)

    def time_action(self, name: str, action: Callable[[], None]) -> Callable[[], None]:
        return partial(self._run, name, action)

    def _run(self, name: str, action: Callable[[], None]) -> None:
        began_s = self.monotonic_s()
        try:
            action()
        finally:
            took_s = self.monotonic_s() - began_s
            if took_s >= LONG_S:
                self.record_duration(name, took_s)

    def _arm(self, delay_ms: int) -> None:
        self._tick = self._timers.after(delay_ms, partial(self._ticked, self.monotonic_s() + delay_ms / 1000))

    def _ticked(self, due_s: float) -> None:
        late_s = max(0.0, self.monotonic_s() - due_s)
        self.late_s += late_s
        self.tick_delays[int(late_s * 1e6).bit_length()] += 1
        slowest, self._slowest = self._slowest, None
        if late_s >= LONG_S and slowest is None:
            logger.debug(
                "a tick of the event loop was %.1f ms late, although no measured work took long: probably many"
                " small requests or other processes delayed it",
                late_s * 1000,
            )
        requests = self._requests()
        is_idle, self._requests_before = requests == self._requests_before, requests
        self._arm(IDLE_TICK_MS if is_idle else BUSY_TICK_MS)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        """Measures a garbage collection. `gc` calls this callback in the thread that triggered the collection."""
        if phase == "start":
            self._collection_began_s = self.monotonic_s()
        else:
            self.record_duration(GARBAGE_COLLECTION, self.monotonic_s() - self._collection_began_s)


@dataclass(frozen=True, slots=True)
class WatchedTimers:
    """Timers whose actions are measured under a common name."""

    timers: Timers
    watch: LoopWatch
    name: str

    def after(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        timed = self.watch.time_action(self.name, action)
        return self.timers.after(delay_ms, action.with_action(timed) if isinstance(action, Scan) else timed)

    def monotonic_ms(self) -> float:
        return self.timers.monotonic_ms()
