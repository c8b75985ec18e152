"""Keeps the first offset of each leader epoch in memory. The file that stores them is `leader-epoch-checkpoint`.

The file may lag behind the log, because recovery reads the epochs of unflushed batches from their headers.
"""

from bisect import bisect_right
from operator import itemgetter
from typing import Final

_EPOCH: Final = itemgetter(0)
_START: Final = itemgetter(1)


class LeaderEpochs:
    """One log's leader epochs with their first offsets, both in ascending order."""

    __slots__ = ("_entries", "is_dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = entries or []
        self.is_dirty = False  # whether the file lacks some of the current entries

    @property
    def latest(self) -> int | None:
        return self._entries[-1][0] if self._entries else None

    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Adds an epoch that begins at `start_offset`. Does nothing unless the epoch is newer than the latest epoch."""
        if self._entries and epoch <= self._entries[-1][0]:
            return
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()  # that epoch has no batches
        self._entries.append((epoch, start_offset))
        self.is_dirty = True

    def epoch_at(self, offset: int) -> int | None:
        """Returns the epoch of the record at `offset` or, beyond the end of the log, the current epoch. Returns None if
        the offset is below all known epochs."""
        at = bisect_right(self._entries, offset, key=_START) - 1
        return self._entries[at][0] if at >= 0 else None

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """Returns the largest known epoch not above `epoch`, and the exclusive end offset of that epoch.

        If `epoch` is older than all known epochs, returns `epoch` itself and the first known offset. Returns None if
        `epoch` is newer than the latest epoch, or if no epoch is known.
        """
        if not self._entries or epoch > self._entries[-1][0]:
            return None
        if epoch == self._entries[-1][0]:
            return epoch, log_end_offset
        above = bisect_right(self._entries, epoch, key=_EPOCH)
        end = self._entries[above][1]
        return (self._entries[above - 1][0] if above else epoch), end

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the epochs that begin at or above the new end of the log (exclusive)."""
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
            self.is_dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes the epochs that end before the new start of the log. The epoch that contains the new start is kept,
        and now begins at the new start."""
        at = bisect_right(self._entries, start_offset, key=_START) - 1
        if at >= 0 and (at > 0 or self._entries[0][1] < start_offset):
            self._entries[: at + 1] = [(self._entries[at][0], start_offset)]
            self.is_dirty = True
