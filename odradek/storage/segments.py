"""The segments of one log, by base offset.

Changed only by the loop thread, and always as a whole: a thread that reads takes `all` once and keeps that row.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from odradek.storage.segment import Segment


class SegmentRow(NamedTuple):
    """An unchanging list of segments, ascending."""

    base_offsets: tuple[int, ...]
    segments: tuple[Segment, ...]

    def at_or_below(self, offset: int) -> int:
        """Index of the last segment whose base offset is not above `offset`; the first segment for anything less."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def end_offset(self, at: int) -> int | None:
        """Base offset of the next segment; None for the active one."""
        return self.base_offsets[at + 1] if at + 1 < len(self.base_offsets) else None


class Segments:
    """Never empty; the last one is the active segment."""

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

    def remove(self, gone: Iterable[Segment]) -> None:
        self.replace(gone, ())

    def replace(self, gone: Iterable[Segment], new: Iterable[Segment]) -> None:
        gone_ids = set(map(id, gone))
        self.all = _row([*(s for s in self.all.segments if id(s) not in gone_ids), *new])


def _row(segments: Iterable[Segment]) -> SegmentRow:
    row = tuple(sorted(segments, key=lambda segment: segment.base_offset))
    assert row, "a log has at least one segment"
    return SegmentRow(tuple(segment.base_offset for segment in row), row)
