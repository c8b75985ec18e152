"""A log's initial state. It is found by recovery, copied from another log together with the files, or empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.files.names import (
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    offset_file,
    offset_of,
)
from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.log_sync import SnapshotToWrite
from odradek.storage.producer_state import ProducerEntry, ProducerStates
from odradek.storage.segment import Segment

if TYPE_CHECKING:
    from odradek.protocol.topic_partition import TopicPartition
    from odradek.storage.disk import Disk
    from odradek.storage.log_config import LogConfig


@dataclass(slots=True)
class LogState:
    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    recovery_point: int
    producers: ProducerStates
    leader_epochs: LeaderEpochs
    last_snapshot_offset: int = -1
    is_new: bool = False  # whether a power failure may remove the directory and its files
    active_is_saved: bool = False  # whether the index files of the active segment are up to date
    # Inactive segments above the recovery point, with rebuilt indexes.
    unsynced_segments: list[Segment] = field(default_factory=list)
    unsynced_snapshots: list[SnapshotToWrite] = field(default_factory=list)
    manifest_facts: dict[str, str] = field(
        default_factory=dict
    )  # facts about the log's files in the manifest of a clean shutdown


@dataclass(frozen=True, slots=True)
class CopiedLogState:
    """The state of a single-segment log at the time its files were copied.

    Recovery would find the same state in the copy, which therefore need not be read. For 100 logs of 100 KB, reading
    the copies would take longer than copying the files.
    """

    topic_id: bytes | None
    segment: Segment
    log_start_offset: int
    end_offset: int
    producers: list[ProducerEntry]
    leader_epochs: list[tuple[int, int]]

    def state_in(
        self, disk: Disk, directory: str, recovery_point: int | None, config: LogConfig, *, now_ms: int
    ) -> LogState | None:
        """Returns the state of the copied log, which equals the state after a recovery. Returns None if recovery must
        read the files, for example because there are additional files.

        recovery_point   the recovery point in the copied checkpoint
        raises           OSError
        """
        base_offset = self.segment.base_offset
        names = set(disk.list_directory(directory))
        log = offset_file(base_offset, LOG)
        if log not in names or (self.topic_id is not None and PARTITION_METADATA not in names):
            return None
        names -= {LEADER_EPOCHS, PARTITION_METADATA, offset_file(base_offset, SNAPSHOT)}
        names -= {offset_file(base_offset, suffix) for suffix in SEGMENT_SUFFIXES}
        if any(not name.endswith(SNAPSHOT) or (offset_of(name) or 0) <= base_offset for name in names):
            return None
        segment = self.segment.copy_in(disk, directory, now_ms=now_ms)
        if segment is None or disk.size(f"{directory}/{log}") != segment.size_bytes:
            return None
        for snapshot in names:
            disk.unlink(f"{directory}/{snapshot}")
        producers = ProducerStates()
        producers.load(self.producers)
        unsynced = SnapshotToWrite(f"{directory}/{offset_file(self.end_offset, SNAPSHOT)}", producers.entries())
        producers.expire(now_ms, config.producer_id_expiration_ms)
        epochs = LeaderEpochs(list(self.leader_epochs))
        epochs.is_dirty = True
        epochs.truncate_from_end(self.end_offset)
        return LogState(
            [segment],
            self.log_start_offset,
            self.end_offset,
            min(recovery_point or 0, self.end_offset),
            producers,
            epochs,
            last_snapshot_offset=self.end_offset,
            unsynced_snapshots=[unsynced],
        )


class CopyableLog(Protocol):
    """A log whose files are about to be copied."""

    directory: str
    topic_id: bytes | None
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    offline_reason: str | None
    leader_epochs: LeaderEpochs

    @property
    def segments(self) -> tuple[Segment, ...]: ...
    @property
    def is_busy(self) -> bool: ...
    def producers(self) -> list[ProducerEntry]: ...


class CopiedLogs:
    """The logs whose files are being copied. Keeps their known states and finds the logs that have changed since they
    were examined."""

    def __init__(self, logs: Mapping[TopicPartition, CopyableLog]) -> None:
        self._logs = logs
        self._examined: dict[TopicPartition, ExaminedLog] = {}
        self.states: dict[TopicPartition, CopiedLogState] = {}  # logs whose copies need not be read

    def examining(self) -> Iterator[None]:
        """Examines the logs one by one, each before its files are copied."""
        for key, log in list(self._logs.items()):
            self._examine(key, log)
            yield

    def look_again(self) -> list[str]:
        """Examines the logs again and updates their known states. Returns the paths of the `.log` files that may have
        changed since the last examination."""
        changed: list[str] = []
        for key, log in self._logs.items():
            examined = self._examined.get(key)
            is_same = examined is not None and examined.log is log
            if is_same and examined is not None and examined.offsets == (log.log_start_offset, log.log_end_offset):
                continue
            first = examined.active_offset if is_same and examined is not None else -1
            changed += [segment.path() for segment in log.segments if segment.base_offset >= first]
            self._examine(key, log)
        for key in self.states.keys() - self._logs.keys():
            del self.states[key]
        return changed

    def _examine(self, key: TopicPartition, log: CopyableLog) -> None:
        ends = (log.log_start_offset, log.log_end_offset)
        self._examined[key] = ExaminedLog(log, ends, log.segments[-1].base_offset)
        copied = _copied_state(log)
        if copied is not None:
            self.states[key] = copied
        else:
            self.states.pop(key, None)


class ExaminedLog(NamedTuple):
    """A log and its state when it was examined. `offsets` are its start and end offset, and `active_offset` is the base
    offset of its active segment."""

    log: CopyableLog
    offsets: tuple[int, int]
    active_offset: int


def _copied_state(log: CopyableLog) -> CopiedLogState | None:
    is_settled = not log.is_busy and log.offline_reason is None and log.high_watermark == log.log_end_offset
    segment = log.segments[-1]
    if not is_settled or len(log.segments) > 1 or not segment.size_bytes:
        return None
    copied = segment.copy_in(segment.disk, log.directory, now_ms=segment.created_ms)
    if copied is None:
        return None
    return CopiedLogState(
        log.topic_id, copied, log.log_start_offset, log.log_end_offset, log.producers(), log.leader_epochs.entries()
    )
