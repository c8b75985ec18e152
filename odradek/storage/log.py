"""The log of one partition: appending, the high watermark, the last stable offset, and producer state.

The loop thread owns a log. Appending has two steps, so that several appends can share one write. All client appends in
one tick of the loop share a write (`broker/partitions/group_commit.py`):

    append (checks, offsets, producer state; in memory only) … append … → write_staged (one pwritev) → readable

There is one replica, so everything written is committed. The high watermark is the end of the written data, or of the
synced data if `flush.messages` requires a sync. A power failure may lose everything above `recovery_point`. The class
`Log` combines the parts in producer_state.py, staging.py (batches waiting to be written), log_reader.py, log_sync.py,
recovery.py and segment_removal.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from odradek.files.names import SEGMENT_SUFFIXES, SNAPSHOT, offset_file
from odradek.protocol.batch_header import CONTROL, LOG_APPEND_TIME
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import BatchHeader, assign, read_batch_header
from odradek.storage.appended import AppendResult, LogFailed, refusal
from odradek.storage.directory_guard import DirectoryGuard
from odradek.storage.disk import Disk
from odradek.storage.log_config import INT64_MAX, LogConfig
from odradek.storage.log_reader import LogReader, ReadResult, TimestampOffset
from odradek.storage.log_state import LogState
from odradek.storage.log_sync import SnapshotToWrite, SyncTicket, UnsyncedFiles
from odradek.storage.producer_state import LogProducers, Origin, ProducerEntry, has_open_transaction
from odradek.storage.segment import Segment, Segments
from odradek.storage.segment_removal import SegmentRemoval, SegmentReplacement, count_deletable, deletable_from_ms
from odradek.storage.staging import StagedRun, Staging, TailCache
from odradek.storage.verification import VerificationGuard

__all__ = ["AppendResult", "Log", "LogFailed", "Origin", "ReadResult", "SyncTicket", "TimestampOffset"]


def no_jitter(limit_ms: int) -> int:
    return 0


class Log:
    """The log of one partition. Its `reader` reads from `log_start_offset` up to `high_watermark`. If nothing more can
    be appended, `offline_reason` explains why."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        *,
        topic_id: bytes | None,
        config: LogConfig,
        state: LogState,
        tail_cache: TailCache,
        jitter_ms: Callable[[int], int] = no_jitter,
    ) -> None:
        """Creates a log with the given state.

        jitter_ms   returns a random number of milliseconds below its argument, so that the segments of all logs do not
                    roll at the same time
        """
        self._disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self._jitter_ms = jitter_ms
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.end_offset  # offset after the last written record; excludes staged records
        self.high_watermark = state.end_offset
        self.recovery_point = state.recovery_point
        self.offline_reason: str | None = None
        self._producers = LogProducers(state.producers)
        self.leader_epochs = state.leader_epochs
        self._leader_epoch = state.leader_epochs.latest or 0
        self._segments = Segments(state.segments)
        self._active = self._segments.active
        self._active_is_saved = state.active_is_saved
        self._tail = tail_cache.new_tail()
        self.reader = LogReader(self, self._segments, self._tail)
        self._staging = Staging(self._active, state.end_offset, self._begin_run)
        self._last_snapshot_offset = state.last_snapshot_offset
        self._unsynced = UnsyncedFiles(
            directory_is_new=state.is_new, rolled=state.unsynced_segments, snapshots=state.unsynced_snapshots
        )
        self._ticket: SyncTicket | None = None
        # The last stable offset at the high watermark, and at the end offset of the current sync.
        self._stable_offset = self._stable_at_sync = self.last_stable_offset
        self._replacement: SegmentReplacement | None = None  # the segment replacement that was started last
        self._guard = DirectoryGuard()
        self.manifest_facts = state.manifest_facts  # facts about up-to-date files, for the manifest of a clean shutdown

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition})"

    # --- offsets and state

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is committed or aborted."""
        if self.high_watermark != self.log_end_offset:  # a marker above the high watermark has no effect yet
            return max(self._stable_offset, self.log_start_offset)
        first_unstable = self._producers.states.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log_start_offset)

    @property
    def synced_offset(self) -> int:
        """The offset below which everything survives a power failure."""
        return self.recovery_point

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def max_record_bytes(self) -> int:
        return self.config.max_decompressed_message_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in ascending order; the last one is the active segment."""
        return self._segments.all.segments

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Returns the largest leader epoch not above `epoch`, and the exclusive end offset of that epoch. Returns None
        if `epoch` is newer than the log's latest epoch."""
        return self.leader_epochs.end_offset(epoch, self.log_end_offset)

    def leader_epoch_at(self, offset: int) -> int | None:
        return self.leader_epochs.epoch_at(offset)

    def producers(self) -> list[ProducerEntry]:
        return list(self._producers.states.entries().values())

    def producer(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.states.get(producer_id)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Returns whether this producer has an open transaction in this log with exactly this epoch."""
        return has_open_transaction(self._producers.states.get(producer_id), producer_epoch)

    # --- appending

    def assign_leader_epoch(self, epoch: int) -> None:
        """Sets the leader epoch of all later batches, unless the current epoch is at least as new."""
        assert not self._staging.runs, "a leader epoch cannot begin during a write"
        self.leader_epochs.assign(epoch, self.log_end_offset)
        self._leader_epoch = max(epoch, self._leader_epoch)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int | None, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """Returns the guard that `append` needs once the coordinator has confirmed the batch's transaction. Must be
        called before the request to the coordinator.

        sequence             first sequence of the batch; None for a batch that the broker writes itself
        supports_epoch_bump  whether the request to the coordinator adds the partition (docs/spec/transactions.md#s4-6)
        returns              NO_GUARD if the transaction is already open in this log, so that no request to the
                             coordinator is needed
        raises               INVALID_PRODUCER_EPOCH for a producer that is fenced in this log
        """
        return self._producers.begin_verification(
            producer_id, producer_epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    def append(
        self,
        batch: bytearray | memoryview,
        *,
        origin: Origin = Origin.CLIENT,
        now_ms: int,
        header: BatchHeader | None = None,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Checks one batch, assigns its offsets, and stages it for `write_staged`.

        batch                 exactly one validated batch, with offsets from 0; the log owns the buffer afterwards
        header                header of `batch`, if the caller has it
        transaction_version   transaction version under which a marker is written (#s4-8); unused for other batches
        guard                 result of `begin_verification`; None if no verification is needed (#s4-3)
        raises                KafkaError; the log is then unchanged
        """
        if header is None:
            header = read_batch_header(batch)
        size_bytes = len(batch)
        if self.offline_reason is not None or size_bytes > self.config.segment_bytes:
            raise refusal(self.offline_reason, size_bytes, self.config.segment_bytes)
        producers, staging = self._producers, self._staging
        base_offset = staging.next_offset
        is_control = header.attributes & CONTROL
        has_producer = header.producer_id >= 0 and not is_control  # False for ordinary records without a producer id
        marker = None
        if has_producer:
            original = producers.check_data(header, origin, guard)
            if original is not None:
                return AppendResult(original.first_offset, original.last_offset, original.timestamp, is_duplicate=True)
        elif is_control and header.producer_id >= 0:
            marker = producers.check_marker(batch, header, transaction_version, base_offset)
        run = staging.stage(batch, size_bytes, header, self.config, now_ms)
        if has_producer:
            producers.apply_data(header, base_offset)
        elif marker is not None:
            aborted = producers.apply_marker(marker, transaction_version)
            if aborted is not None:
                run.aborted.append(aborted)
        assign(batch, base_offset, self._leader_epoch)
        log_append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        return AppendResult(base_offset, staging.next_offset - 1, log_append_time_ms)

    def write_staged(self) -> None:
        """Writes the staged batches and makes them readable. If the log `needs_sync`, they only become readable after
        the sync.

        raises   LogFailed: none of the batches is in the log. If undoing the write also fails, the log goes offline,
                 and the next start determines which of the batches are valid.
        """
        staging = self._staging
        runs = staging.runs
        if not runs:
            return
        try:
            for run in runs:
                run.segment.file.write_at(run.buffers, run.position)
        except OSError as error:
            self._roll_back(runs)
            raise LogFailed(f"{self}: {error}") from error
        staging.runs = []
        self._active_is_saved = False
        if self._producers.has_changed:
            self._producers.accept()
        self.log_end_offset = staging.next_offset
        if not self.needs_sync:
            self.high_watermark = self.log_end_offset
            if self.config.flush_messages != INT64_MAX:
                self._stable_offset = self.last_stable_offset
        interval = self.config.index_interval_bytes
        for run in runs:
            segment = run.segment
            if run.is_new:
                self._rolled_to(segment, run.snapshot)
            if not run.position:
                self._unsynced.names_changed = True  # the write may have created the file
            self._tail.add(run.position, run.batches)
            segment.note_batches(run.position, run.batches, interval)
            for aborted in run.aborted:
                segment.txn_index.append(aborted)
            run.prepare_next()

    def _begin_run(self, now_ms: int) -> StagedRun:
        """Stages the beginning of a new segment. The first write creates the segment's file."""
        snapshot = self._snapshot(self._staging.next_offset)
        return StagedRun(self._new_segment(now_ms), 0, is_new=True, snapshot=snapshot)

    def _new_segment(self, now_ms: int) -> Segment:
        limit_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        jitter_ms = self._jitter_ms(limit_ms) if limit_ms > 0 else 0
        return Segment.new(
            self._disk, self.directory, self._staging.next_offset, now_ms=now_ms, roll_jitter_ms=jitter_ms
        )

    def _rolled_to(self, segment: Segment, snapshot: SnapshotToWrite | None) -> None:
        """Makes a new segment, whose file now exists, the active segment."""
        self._active.seal_time_index()
        self._unsynced.rolled.append(self._active)
        self._unsynced.names_changed = True
        self._segments.add(segment)
        self._active = segment
        self._active_is_saved = False
        self._tail.clear()
        if snapshot is not None:
            self._unsynced.snapshots.append(snapshot)
            self._last_snapshot_offset = segment.base_offset

    def _snapshot(self, offset: int) -> SnapshotToWrite | None:
        """Returns a snapshot of the producer state at `offset`, or None if nothing has been added since the last
        snapshot."""
        if offset <= self._last_snapshot_offset:
            return None
        return SnapshotToWrite(f"{self.directory}/{offset_file(offset, SNAPSHOT)}", self._producers.states.entries())

    def _roll_back(self, runs: list[StagedRun]) -> None:
        """Undoes a failed write. Restores the state in memory first, so that it is correct even if undoing the write on
        disk fails."""
        self._staging.continue_in(self._active, self.log_end_offset)
        self._unsynced.names_changed = True
        self._producers.roll_back()
        try:
            for run in reversed(runs):
                exists = run.position or self._disk.exists(run.segment.path())
                if exists and run.is_new:
                    self._disk.unlink(run.segment.path())
                elif exists:
                    run.segment.file.truncate(run.position)
        except OSError as error:
            self.go_offline(f"{self}: a failed write could not be undone: {error}")

    def go_offline(self, reason: str) -> None:
        """Permanently stops appending and syncing. Data that is readable now stays readable."""
        if self.offline_reason is None:
            self.offline_reason = reason

    # --- durability

    @property
    def needs_sync(self) -> bool:
        """Whether `flush.messages` requires an fdatasync before the last write can be acknowledged and read."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def has_rolled(self) -> bool:
        """Whether the log has finished segments that are not synced yet. No request waits for their sync, but it should
        happen soon, because until then a recovery after a crash must read these segments."""
        return bool(self._unsynced.rolled)

    @property
    def syncing_to(self) -> int:
        """The offset below which everything is synced, or is being synced."""
        return self.recovery_point if self._ticket is None else self._ticket.end_offset

    def start_sync(self) -> SyncTicket:
        """Starts a sync. Only one sync may run at a time, because each sync builds on the result of the previous
        sync."""
        assert self._ticket is None, f"{self}: another sync is already running"
        first_unstable = self._producers.states.first_unstable_offset
        end_offset = self.log_end_offset
        self._stable_at_sync = end_offset if first_unstable is None else min(first_unstable, end_offset)
        self._ticket = self._unsynced.make_ticket(
            self._disk, self.directory, end_offset, self._active, self.leader_epochs, self._guard
        )
        return self._ticket

    def finish_sync(self, ticket: SyncTicket) -> None:
        """Applies the result of a sync. Raises LogFailed if the sync failed. The log is then permanently offline,
        because the lost data cannot be determined."""
        assert ticket is self._ticket
        self._ticket = None
        if ticket.error is not None:
            self.go_offline(f"{self}: fsync failed: {ticket.error}")
        if self.offline_reason is not None:
            raise LogFailed(self.offline_reason) from ticket.error
        self.recovery_point = max(self.recovery_point, ticket.end_offset)
        if ticket.end_offset >= self.high_watermark:
            self.high_watermark, self._stable_offset = ticket.end_offset, self._stable_at_sync
        self.manifest_facts |= ticket.manifest_facts

    # --- retention

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start offset forward to `offset`. The next `retention` removes the files.

        returns   the log start offset, which never moves backwards
        raises    KafkaError OFFSET_OUT_OF_RANGE if `offset` is negative or above the high watermark
        """
        if offset > self.high_watermark or offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self._start_at(offset)
        return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def retention(self, now_ms: int, relied_on: Container[int] = frozenset()) -> SegmentRemoval | None:
        """Removes the oldest segments that can be deleted. The log start offset moves past them immediately; a thread
        removes their files later.

        relied_on  ids of producers whose open transactions are kept, regardless of the log's age and size
        returns    the remaining file operations, to be run in a thread; None if no segment can be removed now, for
                   example because a sync or a replacement is running
        raises     LogFailed if a new segment is needed and cannot be created
        """
        if self.is_busy or self.offline_reason is not None or self.high_watermark != self.log_end_offset:
            return None
        count = count_deletable(
            self.segments,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
            relied_on_from=self._relied_on_from(relied_on),
        )
        if count == 0:
            return None
        removed = self.segments[:count]
        try:
            removal = SegmentRemoval(self._disk, self.directory, removed, guard=self._guard)
        except OSError as error:
            raise LogFailed(f"{self}: {error}") from error
        if count == len(self.segments):
            self.roll(now_ms)
        self._segments.remove(removed)
        self._unsynced.remove_segments(removed)
        self._start_at(self.segments[0].base_offset)
        return removal

    def retention_due_ms(self, now_ms: int, relied_on: Container[int] = frozenset()) -> int | None:
        """Returns the earliest time at which `retention` will find a segment to remove, if nothing else happens.
        Returns None if it never will.

        relied_on  as in `retention`
        """
        return deletable_from_ms(
            self.segments,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
            relied_on_from=self._relied_on_from(relied_on),
        )

    def _relied_on_from(self, producer_ids: Container[int]) -> int | None:
        """Returns the start of the earliest transaction that any of these producers has open, or None if they have no
        open transaction."""
        return next((at for at, each in self._producers.states.ongoing.items() if each in producer_ids), None)

    def replace_segments(self, replacement: SegmentReplacement) -> bool:
        """Makes readers use the compacted versions of some segments. `replacement` must be prepared, and its `finish`
        must be called next.

        returns   False if nothing was changed, because a sync or another replacement is running, or because some of the
                  old segments are no longer part of the log. In the latter case the replacement must be discarded.
        """
        if self._ticket is not None or self._is_replacing:
            return False
        if not set(map(id, replacement.old)) <= set(map(id, self.segments)):
            return False
        self._segments.replace(replacement.old, replacement.new)
        self._unsynced.remove_segments(replacement.old)
        for segment in (*replacement.old, *replacement.new):
            for suffix in SEGMENT_SUFFIXES:
                self.manifest_facts.pop(offset_file(segment.base_offset, suffix), None)
        replacement.belongs_to(self._guard)
        self._replacement = replacement
        return True

    @property
    def is_busy(self) -> bool:
        """Whether threads are working on the log's files, or appended batches are waiting to be written."""
        return self._ticket is not None or self._is_replacing or bool(self._staging.runs)

    @property
    def _is_replacing(self) -> bool:
        """Whether some files of compacted segments still lack their final names."""
        return self._replacement is not None and not self._replacement.is_finished

    def roll(self, now_ms: int) -> None:
        """Closes the active segment and starts a new segment, unless the active segment is empty. Raises LogFailed."""
        assert not self._staging.runs, f"{self}: a segment cannot end during a write"
        if self._active.size_bytes == 0:
            return
        segment = self._new_segment(now_ms)
        try:
            segment.create_file()
        except OSError as error:
            raise LogFailed(f"{self}: {error}") from error
        self._rolled_to(segment, self._snapshot(self.log_end_offset))
        self._staging.continue_in(segment, self.log_end_offset)

    def expire_producers(self, now_ms: int) -> list[int]:
        """Forgets producers that have been idle for at least `producer.id.expiration.ms`. Returns their ids."""
        return self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def producers_expire_ms(self) -> int | None:
        return self._producers.expires_ms(self.config.producer_id_expiration_ms)

    # --- closing

    def start_close(self) -> SyncTicket | None:
        """Starts the last sync. It includes index files and the producer snapshot, so that the next start need not read
        the log. Returns None if everything is already durable. Nothing may be staged or syncing when this method is
        called, and nothing can be appended afterwards.

        raises   LogFailed if the log is offline: the next start must not assume a clean shutdown
        """
        assert not self._staging.runs, f"{self}: the log cannot be closed between an append and its write"
        if self.offline_reason is not None:
            raise LogFailed(self.offline_reason)
        self.go_offline(f"{self} is closed")
        self._tail.clear()
        snapshot = self._snapshot(self.log_end_offset)
        if snapshot is not None:
            self._unsynced.snapshots.append(snapshot)
        if not self._active_is_saved:
            self._active.seal_time_index()
            self._unsynced.rolled.append(self._active)
        unsaved = set(map(id, self._unsynced.rolled))
        self._unsynced.rolled += [s for s in self.segments if s.indexes_are_rebuilt and id(s) not in unsaved]
        if self.recovery_point == self.log_end_offset and self._unsynced.is_empty and not self.leader_epochs.is_dirty:
            return None
        return self.start_sync()

    def finish_close(self, ticket: SyncTicket) -> None:
        """Applies the result of the last sync. Raises LogFailed if the sync failed."""
        self._ticket = None
        if ticket.error is not None:
            raise LogFailed(f"{self}: {ticket.error}") from ticket.error
        self.recovery_point = self.high_watermark = self.log_end_offset
        self.manifest_facts |= ticket.manifest_facts

    def close(self) -> None:
        """Makes everything durable and closes the log. Waits for the disk. Raises LogFailed."""
        ticket = self.start_close()
        if ticket is not None:
            ticket.run()
            self.finish_close(ticket)

    def abandon(self) -> None:
        """Closes the log without writing, because its partition has been deleted or another `Log` uses its files.
        Staged batches are lost."""
        self._staging.end()
        self.reader = self.reader.detach()
        self._tail.clear()
        self._guard.take_away()
        self.go_offline(f"{self} was deleted, or another log has its files")
