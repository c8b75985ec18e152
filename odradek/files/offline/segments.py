"""Finds the valid segments of a partition, and the position of an offset in a segment. Also reads index and snapshot
files.

The formats are described in docs/formats/log-segment.md, transaction-index.md and producer-snapshot.md.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.files.indexes import CorruptIndex, TxnIndex
from odradek.files.names import CLEANED, LOG, OFFSET_INDEX, SWAP, TIME_INDEX, offset_file, offset_of
from odradek.files.offline.transactions import AbortedRange
from odradek.files.producer_snapshot import CorruptSnapshot, SnapshotEntry, decode_snapshot
from odradek.files.structures import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Structure
from odradek.protocol.batch_header import HEADER_BYTES, MAGIC, unpack_batch_header
from odradek.system.files import pread

_DIGITS = 20
_ATTEMPTS = 10  # maximum number of attempts to list a directory while files disappear from it


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A log file, as it was when the directory was listed.

    size_bytes   limit for reading, because a running broker's log continues to grow
    inode        inode number, by which readers detect that compaction has replaced the file
    is_active    whether this is the last segment, whose end can be torn or preallocated
    """

    path: Path
    base_offset: int
    size_bytes: int
    inode: int
    is_active: bool = False

    def beside(self, suffix: str) -> Path:
        """Returns the path of one of this segment's index files. The file may be missing."""
        if self.path.name.endswith(SWAP):
            return self.path.with_name(offset_file(self.base_offset, suffix + SWAP))
        return self.path.with_name(offset_file(self.base_offset, suffix))


def segments_of(directory: Path) -> list[SegmentFile]:
    """Returns the segments in ascending order; the last one is the active segment. Leaves out files that a broker would
    remove at its next start.

    A finished `.swap` file replaces the segments that it was created from, because some of them may already be gone.
    Raises FileNotFoundError if the directory disappears.
    """
    for _ in range(_ATTEMPTS):
        try:
            return _list_segments(directory)
        except FileNotFoundError:
            os.listdir(directory)  # raises if the directory itself is gone
    raise FileNotFoundError(f"{directory}: segments disappear from the directory while they are listed")


def _list_segments(directory: Path) -> list[SegmentFile]:
    names = os.listdir(directory)
    plain = {base for name in names if (base := _base(name, LOG)) is not None}
    swaps = {base for name in names if (base := _base(name, LOG + SWAP)) is not None}
    cleaned = min((base for name in names if (base := _base(name, LOG + CLEANED)) is not None), default=None)
    if cleaned is not None:  # the compaction did not finish, so all its source segments still exist
        swaps = {base for base in swaps if base < cleaned}
    files = {base: directory / offset_file(base, LOG) for base in plain}
    if swaps:
        replaced_to = _end_offset(directory / offset_file(max(swaps), LOG + SWAP), max(swaps))
        files = {base: path for base, path in files.items() if not min(swaps) <= base < replaced_to}
        files |= {base: directory / offset_file(base, LOG + SWAP) for base in swaps}
    found = []
    for base, path in sorted(files.items()):
        facts = os.stat(path)
        found.append(SegmentFile(path, base, facts.st_size, facts.st_ino, is_active=base == max(files)))
    return found


def _base(name: str, suffix: str) -> int | None:
    digits = name[:_DIGITS]
    return int(digits) if name[_DIGITS:] == suffix and digits.isascii() and digits.isdigit() else None


def _end_offset(path: Path, base_offset: int) -> int:
    end_offset, position = base_offset + 1, 0
    with path.open("rb", buffering=0) as file:
        while True:
            data = pread(file.fileno(), HEADER_BYTES, position)
            if len(data) < HEADER_BYTES:
                return end_offset
            header = unpack_batch_header(data)
            if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
                return end_offset
            end_offset = max(end_offset, header.next_offset)
            position += header.size_bytes


def segment_with(segments: Sequence[SegmentFile], offset: int) -> int:
    """Returns the list index of the segment that contains the offset, or that would contain it."""
    return max(0, bisect_right([each.base_offset for each in segments], offset) - 1)


def position_before(segment: SegmentFile, offset: int) -> int:
    """Returns the position of a batch that begins at or before `offset`, according to the offset index. Returns 0 if
    the index cannot be used.

    An index may be missing, torn, or end in zeros, so its entry is checked against the log.
    """
    entries = _entries(segment.beside(OFFSET_INDEX), OFFSET_INDEX_ENTRY)
    at = bisect_right(entries, offset - segment.base_offset, key=lambda entry: entry[0]) - 1
    if at < 0:
        return 0
    relative, position = entries[at]
    return position if _ends_at(segment, position, segment.base_offset + relative) else 0


def position_after(segment: SegmentFile, position: int) -> int | None:
    """Returns the position of the first batch after `position` that has an entry in the offset index, or None."""
    for relative, indexed in _entries(segment.beside(OFFSET_INDEX), OFFSET_INDEX_ENTRY):
        if indexed > position and _ends_at(segment, indexed, segment.base_offset + relative):
            return indexed
    return None


def largest_timestamp(segment: SegmentFile) -> int | None:
    """Returns the last timestamp in the time index of a finished segment. Returns None if the batches must be read
    instead."""
    if segment.is_active:
        return None
    entries = _entries(segment.beside(TIME_INDEX), TIME_INDEX_ENTRY)
    return entries[-1][0] if entries else None


def _ends_at(segment: SegmentFile, position: int, last_offset: int) -> bool:
    """Returns whether there is a batch at `position` whose last offset is `last_offset`."""
    if position + HEADER_BYTES > segment.size_bytes:
        return False
    with segment.path.open("rb", buffering=0) as file:
        data = pread(file.fileno(), HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        return False
    header = unpack_batch_header(data)
    return header.magic == MAGIC and header.last_offset == last_offset


def _entries(path: Path, entry: Structure) -> list[tuple[int, int]]:
    """Reads index entries and stops at the first entry that is not in ascending order, because Kafka preallocates its
    indexes with zeros."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    found: list[tuple[int, int]] = []
    for fields in entry.packed.iter_unpack(data[: len(data) - len(data) % entry.size_bytes]):
        if found and fields[0] <= found[-1][0]:
            break
        if not any(fields):
            break
        found.append(fields)
    return found


class BadIndex(Exception):
    """An index or snapshot file is unreliable. The log can be read without it."""


def read_aborted(path: Path) -> list[AbortedRange]:
    """Reads the aborted transactions from a transaction index, in ascending order of their last offset. Returns an
    empty list if the file does not exist.

    Raises BadIndex.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    try:
        index = TxnIndex.from_bytes(offset_of(path.name) or 0, data)
    except CorruptIndex as error:
        raise BadIndex(f"{path}: {error}") from None
    return [AbortedRange(each.producer_id, each.first_offset, each.last_offset) for each in index.entries()]


def read_snapshot(path: Path) -> list[SnapshotEntry]:
    """Reads the producers from a snapshot file. Raises FileNotFoundError and BadIndex."""
    try:
        return decode_snapshot(path.read_bytes())
    except CorruptSnapshot as error:
        raise BadIndex(f"{path}: {error}") from None
