"""Which compacted log to clean next, over which offsets, and how its segments are grouped.

Pure decisions, with the thresholds of Kafka's cleaner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from odradek.storage.index import MAX_RELATIVE_OFFSET
from odradek.storage.log_config import LogConfig


class SegmentFacts(Protocol):
    """What of a segment the choice rests on."""

    base_offset: int
    size_bytes: int

    def largest_timestamp(self) -> int: ...

    def first_timestamp(self) -> int | None: ...


S = TypeVar("S", bound=SegmentFacts)
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Cleanable:
    """`first_dirty_offset`: what lies below was cleaned before. `end_offset`, exclusive: where a pass has to stop."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # `max.compaction.lag.ms` is over for some of it
    min_dirty_ratio: float

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def wants_cleaning(self) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > self.min_dirty_ratio)


def cleanable(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    cleaned_to: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> Cleanable:
    """What of a log could be cleaned now.

    segments     ascending, the active one last: it is never cleaned
    cleaned_to   as the cleaner checkpoint says; None for a log that was never cleaned
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
    # A pass goes on to the end of the segment that holds its end, as far as counting bytes is concerned.
    counted_to = next((s.base_offset for s in segments[:-1] if s.base_offset >= end_offset), active_base)
    oldest_ms = now_ms - max(config.max_compaction_lag_ms, 0)
    # Without a limit (the default) nobody has to read first batches.
    first_timestamps = (segment.first_timestamp() for segment in (dirty if oldest_ms > 0 else ()))
    return Cleanable(
        first_dirty_offset=first_dirty,
        end_offset=end_offset,
        clean_bytes=sum(s.size_bytes for s in segments if s.base_offset < first_dirty),
        dirty_bytes=sum(s.size_bytes for s in dirty if s.base_offset < counted_to),
        is_overdue=any(timestamp is not None and 0 < timestamp < oldest_ms for timestamp in first_timestamps),
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
    )


def next_lag_ms(segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> int | None:
    """When the next `min.compaction.lag.ms` or `max.compaction.lag.ms` is over, and `cleanable` may say more."""
    times_ms: list[int] = []
    for segment in segments[:-1]:
        if config.min_compaction_lag_ms > 0:
            times_ms.append(segment.largest_timestamp() + config.min_compaction_lag_ms)
        first_ms = segment.first_timestamp() if config.max_compaction_lag_ms < now_ms else None
        if first_ms is not None:
            times_ms.append(first_ms + config.max_compaction_lag_ms + 1)
    return min((each for each in times_ms if each > now_ms), default=None)


def filthiest(logs: Mapping[K, Cleanable]) -> K | None:
    """The one with the largest dirty ratio of those that want cleaning."""
    wanting = [key for key, found in logs.items() if found.wants_cleaning]
    return max(wanting, key=lambda key: logs[key].dirty_ratio, default=None)


def groups(
    segments: Sequence[S], config: LogConfig, *, index_bytes: Mapping[int, int], end_offset: int
) -> list[list[S]]:
    """Segments to be made one, so that what is cleaned again and again does not end as a thousand small files.

    index_bytes   of the larger index of each segment, by base offset
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
    """From the segment that holds `offset` on."""
    first = max((at for at, segment in enumerate(segments) if segment.base_offset <= offset), default=0)
    return segments[first:]
