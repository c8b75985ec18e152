"""Removes segments from a log. One part applies Kafka's retention rules in Kafka's order, to decide which of the oldest
segments can be deleted. The other part runs in a thread and removes the files or replaces them with compacted files.

Deleted files keep their content under a `.deleted` name for `file.delete.delay.ms`, so that pending reads can finish.
"""

from collections.abc import Callable, Sequence

from odradek.files.names import DELETED, LOG, SNAPSHOT, SWAP, offset_file
from odradek.storage.directory_guard import DirectoryGuard
from odradek.storage.disk import Disk
from odradek.storage.log_config import LogConfig
from odradek.storage.segment import Segment

FOREVER_MS = 2**62


def count_deletable(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    relied_on_from: int | None = None,
) -> int:
    """Returns how many of the oldest segments can be deleted. If all of them can, the caller must roll first.

    1. Segments entirely below the log start offset, for every `cleanup.policy`. If the policy includes `delete`, also:
    2. as many as possible while at least `retention.bytes` remain,
    3. segments whose largest timestamp is older than `retention.ms`.

    relied_on_from  offset of the first record that size and age must not delete, because an external coordinator has
                    not decided the transaction that begins there
    """
    next_bases = [segment.base_offset for segment in segments[1:]]

    def prefix(first: int, is_past: Callable[[Segment, int | None], bool], limit: int = high_watermark) -> int:
        for at in range(first, len(segments)):
            segment, next_base = segments[at], next_bases[at] if at < len(next_bases) else None
            is_empty_active = next_base is None and segment.size_bytes == 0
            if is_empty_active or (next_base or high_watermark) > limit or not is_past(segment, next_base):
                return at
        return len(segments)

    count = prefix(0, lambda _, next_base: next_base is not None and next_base <= log_start_offset)
    if not config.is_deleted:
        return count
    undecided = high_watermark if relied_on_from is None else relied_on_from
    if config.retention_bytes is not None:
        surplus = sum(segment.size_bytes for segment in segments[count:]) - config.retention_bytes

        def is_surplus(segment: Segment, _: int | None) -> bool:
            nonlocal surplus
            if surplus < segment.size_bytes:
                return False
            surplus -= segment.size_bytes
            return True

        count = prefix(count, is_surplus, undecided)
    if config.retention_ms is not None:
        oldest_ms = now_ms - config.retention_ms
        count = prefix(count, lambda segment, _: segment.largest_timestamp() < oldest_ms, undecided)
    return count


def deletable_from_ms(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    relied_on_from: int | None = None,
) -> int | None:
    """Returns the earliest time, at or after `now_ms`, at which `count_deletable` will be above 0 if nothing else
    changes. Returns None if it never will."""

    def count(at_ms: int) -> int:
        return count_deletable(
            segments,
            config,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            now_ms=at_ms,
            relied_on_from=relied_on_from,
        )

    if count(now_ms):
        return now_ms
    if config.retention_ms is None or not count(FOREVER_MS):
        return None
    return segments[0].largest_timestamp() + config.retention_ms + 1


class SegmentRemoval:
    """Segments that are no longer part of the log, oldest first. Call `rename` first, and `unlink` after the delay."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: Sequence[Segment],
        *,
        with_snapshots: bool = True,
        guard: DirectoryGuard | None = None,
    ) -> None:
        self.guard = guard or DirectoryGuard()
        self._disk = disk
        self._directory = directory
        self.segments = segments
        self._with_snapshots = with_snapshots
        self._renamed: list[str] = []
        for segment in segments:
            segment.keep_open()  # a reader of this segment may not have opened its file yet

    def rename(self) -> None:
        # The change that allowed the removal, such as a new active segment, must be durable before the removal.
        self._disk.sync_directory(self._directory)
        for segment in self.segments:
            with self.guard:
                paths = segment.existing_files()
                snapshot = f"{self._directory}/{offset_file(segment.base_offset, SNAPSHOT)}"
                if self._with_snapshots and self._disk.exists(snapshot):
                    paths.append(snapshot)
                for path in paths:
                    self._disk.rename(path, path + DELETED)
                    self._renamed.append(path + DELETED)
            self._disk.sync_directory(self._directory)  # synced after each segment, so that a crash cannot leave a gap

    def unlink(self) -> None:
        for path in self._renamed:
            with self.guard:
                self._disk.unlink(path)
        self._renamed = []
        # Dropping the segments usually closes their files, which frees up to a gigabyte of pages and would take too
        # long on the loop.
        self.segments = ()


class SegmentReplacement:
    """Replaces segments with their compacted versions.

        prepare  thread   `.cleaned` → `.swap`: from now on, a restart completes the replacement (leftovers.py)
        Log.replace_segments   loop   readers see the new segments
        finish   thread   old files → `.deleted`, `.swap` → no suffix
        unlink   thread, after the delay

    The new segments must be complete and synced, including their index files. All these files are named `.cleaned`.
    """

    def __init__(self, disk: Disk, directory: str, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        self._disk = disk
        self._directory = directory
        self.new = sorted(new, key=lambda segment: segment.base_offset)
        self.old = sorted(old, key=lambda segment: segment.base_offset)
        self.is_finished = False
        self._guard = DirectoryGuard()
        new_bases = {segment.base_offset for segment in new}
        # If a base offset stays in use, its producer snapshot belongs to the new segment.
        self._removals = [
            SegmentRemoval(disk, directory, [segment], with_snapshots=segment.base_offset not in new_bases)
            for segment in self.old
        ]

    def prepare(self) -> None:
        for segment in reversed(self.new):
            segment.keep_open()
            self._rename(segment, SWAP)
            # Sync now, so that the last segment cannot become `.swap` before the other segments.
            self._disk.sync_directory(self._directory)

    def belongs_to(self, guard: DirectoryGuard) -> None:
        """Hands the new segments to the log. From now on, the file operations of this replacement stop if the log's
        directory disappears."""
        for removal in self._removals:
            removal.guard = guard
        self._guard = guard

    def finish(self) -> None:
        for removal in self._removals:
            removal.rename()
        for segment in self.new:
            self._rename(segment, "")
        self._disk.sync_directory(self._directory)
        self.is_finished = True

    def discard(self) -> None:
        """Removes the new segments and leaves the log unchanged. Called instead of `replace_segments` and the later
        steps."""
        for segment in self.new:
            for path in segment.existing_files():
                self._disk.unlink(path)

    def unlink(self) -> None:
        self.old = []
        for removal in self._removals:
            removal.unlink()

    def _rename(self, segment: Segment, file_suffix: str) -> None:
        """Renames a segment's files, the log file last. As long as the log file has its old suffix, a restart treats
        the renaming as unfinished."""
        paths = sorted(segment.existing_files(), key=lambda path: path == segment.path(LOG))
        old_suffix = segment.file_suffix
        for path in paths:
            if path == segment.path(LOG):
                self._disk.sync_directory(self._directory)
            with self._guard:
                self._disk.rename(path, path.removesuffix(old_suffix) + file_suffix)
        segment.file_suffix = file_suffix
