"""Walks over a log's segments batch by batch. `headers` yields batch headers, and `stretches` yields complete batches,
about 8 megabytes at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias, TypeVar

from odradek.files.batches import describe_damage, good_header, may_end_a_log
from odradek.files.offline.segments import SegmentFile, position_after, position_before, segment_with, segments_of
from odradek.protocol.batch_header import (
    CONTROL,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    batch_size_at,
    crc_ok,
    unpack_batch_header,
)
from odradek.system.files import pread

HEADERS_WINDOW_BYTES = 16 * 1024  # the rest of a larger batch is skipped instead of read
STRETCH_BYTES = 8 * 1024 * 1024
_REPLACED_TRIES = _STABLE_TRIES = 5

T = TypeVar("T")


class DamagedLog(Exception):
    """Some of the log's bytes are damaged.

    offset   offset of the damaged batch if its header is readable, otherwise the first missing offset
    """

    def __init__(self, path: Path, position: int, offset: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}, offset {offset}: {reason}")
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type[DamagedLog], tuple[Path, int, int, str]]:
        return type(self), (self.path, self.position, self.offset, self.reason)


class SegmentReplaced(Exception):
    """Compaction or retention has changed the files since they were listed, so they must be listed again."""


def read_stable(directory: Path, read: Callable[[list[SegmentFile]], T]) -> T:
    """Calls `read` with a partition's segments. Calls it again if compaction or retention has changed the files during
    the call.

    Raises FileNotFoundError if the partition is deleted.
    """
    for _ in range(_STABLE_TRIES):
        segments = segments_of(directory)
        try:
            return read(segments)
        except (SegmentReplaced, FileNotFoundError):
            continue
    raise FileNotFoundError(f"{directory}: segments in the directory change while they are read")


OnDamage: TypeAlias = Callable[[DamagedLog], None]


def refuse(damage: DamagedLog) -> NoReturn:
    """Raises the damage as an exception. This function is the default reaction to damage."""
    raise damage


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive complete batches of one segment, which begin at `position`. Their headers have been checked, and so
    have their CRCs unless the caller disabled that check."""

    path: Path
    position: int
    data: memoryview
    first_offset: int
    next_offset: int


def headers(
    segment: SegmentFile, position: int = 0, next_offset: int = 0, *, on_damage: OnDamage = refuse
) -> Iterator[tuple[int, BatchHeader, memoryview | None]]:
    """Yields the position and header of each batch, and also the bytes of each control batch. Checks no CRCs.

    next_offset   smallest valid offset at `position`
    on_damage     if this function returns, the walk continues with the next batch that can be found

    Raises SegmentReplaced, and FileNotFoundError if the file is gone.
    """
    size = segment.size_bytes
    with segment.path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        if os.fstat(descriptor).st_ino != segment.inode:
            raise SegmentReplaced(segment.path)
        window, start = memoryview(b""), 0
        while position < size:
            at = position - start
            if at + HEADER_BYTES > len(window):
                window = memoryview(pread(descriptor, min(HEADERS_WINDOW_BYTES, size - position), position))
                start, at = position, 0
            header = good_header(window, at, size - position, next_offset)
            if header is None:
                if segment.is_active and may_end_a_log(window[at:], size - position):
                    return
                reason = describe_damage(window, at, size - position, next_offset)
                on_damage(DamagedLog(segment.path, position, next_offset, reason))
                found = position_after(segment, position)
                if found is None:
                    return
                position = found
                continue
            batch_bytes = header.batch_length + LOG_OVERHEAD
            data = None
            if header.attributes & CONTROL:
                data = window[at : at + batch_bytes]
                if len(data) < batch_bytes:
                    data = memoryview(pread(descriptor, batch_bytes, position))
            yield position, header, data
            position += batch_bytes
            next_offset = header.base_offset + header.last_offset_delta + 1


def stretches(
    directory: Path,
    start_offset: int,
    end_offset: int,
    *,
    hint: tuple[int, int, int] | None = None,
    check_crcs: bool = True,
    on_damage: OnDamage = refuse,
    stretch_bytes: int = STRETCH_BYTES,
) -> Iterator[Stretch]:
    """Yields the batches with start_offset <= offset < end_offset, including control batches, about `stretch_bytes` at
    a time.

    The first and last batches can also contain offsets outside this range. If compaction or retention changes the files
    in the meantime, they are listed again. Offsets that no longer exist are left out; the caller can detect this from
    `first_offset` and `next_offset`.

    hint   base offset and inode of a segment, and a position in it at which a batch begins at or before `start_offset`

    The bytes of a stretch are only valid until the next stretch is requested. Raises DamagedLog through `on_damage`.
    """
    at, tries = start_offset, _REPLACED_TRIES
    while at < end_offset:
        segments = segments_of(directory)
        if not segments:
            return
        try:
            for segment in segments[segment_with(segments, at) :]:
                if segment.base_offset >= end_offset:
                    return
                position = _position(segment, at, hint)
                for stretch in _of_segment(segment, position, at, end_offset, check_crcs, on_damage, stretch_bytes):
                    yield stretch
                    at, tries = max(at, stretch.next_offset), _REPLACED_TRIES
            return
        except (SegmentReplaced, FileNotFoundError):
            tries -= 1
            if not tries:
                raise


def _position(segment: SegmentFile, offset: int, hint: tuple[int, int, int] | None) -> int:
    """Returns the position of a batch that begins at or before `offset`."""
    indexed = position_before(segment, offset) if offset > segment.base_offset else 0
    if hint is not None and hint[:2] == (segment.base_offset, segment.inode) and hint[2] > indexed:
        with segment.path.open("rb", buffering=0) as file:
            data = pread(file.fileno(), HEADER_BYTES, hint[2])
        if len(data) == HEADER_BYTES and unpack_batch_header(data).base_offset <= offset:
            return hint[2]
    return indexed


def _of_segment(
    segment: SegmentFile,
    position: int,
    start_offset: int,
    end_offset: int,
    check_crcs: bool,
    on_damage: OnDamage,
    stretch_bytes: int,
) -> Iterator[Stretch]:
    size = segment.size_bytes
    next_offset = segment.base_offset if not position else 0
    with segment.path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        if os.fstat(descriptor).st_ino != segment.inode:
            raise SegmentReplaced(segment.path)
        while position < size:
            data = memoryview(pread(descriptor, min(max(stretch_bytes, HEADER_BYTES), size - position), position))
            if HEADER_BYTES <= len(data) < size - position:
                whole = batch_size_at(data, 0)
                if len(data) < whole <= size - position:  # a single batch is larger than a stretch
                    data = memoryview(pread(descriptor, whole, position))
            start, at, first_offset, reason = 0, 0, 0, None
            has_ended = False
            while at < len(data):
                rest = size - position - at
                if at and len(data) - at < rest and at + _announced_size(data, at) > len(data):
                    break  # the batch belongs to the next stretch
                header = good_header(data, at, rest, next_offset)
                if header is None:
                    reason = describe_damage(data, at, rest, next_offset)
                    break
                batch_bytes = header.batch_length + LOG_OVERHEAD
                if header.base_offset >= end_offset:
                    has_ended = True
                    break
                if header.last_offset < start_offset:
                    at += batch_bytes
                    start, next_offset = at, header.next_offset
                    continue
                if check_crcs and not crc_ok(data, at, batch_bytes):
                    reason = f"the CRC of the batch of offsets {header.base_offset} to {header.last_offset} is wrong"
                    break
                if start == at:
                    first_offset = header.base_offset
                at += batch_bytes
                next_offset = header.base_offset + header.last_offset_delta + 1
            if at > start:
                yield Stretch(segment.path, position + start, data[start:at], first_offset, next_offset)
            if has_ended:
                return
            if reason is not None:
                bad = position + at
                skipped = _after_damage(segment, data[at:], bad, next_offset, reason, on_damage)
                if skipped is None:
                    return
                position = skipped
                continue
            position += at


def _announced_size(data: memoryview, at: int) -> int:
    """Returns the size of the batch at `at` according to its header. If the header is incomplete, returns more than the
    number of bytes in `data`."""
    return batch_size_at(data, at) if at + HEADER_BYTES <= len(data) else HEADER_BYTES


def _after_damage(
    segment: SegmentFile, data: memoryview, position: int, next_offset: int, reason: str, on_damage: OnDamage
) -> int | None:
    """Reports damage and returns the position at which reading continues, or None at the end of the log."""
    rest = segment.size_bytes - position
    if segment.is_active and may_end_a_log(data, rest):
        return None
    offset = next_offset
    whole = None
    header = good_header(data, 0, rest, next_offset)
    if header is not None:  # only the CRC is wrong
        offset, whole = header.base_offset, header.size_bytes
        if segment.is_active and whole == rest:
            return None  # this is the last batch, torn by a crash
    on_damage(DamagedLog(segment.path, position, offset, reason))
    return position + whole if whole is not None else position_after(segment, position)
