"""Keeps batches in memory. `Staging` holds the batches that are appended but not yet written, and decides when a
segment is full. `TailCache` holds the latest batches, for readers at the end of the log."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.files.indexes import MAX_RELATIVE_OFFSET, AbortedTxn
from odradek.protocol.records import BatchHeader
from odradek.storage.appended import StagedBatch
from odradek.storage.disk import Buffer
from odradek.storage.log_config import LogConfig
from odradek.storage.log_sync import SnapshotToWrite
from odradek.storage.segment import Segment

DEFAULT_BUDGET_BYTES: Final = 32 * 1024 * 1024
ENTRY_OVERHEAD_BYTES: Final = 200  # size of an entry without its batch, so that tiny batches also use up the budget
_COMPACT_AT: Final = 1024
NO_NUMBERS: Final[list[int]] = []  # shared by all tails without batches, and never modified
NO_BATCHES: Final[list[Buffer | None]] = []
_NO_TIMESTAMP: Final = -2  # below every timestamp, including the -1 of a batch without timestamps


@dataclass(slots=True)
class StagedRun:
    """The batches staged for one segment, to be written together at `position`.

    Batches within the limits can be staged without calling `must_roll` for each.
    """

    segment: Segment
    position: int
    is_new: bool = False  # whether the segment has no file yet
    size_bytes: int = 0
    batches: list[StagedBatch] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)  # the bytes to write
    aborted: list[AbortedTxn] = field(default_factory=list)
    snapshot: SnapshotToWrite | None = None  # producer snapshot as of the start of the segment
    limits_of: LogConfig | None = None
    max_last_offset: int = -1
    max_timestamp: int = _NO_TIMESTAMP
    index_room: int = 0

    def set_limits(self, config: LogConfig, first_timestamp: int) -> None:
        """Sets the limits within which batches can be staged without `must_roll`.

        first_timestamp   timestamp of the segment's first batch, used to compute the segment's age
        """
        segment = self.segment
        self.limits_of = config
        self.max_last_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        self.max_timestamp = _NO_TIMESTAMP
        if first_timestamp >= 0:
            self.max_timestamp = first_timestamp + config.segment_ms - segment.roll_jitter_ms
        self.index_room = _index_room(self, config)

    def prepare_next(self) -> None:
        """Prepares for the next batches once the current batches have been written to the file."""
        self.position += self.size_bytes
        self.size_bytes = 0
        self.batches = []
        self.buffers = []
        self.is_new = False
        self.snapshot = None
        if self.aborted:
            self.aborted = []


class Staging:
    """The batches waiting to be written, and the position of the next batch.

    next_offset  offset after the staged batches
    runs         the runs with staged batches, in the order of their segments
    """

    __slots__ = ("_active", "_begin_run", "_tip", "next_offset", "runs")

    def __init__(self, active: Segment, next_offset: int, begin_run: Callable[[int], StagedRun]) -> None:
        """Creates a staging area. `begin_run` receives the current time in ms and creates the run of a new segment that
        begins at `next_offset`."""
        self._begin_run = begin_run
        self.continue_in(active, next_offset)

    def continue_in(self, active: Segment, next_offset: int) -> None:
        """Continues with this segment as the active segment. Nothing is staged afterwards."""
        self.next_offset = next_offset
        self.runs: list[StagedRun] = []
        self._active: Segment | None = active  # set until the next batch creates `_tip`
        self._tip: StagedRun | None = None  # created on demand, because most logs of a broker may be empty

    def end(self) -> None:
        """Discards the staged batches and the reference to the log. Nothing can be staged afterwards."""
        self.runs = []
        self._begin_run = _no_run

    def stage(self, batch: Buffer, size_bytes: int, header: BatchHeader, config: LogConfig, now_ms: int) -> StagedRun:
        """Stages the batch at `next_offset` in the last segment, or in a new segment if the last segment has no room
        for it."""
        run, base_offset, max_timestamp = self._tip, self.next_offset, header.max_timestamp
        if run is None:
            run = self._create_tip()
        last_offset = base_offset + header.last_offset_delta
        if (
            run.limits_of is not config
            or run.position + run.size_bytes + size_bytes > config.segment_bytes
            or max_timestamp > run.max_timestamp
            or last_offset > run.max_last_offset
            or run.index_room <= 0
        ):
            run = self._roll_if_full(run, header, size_bytes, config, now_ms)
        if not run.batches:
            self.runs.append(run)
        run.buffers.append(batch)
        run.batches.append(StagedBatch(batch, size_bytes, base_offset, last_offset, max_timestamp))
        run.size_bytes += size_bytes
        run.index_room -= 1
        self.next_offset = last_offset + 1
        return run

    def _create_tip(self) -> StagedRun:
        active, self._active = self._active, None
        assert active is not None, "the active segment is missing, so a run must be staged"
        tip = self._tip = StagedRun(active, active.size_bytes)
        return tip

    def _roll_if_full(
        self, tip: StagedRun, header: BatchHeader, size_bytes: int, config: LogConfig, now_ms: int
    ) -> StagedRun:
        """Starts a new segment if the last segment is full and sets the limits for the following batches."""
        max_timestamp = header.max_timestamp
        if must_roll(
            tip,
            config,
            size_bytes=size_bytes,
            last_offset=self.next_offset + header.last_offset_delta,
            max_timestamp=max_timestamp,
            now_ms=now_ms,
        ):
            tip = self._tip = self._begin_run(now_ms)
        first = first_timestamp(tip)
        tip.set_limits(config, max_timestamp if first is None else first)
        return tip


def _no_run(now_ms: int) -> StagedRun:
    raise RuntimeError("a log that has ended cannot stage records")


def first_timestamp(run: StagedRun) -> int | None:
    """Returns the largest timestamp of the segment's first batch, which may be written or staged. Returns None if the
    segment is empty."""
    if run.position:
        return run.segment.first_timestamp()
    return run.batches[0].max_timestamp if run.batches else None


def must_roll(
    run: StagedRun, config: LogConfig, *, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
) -> bool:
    """Returns whether a batch must go into a new segment instead of the segment of `run`.

    The rules are Kafka's. They concern the segment's size and age, int32 offsets, and the room in the indexes. The age
    is measured in record time since the first batch, or in clock time if that batch has no timestamp.
    """
    segment = run.segment
    used_bytes = run.position + run.size_bytes
    if used_bytes + size_bytes > config.segment_bytes or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return True
    if used_bytes == 0:
        return False
    if _index_room(run, config) <= 0:
        return True
    first = first_timestamp(run)
    age_ms = max_timestamp - first if first is not None and first >= 0 else now_ms - segment.created_ms
    return age_ms > config.segment_ms - segment.roll_jitter_ms


def _index_room(run: StagedRun, config: LogConfig) -> int:
    """Returns how many more batches are certain to fit without filling an index. Every batch may need an entry,
    including each staged batch."""
    segment = run.segment
    offset_room = config.max_offset_index_entries - len(segment.offset_index)
    time_room = config.max_time_index_entries - 1 - len(segment.time_index)
    return min(offset_room, time_room) - len(run.batches)


# The cache of the latest batches.


class TailCache:
    """The most recently appended batches of all logs. They stay in the buffers that they arrived in, so that consumers
    at the end of a log can be served without a system call.

    All logs of the process share one byte budget; each log adds its batches through its own `LogTail`. The oldest
    batches are evicted first, regardless of their log.
    """

    def __init__(self, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._used_bytes = 0
        self._oldest: deque[LogTail] = deque()  # one element for each entry, in the order of appending

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def new_tail(self) -> LogTail:
        return LogTail(self)

    def clear(self) -> None:
        """Discards all cached batches, because their logs are closed."""
        self._oldest.clear()

    def _batches_added(self, tail: LogTail, count: int, size_bytes: int) -> None:
        self._oldest.extend([tail] * count)
        self._used_bytes += size_bytes + count * ENTRY_OVERHEAD_BYTES
        while self._used_bytes > self._budget_bytes:
            self._used_bytes -= self._oldest.popleft()._drop_first()

    def _batches_dropped(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes


class LogTail:
    """The last batches of one log's active segment, without gaps, up to the end of the log."""

    __slots__ = ("_base_offsets", "_batches", "_cache", "_cleared", "_end_position", "_head", "_positions")

    def __init__(self, cache: TailCache) -> None:
        self._cache = cache
        self._base_offsets, self._positions, self._batches = NO_NUMBERS, NO_NUMBERS, NO_BATCHES
        self._end_position = 0  # position in the segment's file at which these batches end
        self._head = 0  # index of the oldest remaining entry
        self._cleared = 0  # number of entries that `clear` removed but that are still in the cache's queue

    def add(self, position: int, staged: Sequence[StagedBatch]) -> None:
        """Adds consecutive batches that were just written to the file at `position`."""
        if not self._batches:
            self._base_offsets, self._positions, self._batches = [], [], []
        base_offsets, positions, batches = self._base_offsets, self._positions, self._batches
        for each in staged:
            base_offsets.append(each.base_offset)
            positions.append(position)
            batches.append(each.batch)
            position += each.size_bytes
        self._cache._batches_added(self, len(staged), position - positions[-len(staged)])
        self._end_position = position

    def clear(self) -> None:
        """Discards all batches, because the log has been truncated or continues in another segment."""
        held = len(self._batches) - self._head
        if held:
            self._cleared += held
            size_bytes = self._end_position - self._positions[self._head]
            self._cache._batches_dropped(size_bytes + held * ENTRY_OVERHEAD_BYTES)
        self._base_offsets, self._positions, self._batches = NO_NUMBERS, NO_NUMBERS, NO_BATCHES
        self._head = 0

    def read(self, start_offset: int, end_offset: int | None, max_bytes: int) -> tuple[list[Buffer], int, int] | None:
        """Returns the data from the batch that contains `start_offset` up to `end_offset` (None means the end of the
        log). As when reading the file, the data is cut off at `max_bytes`, even within a batch, but contains at least
        the complete first batch.

        returns   the buffers, their size, and the file position of the first; None if `start_offset` is not in memory
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
        """Removes the oldest entry. Returns the number of bytes freed."""
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
