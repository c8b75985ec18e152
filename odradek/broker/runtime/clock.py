"""Interfaces of clocks and timers. Only the outermost code reads the system's clock and sets its timers; all other code
receives clocks and timers as parameters."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import time_ns
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time in milliseconds since the epoch, used for record timestamps, expiry and retention."""

    def now_ms(self) -> int: ...


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Sets one-shot timers. An action runs on the loop thread, and never before `delay_ms` has passed."""

    def after(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle: ...

    def monotonic_ms(self) -> float:
        """Returns the timers' time in milliseconds since an arbitrary start. This time never goes back."""
        ...


@dataclass(frozen=True, slots=True)
class Scan:
    """A periodic timer action that runs every `interval_ms` and usually finds nothing to do.

    due_ms  returns the earliest time at which a run could find something to do, provided that nothing else happens
            first. Returns the current time or an earlier time if a run could find something now, and None if no run
            ever will. When a test moves its clock ahead, earlier runs are skipped
    """

    action: Callable[[], None]
    interval_ms: float
    due_ms: Callable[[], int | None]

    def __call__(self) -> None:
        self.action()

    def with_action(self, action: Callable[[], None]) -> "Scan":
        return Scan(action, self.interval_ms, self.due_ms)


def earliest(times_ms: Iterable[int | None]) -> int | None:
    """Returns the earliest of the times, or None if all of them are None. A time of None means never."""
    return min((each for each in times_ms if each is not None), default=None)


class SystemClock:
    def now_ms(self) -> int:
        return time_ns() // 1_000_000


class SteadyClock:
    """A clock that advances evenly: it starts at the wall clock's time and ignores later adjustments of the wall clock.

    It measures periods such as sessions and locks, which must not end early or last for hours because the wall clock
    was adjusted. The resulting times are sent or stored, so they need the wall clock's epoch. Kafka measures these
    periods with its monotonic clock.
    """

    def __init__(self, wall: Clock, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._began_ms = wall.now_ms() - monotonic_s() * 1000

    def now_ms(self) -> int:
        return int(self._began_ms + self._monotonic_s() * 1000)


class LoopTimers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def after(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        return self._loop.call_later(delay_ms / 1000, action)

    def monotonic_ms(self) -> float:
        return self._loop.time() * 1000
