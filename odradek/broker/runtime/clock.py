"""The clock and the timers, passed in from outside: nothing below the shell reads a clock or arms its own timer."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import time_ns
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time, in milliseconds since the epoch: what records, expiry and retention are measured in."""

    def now_ms(self) -> int: ...


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Arms one-shot timers; `action` runs on the loop thread, never before `delay_ms` has passed."""

    def after(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle: ...

    def monotonic_ms(self) -> float:
        """The time that they wait for, since whenever; it does not go back."""
        ...


@dataclass(frozen=True, slots=True)
class Scan:
    """A timer's action that comes again every `interval_ms` and mostly finds nothing that is due.

    due_ms  from when on a run may find something, if nothing else happens until then: the present or the past where it
            may find something now, None where it never will. A clock that is moved ahead leaves out the runs before.
    """

    action: Callable[[], None]
    interval_ms: float
    due_ms: Callable[[], int | None]

    def __call__(self) -> None:
        self.action()

    def with_action(self, action: Callable[[], None]) -> "Scan":
        return Scan(action, self.interval_ms, self.due_ms)


def earliest(times_ms: Iterable[int | None]) -> int | None:
    """None where all are: never."""
    return min((each for each in times_ms if each is not None), default=None)


class SystemClock:
    def now_ms(self) -> int:
        return time_ns() // 1_000_000


class SteadyClock:
    """Time that passes evenly: the wall clock's at the beginning, which no later jump of that one moves.

    For what may not end early or last for hours because somebody sets the clock, as sessions and locks, and yet is told
    or stored as a time. Kafka measures these by its monotonic clock.
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
