"""The chores of this broker, by Kafka's settings; `odradek.broker.partitions.housekeeping` runs them.

chore                 how often                                     what
retention             log.retention.check.interval.ms               segments by time and size, and below the log start
producer expiry       producer.id.expiration.check.interval.ms      producers idle for producer.id.expiration.ms
flush by time         log.flush.scheduler.interval.ms               logs not synced for flush.ms
recovery points       log.flush.offset.checkpoint.interval.ms       the checkpoint files, the three of them together
compaction            log.cleaner.backoff.ms                        compacted topics, the filthiest log first
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.partitions.cleaning import CleanerServices, LogCleaner
from odradek.broker.partitions.housekeeping import Chore
from odradek.broker.runtime.clock import Clock, Timers, earliest
from odradek.broker.runtime.workers import JobResult, Workers
from odradek.storage.segment_removal import deletable_from_ms

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.partitions.partition import Partition
    from odradek.storage.log_directory import LogDirectory
    from odradek.storage.segment_removal import SegmentRemoval

logger = logging.getLogger(__name__)


def chores(
    config: BrokerConfig, log_directory: LogDirectory, clock: Clock, timers: Timers, workers: Workers
) -> Sequence[Chore]:
    flushing = FlushByTime()
    checkpoints = Checkpoints(log_directory, workers)
    cleaner = LogCleaner(log_directory, CleanerServices(config, clock, timers, workers))
    return (
        Chore(
            "retention",
            lambda: config.log_retention_check_interval_ms,
            Retention(timers, workers).visit,
            due_ms=retention_due_ms,
        ),
        Chore(
            "producer expiry",
            lambda: config.producer_id_expiration_check_interval_ms,
            expire_producers,
            due_ms=producers_expire_ms,
        ),
        Chore(
            "flush by time",
            lambda: config.log_flush_scheduler_interval_ms,
            flushing.visit,
            flushing.forget_deleted,
            due_ms=flushing.due_ms,
        ),
        Chore(
            "checkpoints",
            lambda: config.log_flush_offset_checkpoint_interval_ms,
            at_end=checkpoints.write,
            due_ms=checkpoints.due_ms,
        ),
        Chore(
            "compaction",
            lambda: config.log_cleaner_backoff_ms if config.log_cleaner_enable else None,
            cleaner.visit,
            cleaner.clean,
            cleaner.stop,
            cleaner.due_ms,
        ),
    )


class Retention:
    """Lets segments go: out of the log at once, their files renamed in a thread, and unlinked after the delay."""

    def __init__(self, timers: Timers, workers: Workers) -> None:
        self._timers = timers
        self._workers = workers

    def visit(self, partition: Partition, now_ms: int) -> None:
        partition.flush()
        removal = partition.log.retention(now_ms, partition.two_phase)
        if removal is None:
            return
        logger.info(
            "%r: %d segments go, it starts at %d", partition, len(removal.segments), partition.log.log_start_offset
        )
        delay_ms = partition.log.config.file_delete_delay_ms
        self._in_thread(partition, removal.rename, lambda: self._unlink_later(partition, removal, delay_ms))
        if partition.log.has_rolled:
            partition.sync()

    def _unlink_later(self, partition: Partition, removal: SegmentRemoval, delay_ms: int) -> None:
        self._timers.after(delay_ms, lambda: self._in_thread(partition, removal.unlink, lambda: None))

    def _in_thread(self, partition: Partition, job: Callable[[], None], then: Callable[[], None]) -> None:
        self._workers.run(job, partial(self._ended, partition, then))

    def _ended(self, partition: Partition, then: Callable[[], None], outcome: JobResult[None]) -> None:
        try:
            outcome.result()
        except OSError as error:
            # A deleted partition's directory may be gone already; else the next start finishes the removal.
            if not partition.is_deleted:
                logger.warning("%r: old segments could not be removed: %s", partition, error)
            return
        then()


def retention_due_ms(partitions: Iterable[Partition], now_ms: int) -> int | None:
    return earliest(
        deletable_from_ms(
            log.segments,
            log.config,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
        )
        for log in (partition.log for partition in partitions)
    )


def producers_expire_ms(partitions: Iterable[Partition], now_ms: int) -> int | None:
    return earliest(partition.log.producers_expire_ms() for partition in partitions)


def expire_producers(partition: Partition, now_ms: int) -> None:
    partition.flush()
    partition.log.expire_producers(now_ms)


class FlushByTime:
    """Remembers since when a log has something unsynced, as far as the visits tell."""

    def __init__(self) -> None:
        self._unsynced_since_ms: dict[Partition, tuple[int, int]] = {}  # (recovery point then, when)

    def visit(self, partition: Partition, now_ms: int) -> None:
        log = partition.log
        if log.synced_offset >= log.high_watermark:
            self._unsynced_since_ms.pop(partition, None)
            return
        synced_offset, since_ms = self._unsynced_since_ms.setdefault(partition, (log.synced_offset, now_ms))
        if synced_offset != log.synced_offset:
            self._unsynced_since_ms[partition] = (log.synced_offset, now_ms)
        elif now_ms - since_ms >= log.config.flush_ms:
            partition.sync()

    def due_ms(self, partitions: Iterable[Partition], now_ms: int) -> int | None:
        unsynced = (each for each in partitions if each.log.synced_offset < each.log.high_watermark)
        return next((now_ms for each in unsynced), None)

    def forget_deleted(self, now_ms: int) -> None:
        for partition in [each for each in self._unsynced_since_ms if each.is_deleted]:
            del self._unsynced_since_ms[partition]


class Checkpoints:
    def __init__(self, log_directory: LogDirectory, workers: Workers) -> None:
        self._log_directory = log_directory
        self._workers = workers
        self._is_writing = False

    def write(self, now_ms: int) -> None:
        if self._is_writing:
            return
        self._is_writing = True
        self._workers.run(self._log_directory.checkpoint().run, self._written)

    def due_ms(self, partitions: Iterable[Partition], now_ms: int) -> int | None:
        return None if self._log_directory.is_checkpointed() else now_ms

    def _written(self, outcome: JobResult[None]) -> None:
        self._is_writing = False
        try:
            outcome.result()
        except OSError as error:
            logger.warning("the checkpoints could not be written: %s", error)
