"""A clock and timers for tests. Time advances only when the test advances it."""

import heapq
from collections.abc import Callable
from itertools import count


class ManualClock:
    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        assert ms >= 0
        self._now_ms += ms

    def set(self, now_ms: int) -> None:
        """Sets the time, possibly to an earlier one, because wall clocks can be set back."""
        self._now_ms = now_ms


class ManualTimer:
    __slots__ = ("_action", "due_ms")

    def __init__(self, due_ms: float, action: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self._action: Callable[[], None] | None = action

    @property
    def is_armed(self) -> bool:
        return self._action is not None

    def cancel(self) -> None:
        self._action = None

    def fire(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


class ManualTimers:
    """Timers on the test's clock. `advance` fires the timers in order, each at its due time."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock if clock is not None else ManualClock()
        self._elapsed_ms: float = 0
        self._numbers = count()
        self._timers: list[tuple[float, int, ManualTimer]] = []

    def after(self, delay_ms: float, action: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(self._elapsed_ms + max(delay_ms, 0), action)
        heapq.heappush(self._timers, (timer.due_ms, next(self._numbers), timer))
        return timer

    def monotonic_ms(self) -> float:
        return self._elapsed_ms

    def advance(self, ms: int) -> None:
        """Advances the clock by `ms`. If a timer arms another timer due within that period, the other timer fires
        too."""
        end_ms = self._elapsed_ms + ms
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self._move_to(due_ms)
            timer.fire()
        self._move_to(end_ms)

    @property
    def elapsed_ms(self) -> float:
        """Time since the timers were created, unaffected by changes to the clock."""
        return self._elapsed_ms

    def armed(self) -> list[float]:
        """Remaining time of each armed timer, earliest first."""
        return [due_ms - self._elapsed_ms for due_ms, _, timer in sorted(self._timers[:]) if timer.is_armed]

    def _move_to(self, elapsed_ms: float) -> None:
        step = int(elapsed_ms) - int(self._elapsed_ms)
        self._elapsed_ms = max(self._elapsed_ms, elapsed_ms)
        if step > 0:
            self.clock.advance(step)
