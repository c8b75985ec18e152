"""Runs periodic chores partition by partition: retention, producer expiry, flushing by time, and checkpoints.

A chore visits all partitions in slices: after SLICE_MS it pauses so that clients can be served, then continues. The
interval until the next run starts when the previous run ends, so runs of the same chore never overlap.

chore                 interval                                      visits
retention             log.retention.check.interval.ms               segments by time and size, and below the log start
producer expiry       producer.id.expiration.check.interval.ms      producers idle for producer.id.expiration.ms
flush by time         log.flush.scheduler.interval.ms               logs not synced for flush.ms
checkpoints           log.flush.offset.checkpoint.interval.ms       the checkpoint files, all three together
compaction            log.cleaner.backoff.ms                        compacted topics, the dirtiest log first
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.partitions.cleaning import CleanerServices, LogCleaner
from odradek.broker.runtime.clock import Clock, Scan, TimerHandle, Timers, earliest
from odradek.broker.runtime.workers import JobResult, Workers
from odradek.protocol.errors import KafkaError
from odradek.storage.segment_removal import SegmentRemoval

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.partitions.partition import Partition
    from odradek.storage.log_directory import LogDirectory


logger = logging.getLogger(__name__)

SLICE_MS = 3
NEVER_MS = 10 * 365 * 24 * 60 * 60 * 1000  # an interval of at least this length means "off", as in Kafka


@dataclass(frozen=True, slots=True)
class Chore:
    """A periodic job.

    interval_ms  called before each run, because settings may change; returns None if the job must not run again
    visit        called for each partition
    at_end       called after the last partition
    stop         stops work that a run has started
    due_ms       see `Scan`; None if every run has work to do
    """

    name: str
    interval_ms: Callable[[], int | None]
    visit: Callable[[Partition, int], None] | None = None
    at_end: Callable[[int], None] | None = None
    stop: Callable[[], None] | None = None
    due_ms: Callable[[Iterable[Partition], int], int | None] | None = None


class Housekeeping:
    """Runs the chores. `partitions` is called at the beginning of each run."""

    def __init__(
        self, chores: Iterable[Chore], partitions: Callable[[], Iterable[Partition]], clock: Clock, timers: Timers
    ) -> None:
        self._chores = tuple(chores)
        self._partitions = partitions
        self._clock = clock
        self._timers = timers
        self._armed: dict[str, TimerHandle] = {}

    def start(self, initial_delay_ms: int) -> None:
        """Starts all chores. A chore first runs after `initial_delay_ms` or after its own interval, whichever is
        shorter."""
        for chore in self._chores:
            self._arm(chore, initial_delay_ms)

    def stop(self) -> None:
        for timer in self._armed.values():
            timer.cancel()
        self._armed.clear()
        for chore in self._chores:
            if chore.stop is not None:
                chore.stop()

    def _arm(self, chore: Chore, at_most_ms: int = NEVER_MS) -> None:
        interval_ms = chore.interval_ms()
        self._armed.pop(chore.name, None)
        if interval_ms is None or interval_ms >= NEVER_MS:
            return
        due_ms = chore.due_ms
        run: Callable[[], None] = lambda: self._run(chore)  # noqa: E731
        if due_ms is not None:
            run = Scan(run, interval_ms, lambda: due_ms(self._partitions(), self._clock.now_ms()))
        self._armed[chore.name] = self._timers.after(min(interval_ms, at_most_ms), run)

    def _run(self, chore: Chore) -> None:
        self._visit_next(chore, iter(list(self._partitions()) if chore.visit is not None else ()))

    def _visit_next(self, chore: Chore, left: Iterator[Partition]) -> None:
        began_ms = now_ms = self._clock.now_ms()
        for partition in left:
            self._visit(chore, partition, now_ms)
            now_ms = self._clock.now_ms()
            # The absolute value is used because the clock may have been set back.
            if abs(now_ms - began_ms) >= SLICE_MS:
                self._armed[chore.name] = self._timers.after(0, lambda: self._visit_next(chore, left))
                return
        if chore.at_end is not None:
            try:
                chore.at_end(now_ms)
            except (KafkaError, OSError) as failure:
                logger.warning("housekeeping (%s) failed: %s", chore.name, failure)
        self._arm(chore)

    def _visit(self, chore: Chore, partition: Partition, now_ms: int) -> None:
        if partition.is_deleted or chore.visit is None:
            return
        try:
            chore.visit(partition, now_ms)
        except (KafkaError, OSError) as failure:
            logger.warning("housekeeping (%s) of %r failed: %s", chore.name, partition, failure)


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
    """Removes old segments from the log immediately. Their files are renamed in a thread, and deleted after a delay."""

    def __init__(self, timers: Timers, workers: Workers) -> None:
        self._timers = timers
        self._workers = workers

    def visit(self, partition: Partition, now_ms: int) -> None:
        partition.flush()
        removal = partition.log.retention(now_ms, partition.two_phase)
        if removal is None:
            return
        logger.info(
            "%r: removing %d segments; the log now starts at offset %d",
            partition,
            len(removal.segments),
            partition.log.log_start_offset,
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
            # A missing directory is expected if the partition was deleted. Otherwise, the removal is completed at the
            # next start.
            if not partition.is_deleted:
                logger.warning("%r: old segments could not be removed: %s", partition, error)
            return
        then()


def retention_due_ms(partitions: Iterable[Partition], now_ms: int) -> int | None:
    return earliest(partition.log.retention_due_ms(now_ms, partition.two_phase) for partition in partitions)


def producers_expire_ms(partitions: Iterable[Partition], now_ms: int) -> int | None:
    return earliest(partition.log.producers_expire_ms() for partition in partitions)


def expire_producers(partition: Partition, now_ms: int) -> None:
    partition.flush()
    partition.log.expire_producers(now_ms)


class FlushByTime:
    """Syncs logs whose oldest unsynced data is at least `flush.ms` old. The age is measured from the visit that first
    found the data."""

    def __init__(self) -> None:
        # Each value is a pair of the synced offset and the time of the visit that first found this offset.
        self._unsynced_since_ms: dict[Partition, tuple[int, int]] = {}

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
        return earliest(self._flush_due_ms(each, now_ms) for each in partitions)

    def _flush_due_ms(self, partition: Partition, now_ms: int) -> int | None:
        log = partition.log
        if log.synced_offset >= log.high_watermark or log.config.flush_ms >= NEVER_MS:
            return None
        synced_offset, since_ms = self._unsynced_since_ms.get(partition, (-1, 0))
        return since_ms + log.config.flush_ms if synced_offset == log.synced_offset else now_ms

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
