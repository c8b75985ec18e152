"""Handles the files that earlier processes left behind in a partition's directory. Completes interrupted operations and
continues to refuse a damaged log.

    .deleted           no longer part of the log: unlinked
    .tmp               a checkpoint that was not renamed to its final name: unlinked
    .cleaned           an output file of a compaction that did not finish: unlinked
    .swap              a finished output file of compaction: it replaces its source segments, which are unlinked
    .odradek_refused   the reason for a refusal, in human-readable form; Kafka ignores this file

A compaction that creates several segments renames them to `.swap` from the last to the first. A `.swap` file with a
higher offset than a `.cleaned` file therefore belongs to an unfinished compaction, and is also unlinked, because all
old segments still exist.

A log that has been refused as damaged stays refused until someone decides what to do, even across several starts. The
start that finds the damage removes the mark of the clean shutdown. Without the refusal file, the next start would
therefore assume a crash and truncate the log at the damaged batch.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from odradek.files.names import CLEANED, DELETED, LOG, REFUSED, SEGMENT_SUFFIXES, SWAP, offset_of
from odradek.storage.disk import REPLACE_SUFFIX, Disk
from odradek.storage.segment import CorruptSegment, Segment


def finish_leftovers(disk: Disk, directory: str) -> list[str]:
    """Completes interrupted operations. Returns the names that the directory contains afterwards."""
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
        # Treat the new segments as one range of offsets, because an old segment may overlap two new segments.
        end_offset = max(_end_offset(disk, directory, base_offset) for base_offset in bases)
        for old in disk.list_directory(directory):
            offset = offset_of(old)
            if offset is not None and min(bases) <= offset < end_offset and old.endswith(SEGMENT_SUFFIXES):
                disk.unlink(f"{directory}/{old}")
    for name in others:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    # Rename the log files last, because the next start repeats all these steps until the log files have their final
    # names. Sync first, so that no index of an old segment can reappear afterwards.
    disk.sync_directory(directory)
    for name in logs:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _end_offset(disk: Disk, directory: str, base_offset: int) -> int:
    """Returns the offset after the last batch of a `.swap` file."""
    segment = Segment(disk, directory, base_offset, size_bytes=0, created_ms=0, file_suffix=SWAP)
    segment.size_bytes = segment.file.size()
    end_offset = base_offset + 1
    with suppress(CorruptSegment):  # recovery examines the rest of the file later, under its final name
        for _, header in segment.headers(0, segment.size_bytes):
            end_offset = max(end_offset, header.next_offset)
    return end_offset


logger = logging.getLogger(__name__)


def remembered_refusal(disk: Disk, directory: str) -> str | None:
    """Returns the reason why an earlier start refused the log in this directory, and advice on what to do. Returns None
    if the log was not refused."""
    path = f"{directory}/{REFUSED}"
    if not disk.exists(path):
        return None
    reason = disk.read_bytes(path).decode("utf-8", "replace").strip()
    return (
        f"{reason}. An earlier start found this damage: restore the file, or accept the log as recovery leaves it;"
        f" then remove {path} and start again"
    )


def remember_refusal(disk: Disk, directory: str, reason: str) -> None:
    """Writes the refusal file durably. If the disk fails, logs a warning."""
    try:
        disk.replace(f"{directory}/{REFUSED}", f"{reason}\n".encode())
    except OSError as error:
        logger.warning("%s/%s cannot be written (%s): the next start may truncate this log", directory, REFUSED, error)
