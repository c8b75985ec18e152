"""Truncates a log by removing everything at or above an offset from its files. For example, a log is truncated when a
replica that lacks these records becomes leader.

Source: Kafka's UnifiedLog.truncateTo. The batch that contains the offset is removed entirely.
"""

from collections.abc import Sequence

from odradek.storage.disk import Disk
from odradek.storage.segment import Segment


def last_kept(segments: Sequence[Segment], offset: int) -> int:
    """Returns the index of the truncated log's last segment. `segments` must be in ascending order."""
    return max((at for at, segment in enumerate(segments) if segment.base_offset < offset), default=0)


def cut_files(disk: Disk, directory: str, segments: Sequence[Segment], offset: int) -> None:
    """Removes all batches that are not entirely below `offset`, beginning with the last batch, so that a crash during
    the removal leaves no gap. Recovery must fix the indexes and producer snapshots afterwards. Waits for the disk.
    Raises OSError."""
    last_index = last_kept(segments, offset)
    for segment in reversed(segments[last_index + 1 :]):
        segment.keep_open()  # a reader of this segment may not have opened its file yet
        for path in segment.existing_files():
            disk.unlink(path)
        disk.sync_directory(directory)
    last = segments[last_index]
    found = last.locate(offset, cached=False) if last.size_bytes else None
    if found is not None:
        last.file.truncate(found[0])
        last.file.sync()  # otherwise, old bytes could reappear after the new bytes
