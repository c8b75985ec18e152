"""Compacts logs as a periodic chore: chooses a log, runs a pass in a worker thread, and replaces the segments.

Only choosing the log and replacing the segments happen on the loop. The worker thread reads, filters, writes and
renames. Passes run one at a time; each pass cleans the log with the largest dirty part. A pass stops if its partition
is deleted or the broker stops. As in Kafka, a log that cannot be read is skipped until the broker is restarted.
Settings: `log.cleaner.*`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.runtime.clock import Clock, Timers, earliest
from odradek.broker.runtime.workers import JobResult, Workers
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.cleaner import UNCLEANABLE, CleanableRange, CleanerPass, cleanable_range, dirtiest, next_lag_ms

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.partitions.partition import Partition
    from odradek.storage.log_directory import LogDirectory
    from odradek.storage.segment_removal import SegmentReplacement

logger = logging.getLogger(__name__)

T = TypeVar("T")

REPLACEMENT_RETRY_MS = 20  # delay before retrying a replacement that was prevented by a running sync


class CleaningStopped(Exception):
    """Raised to end a pass whose result is no longer needed."""


@dataclass(frozen=True, slots=True)
class CleanerServices:
    """The parts of the broker that a pass needs. `sleep` pauses a worker thread for a number of seconds. Even a pause
    of 0 lets the loop run."""

    config: BrokerConfig
    clock: Clock
    timers: Timers
    workers: Workers
    sleep: Callable[[float], None] = time.sleep


class LogCleaner:
    """Compacts logs. Call `visit` for each partition, then `clean`, which cleans the logs one by one."""

    def __init__(self, log_directory: LogDirectory, services: CleanerServices) -> None:
        self.uncleanable: set[Partition] = set()
        self._log_directory = log_directory
        self._services = services
        self._found: dict[Partition, CleanableRange] = {}
        self._cleaned_to = log_directory.read_cleaner_offsets()
        self._of: dict[TopicPartition, Partition] = {}  # the partitions that the entries in `_cleaned_to` belong to
        self._is_busy = False
        self._is_stopped = False

    def visit(self, partition: Partition, now_ms: int) -> None:
        found = None if self._is_busy else self._examine(partition, now_ms)
        if found is not None and found.wants_cleaning:
            self._found[partition] = found

    def due_ms(self, partitions: Iterable[Partition], now_ms: int) -> int | None:
        return now_ms if self._is_busy else earliest(self._due_ms(each, now_ms) for each in partitions)

    def _due_ms(self, partition: Partition, now_ms: int) -> int | None:
        found = self._examine(partition, now_ms)
        if found is None:
            return None
        # If an open transaction keeps the rest of the log dirty, another pass would get no further than the previous
        # one.
        if found.wants_cleaning and found.end_offset > found.first_dirty_offset:
            return now_ms
        return next_lag_ms(partition.log.segments, partition.log.config, now_ms)

    def _examine(self, partition: Partition, now_ms: int) -> CleanableRange | None:
        """Returns the part of a log that can be cleaned, or None if the log is not compacted or no part of it can be
        cleaned."""
        log = partition.log
        if not log.config.is_compacted or partition in self.uncleanable or log.offline_reason:
            return None
        key = (partition.topic, partition.index)
        if self._of.setdefault(key, partition) is not partition:  # this is a new partition with the same name
            self._of[key] = partition
            self._cleaned_to.pop(key, None)
        return cleanable_range(
            log.segments,
            log.config,
            cleaned_to=self._cleaned_to.get(key),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            last_stable_offset=log.last_stable_offset,
            now_ms=now_ms,
        )

    def clean(self, now_ms: int) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._clean_next()

    def stop(self) -> None:
        """Stops cleaning. A running pass ends at its next read or write."""
        self._is_stopped = True

    def _clean_next(self) -> None:
        partition = dirtiest(self._found)
        if partition is None or self._is_stopped:
            self._found.clear()
            self._is_busy = False
            return
        found = self._found.pop(partition)
        Cleaning(partition, found, self._services, lambda: self._is_stopped, self._ended).start()

    def _ended(self, partition: Partition, ended: int | Exception | None) -> None:
        if isinstance(ended, Exception) and not partition.is_deleted:
            logger.error("%r cannot be compacted until the next start: %s", partition, ended)
            self.uncleanable.add(partition)
        if not isinstance(ended, int) or partition.is_deleted:
            self._clean_next()
            return
        self._cleaned_to[partition.topic, partition.index] = ended
        existing = self._log_directory.logs
        offsets = {key: offset for key, offset in self._cleaned_to.items() if key in existing}
        self._services.workers.run(lambda: self._log_directory.write_cleaner_offsets(offsets), self._checkpointed)

    def _checkpointed(self, outcome: JobResult[None]) -> None:
        try:
            outcome.result()
        except OSError as error:
            logger.warning("the cleaner checkpoint could not be written: %s", error)
        self._clean_next()


class Cleaning:
    """One pass, in which a thread and the loop alternate.

    then  called once, on the loop, with the offset up to which the log is now clean, with None if the pass was
          abandoned, or with an error of the log; a pass is abandoned if the partition was deleted, the broker stopped
          or retention removed the segments first
    """

    def __init__(
        self,
        partition: Partition,
        found: CleanableRange,
        services: CleanerServices,
        is_stopped: Callable[[], bool],
        then: Callable[[Partition, int | Exception | None], None],
    ) -> None:
        self._partition = partition
        self._services = services
        self._is_stopped = is_stopped
        self._then = then
        log = partition.log
        self._old_bytes = self._new_bytes = 0
        self._pass = CleanerPass(
            log.segments[-1].disk,
            log.directory,
            log.segments,
            log.config,
            found,
            log.producers(),
            now_ms=services.clock.now_ms(),
            key_map_bytes=services.config.log_cleaner_dedupe_buffer_size,
            throttle=self._throttle,
        )

    def start(self) -> None:
        self._in_thread(self._pass.build_offset_map, lambda _: self._next_group())

    def _next_group(self) -> None:
        self._in_thread(self._pass.clean_next, self._replace_segments)

    def _replace_segments(self, replacement: SegmentReplacement | None) -> None:
        log = self._partition.log
        if replacement is None:
            logger.info("%r: compacted from %d to %d bytes", self._partition, self._old_bytes, self._new_bytes)
            self._then(self._partition, self._pass.end_offset)
        elif self._is_over() or not set(replacement.old) <= set(log.segments):
            self._in_thread(replacement.discard, lambda _: self._then(self._partition, None))
        elif log.replace_segments(replacement):
            self._old_bytes += sum(segment.size_bytes for segment in replacement.old)
            self._new_bytes += sum(segment.size_bytes for segment in replacement.new)
            self._in_thread(replacement.finish, lambda _: self._segments_replaced(replacement))
        else:
            self._services.timers.after(REPLACEMENT_RETRY_MS, lambda: self._replace_segments(replacement))

    def _segments_replaced(self, replacement: SegmentReplacement) -> None:
        delay_ms = self._partition.log.config.file_delete_delay_ms
        workers = self._services.workers
        self._services.timers.after(delay_ms, lambda: workers.run(replacement.unlink, self._unlinked))
        self._next_group()

    def _unlinked(self, outcome: JobResult[None]) -> None:
        try:
            outcome.result()
        except OSError as error:
            if not self._partition.is_deleted:
                logger.warning("%r: compacted segments could not be removed: %s", self._partition, error)

    def _in_thread(self, job: Callable[[], T], go_on: Callable[[T], None]) -> None:
        def ended(outcome: JobResult[T]) -> None:
            try:
                result = outcome.result()
            except CleaningStopped:
                self._then(self._partition, None)
            except UNCLEANABLE as error:
                self._then(self._partition, error)
            else:
                go_on(result)

        self._services.workers.run(job, ended)

    def _is_over(self) -> bool:
        return self._partition.is_deleted or self._is_stopped()

    def _throttle(self, size_bytes: int) -> None:
        """Pauses the thread to limit the rate. Called after about every megabyte. Raises CleaningStopped if the pass
        must end."""
        if self._is_over():
            raise CleaningStopped
        self._services.sleep(size_bytes / self._services.config.log_cleaner_io_max_bytes_per_second)
