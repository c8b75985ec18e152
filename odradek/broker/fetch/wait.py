"""Implements long polling: a fetch that found too little data is parked until appends or its timer wake it or its
client disconnects.

A parked fetch counts the appended bytes instead of reading after each append. The count is an upper bound, because a
`read_committed` consumer may see fewer bytes. After waking up, the fetch therefore reads again, and may have to
continue waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.broker.runtime.clock import Timers


class AwaitedPartition(Protocol):
    """A partition that notifies parked fetches of its appends."""

    def park(self, wait: FetchWait) -> None: ...
    def unpark(self, wait: FetchWait) -> None: ...


class FetchWait:
    """The wait of a parked fetch, which lasts until `end` is called.

    `look` is called when enough bytes may have arrived; it either ends the wait or calls `still_missing`.
    `time_is_over` is called at most once, `max_wait_ms` after the fetch was parked. No callback is called after `end`.
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
        """Counts bytes that have become readable in one partition. Returns True when enough bytes may have become
        readable. Subsequent calls return False until the fetch has looked again."""
        self._missing_bytes -= size_bytes
        if self._missing_bytes > 0 or self._is_woken:
            return False
        self._is_woken = True
        return True

    def wake(self) -> None:
        """Makes the fetch look again. Called after `count_appended` has returned True, or when a partition has changed
        in another way, for example because it was deleted or went offline."""
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
