"""A log's segments. A segment holds a range of the log's offsets in one `.log` file, with its indexes.

The indexes of the active segment are in memory; their files are written when the segment stops being active, and at a
clean shutdown. After a crash they are rebuilt from the log, for every segment that is not entirely below the recovery
point. Indexes of older segments are read on first use.

Only the loop thread changes the segments of a log, and it always replaces the entire `SegmentRow`. A reading thread
gets `Segments.all` once and keeps using that row.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from odradek.files.indexes import MAX_RELATIVE_OFFSET, TIME_ENTRY_BYTES, CorruptIndex, OffsetIndex, TimeIndex, TxnIndex
from odradek.files.manifest import NO_FACTS, FactsByName, is_as_left, is_last_entry_as_left
from odradek.files.names import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, offset_file
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import FileSlice
from odradek.protocol.records import HEADER_BYTES, BatchHeader, read_batch_header
from odradek.storage.appended import StagedBatch
from odradek.storage.disk import Buffer, Disk, DiskFile

logger = logging.getLogger(__name__)

NO_TIMESTAMP: Final = -1
MIN_SLICE_BYTES: Final = 256 * 1024  # for smaller slices, the extra system calls cost more than copying
_INDEX_INTERVAL_BYTES: Final = 4096  # distance between entries of a rebuilt index; any distance is valid
_WALK_BYTES: Final = 4096  # bytes per read when looking for a batch: about one index interval


class CorruptSegment(Exception):
    """The file does not contain a valid batch at a position where one must be."""


class Segment:
    """One segment of a log. `size_bytes` includes only written bytes, not staged bytes. Only the loop thread changes a
    segment, but other threads may read it."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_directory",
        "_disk",
        "_file",
        "_first_timestamp",
        "_is_unwritten",
        "_left",
        "_max_timestamp",
        "_offset_index",
        "_time_index",
        "_txn_index",
        "base_offset",
        "created_ms",
        "file_suffix",
        "indexes_are_rebuilt",
        "roll_jitter_ms",
        "size_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        size_bytes: int,
        created_ms: int,
        roll_jitter_ms: int = 0,
        file_suffix: str = "",
        left: FactsByName = NO_FACTS,
    ) -> None:
        """Creates a segment. `left` contains facts about its index files from the manifest of a clean shutdown; it is
        empty if there is no manifest."""
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms  # creation time, which Kafka uses to roll a segment that has no records
        self.roll_jitter_ms = roll_jitter_ms
        self.file_suffix = file_suffix  # `.cleaned` or `.swap` until the segment becomes part of the log
        self.indexes_are_rebuilt = False  # whether the index files are damaged or missing
        self._left = left
        self._file: DiskFile | None = None
        self._is_unwritten = False  # whether the segment has no indexes yet; its first batch creates them
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        self._max_timestamp: tuple[int, int] | None = None
        self._first_timestamp: int | None = None
        self._bytes_since_index_entry = 0

    @classmethod
    def new(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        roll_jitter_ms: int = 0,
        file_suffix: str = "",
        is_log: bool = False,
    ) -> "Segment":
        """Returns an empty segment. Its file is created by `create_file`, or automatically on first use.

        is_log  whether this is the only segment of a log that may stay empty; memory for its indexes is then
                allocated only when its first batch is added
        """
        segment = cls(
            disk,
            directory,
            base_offset,
            size_bytes=0,
            created_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            file_suffix=file_suffix,
        )
        if is_log:
            segment._is_unwritten = True
        else:
            segment.reset_indexes()
        return segment

    def copy_in(self, disk: Disk, directory: str, *, now_ms: int) -> "Segment | None":
        """Returns a copy of this segment for a copy of its file in another directory. Returns None if the indexes are
        not in memory."""
        offset_index, time_index, txn_index = self._offset_index, self._time_index, self._txn_index
        if offset_index is None or time_index is None or txn_index is None:
            return None
        copied = Segment(disk, directory, self.base_offset, size_bytes=self.size_bytes, created_ms=now_ms)
        copied._offset_index = offset_index.copy()
        copied._time_index = time_index.copy()
        copied._txn_index = txn_index.copy()
        copied._max_timestamp = self._max_timestamp
        copied._first_timestamp = self._first_timestamp
        copied._bytes_since_index_entry = self._bytes_since_index_entry
        return copied

    def path(self, suffix: str = LOG) -> str:
        return f"{self._directory}/{offset_file(self.base_offset, suffix)}{self.file_suffix}"

    @property
    def disk(self) -> Disk:
        return self._disk

    @property
    def file(self) -> DiskFile:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path(), create=self.size_bytes == 0)
        return file

    def create_file(self) -> None:
        self._file = self._disk.open(self.path(), create=True)

    # --- indexes

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            if self._is_unwritten:
                return OffsetIndex(self.base_offset)
            try:
                index = OffsetIndex.from_bytes(self.base_offset, self._as_left(OFFSET_INDEX))
                if index.last_position >= max(self.size_bytes, 1):
                    raise CorruptIndex("the offset index points beyond the log")
                self._offset_index = index
            except (CorruptIndex, FileNotFoundError) as error:
                index, self._time_index = self._indexes_from_log(OFFSET_INDEX, error)
                self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            if self._is_unwritten:
                return TimeIndex(self.base_offset)
            try:
                index = TimeIndex.from_bytes(self.base_offset, self._as_left(TIME_INDEX))
                self._time_index = index
            except (CorruptIndex, FileNotFoundError) as error:
                self._offset_index, index = self._indexes_from_log(TIME_INDEX, error)
                self._time_index = index
        return index

    @property
    def txn_index(self) -> TxnIndex:
        """The transaction index. Raises CorruptIndex if it is damaged, because only the owner of the producer state can
        rebuild it."""
        index = self._txn_index
        if index is None:
            if self._is_unwritten:
                return TxnIndex()
            data = self._as_left(TXN_INDEX) if self._disk.exists(self.path(TXN_INDEX)) else b""
            index = self._txn_index = TxnIndex.from_bytes(self.base_offset, data)
        return index

    def _as_left(self, suffix: str) -> bytes:
        """Returns an index file's content. Raises CorruptIndex if the file has changed since the clean shutdown, and
        FileNotFoundError if it does not exist."""
        data = self._disk.read_bytes(self.path(suffix))
        if not is_as_left(self._left, offset_file(self.base_offset, suffix), data):
            raise CorruptIndex("it has changed since the clean stop")
        return data

    def forget_absent_txn_index(self) -> None:
        """Marks the transaction index as empty, so that nothing looks for its file. Called if the directory listing
        does not contain the file."""
        self._txn_index = TxnIndex()

    def reset_indexes(self) -> None:
        """Empties the indexes. The caller fills them with `note_batch`, beginning at position 0."""
        self._is_unwritten = False
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._txn_index = TxnIndex()
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None
        self._bytes_since_index_entry = 0

    def _indexes_from_log(self, suffix: str, error: Exception) -> tuple[OffsetIndex, TimeIndex]:
        if isinstance(error, CorruptIndex):
            logger.warning("%s is damaged (%s); it is rebuilt from the log", self.path(suffix), error)
        self.indexes_are_rebuilt = True
        rebuilt = Segment.new(self._disk, self._directory, self.base_offset, now_ms=self.created_ms)
        for position, header in self.headers(0, self.size_bytes):
            if not 0 <= header.last_offset - self.base_offset <= MAX_RELATIVE_OFFSET:
                raise CorruptSegment(
                    f"{self.path()} at byte {position}: offset {header.last_offset} belongs to another segment"
                )
            rebuilt.note_batch(position, header, _INDEX_INTERVAL_BYTES)
        rebuilt.seal_time_index()
        return rebuilt.offset_index, rebuilt.time_index

    def note_batches(self, position: int, staged: Sequence[StagedBatch], index_interval_bytes: int) -> None:
        """Adds consecutive batches at `position` to the segment's size, timestamps and indexes.

        As in Kafka, an index entry is added for the first batch that begins more than `index_interval_bytes` after the
        last indexed batch.
        """
        if self._is_unwritten:
            self.reset_indexes()
        largest, largest_offset = self._max_timestamp or self.max_timestamp_and_offset
        unindexed_bytes = self._bytes_since_index_entry
        if position == 0:
            self._first_timestamp = staged[0].max_timestamp
        for batch in staged:
            if batch.max_timestamp > largest:
                largest, largest_offset = batch.max_timestamp, batch.last_offset
            if unindexed_bytes > index_interval_bytes:
                self.offset_index.append(batch.last_offset, position)
                self.time_index.maybe_append(largest, largest_offset)
                unindexed_bytes = 0
            unindexed_bytes += batch.size_bytes
            position += batch.size_bytes
        self._bytes_since_index_entry = unindexed_bytes
        self._max_timestamp = (largest, largest_offset)
        self.size_bytes = position

    def note_batch(self, position: int, header: BatchHeader, index_interval_bytes: int) -> None:
        """Like `note_batches`, but adds a single batch and needs only its header."""
        noted = StagedBatch(b"", header.size_bytes, header.base_offset, header.last_offset, header.max_timestamp)
        self.note_batches(position, [noted], index_interval_bytes)

    def seal_time_index(self) -> None:
        """Adds the largest timestamp as the last entry of the time index, when the segment is finished."""
        timestamp, offset = self.max_timestamp_and_offset
        if timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(timestamp, offset)

    def index_files(self) -> list[tuple[str, bytes]]:
        """Returns the path and the up-to-date content of each index file."""
        files = [
            (self.path(OFFSET_INDEX), self.offset_index.to_bytes()),
            (self.path(TIME_INDEX), self.time_index.to_bytes()),
        ]
        if len(self.txn_index):
            files.append((self.path(TXN_INDEX), self.txn_index.to_bytes()))
        return files

    # --- timestamps

    @property
    def max_timestamp_and_offset(self) -> tuple[int, int]:
        """The largest timestamp in the segment, and the last offset of the first batch with that timestamp. The
        timestamp is -1 if no record has one."""
        largest = self._max_timestamp
        if largest is None:
            if self._time_index is None:
                largest = self._last_time_entry()
            if largest is None:
                largest = self.time_index.last_entry or (NO_TIMESTAMP, self.base_offset)
            self._max_timestamp = largest
        return largest

    def _last_time_entry(self) -> tuple[int, int] | None:
        """Returns the last entry of the time index, reading only that entry from the file. Returns None if the entire
        file must be read instead."""
        try:
            file = self._disk.open_for_reading(self.path(TIME_INDEX))
        except FileNotFoundError:
            return None
        size_bytes = file.size()
        if size_bytes < TIME_ENTRY_BYTES or size_bytes % TIME_ENTRY_BYTES:
            return None
        data = bytes(file.read_at(TIME_ENTRY_BYTES, size_bytes - TIME_ENTRY_BYTES))
        name = offset_file(self.base_offset, TIME_INDEX)
        if not is_last_entry_as_left(self._left, name, size_bytes, data):
            return None
        return TimeIndex.from_bytes(
            self.base_offset, data
        ).last_entry  # None if the entry is all zeros: after a crash, Kafka leaves the file preallocated

    def largest_timestamp(self) -> int:
        """Returns the timestamp that retention by time uses: the largest timestamp in the segment, or the file's
        modification time if no record has a timestamp."""
        timestamp = self.max_timestamp_and_offset[0]
        return timestamp if timestamp > NO_TIMESTAMP else self._disk.modified_ms(self.path())

    def first_timestamp(self) -> int | None:
        """Returns the largest timestamp of the first batch, which Kafka uses to compute the segment's age. Returns None
        if the segment is empty."""
        if self._first_timestamp is None and self.size_bytes:
            for _, header in self.headers(0, HEADER_BYTES):
                self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    # --- reading

    def read(self, size_bytes: int, position: int, *, cached: bool) -> Buffer:
        """Reads bytes of the log file. With `cached`, raises WouldBlock if they are not in the page cache."""
        return self.file.read_cached_at(size_bytes, position) if cached else self.file.read_at(size_bytes, position)

    def slice(self, size_bytes: int, position: int) -> FileSlice | None:
        """Returns a slice that can be sent from the file. Returns None if a buffer is cheaper, or if the bytes are not
        cached."""
        if size_bytes < MIN_SLICE_BYTES:
            return None
        file = self.file
        return FileSlice(file, position, size_bytes) if file.is_cached_at(size_bytes, position) else None

    def headers(self, position: int, end_position: int, *, cached: bool = False) -> Iterator[tuple[int, BatchHeader]]:
        """Yields the position and header of each batch that begins at or after `position` and before `end_position`.
        `position` must be a batch boundary. Does not check CRCs. Raises CorruptSegment."""
        buffer: Buffer = b""
        buffer_position = position
        while position < end_position:
            at = position - buffer_position
            if at + HEADER_BYTES > len(buffer):
                buffer = self.read(
                    max(min(_WALK_BYTES, self.size_bytes - position), HEADER_BYTES), position, cached=cached
                )
                buffer_position, at = position, 0
            try:
                header = read_batch_header(buffer, at)
            except MalformedMessage as error:
                raise CorruptSegment(f"{self.path()} at byte {position}: {error}") from None
            yield position, header
            position += header.size_bytes

    def locate(self, offset: int, *, cached: bool) -> tuple[int, BatchHeader] | None:
        """Returns the position and header of the first batch whose last offset is not below `offset`, or None if there
        is no such batch."""
        indexed_offset, start = self.offset_index.entry_before(offset)
        try:
            for position, header in self.headers(start, self.size_bytes, cached=cached):
                if header.last_offset >= offset:
                    if position == start and start and header.last_offset > indexed_offset:
                        raise CorruptSegment("the offset index points beyond the log")
                    return position, header
        except CorruptSegment as error:
            if self.indexes_are_rebuilt or not start:
                raise
            damage = CorruptIndex(str(error))
            self._offset_index, self._time_index = self._indexes_from_log(OFFSET_INDEX, damage)
            return self.locate(offset, cached=cached)
        return None

    # --- closing

    def keep_open(self) -> None:
        """Opens the segment's file, so that current readers can continue after the segment is removed."""
        if self.size_bytes:
            _ = self.file

    def close_for_removal(self) -> None:
        """Closes the segment's file once current reads have finished. Later reads fail. Called before the file is
        unlinked."""
        if self.size_bytes:
            self._file = None

    def close_file(self) -> None:
        """Closes the segment's file. Called when the log is closed."""
        self._file = None

    def existing_files(self) -> list[str]:
        """Returns the paths of the segment's existing files, with `.log` first."""
        suffixes = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
        return [path for path in map(self.path, suffixes) if self._disk.exists(path)]


class SegmentRow(NamedTuple):
    """An immutable list of segments in ascending order."""

    base_offsets: tuple[int, ...]
    segments: tuple[Segment, ...]

    def at_or_below(self, offset: int) -> int:
        """Returns the index of the last segment whose base offset is not above `offset`, or 0 if all base offsets are
        above it."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def end_offset(self, at: int) -> int | None:
        """Returns the base offset of the segment that follows the segment at index `at`, or None for the active
        segment."""
        return self.base_offsets[at + 1] if at + 1 < len(self.base_offsets) else None


class Segments:
    """The segments of one log. There is always at least one; the last one is the active segment."""

    __slots__ = ("all",)

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.all = _row(segments)

    def __len__(self) -> int:
        return len(self.all.segments)

    @property
    def first(self) -> Segment:
        return self.all.segments[0]

    @property
    def active(self) -> Segment:
        return self.all.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all.segments)

    def add(self, segment: Segment) -> None:
        self.all = _row((*self.all.segments, segment))

    def remove(self, removed: Iterable[Segment]) -> None:
        self.replace(removed, ())

    def replace(self, removed: Iterable[Segment], new: Iterable[Segment]) -> None:
        gone_ids = set(map(id, removed))
        self.all = _row([*(s for s in self.all.segments if id(s) not in gone_ids), *new])


def _row(segments: Iterable[Segment]) -> SegmentRow:
    row = tuple(sorted(segments, key=lambda segment: segment.base_offset))
    assert row, "a log has at least one segment"
    return SegmentRow(tuple(segment.base_offset for segment in row), row)
