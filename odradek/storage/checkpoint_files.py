"""Reads the checkpoint files of a data directory at startup and keeps them up to date afterwards.

Threads usually write the files, but the event loop sometimes does. An older state never replaces a newer state.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple, Protocol

from odradek.files.checkpoints import CorruptCheckpoint, decode_offsets, encode_offsets
from odradek.files.manifest import NO_FACTS, FactsByName, is_as_left
from odradek.files.names import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.disk import Disk
from odradek.storage.manifest import CHANGE_ADVICE
from odradek.storage.segment import Segment

logger = logging.getLogger(__name__)


class Checkpointable(Protocol):
    """The properties of a log that are stored in checkpoints."""

    log_start_offset: int
    high_watermark: int
    recovery_point: int

    @property
    def segments(self) -> tuple[Segment, ...]: ...


class CheckpointFiles:
    """The checkpoint files of one data directory. The loop thread owns this object, but any thread may write the
    files."""

    def __init__(self, disk: Disk, directory: str, *, left: FactsByName = NO_FACTS, was_clean: bool) -> None:
        """Reads the checkpoint files.

        left    facts about these files in the manifest of the last clean shutdown
        raises  CorruptCheckpoint if a file is damaged and cannot safely be treated as empty
        """
        self._disk = disk
        self._directory = directory
        self._left = left
        # A clean shutdown syncs every log up to its end, so the next start does not need the recovery points.
        self._recovery_points = self._read_or_forget(RECOVERY_POINTS) if was_clean else self._read(RECOVERY_POINTS)
        self._log_start_offsets = self._read(LOG_START_OFFSETS)
        self._lock = Lock()
        self._request_count = 0
        self._written = 0
        self._put: Mapping[str, Mapping[TopicPartition, int]] = {}
        self._deleted: dict[TopicPartition, int] = {}  # keyed by partition: the number of the first write that omits it

    def recovery_point(self, key: TopicPartition) -> int | None:
        """Returns a partition's recovery point, or None if it is unknown."""
        return self._recovery_points.get(key)

    def log_start_offset(self, key: TopicPartition) -> int:
        return self._log_start_offsets.get(key, 0)

    def deleted(self, key: TopicPartition) -> None:
        self._recovery_points.pop(key, None)
        self._log_start_offsets.pop(key, None)
        self._deleted[key] = self._request_count + 1

    def may_name(self, key: TopicPartition) -> bool:
        """Returns whether the files may still contain a deleted partition with this name."""
        if key in self._recovery_points or key in self._log_start_offsets:
            self.deleted(key)  # an earlier process deleted this partition
        return self._deleted.get(key, 0) > self._written

    def write(self, logs: Mapping[TopicPartition, Checkpointable]) -> CheckpointWrite:
        """Captures the current offsets. The caller writes them to the files later, with `CheckpointWrite.run`. A
        partition whose log is not open keeps its last recovery point and log start offset."""
        self._recovery_points |= {key: log.recovery_point for key, log in logs.items()}
        closed = {key: start for key, start in self._log_start_offsets.items() if key not in logs}
        self._log_start_offsets = closed | {
            key: log.log_start_offset for key, log in logs.items() if log.log_start_offset > log.segments[0].base_offset
        }
        self._deleted = {key: number for key, number in self._deleted.items() if number > self._written}
        self._request_count += 1
        contents = {  # copied here, so that a thread can do the slower encoding
            LOG_START_OFFSETS: dict(self._log_start_offsets),
            RECOVERY_POINTS: dict(self._recovery_points),
            HIGH_WATERMARKS: {key: log.high_watermark for key, log in logs.items()},
        }
        return CheckpointWrite(self, self._request_count, contents)

    def are_current(self, logs: Mapping[TopicPartition, Checkpointable]) -> bool:
        """Returns whether the files are already up to date, so that writing them would change nothing."""
        return self._put == self.write(logs).contents

    def put(self, number: int, contents: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Replaces each file durably and atomically. The files do not depend on each other, so they can be written in
        any order."""
        with self._lock:
            if number < self._written:
                return  # a newer state is already written; this state may contain partitions that were deleted since
            for name, offsets in contents.items():
                self._disk.replace(f"{self._directory}/{name}", encode_offsets(offsets))
            self._written = number
            self._put = contents

    def read_cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Returns the offset up to which each log has been compacted. For a log that the result does not contain,
        compaction starts at the log's beginning."""
        return self._read_or_forget(CLEANER_OFFSETS)

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._disk.replace(f"{self._directory}/{CLEANER_OFFSETS}", encode_offsets(offsets))

    def _read(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self._directory}/{name}"
        if not self._disk.exists(path):
            return {}
        try:
            data = self._disk.read_bytes(path)
            if not is_as_left(self._left, name, data):
                raise CorruptCheckpoint(f"it has changed since the clean stop. {CHANGE_ADVICE}")
            return decode_offsets(data)
        except CorruptCheckpoint as error:
            raise CorruptCheckpoint(f"{path}: {error}") from None

    def _read_or_forget(self, name: str) -> dict[TopicPartition, int]:
        try:
            return self._read(name)
        except CorruptCheckpoint as error:
            logger.warning("a damaged checkpoint is ignored: %s", error)
            return {}


class CheckpointWrite(NamedTuple):
    """A snapshot of all checkpoints, which a thread writes to the files."""

    files: CheckpointFiles
    number: int
    contents: Mapping[str, Mapping[TopicPartition, int]]

    def run(self) -> None:
        """Writes the files, unless a later snapshot has already been written. Raises OSError."""
        self.files.put(self.number, self.contents)
