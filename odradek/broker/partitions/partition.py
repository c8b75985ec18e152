"""A partition with its pending requests: unanswered appends, replies waiting for an fdatasync, and parked fetches.

Records, offsets and producer state are in the partition's `Log`. This class only holds the requests that are waiting
for the log. A reply is sent when its records have been written and, if the settings require it, synced. If a write
fails, only the appends in that write fail.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from odradek.broker.partitions.group_commit import AppendFlush, LogSyncs, ParkedFetch
from odradek.broker.runtime.workers import Workers, in_thread
from odradek.broker.transactions.producers import Seals
from odradek.protocol.batch_header import TRANSACTIONAL, BatchHeader
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.log import AppendResult, Log, Origin, SyncTicket
from odradek.storage.log_config import INT64_MAX, LogConfig

if TYPE_CHECKING:
    from odradek.storage.validation import BatchRules
    from odradek.storage.verification import VerificationGuard


logger = logging.getLogger(__name__)

OnDone = Callable[[KafkaError | None], None]  # called once, with None or an error


class Partition:
    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        log: Log,
        *,
        flush: AppendFlush,
        syncs: LogSyncs,
        is_internal: bool,
        two_phase: Container[int] = frozenset(),
        seals: Seals | None = None,
    ) -> None:
        """Creates a partition with an open log.

        two_phase  ids of producers whose transactional batches are only acknowledged after an fdatasync
        seals      transactions that no longer accept batches from clients
        """
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.is_internal = is_internal
        self.is_deleted = False
        self._rules: BatchRules | None = None
        self._flush = flush
        self._syncs = syncs
        self.two_phase = two_phase
        self._seals = Seals() if seals is None else seals
        self._is_dirty = False
        self._is_refused = False  # whether the last write failed; the failure has already been logged
        self._unwritten: list[OnDone] = []
        self._unwritten_bytes = 0
        self._unsynced_bytes = 0  # bytes that have been written but are not readable before a sync
        self._synced_bytes = 0  # bytes that a sync has made readable, but that have not been reported to parked fetches
        self.bytes_in = self.bytes_out = 0  # bytes appended and read since this process opened the partition
        self.first_end_offset = log.log_end_offset  # the log end offset when this process opened the partition
        # Pairs of an end offset that must be on disk, and an action to call when it is, in ascending order of offset.
        # The attribute is None until an append has to wait, because an empty deque takes 0.7 KiB.
        self._unsynced: deque[tuple[int, OnDone]] | None = None
        self._parked: dict[ParkedFetch, None] = {}

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def rules(self) -> BatchRules:
        """The rules for clients' batches, created on first use."""
        rules = self._rules
        if rules is None:
            # Imported here because it is not needed to open a partition, and a broker may open many.
            from odradek.storage.validation import BatchRules

            rules = self._rules = BatchRules.of(self.topic, self.index, self.log.config)
        return rules

    def append(
        self,
        batch: bytearray | memoryview,
        *,
        origin: Origin,
        now_ms: int,
        on_done: OnDone,
        header: BatchHeader | None = None,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Checks and stages one batch and sets its offsets in place. The batch is written by the end of this turn of
        the loop.

        batch                writable; the caller must not change the batch after the call
        header               the header of `batch`; without it, a batch that belongs to a two-phase commit or to a
                             sealed transaction is not recognised
        transaction_version  for a marker: the transaction version in the request that contained it
        guard                the guard of a transactional batch; see `Log.append`
        raises               KafkaError, for instance SealedTransaction, if the batch is refused; in this case `on_done`
                             is never called
        caution              a duplicate is staged as an empty write, because its response must not overtake the write
                             of the original batch
        """
        if self._seals.by_producer and header is not None:
            self._seals.check(header.producer_id, header.producer_epoch)
        appended = self.log.append(
            batch, origin=origin, now_ms=now_ms, header=header, transaction_version=transaction_version, guard=guard
        )
        if header is not None and header.attributes & TRANSACTIONAL and header.producer_id in self.two_phase:
            on_done = partial(self._batch_written, appended.last_offset + 1, on_done)
        self._unwritten.append(on_done)
        self._will_write(len(batch))
        return appended

    def append_now(
        self,
        batch: bytearray | memoryview,
        *,
        origin: Origin,
        now_ms: int,
        header: BatchHeader | None = None,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Appends and writes a batch immediately, after the staged batches. The batch is readable when this method
        returns; use `when_durable` to wait for its sync.

        header  the header of `batch`, if the caller has parsed it
        raises  KafkaError; in this case no part of the batch remains in the log
        """
        appended = self.log.append(
            batch, origin=origin, now_ms=now_ms, header=header, transaction_version=transaction_version, guard=guard
        )
        if self._parked:  # parked fetches are woken at the end of the turn
            self._will_write(len(batch))
        else:
            self.bytes_in += len(batch)
            if self.log.config.flush_messages != INT64_MAX:
                self._unsynced_bytes += len(batch)  # a fetch may be parked before the sync
        failure = self._write()
        if failure is not None:
            raise failure
        return appended

    def when_durable(self, end_offset: int, action: OnDone, *, must_sync: bool = False) -> None:
        """Calls `action`, possibly immediately, once everything below `end_offset` is as durable as the settings
        require.

        must_sync  an fdatasync is required regardless of the settings
        """
        log = self.log
        if not (must_sync or log.needs_sync) or log.synced_offset >= end_offset:
            action(None)
            return
        if log.offline_reason is not None:
            action(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.offline_reason))
            return
        self._await_sync(end_offset, action)

    def write(self, woken: list[ParkedFetch]) -> None:
        """Writes the staged batches and sends the replies. Adds parked fetches that may now have enough bytes to
        `woken`."""
        self._is_dirty = False
        size_bytes, self._unwritten_bytes = self._unwritten_bytes, 0
        self.bytes_in += size_bytes
        if self._unwritten:
            self._write()
        log = self.log
        if log.high_watermark != log.log_end_offset:
            self._unsynced_bytes += size_bytes
            size_bytes = 0
        if self._parked:
            size_bytes, self._synced_bytes = size_bytes + self._synced_bytes, 0
            woken.extend(wait for wait in self._parked if wait.count_appended(size_bytes))

    def flush(self) -> None:
        """Writes the staged batches immediately rather than at the end of the turn. Call this before doing anything
        that must come after the write."""
        if self._unwritten:
            self._write()

    def sync(self) -> None:
        """Starts a sync of everything written so far. No reply waits for this sync."""
        self._syncs.add(self)

    def configure(self, config: LogConfig) -> None:
        """Applies new topic settings."""
        self.log.config = config
        self._rules = None

    def sync_ended(self, ticket: SyncTicket) -> None:
        """Handles the end of an fdatasync of this log, whether or not it succeeded."""
        if self.is_deleted:
            return
        try:
            self.log.finish_sync(ticket)
        except KafkaError as failure:
            # A failed fsync is permanent for the log, because there is no way to find out which pages were lost.
            logger.error("%s is offline until the next start: %s", self, failure)
            for _, action in self._no_more_unsynced():
                action(failure)
            return
        self._synced_bytes, self._unsynced_bytes = self._synced_bytes + self._unsynced_bytes, 0
        if self._parked:
            self._will_write(0)  # wakes the fetches at the end of the turn
        unsynced, synced_offset = self._unsynced, self.log.synced_offset
        while unsynced and unsynced[0][0] <= synced_offset:
            unsynced.popleft()[1](None)
        if unsynced:
            self._syncs.add(self)

    def park(self, wait: ParkedFetch) -> None:
        self._parked[wait] = None

    def unpark(self, wait: ParkedFetch) -> None:
        self._parked.pop(wait, None)

    def replace_truncated_log(self, log: Log) -> None:
        """Replaces the log after an unclean election has truncated it. Requests waiting for a sync are answered with
        NOT_LEADER_OR_FOLLOWER."""
        lost = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for _, on_done in self._no_more_unsynced():
            on_done(lost)
        self.first_end_offset -= self.log.log_end_offset - log.log_end_offset
        self.log = log

    def leader_epoch_changed(self) -> None:
        """Wakes the parked fetches when a new leader epoch starts, so that fetches from the previous epoch are
        refused."""
        for wait in list(self._parked):
            wait.wake()

    def refuse_waiting_requests(self) -> None:
        """Answers all waiting requests with an error, because the topic is being deleted. The caller closes the log."""
        self.is_deleted = True
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        unwritten, self._unwritten = self._unwritten, []
        unsynced = self._no_more_unsynced()
        for on_done in unwritten:
            on_done(error)
        for _, on_done in unsynced:
            on_done(error)
        for wait in list(self._parked):
            wait.wake()

    def _will_write(self, size_bytes: int) -> None:
        self._unwritten_bytes += size_bytes
        if not self._is_dirty:
            self._is_dirty = True
            self._flush.add(self)

    def _write(self) -> KafkaError | None:
        """Writes the staged batches. Returns the error if the write failed."""
        unwritten, self._unwritten = self._unwritten, []
        log = self.log
        try:
            log.write_staged()
        except KafkaError as failure:
            if not self._is_refused:  # logged only once, even if clients retry
                self._is_refused = True
                logger.error(
                    "%s cannot be written, and producers get an error until it can be written again: %s", self, failure
                )
            for on_done in unwritten:
                on_done(failure)
            return failure
        if self._is_refused:
            self._is_refused = False
            logger.info("%s can be written again", self)
        if log.needs_sync:
            end_offset = log.log_end_offset
            for on_done in unwritten:
                self._await_sync(end_offset, on_done)
            if not unwritten:  # `append_now` has already written the batch, and its caller may never request a sync
                self.sync()
            return None
        for on_done in unwritten:
            on_done(None)
        if log.has_rolled:  # until the log is synced, a restart would have to recover more of it
            self.sync()
        return None

    def _batch_written(self, end_offset: int, on_done: OnDone, failure: KafkaError | None) -> None:
        """Waits for the sync of a batch that belongs to a two-phase commit. Called after the batch has been written, or
        after its duplicate, which must not be answered before the original batch."""
        if failure is not None:
            on_done(failure)
        else:
            self.when_durable(end_offset, on_done, must_sync=True)

    def _no_more_unsynced(self) -> Iterable[tuple[int, OnDone]]:
        unsynced = self._unsynced
        self._unsynced = None
        return () if unsynced is None else unsynced

    def _await_sync(self, end_offset: int, action: OnDone) -> None:
        if self._unsynced is None:
            self._unsynced = deque()
        self._unsynced.append((end_offset, action))
        if end_offset > self.log.syncing_to:
            self._syncs.add(self)


@mypyc_attr(allow_interpreted_subclasses=True)
class CoordinatorLog:
    """A coordinator's log as `Shard` uses it. Each append is written immediately, the caller can wait for durability,
    and the log can be read from its start."""

    def __init__(self, partition: Partition, workers: Workers) -> None:
        self._partition = partition
        self._workers = workers

    @property
    def max_batch_bytes(self) -> int:
        return self._partition.log.config.max_message_bytes

    @property
    def is_empty(self) -> bool:
        return self._partition.log.log_start_offset == self._partition.log.log_end_offset

    def append(
        self, batch: bytearray, now_ms: int, guard: VerificationGuard | None = None, header: BatchHeader | None = None
    ) -> int:
        appended = self._partition.append_now(
            batch, origin=Origin.COORDINATOR, now_ms=now_ms, header=header, guard=guard
        )
        return appended.base_offset

    def is_durable(self, *, must_sync: bool) -> bool:
        log = self._partition.log
        return not (must_sync or log.needs_sync) or log.synced_offset >= log.log_end_offset

    def when_durable(self, action: Callable[[KafkaError | None], None], *, must_sync: bool = False) -> None:
        self._partition.when_durable(self._partition.log.log_end_offset, action, must_sync=must_sync)

    @property
    def start_offset(self) -> int:
        return self._partition.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._partition.log.log_end_offset

    def delete_before(self, offset: int) -> None:
        self._partition.log.delete_records_before(offset)

    def read(self) -> AsyncIterator[bytes]:
        """Reads the log in a thread, in portions of about a megabyte. Most partitions are empty, in which case no
        thread is used."""
        log = self._partition.log
        if self.is_empty:
            return ScanPortions(None, self._workers)
        return ScanPortions(log.reader.scan(log.log_start_offset, log.log_end_offset, checked=True), self._workers)


class ScanPortions:
    """Iterates over the portions of a scan, if any, which a thread reads. This is a class because mypyc does not
    support asynchronous generators."""

    def __init__(self, scan: Iterator[bytes] | None, workers: Workers) -> None:
        self._scan = scan
        self._workers = workers

    def __aiter__(self) -> ScanPortions:
        return self

    async def __anext__(self) -> bytes:
        scan = self._scan
        portion = None if scan is None else await in_thread(self._workers, lambda: next(scan, None))
        if portion is None:
            raise StopAsyncIteration
        return portion


NO_EPOCH: Final = -1


class IsolationLevel(Enum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def of(cls, level: int) -> IsolationLevel:
        """Returns the level with this number. As in Kafka, raises UNKNOWN_SERVER_ERROR if there is no such level."""
        try:
            return cls(level)
        except ValueError:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def check_leader_epoch(partition: Partition, current_leader_epoch: int | None) -> None:
    """Checks the leader epoch that the client expects. Raises FENCED_LEADER_EPOCH if that epoch is older than the
    partition's, which means that the client's metadata is stale, and UNKNOWN_LEADER_EPOCH if it is newer."""
    leader_epoch = partition.log.leader_epoch
    if current_leader_epoch is None or current_leader_epoch == leader_epoch:
        return
    if current_leader_epoch < leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
