"""Clock and timers of one cluster under test. They follow the system's time until a test freezes, moves or sets them.

As in an operating system, there are two kinds of time. The timers' time only moves forward. The wall clock is the
timers' time plus a shift, and `set` may move it back. Until a test controls the clock, it equals the system's wall
clock.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from heapq import heapify, heappop, heappush
from itertools import count
from time import monotonic, monotonic_ns, time_ns
from typing import TypeAlias

from odradek.broker.runtime.clock import Clock, Scan, TimerHandle

MAX_CANCELLED_TIMERS = 64  # maximum number of cancelled timers in the heap, unless half of the heap is more


class ControlledTimer:
    __slots__ = ("_owner", "action")

    def __init__(self, action: Callable[[], None], owner: ControlledTime) -> None:
        self.action: Callable[[], None] | None = action
        self._owner = owner

    def cancel(self) -> None:
        if self.action is not None:
            self.action = None
            self._owner.one_cancelled()


Armed: TypeAlias = tuple[float, int, ControlledTimer]  # due time, sequence number, timer


def _order(armed: Armed) -> tuple[float, int]:
    return armed[0], armed[1]


def turn_ms(due_ms: float, scan: Scan, at_ms: float) -> float:
    """Returns the time of a scan's first run at or after `at_ms`. The scan runs at `due_ms`, one interval later, and so
    on."""
    return due_ms + max(0, math.ceil((at_ms - due_ms) / max(scan.interval_ms, 1))) * max(scan.interval_ms, 1)


class Pace:
    """The rate at which time has passed since it was last frozen, resumed or moved. Times in seconds come from
    `time.monotonic`."""

    __slots__ = ("at_ms", "is_frozen", "rate", "shift_ms", "since_s", "wall_at_ms")

    def __init__(self, at_ms: float, since_s: float, shift_ms: float, is_frozen: bool) -> None:
        """`at_ms` is the timers' time at `since_s`. The wall clock is `shift_ms` ahead of the timers' time."""
        self.at_ms = at_ms
        self.since_s = since_s
        self.shift_ms = shift_ms
        self.is_frozen = is_frozen
        self.wall_at_ms = at_ms + shift_ms
        self.rate = 0.0 if is_frozen else 1000.0  # milliseconds per second

    def wall_ms(self, at_s: float) -> int:
        return int(self.wall_at_ms + (at_s - self.since_s) * self.rate)


class ControlledTime:
    """A `Clock` with `Timers`. Only the loop thread may use this object. Actions run in order of due time. Actions that
    are due at the same time run in the order in which they were scheduled."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_ms: int | None = None,
        *,
        is_frozen: bool = False,
        system_ns: Callable[[], int] = time_ns,
    ) -> None:
        """Creates a clock that runs unless `is_frozen` is set.

        now_ms     the initial time; None for the system's time
        system_ns  the system's wall clock
        """
        self._loop = loop
        self._system_ns = system_ns
        self._go_at(Pace(system_ns() / 1e6 if now_ms is None else float(now_ms), monotonic(), 0.0, is_frozen))
        self._is_the_systems = now_ms is None and not is_frozen  # True until a test controls the clock
        self._numbers = count()
        self._armed: list[Armed] = []  # a heap
        # There are only a few scans. They are stored in a separate list, because an advance skips most of their runs.
        self._scans: list[Armed] = []
        self._cancelled = 0
        self._wake: asyncio.TimerHandle | None = None
        self._wake_ms = 0.0
        self._runs_soon = False  # whether a run is scheduled although the time is frozen
        self._moving = asyncio.Lock()
        self.actions_run = 0  # total number of actions run; an advance's cost is proportional to it

    def _go_at(self, pace: Pace) -> None:
        """Continues with a new pace after a freeze, resume or jump."""
        self._is_the_systems = False
        self.pace = pace
        self.is_frozen = pace.is_frozen
        since_s = 0.0 if pace.is_frozen else pace.since_s
        self._began_ms = pace.at_ms - since_s * 1e3
        # Computed as an integer first, because a float cannot represent this many nanoseconds exactly.
        wall_ms = math.floor(pace.wall_at_ms)
        self._wall_began_ns = wall_ms * 1_000_000 + round((pace.wall_at_ms - wall_ms) * 1e6) - round(since_s * 1e9)

    def now_ms(self) -> int:
        # Every request calls this method, and a small request calls it twice. A single addition here adds 0.2 % to a
        # small request's instructions.
        if self._is_the_systems:
            return self._system_ns() // 1_000_000
        return (self._wall_began_ns if self.is_frozen else self._wall_began_ns + monotonic_ns()) // 1_000_000

    def monotonic_ms(self) -> float:
        return self._began_ms if self.is_frozen else self._began_ms + monotonic() * 1e3

    @property
    def steady(self) -> Clock:
        """A clock that follows the timers' time and therefore never goes back."""
        return SteadyTime(self)

    def after(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        timer = ControlledTimer(action, self)
        due_ms = self.monotonic_ms() + (delay_ms if delay_ms > 0 else 0)
        armed = (due_ms, next(self._numbers), timer)
        if isinstance(action, Scan):
            self._scans = [each for each in self._scans if each[2].action is not None]
            self._scans.append(armed)
        else:
            heappush(self._armed, armed)
        if self.is_frozen:
            self._run_overdue_timers()
        elif self._wake is None or due_ms < self._wake_ms:
            self._wake_later()
        return timer

    def freeze(self) -> None:
        if not self.is_frozen:
            self._stand_at(self.monotonic_ms())
            self._sleep()
            self._run_overdue_timers()

    def resume(self) -> None:
        """Continues from the current time, at the same rate as the system's time."""
        if self.is_frozen:
            self._go_at(Pace(self.pace.at_ms, monotonic(), self.pace.shift_ms, False))
            self._wake_later()

    async def advance(self, ms: float, settled: Callable[[], Awaitable[None]]) -> None:
        """Moves the time ahead. Returns once every action that became due has run, in order, and the work that the
        actions started is done. Runs of scans that would find nothing are skipped.

        settled  waits until the broker has nothing more to do at the current time
        """
        async with self._moving:
            was_frozen = self.is_frozen
            self.freeze()
            until_ms = self.pace.at_ms + ms
            try:
                await settled()
                while (due_ms := self._next_ms(until_ms)) is not None and due_ms <= until_ms:
                    self._stand_at(max(self.pace.at_ms, due_ms))
                    self._run_due()
                    await settled()
                self._stand_at(until_ms)
            finally:
                if not was_frozen:
                    self.resume()

    async def set(self, now_ms: int, settled: Callable[[], Awaitable[None]]) -> None:
        """Sets the wall clock. Moves forward like `advance` and jumps back without affecting timers."""
        ahead_ms = now_ms - self.now_ms()
        if ahead_ms >= 0:
            await self.advance(ahead_ms, settled)
        else:
            self.jump(ahead_ms)

    def jump(self, ms: float) -> None:
        """Moves the wall clock forward or back without affecting timers."""
        pace = self.pace
        self._go_at(Pace(pace.at_ms, pace.since_s, self._shift_ms(self.monotonic_ms()) + ms, pace.is_frozen))

    def stop(self) -> None:
        """Drops all timers. Called after the owner of the timers has stopped."""
        self._sleep()
        self._armed.clear()
        self._scans.clear()
        self._cancelled = 0

    def one_cancelled(self) -> None:
        """Counts a cancelled timer and removes all cancelled timers once there are many. Most timers with long delays
        are cancelled, and would otherwise accumulate."""
        self._cancelled += 1
        if self._cancelled > max(MAX_CANCELLED_TIMERS, len(self._armed) // 2):
            self._armed = [each for each in self._armed if each[2].action is not None]
            heapify(self._armed)
            self._cancelled = 0

    def _stand_at(self, at_ms: float) -> None:
        self._go_at(Pace(at_ms, 0.0, self._shift_ms(at_ms), True))

    def _shift_ms(self, at_ms: float) -> float:
        """Returns how far the wall clock is ahead of the timers' time when the timers' time is `at_ms`."""
        return self._system_ns() / 1e6 - at_ms if self._is_the_systems else self.pace.shift_ms

    def _next_ms(self, until_ms: float) -> float | None:
        """Returns the time at which the next action is due. The method also advances each scan past the runs that would
        find nothing, because nothing happens before the next action or `until_ms`."""
        while self._armed and self._armed[0][2].action is None:
            heappop(self._armed)
            self._cancelled -= 1
        busy_ms = min(until_ms, self._armed[0][0]) if self._armed else until_ms
        scans = [(due_ms, action) for due_ms, _, timer in self._scans if isinstance(action := timer.action, Scan)]
        for due_ms, scan in scans:
            found_ms = scan.due_ms() if due_ms <= busy_ms else None
            if found_ms is not None:
                busy_ms = min(busy_ms, turn_ms(due_ms, scan, found_ms - self.pace.shift_ms))
        self._scans = [
            (turn_ms(due_ms, action, busy_ms), number, timer)
            for due_ms, number, timer in self._scans
            if isinstance(action := timer.action, Scan)
        ]
        first = self._next_timer()
        return None if first is None else first[0]

    def _next_timer(self) -> Armed | None:
        return min([*self._armed[:1], *self._scans], default=None, key=_order)

    def _run_due(self) -> None:
        """Runs the actions that are due now. Actions that these actions schedule run in a later turn."""
        now_ms, last = self.monotonic_ms(), next(self._numbers)
        while (first := self._next_timer()) is not None and first[0] <= now_ms and first[1] < last:
            timer = first[2]
            if self._armed and self._armed[0][2] is timer:
                heappop(self._armed)
            else:
                self._scans = [each for each in self._scans if each[2] is not timer]
            action, timer.action = timer.action, None
            if action is None:
                self._cancelled -= 1
                continue
            self.actions_run += 1
            try:
                action()
            except Exception as error:  # the loop handles errors of its own timers in the same way
                self._loop.call_exception_handler({"message": "a timer's action failed", "exception": error})

    def _run_overdue_timers(self) -> None:
        """Runs due actions in the next turn of the loop, even while the time is frozen, because timers without a delay
        must still run."""
        first = self._next_timer()
        if first is not None and first[0] <= self.pace.at_ms and not self._runs_soon:
            self._runs_soon = True
            self._loop.call_soon(self._run_soon)

    def _run_soon(self) -> None:
        self._runs_soon = False
        self._run_due()
        if self.is_frozen:
            self._run_overdue_timers()

    def _wake_later(self) -> None:
        self._sleep()
        first = self._next_timer()
        if first is not None and not self.is_frozen:
            self._wake_ms = first[0]
            self._wake = self._loop.call_later(max(self._wake_ms - self.monotonic_ms(), 0) / 1000, self._on_wake)

    def _on_wake(self) -> None:
        self._sleep()
        self._run_due()
        self._wake_later()

    def _sleep(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None


class SteadyTime:
    """Like `odradek.broker.runtime.clock.SteadyClock`, but follows a `ControlledTime`."""

    def __init__(self, time: ControlledTime) -> None:
        self._time = time
        self._ahead_ms = float(time.now_ms() - int(time.monotonic_ms()))

    def now_ms(self) -> int:
        return int(self._time.monotonic_ms() + self._ahead_ms)
