"""Long polling: a fetch that found too little data is parked. Appends or its timer wake it; a disconnect removes it.

A parked fetch counts the appended bytes instead of reading at each append. The count is an upper bound (a
`read_committed` consumer may see less), so after a wake-up the fetch reads again and may have to wait further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.broker.runtime.clock import Timers


class AwaitedPartition(Protocol):
    """A partition that reports its appends."""

    def park(self, wait: FetchWait) -> None: ...
    def unpark(self, wait: FetchWait) -> None: ...


class FetchWait:
    """A parked fetch, from parking to `end`.

    `look` is called when there may be enough bytes; it either ends the wait or calls `still_missing`. `time_is_over` is
    called at most once, `max_wait_ms` after parking. Nothing is called after `end`.
    """

    __slots__ = ("_is_woken", "_look", "_missing_bytes", "_partitions", "_time_is_over", "_timer")

    def __init__(
        self,
        partitions: Sequence[AwaitedPartition],
        *,
        missing_bytes: int,
        max_wait_ms: int,
        timers: Timers,
        look: Callable[[], None],
        time_is_over: Callable[[], None],
    ) -> None:
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._is_woken = False
        self._look = look
        self._time_is_over = time_is_over
        for partition in partitions:
            partition.park(self)
        self._timer = timers.after(max_wait_ms, self._timer_fired)

    def count_appended(self, size_bytes: int) -> bool:
        """Counts bytes that became readable in one partition. Returns True when that may be enough, but only once until
        `look` has run."""
        self._missing_bytes -= size_bytes
        if self._missing_bytes > 0 or self._is_woken:
            return False
        self._is_woken = True
        return True

    def wake(self) -> None:
        """Makes the fetch look again: after `count_appended` returned True, or because a partition has changed
        otherwise (deleted, offline)."""
        self._look()

    def still_missing(self, size_bytes: int) -> None:
        self._missing_bytes = size_bytes
        self._is_woken = False

    def end(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.unpark(self)

    def _timer_fired(self) -> None:
        self._time_is_over()
