"""The clock and the timers, passed in from outside: nothing below the shell reads a clock or arms its own timer."""

import asyncio
from collections.abc import Callable
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


class SystemClock:
    def now_ms(self) -> int:
        return time_ns() // 1_000_000


class LoopTimers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def after(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        return self._loop.call_later(delay_ms / 1000, action)
