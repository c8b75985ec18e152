"""The most recently appended batches, kept as the views they arrived in, so that consumers at the tail cost no system
call.

One byte budget serves all logs of the process; the oldest batches are evicted first, whichever log they belong to.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

from odradek.storage.appended import StagedBatch
from odradek.storage.disk import Buffer

DEFAULT_BUDGET_BYTES: Final = 32 * 1024 * 1024
ENTRY_OVERHEAD_BYTES: Final = 200  # what an entry costs besides its batch, so that tiny batches do not go uncounted
_COMPACT_AT: Final = 1024


class TailCache:
    """The budget. Every log has a `LogTail` of it."""

    def __init__(self, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._used_bytes = 0
        self._oldest: deque[LogTail] = deque()  # one element per entry, in the order of appending

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def new_tail(self) -> "LogTail":
        return LogTail(self)

    def _added(self, tail: "LogTail", count: int, size_bytes: int) -> None:
        self._oldest.extend([tail] * count)
        self._used_bytes += size_bytes + count * ENTRY_OVERHEAD_BYTES
        while self._used_bytes > self._budget_bytes:
            self._used_bytes -= self._oldest.popleft()._drop_first()

    def _dropped(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes


class LogTail:
    """The last batches of one log's active segment, without a gap up to its end."""

    __slots__ = ("_base_offsets", "_batches", "_cache", "_cleared", "_end_position", "_head", "_positions")

    def __init__(self, cache: TailCache) -> None:
        self._cache = cache
        self._base_offsets: list[int] = []
        self._positions: list[int] = []
        self._batches: list[Buffer | None] = []
        self._end_position = 0  # in the segment's file
        self._head = 0  # index of the oldest entry still held
        self._cleared = 0  # entries that `clear` took, but the budget's queue still counts

    def add(self, position: int, staged: Sequence[StagedBatch]) -> None:
        """Batches just written at `position` of the file, one behind the other."""
        base_offsets, positions, batches = self._base_offsets, self._positions, self._batches
        for each in staged:
            base_offsets.append(each.base_offset)
            positions.append(position)
            batches.append(each.batch)
            position += each.size_bytes
        self._cache._added(self, len(staged), position - positions[-len(staged)])
        self._end_position = position

    def clear(self) -> None:
        """Forgets all: the log goes on in another segment, or was truncated."""
        held = len(self._batches) - self._head
        if held:
            self._cleared += held
            size_bytes = self._end_position - self._positions[self._head]
            self._cache._dropped(size_bytes + held * ENTRY_OVERHEAD_BYTES)
        self._base_offsets, self._positions, self._batches = [], [], []
        self._head = 0

    def read(self, start_offset: int, end_offset: int | None, max_bytes: int) -> tuple[list[Buffer], int, int] | None:
        """From the batch that holds `start_offset` up to `end_offset` (None: all), cut off at `max_bytes` even
        within a batch, as a read of the file would be; but at least the whole first batch.

        returns   the views, their size, and the position of the first in the file; None if the start is not held
        """
        head = self._head
        first = bisect_right(self._base_offsets, start_offset, head) - 1
        if first < head:
            return None
        start_position = self._positions[first]
        if end_offset is None:
            end, limit_position = len(self._batches), self._end_position
        else:
            end = bisect_right(self._base_offsets, end_offset - 1, first)
            limit_position = self._positions[end] if end < len(self._positions) else self._end_position
        batch = self._batches[first]
        assert batch is not None
        if len(batch) >= max_bytes or end == first + 1:
            return [batch], len(batch), start_position
        if limit_position - start_position > max_bytes:
            limit_position = start_position + max_bytes
            end = bisect_right(self._positions, limit_position - 1, first, end)
        views: list[Buffer] = self._batches[first:end]  # type: ignore[assignment]  # None only below the head
        surplus = self._positions[end - 1] + len(views[-1]) - limit_position
        if surplus > 0:
            views[-1] = memoryview(views[-1])[:-surplus]
        return views, limit_position - start_position, start_position

    def _drop_first(self) -> int:
        """Lets the oldest entry go. Returns the bytes that this frees."""
        if self._cleared:
            self._cleared -= 1
            return 0
        batch = self._batches[self._head]
        assert batch is not None
        self._batches[self._head] = None
        self._head += 1
        if self._head >= _COMPACT_AT and self._head * 2 > len(self._batches):
            del self._base_offsets[: self._head], self._positions[: self._head], self._batches[: self._head]
            self._head = 0
        return len(batch) + ENTRY_OVERHEAD_BYTES
