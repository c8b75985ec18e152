"""Chooses the log to compact next and runs one compaction pass over it. This module performs the file operations;
`odradek.storage.compaction` decides which records to keep.

`cleanable_range` finds the part of a log that can be cleaned, `dirtiest` chooses the log to clean next, and
`group_segments` decides which segments are merged. They use the thresholds of Kafka's cleaner.

    CleanerPass(…)        loop     captures the current segments of the log
    build_offset_map()    thread   finds the latest offset of each key
    clean_next()          thread   one group of segments → one `.cleaned` segment, renamed to `.swap`
    log.replace_segments, replacement.finish, …     see SegmentReplacement; then clean_next() again

Batches can be appended to the log during a pass, because appending changes nothing that the pass reads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from odradek.files.indexes import MAX_RELATIVE_OFFSET, CorruptIndex
from odradek.files.names import CLEANED
from odradek.protocol.batch_header import BatchHeader, batches, crc_ok, read_batch_header
from odradek.protocol.errors import MalformedMessage
from odradek.storage.compaction import (
    BatchAt,
    LastProducerBatch,
    PassRules,
    PassTransactions,
    RecordFilter,
    collect_keys,
)
from odradek.storage.disk import Buffer, Disk
from odradek.storage.key_map import KeyMap
from odradek.storage.log_config import LogConfig
from odradek.storage.log_reader import scan
from odradek.storage.producer_state import ProducerEntry
from odradek.storage.segment import CorruptSegment, Segment
from odradek.storage.segment_removal import SegmentReplacement


class SegmentFacts(Protocol):
    """The properties of a segment that determine whether it can be cleaned."""

    base_offset: int
    size_bytes: int

    def largest_timestamp(self) -> int: ...

    def first_timestamp(self) -> int | None: ...


S = TypeVar("S", bound=SegmentFacts)
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """The part of a log that can be cleaned now.

    Everything below `first_dirty_offset` is already clean. A pass must stop before `end_offset`.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # whether some dirty records are older than `max.compaction.lag.ms`
    min_dirty_ratio: float

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def wants_cleaning(self) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > self.min_dirty_ratio)


def cleanable_range(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    cleaned_to: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> CleanableRange:
    """Returns the part of a log that can be cleaned now.

    segments     in ascending order; the last one is the active segment, which is never cleaned
    cleaned_to   offset in the cleaner checkpoint; None if the log was never cleaned
    """
    first_dirty = cleaned_to
    if first_dirty is None or not log_start_offset <= first_dirty <= log_end_offset:
        first_dirty = log_start_offset
    active_base = segments[-1].base_offset
    dirty = _from(segments[:-1], first_dirty) if first_dirty < active_base else ()
    end_offset = min(last_stable_offset, active_base)
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        too_young = (segment.base_offset for segment in dirty if segment.largest_timestamp() > youngest_ms)
        end_offset = min(end_offset, next(too_young, end_offset))
    end_offset = max(end_offset, first_dirty)
    # Count whole segments, including the segment that contains the end of the pass.
    counted_to = next((s.base_offset for s in segments[:-1] if s.base_offset >= end_offset), active_base)
    oldest_ms = now_ms - max(config.max_compaction_lag_ms, 0)
    # Without a maximum lag (the default), the timestamps of the first batches are irrelevant and need not be read.
    first_timestamps = (segment.first_timestamp() for segment in (dirty if oldest_ms > 0 else ()))
    return CleanableRange(
        first_dirty_offset=first_dirty,
        end_offset=end_offset,
        clean_bytes=sum(s.size_bytes for s in segments if s.base_offset < first_dirty),
        dirty_bytes=sum(s.size_bytes for s in dirty if s.base_offset < counted_to),
        is_overdue=any(timestamp is not None and 0 < timestamp < oldest_ms for timestamp in first_timestamps),
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
    )


def next_lag_ms(segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> int | None:
    """Returns the next time (ms) at which `min.compaction.lag.ms` or `max.compaction.lag.ms` ends for a segment. More
    of the log may become cleanable at that time. Returns None if there is no such time."""
    times_ms: list[int] = []
    for segment in segments[:-1]:
        if config.min_compaction_lag_ms > 0:
            times_ms.append(segment.largest_timestamp() + config.min_compaction_lag_ms)
        first_ms = segment.first_timestamp() if config.max_compaction_lag_ms < now_ms else None
        if first_ms is not None:
            times_ms.append(first_ms + config.max_compaction_lag_ms + 1)
    return min((each for each in times_ms if each > now_ms), default=None)


def dirtiest(logs: Mapping[K, CleanableRange]) -> K | None:
    """Returns the log with the largest dirty ratio among those that need cleaning."""
    wanting = [key for key, found in logs.items() if found.wants_cleaning]
    return max(wanting, key=lambda key: logs[key].dirty_ratio, default=None)


def group_segments(
    segments: Sequence[S], config: LogConfig, *, index_bytes: Mapping[int, int], end_offset: int
) -> list[list[S]]:
    """Groups segments so that each group can be merged into one file. Otherwise, repeated cleaning would leave many
    small files.

    index_bytes   size of the larger index of each segment, by base offset
    """
    made: list[list[S]] = []
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        group = made[-1] if made else []
        if (
            group
            and sum(s.size_bytes for s in group) + segment.size_bytes <= config.segment_bytes
            and sum(index_bytes[s.base_offset] for s in (*group, segment)) <= config.segment_index_bytes
            and following - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            group.append(segment)
        else:
            made.append([segment])
    return made


def _from(segments: Sequence[S], offset: int) -> Sequence[S]:
    """Returns the segment that contains `offset`, and all later segments."""
    first = max((at for at, segment in enumerate(segments) if segment.base_offset <= offset), default=0)
    return segments[first:]


WRITE_BYTES = 512 * 1024
UNCLEANABLE = (CorruptSegment, CorruptIndex, MalformedMessage, OSError)


def no_throttle(size_bytes: int) -> None:
    """The default throttle, which does not limit the speed of a pass."""


class CleanerPass:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: Sequence[Segment],
        config: LogConfig,
        found: CleanableRange,
        producers: Sequence[ProducerEntry],
        *,
        now_ms: int,
        key_map_bytes: int,
        throttle: Callable[[int], None] = no_throttle,
    ) -> None:
        """Prepares a pass over a log's segments.

        segments   segments of the log; the last one is the active segment
        throttle   called with the number of bytes read or written; may block to slow the pass down
        """
        self._disk = disk
        self._directory = directory
        self._segments = [s for s in segments[:-1] if s.base_offset < found.end_offset]
        self._later_segments = segments[len(self._segments) : -1]
        self._active_aborted = segments[-1].txn_index.entries()  # copied now, because the loop may add entries
        self._config = config
        self._found = found
        self._producers = producers
        self._now_ms = now_ms
        self._throttle = throttle
        self._keys = KeyMap(key_map_bytes)
        self._groups: list[list[Segment]] = []
        self._transactions = PassTransactions(())
        self._filter: RecordFilter | None = None

    @property
    def end_offset(self) -> int:
        """The end of the clean part of the log after this pass. The next pass starts there. Valid after
        `build_offset_map`."""
        return self._keys.end_offset

    def build_offset_map(self) -> None:
        """Finds the latest offset of each key and groups the segments. Raises an exception of a type in UNCLEANABLE if
        this log cannot be cleaned."""
        found, keys = self._found, self._keys
        keys.end_offset = found.first_dirty_offset
        # Read the indexes up to the end of the log: the marker of an aborted transaction can lie beyond the end of the
        # pass, or beyond the last key that fits into the map. The records of that transaction must not be treated as
        # committed.
        indexes = [segment.txn_index.entries() for segment in (*self._segments, *self._later_segments)]
        aborted = [txn for entries in (*indexes, self._active_aborted) for txn in entries]
        dirty = [s for s, end in self._with_ends(self._segments) if end > found.first_dirty_offset]
        # Leave out transactions that ended before the dirty part: this scan never reaches their markers.
        first_read = dirty[0].base_offset if dirty else found.end_offset
        transactions = PassTransactions(txn for txn in aborted if txn.last_offset >= first_read)
        for segment, end in self._with_ends(dirty):
            batches_below = (at for at in self._read(segment) if at[0].base_offset < found.end_offset)
            max_record_bytes = self._config.max_decompressed_message_bytes
            if not collect_keys(batches_below, keys, transactions, found.first_dirty_offset, max_record_bytes):
                break
            keys.end_offset = max(
                keys.end_offset, min(end, found.end_offset)
            )  # includes a gap at the end of the segment
        self._segments = [s for s in self._segments if s.base_offset < keys.end_offset]
        index_bytes = {s.base_offset: max(8 * len(s.offset_index), 12 * len(s.time_index)) for s in self._segments}
        self._groups = group_segments(
            self._segments, self._config, index_bytes=index_bytes, end_offset=found.end_offset
        )
        self._transactions = PassTransactions(aborted)
        rules = PassRules(
            end_offset=found.end_offset,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            max_record_bytes=self._config.max_decompressed_message_bytes,
            producers=self._last_of_producers(),
        )
        self._filter = RecordFilter(keys, self._transactions, rules)

    def clean_next(self) -> SegmentReplacement | None:
        """Cleans the next group of segments and prepares the replacement. Returns None if no group is left. Raises the
        same errors as `build_offset_map`."""
        if not self._groups:
            return None
        group = self._groups.pop(0)
        cleaned = Segment.new(
            self._disk, self._directory, group[0].base_offset, now_ms=self._now_ms, file_suffix=CLEANED
        )
        replacement = SegmentReplacement(self._disk, self._directory, [cleaned], group)
        try:
            self._clean(group, cleaned)
            replacement.prepare()
        except BaseException:
            # Any files left behind are overwritten by the next attempt, or unlinked at the next start.
            with suppress(OSError):
                replacement.discard()
            raise
        return replacement

    def _clean(self, group: Sequence[Segment], cleaned: Segment) -> None:
        assert self._filter is not None, "learn first"
        writer = _Writer(cleaned, self._config.index_interval_bytes, self._throttle)
        for segment in group:
            for header, batch in self._read(segment):
                # Keep records beyond the end of the pass, because they may belong to open transactions.
                filtered = (
                    self._filter.filtered(header, batch) if header.base_offset < self._found.end_offset else batch
                )
                if filtered is not None:
                    writer.append(header if filtered is batch else read_batch_header(filtered), filtered)
        writer.flush()
        cleaned.seal_time_index()
        for txn in self._transactions.still_indexed:
            cleaned.txn_index.append(txn)
        self._transactions.still_indexed.clear()
        # Keep the entries of aborted transactions whose markers lie beyond the end of the pass. Their records are not
        # cleaned yet.
        for segment in group:
            for txn in segment.txn_index.entries():
                if txn.last_offset >= self._found.end_offset:
                    cleaned.txn_index.append(txn)
        cleaned.file.sync()
        for path, data in cleaned.index_files():
            self._disk.write_bytes(path, data)
            self._disk.open(path).sync()
        self._disk.sync_directory(self._directory)

    def _read(self, segment: Segment) -> Iterator[BatchAt]:
        """Yields every batch after checking its CRC, because rewriting a damaged batch would give it a valid CRC."""
        next_offset = segment.base_offset
        for portion in scan(segment, 0, segment.size_bytes):
            view = memoryview(portion)
            for position, header in batches(view):
                if header.base_offset < next_offset or not crc_ok(view, position, header.size_bytes):
                    raise CorruptSegment(
                        f"{segment.path()}: the batch that should begin at offset {next_offset} or later is damaged"
                    )
                next_offset = header.next_offset
                yield header, view[position : position + header.size_bytes]
            self._throttle(len(portion))

    def _with_ends(self, segments: Sequence[Segment]) -> Iterator[tuple[Segment, int]]:
        """Yields each segment with the base offset of the next segment."""
        for at, segment in enumerate(segments):
            yield segment, segments[at + 1].base_offset if at + 1 < len(segments) else self._found.end_offset

    def _last_of_producers(self) -> Mapping[int, LastProducerBatch]:
        """Returns the last batch of every producer. If that batch is a marker, finds the producer's newest control
        batch below the end of the pass."""
        epochs = {entry.producer_id: entry.producer_epoch for entry in self._producers if not entry.batches}
        markers: dict[int, int] = {}
        if epochs:
            for segment in self._segments:
                for _, header in segment.headers(0, segment.size_bytes):
                    if header.is_control and epochs.get(header.producer_id) == header.producer_epoch:
                        markers[header.producer_id] = header.last_offset
        return {
            entry.producer_id: LastProducerBatch(
                entry.producer_epoch, entry.last_data_offset, markers.get(entry.producer_id)
            )
            for entry in self._producers
        }


class _Writer:
    """Appends batches to a segment's file in writes of about half a megabyte."""

    def __init__(self, segment: Segment, index_interval_bytes: int, throttle: Callable[[int], None]) -> None:
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._throttle = throttle
        self._waiting: list[Buffer] = []
        self._waiting_bytes = self._written_bytes = 0
        segment.create_file()
        segment.file.truncate(0)  # an earlier attempt may have left content

    def append(self, header: BatchHeader, batch: Buffer) -> None:
        self._segment.note_batch(self._written_bytes + self._waiting_bytes, header, self._index_interval_bytes)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        self._segment.file.write_at(self._waiting, self._written_bytes)
        self._throttle(self._waiting_bytes)
        self._written_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
