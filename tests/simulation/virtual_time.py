"""Time that jumps from event to event. When a process dies, so do its timers, ticks and threads."""

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any, TypeVar

from odradek.broker.runtime.workers import JobResult, outcome_of

T = TypeVar("T")
Action = Callable[[], None]


class Life:
    """The lifetime of one process. All of the process's events share this object and end with it."""

    def __init__(self) -> None:
        self.is_over = False


class Event:
    __slots__ = ("action", "life")

    def __init__(self, action: Action | None, life: Life) -> None:
        self.action = action
        self.life = life

    def cancel(self) -> None:
        self.action = None


class VirtualTime:
    """Virtual time in milliseconds, which also serves as a clock."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms: float = now_ms
        self._numbers = count()
        self._events: list[tuple[float, int, Event]] = []

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        return self._now_ms

    def after(self, delay_ms: float, action: Action, life: Life) -> Event:
        event = Event(action, life)
        heapq.heappush(self._events, (self._now_ms + max(delay_ms, 0), next(self._numbers), event))
        return event

    def step(self, until_ms: float) -> bool:
        """Runs the next event due by `until_ms`. Exceptions from the event propagate.

        If there is no such event, advances the time to `until_ms` and returns False.
        """
        while self._events and self._events[0][0] <= until_ms:
            due_ms, _, event = heapq.heappop(self._events)
            action, event.action = event.action, None
            if action is None or event.life.is_over:
                continue
            self._now_ms = due_ms
            action()
            return True
        self._now_ms = max(self._now_ms, until_ms)
        return False


class VirtualTimers:
    def __init__(self, time: VirtualTime, life: Life) -> None:
        self._time = time
        self._life = life

    def after(self, delay_ms: float, action: Action) -> Event:
        return self._time.after(delay_ms, action, self._life)

    def monotonic_ms(self) -> float:
        return self._time.monotonic_ms()

    def soon(self, action: Action) -> None:
        """Runs the action after all actions currently due, like `loop.call_soon`."""
        self._time.after(0, action, self._life)


class VirtualWorkers:
    """Simulated threads. The seed determines the duration of each job, so jobs can overtake one another."""

    takes_ms: Sequence[float] = (0, 0.1, 5)

    def __init__(self, time: VirtualTime, life: Life, rng: Random) -> None:
        self._time = time
        self._life = life
        self._rng = rng

    def run(self, job: Callable[[], T], then: Callable[[JobResult[T]], None]) -> None:
        def do() -> None:
            outcome: JobResult[Any] = outcome_of(job)
            self._time.after(self._rng.choice([0, 0.1, 3]), lambda: then(outcome), self._life)

        self._time.after(self._rng.choice(self.takes_ms), do, self._life)
