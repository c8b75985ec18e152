"""Opens a log by deriving its state from its files.

After a clean shutdown, recovery trusts the batches in the log files. It checks only the sizes of these files and the
end of the last segment. Otherwise, recovery reads every batch after the recovery point and checks its CRC, up to the
first incomplete batch. It truncates the rest, because a power failure may have lost any part of the unsynced data.
Indexes, transaction indexes and producer state are rebuilt in the same pass. Everything below the recovery point was
synced. An invalid batch there is therefore damage, which is reported (`CorruptLog`) and never truncated.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import zip_longest

from odradek.files.checkpoints import CorruptCheckpoint, decode_epochs
from odradek.files.indexes import AbortedTxn, CorruptIndex
from odradek.files.manifest import facts_of_log, is_as_left
from odradek.files.names import (
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    RECOVERY_POINTS,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    offset_file,
    offset_of,
)
from odradek.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from odradek.protocol.control_records import read_marker
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import BatchHeader, batches
from odradek.storage.disk import Disk
from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.leftovers import finish_leftovers, remembered_refusal
from odradek.storage.log_config import LogConfig
from odradek.storage.log_reader import checked_scan
from odradek.storage.log_state import CopiedLogState, LogState
from odradek.storage.log_sync import SnapshotToWrite
from odradek.storage.producer_state import ProducerEntry, ProducerStates
from odradek.storage.segment import CorruptSegment, Segment
from odradek.storage.segment_scan import whole_batches

logger = logging.getLogger(__name__)


class CorruptLog(Exception):
    """The log is damaged below its recovery point. The broker does not open such a log, because opening the log would
    hide the loss of acknowledged records."""


class RefusedLog(CorruptLog):
    """An earlier start found the log damaged, so this start also refuses it."""


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The facts about one partition in the checkpoints of the data directory and in the manifest of a clean
    shutdown."""

    recovery_point: int | None = None  # None if unknown
    log_start_offset: int = 0
    is_clean: bool = False  # whether the last process closed this log properly
    # Facts about the log's files at the last clean shutdown, by file name; empty if there is no manifest.
    left: dict[str, str] = field(default_factory=dict)
    copied_state: CopiedLogState | None = None  # state of the original, if this log is a copy


def new_log_state(disk: Disk, directory: str, *, now_ms: int, start_offset: int = 0) -> LogState:
    """Returns the state of an empty log.

    The first write creates the file of its only segment. If the log does not begin at 0, the file is created here
    instead, because only its name records where the log begins.
    """
    segment = Segment.new(disk, directory, start_offset, now_ms=now_ms, is_log=True)
    if start_offset:
        segment.create_file()
    return LogState(
        [segment],
        start_offset,
        start_offset,
        start_offset,
        ProducerStates(),
        LeaderEpochs(),
        last_snapshot_offset=-1 if start_offset else 0,  # at 0 there are no producers, so no snapshot is needed
        is_new=True,
        active_is_saved=not start_offset,  # if the log begins at 0, no file exists yet, so there are no indexes to save
    )


def load_log(disk: Disk, directory: str, checkpointed: CheckpointFacts, config: LogConfig, *, now_ms: int) -> LogState:
    """Returns a log's state. Raises CorruptLog (with the name of the damaged file), RefusedLog or OSError."""
    if checkpointed.copied_state is not None:
        state = checkpointed.copied_state.state_in(disk, directory, checkpointed.recovery_point, config, now_ms=now_ms)
        if state is not None:
            return state
    refused = remembered_refusal(disk, directory)
    if refused is not None:
        raise RefusedLog(refused)
    try:
        return _Loader(disk, directory, checkpointed, config, now_ms).load()
    except (CorruptSegment, CorruptIndex, MalformedMessage) as error:
        raise CorruptLog(f"{directory}: {error}") from None


class _Loader:
    def __init__(
        self, disk: Disk, directory: str, checkpointed: CheckpointFacts, config: LogConfig, now_ms: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._checkpointed = checkpointed
        self._left = checkpointed.left
        self._config = config
        self._now_ms = now_ms
        self._names: set[str] = set()
        self._segments: list[Segment] = []
        self._snapshots: list[int] = []  # offsets, ascending
        self._producers = ProducerStates()
        self._epochs = LeaderEpochs()

    def load(self) -> LogState:
        self._names = set(finish_leftovers(self._disk, self._directory))
        self._check_sizes()
        self._segments = self._find_segments()
        self._snapshots = sorted(self._offsets(SNAPSHOT))
        if not self._segments:
            return self._new_log_state(self._checkpointed.log_start_offset)
        self._epochs = self._read_epochs()
        state = self._state_of_files() if self._checkpointed.is_clean else None
        if state is None:
            state = self._recover()
        self._epochs.truncate_from_end(state.end_offset)
        self._epochs.truncate_from_start(state.log_start_offset)
        self._remove_stray_snapshots(state)
        return state

    def _new_log_state(self, start_offset: int) -> LogState:
        state = new_log_state(self._disk, self._directory, now_ms=self._now_ms, start_offset=start_offset)
        if self._checkpointed.is_clean and not start_offset:  # the log was also empty at the shutdown
            self._segments = state.segments
            state.leader_epochs = self._read_epochs()
            state.is_new = False
            state.manifest_facts = self._left
        return state

    # --- files

    def _check_sizes(self) -> None:
        for name, facts in self._left.items():
            if name.endswith(LOG):
                path = f"{self._directory}/{name}"
                size_bytes = self._disk.size(path) if name in self._names else 0
                if facts_of_log(size_bytes) != facts:
                    raise CorruptLog(f"{path} has {size_bytes} bytes; at the clean stop it had {facts}")

    def _offsets(self, suffix: str) -> list[int]:
        offsets = (offset_of(name) for name in self._names if name.endswith(suffix))
        return [offset for offset in offsets if offset is not None]

    def _find_segments(self) -> list[Segment]:
        base_offsets = sorted(self._offsets(LOG))
        with_log = {offset_file(offset, "") for offset in base_offsets}
        for name in self._names:
            stem, dot, suffix = name.partition(".")
            if dot and dot + suffix in SEGMENT_SUFFIXES and stem not in with_log and offset_of(name) is not None:
                self._disk.unlink(f"{self._directory}/{name}")  # an index file whose log file is missing
        segments = []
        for base_offset in base_offsets:
            size_bytes = self._disk.size(f"{self._directory}/{offset_file(base_offset, LOG)}")
            segment = Segment(
                self._disk,
                self._directory,
                base_offset,
                size_bytes=size_bytes,
                created_ms=self._now_ms,
                left=self._left,
            )
            txn_index = offset_file(base_offset, TXN_INDEX)
            if txn_index not in self._names and txn_index not in self._left:
                segment.forget_absent_txn_index()
            segments.append(segment)
        return segments

    def _read_epochs(self) -> LeaderEpochs:
        """Reads the leader epochs from the checkpoint. If the checkpoint is unreadable or was lost in a crash, reads
        them from all batches of the log."""
        if LEADER_EPOCHS not in self._names and self._checkpointed.is_clean:
            return LeaderEpochs()
        if LEADER_EPOCHS in self._names:
            path = f"{self._directory}/{LEADER_EPOCHS}"
            try:
                data = self._disk.read_bytes(path)
                if not is_as_left(self._left, LEADER_EPOCHS, data):
                    raise CorruptCheckpoint("it has changed since the clean stop")
                entries = decode_epochs(data)
                if entries or self._checkpointed.is_clean:
                    return LeaderEpochs(entries)
            except CorruptCheckpoint as error:
                logger.warning("%s is damaged (%s); the leader epochs are read from the log", path, error)
        epochs, first_offset = LeaderEpochs(), self._segments[0].base_offset
        try:
            for segment in self._segments:
                for _, header in segment.headers(0, segment.size_bytes):
                    if header.leader_epoch >= 0:
                        # Compaction may have removed the first batches of the log. Assume that they had the same epoch
                        # as the first remaining batch.
                        is_first = epochs.latest is None
                        epochs.assign(header.leader_epoch, first_offset if is_first else header.base_offset)
        except CorruptSegment:
            pass  # recovery examines the rest of the segment later
        return epochs

    # --- after a clean shutdown

    def _state_of_files(self) -> LogState | None:
        """Returns the state that the files describe. Returns None if the batches must be read, for example because the
        last segment does not end with a complete batch."""
        active = self._segments[-1]
        is_saved = {
            offset_file(active.base_offset, OFFSET_INDEX),
            offset_file(active.base_offset, TIME_INDEX),
        } <= self._names
        end_offset = active.base_offset
        if active.size_bytes:
            try:
                end_position = 0
                for position, header in active.headers(active.offset_index.last_position, active.size_bytes):
                    if header.base_offset < end_offset or header.last_offset_delta < 0:
                        return None
                    end_position = position + header.size_bytes
                    end_offset = header.next_offset
            except CorruptSegment:
                return None
            if end_position != active.size_bytes:
                return None
        elif is_saved:
            active.reset_indexes()
        log_start_offset = max(self._checkpointed.log_start_offset, self._segments[0].base_offset)
        recovery_point = self._checkpointed.recovery_point
        if recovery_point is not None and recovery_point != end_offset:
            return None
        if log_start_offset > end_offset or not all(map(_has_good_txn_index, self._segments)):
            return None
        last_snapshot_offset = self._load_snapshot(end_offset)
        if last_snapshot_offset < end_offset:
            if last_snapshot_offset < 0 and end_offset > log_start_offset:
                logger.warning(
                    "%s: no producer snapshot can be read; the producer state is rebuilt from the log", active.path()
                )
            self._replay(max(last_snapshot_offset, log_start_offset), self._segments)
            self._producers.expire(self._now_ms, self._config.producer_id_expiration_ms)
        self._producers.accept()
        return LogState(
            self._segments,
            log_start_offset,
            end_offset,
            end_offset,
            self._producers,
            self._epochs,
            last_snapshot_offset=last_snapshot_offset,
            active_is_saved=is_saved,
            manifest_facts=self._left,
        )

    # --- after a crash

    def _recover(self) -> LogState:
        recovery_point = self._checkpointed.recovery_point or 0
        # A segment that ends exactly at the recovery point may have been synced while it was active, without its index
        # files. Read it again, because a missing transaction index cannot be distinguished from an empty transaction
        # index.
        first = max((i for i, s in enumerate(self._segments) if s.base_offset < recovery_point), default=0)
        damaged = next((i for i, s in enumerate(self._segments) if not _has_good_txn_index(s)), first)
        first = min(first, damaged)
        retained, unread = self._segments[:first], self._segments[first:]
        self._remove_snapshots_above(unread[0].base_offset)
        last_snapshot_offset = self._load_snapshot(unread[0].base_offset)
        self._replay(last_snapshot_offset, retained)
        snapshots: list[SnapshotToWrite] = []
        end_offset = unread[0].base_offset
        for at, segment in enumerate(unread):
            # Like Kafka, keep a segment after a gap. Compaction leaves gaps, and so does a power failure that loses the
            # data of one unsynced segment but not of the next. An overlapping segment was left behind by a truncation.
            if segment.base_offset < end_offset:
                if self._checkpointed.is_clean:
                    raise CorruptLog(f"{retained[-1].path()} ends at offset {end_offset}, within the next segment")
                self._remove_segments(unread[at:])
                break
            if retained and segment.base_offset > last_snapshot_offset:
                snapshots.append(self._snapshot(segment.base_offset))
                last_snapshot_offset = segment.base_offset
            end_offset, end_position = self._read_segment(segment)
            retained.append(segment)
            if end_position < segment.size_bytes:
                self._check_not_synced(segment, end_position, end_offset)
                self._remove_segments(
                    unread[at + 1 :]
                )  # removed first, because a crash before their removal would leave a gap that looks intentional
                self._truncate_segment(segment, end_position)
                break
        if end_offset < recovery_point or (self._left and self._checkpointed.recovery_point not in (None, end_offset)):
            raise CorruptLog(
                f"{retained[-1].path()} ends at offset {end_offset}, but {RECOVERY_POINTS} says {recovery_point}"
            )
        log_start_offset = max(self._checkpointed.log_start_offset, retained[0].base_offset)
        if log_start_offset > end_offset:  # DeleteRecords had deleted records that were never synced
            self._remove_segments(retained)
            return self._new_log_state(log_start_offset)
        if end_offset > last_snapshot_offset:
            snapshots.append(self._snapshot(end_offset))
            last_snapshot_offset = end_offset
        self._producers.accept()
        self._producers.expire(self._now_ms, self._config.producer_id_expiration_ms)
        return LogState(
            retained,
            log_start_offset,
            end_offset,
            min(recovery_point, end_offset),
            self._producers,
            self._epochs,
            last_snapshot_offset=last_snapshot_offset,
            unsynced_segments=retained[first:-1],
            unsynced_snapshots=snapshots,
            manifest_facts=self._left,
        )

    def _read_segment(self, segment: Segment) -> tuple[int, int]:
        """Reads a segment. Rebuilds its indexes and applies its batches to the producer state.

        returns   offset and position of the end of its complete batches
        """
        segment.reset_indexes()
        end_offset, end_position = segment.base_offset, 0
        size_bytes, interval = segment.size_bytes, self._config.index_interval_bytes
        for position, header, batch in whole_batches(segment, segment.base_offset):
            segment.note_batch(position, header, interval)
            if header.leader_epoch >= 0:
                self._epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                aborted = self._apply(header, batch)
                if aborted is not None:
                    segment.txn_index.append(aborted)
            end_offset, end_position = header.next_offset, position + len(batch)
        segment.seal_time_index()
        segment.size_bytes = size_bytes
        return end_offset, end_position

    def _check_not_synced(self, segment: Segment, end_position: int, end_offset: int) -> None:
        """Raises CorruptLog if the damaged data had been synced, which is true of all data after a clean shutdown."""
        recovery_point, is_clean = self._checkpointed.recovery_point or 0, self._checkpointed.is_clean
        if end_offset < recovery_point or is_clean:
            raise CorruptLog(
                f"{segment.path()}: there is no complete batch at byte {end_position} (offset {end_offset}), "
                + ("in a cleanly stopped log" if is_clean else f"below the recovery point {recovery_point}")
            )

    def _truncate_segment(self, segment: Segment, end_position: int) -> None:
        segment.file.truncate(end_position)
        segment.file.sync()  # otherwise, old bytes could reappear after the new bytes
        segment.size_bytes = end_position

    def _remove_segments(self, segments: list[Segment]) -> None:
        """Removes segments beyond the end of the log, beginning with the last segment."""
        for segment in reversed(segments):
            for path in segment.existing_files():
                self._disk.unlink(path)
            self._disk.sync_directory(self._directory)

    # --- producer state

    def _apply(self, header: BatchHeader, batch: memoryview) -> AbortedTxn | None:
        """Applies a batch without checking it, because it was checked before it was written. If the batch is a marker
        that aborts a transaction, returns the entry for the transaction index."""
        if not header.is_control:
            self._producers.apply_data(header, header.base_offset)
            return None
        try:
            marker = read_marker(batch, header=header)
        except MalformedMessage as error:
            raise CorruptLog(f"{self._directory}, offset {header.base_offset}: {error}") from None
        if header.record_count == 0:
            self._producers.apply_emptied_marker(header)
        completed = self._producers.apply_marker(marker) if marker is not None else None
        if completed is None or not completed.is_aborted:
            return None
        return self._producers.aborted_txn(completed)

    def _replay(self, from_offset: int, segments: list[Segment]) -> None:
        """Advances the producer state from a snapshot's offset to the end of `segments`. Raises CorruptSegment."""
        for segment, next_segment in zip_longest(segments, segments[1:]):
            if segment is None or (next_segment is not None and next_segment.base_offset <= from_offset):
                continue
            segment_end = None if next_segment is None else next_segment.base_offset
            for portion in checked_scan(segment, from_offset, segment.size_bytes, segment_end):
                view = memoryview(portion)
                for position, header in batches(view):
                    if header.producer_id >= 0:
                        self._apply(header, view[position : position + header.size_bytes])
            self._producers.accept()

    def _load_snapshot(self, limit: int) -> int:
        """Loads the newest readable snapshot at or below `limit` and deletes newer snapshots that are unreadable.
        Returns the offset of the loaded snapshot, or -1 if there is none."""
        for offset in reversed([offset for offset in self._snapshots if offset <= limit]):
            path = f"{self._directory}/{offset_file(offset, SNAPSHOT)}"
            try:
                entries = decode_snapshot(self._disk.read_bytes(path))
            except CorruptSnapshot as error:
                logger.warning("%s is damaged (%s); an older snapshot or the log is used instead", path, error)
                self._disk.unlink(path)
                self._snapshots.remove(offset)
                continue
            self._producers.load([ProducerEntry.from_snapshot(entry) for entry in entries])
            self._producers.expire(self._now_ms, self._config.producer_id_expiration_ms)
            return offset
        return -1

    def _remove_snapshots_above(self, offset: int) -> None:
        """Removes snapshots above `offset`, which may describe a different end of the log. Recovery writes new
        snapshots where they are needed."""
        for above in [snapshot for snapshot in self._snapshots if snapshot > offset]:
            self._disk.unlink(f"{self._directory}/{offset_file(above, SNAPSHOT)}")
            self._snapshots.remove(above)

    def _snapshot(self, offset: int) -> SnapshotToWrite:
        self._producers.accept()
        return SnapshotToWrite(f"{self._directory}/{offset_file(offset, SNAPSHOT)}", self._producers.entries())

    def _remove_stray_snapshots(self, state: LogState) -> None:
        """Removes all snapshots except the newest one and those at the start of a segment."""
        retained = {segment.base_offset for segment in state.segments} | set(self._snapshots[-1:])
        for stray in [offset for offset in self._snapshots if offset not in retained]:
            self._disk.unlink(f"{self._directory}/{offset_file(stray, SNAPSHOT)}")


def _has_good_txn_index(segment: Segment) -> bool:
    try:
        return segment.txn_index is not None
    except CorruptIndex as error:
        logger.warning("%s is damaged (%s); the log is read from this segment on", segment.path(TXN_INDEX), error)
        return False
