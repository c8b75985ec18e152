"""Traces of earlier starts and stops in a partition's directory: an interrupted operation, which is completed, and the
refusal of a damaged log, which stays.

    .deleted           no longer part of the log: unlinked
    .tmp               a checkpoint that was not put in its place: unlinked
    .cleaned           compaction had not finished writing it: unlinked
    .swap              compaction had finished: the segments that it was made from go, and it takes their place
    .odradek_refused   the reason, for people; Kafka passes over it

A clean that makes several segments renames them to `.swap` from the last to the first. A `.swap` above some `.cleaned`
therefore belongs to an unfinished clean and is unlinked too: the old segments are all still there.

A log that a start has refused as damaged stays refused until a person decides, whatever starts come in between. The
start that finds the damage takes the mark of the clean stop away. The next one would take the log for one that a crash
has left, and cut off what does not follow from the damaged batch; the file prevents that.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from odradek.files.names import CLEANED, DELETED, LOG, REFUSED, SEGMENT_SUFFIXES, SWAP, offset_of
from odradek.storage.disk import REPLACE_SUFFIX, Disk
from odradek.storage.segment import CorruptSegment, Segment


def finish_leftovers(disk: Disk, directory: str) -> list[str]:
    """Returns the names in the directory once nothing is left over."""
    names = disk.list_directory(directory)
    if not any(name.endswith((DELETED, CLEANED, SWAP, REPLACE_SUFFIX)) for name in names):
        return names
    first_cleaned = min(
        (offset for n in names if n.endswith(CLEANED) and (offset := offset_of(n)) is not None), default=None
    )
    swaps = []
    for name in names:
        if name.endswith(SWAP):
            offset = offset_of(name)
            if first_cleaned is None or (offset is not None and offset < first_cleaned):
                swaps.append(name)
                continue
        elif not name.endswith((DELETED, CLEANED, REPLACE_SUFFIX)):
            continue
        disk.unlink(f"{directory}/{name}")
    if swaps:
        _put_in_place(disk, directory, swaps)
    disk.sync_directory(directory)
    return disk.list_directory(directory)


def _put_in_place(disk: Disk, directory: str, swaps: list[str]) -> None:
    logs = [name for name in swaps if name.endswith(LOG + SWAP)]
    others = [name for name in swaps if name not in logs]
    bases = [offset for name in logs if (offset := offset_of(name)) is not None]
    if bases:
        # Together they replace what lies between the first offset of the first and the end of the last: an old segment
        # may be spread over two new ones.
        end_offset = max(_end_offset(disk, directory, base_offset) for base_offset in bases)
        for old in disk.list_directory(directory):
            offset = offset_of(old)
            if offset is not None and min(bases) <= offset < end_offset and old.endswith(SEGMENT_SUFFIXES):
                disk.unlink(f"{directory}/{old}")
    for name in others:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    # The log comes last: until it bears its name, the next start does all this again; and once it does, no index of
    # the old segment may come back.
    disk.sync_directory(directory)
    for name in logs:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _end_offset(disk: Disk, directory: str, base_offset: int) -> int:
    """Behind the last batch of a swap file."""
    segment = Segment(disk, directory, base_offset, size_bytes=0, created_ms=0, file_suffix=SWAP)
    segment.size_bytes = segment.file.size()
    end_offset = base_offset + 1
    with suppress(CorruptSegment):  # what follows is recovery's to judge, under the file's final name
        for _, header in segment.headers(0, segment.size_bytes):
            end_offset = max(end_offset, header.next_offset)
    return end_offset


logger = logging.getLogger(__name__)


def remembered_refusal(disk: Disk, directory: str) -> str | None:
    """Why an earlier start refused the log in this directory, and what to do about it."""
    path = f"{directory}/{REFUSED}"
    if not disk.exists(path):
        return None
    reason = disk.read_bytes(path).decode("utf-8", "replace").strip()
    return (
        f"{reason}. An earlier start found that: restore the file, or accept what recovery makes of the log; "
        f"then remove {path} and start again"
    )


def remember_refusal(disk: Disk, directory: str, reason: str) -> None:
    """Durable when it returns. A disk that refuses it is told of in the log."""
    try:
        disk.replace(f"{directory}/{REFUSED}", f"{reason}\n".encode())
    except OSError as error:
        logger.warning("%s/%s cannot be written (%s): the next start may cut this log", directory, REFUSED, error)
