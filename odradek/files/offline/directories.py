"""Finds the partitions below a path by Kafka's directory names (docs/formats/data-directory.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from glob import glob, has_magic
from pathlib import Path

from odradek.files import names
from odradek.files.checkpoints import CorruptCheckpoint, decode_offsets
from odradek.protocol.topic_partition import TopicPartition

_SEGMENT = re.compile(r"\d{20}\.log(\.swap)?")
_LOCAL = "file:"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")


class NoLogs(ValueError):
    """There is no partition at the given path. The message contains the path."""


@dataclass(frozen=True, slots=True, order=True)
class PartitionLog:
    """A partition's directory.

    log_start_offset   start offset set by DeleteRecords; 0 if the checkpoint does not contain the partition. The first
                       segment may begin at a higher offset.
    is_compacted       whether the cleaner's checkpoint contains the partition; if so, offsets may be missing
    was_stopped        whether the broker has shut down cleanly; if so, the log ends with a complete batch
    """

    topic: str
    partition: int
    directory: Path
    log_start_offset: int = 0
    is_compacted: bool = False
    was_stopped: bool = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partitions_at(*paths: str | Path) -> list[PartitionLog]:
    """Returns the partitions at the given paths, sorted by topic and partition.

    paths   data directories and directories of partitions, in any combination, with the wildcards `*`, `?` and `[…]`;
            commas separate several paths

    Raises NoLogs. Raises ValueError if two directories contain the same partition, because the copies of a replicated
    topic would otherwise be read as different records.
    """
    found: dict[tuple[str, int], PartitionLog] = {}
    for directory in _directories(paths):
        logs = list(_below(directory))
        if not logs:
            raise NoLogs(f"{directory} is neither a data directory nor the directory of a partition")
        for log in logs:
            other = found.setdefault((log.topic, log.partition), log)
            if other.directory != log.directory:
                raise ValueError(f"{log} is in {other.directory} and in {log.directory}: give only one of them")
    return sorted(found.values())


def partition_of(directory: Path) -> tuple[str, int] | None:
    """Returns the directory's topic and partition. Returns None if its name is not that of a partition directory, or if
    it contains no log. An empty log is allowed."""
    named = names.partition_of(directory.name)
    if named is None:
        return None
    files = os.listdir(directory)
    # A new partition has metadata, but no segment until its first record.
    return named if any(_SEGMENT.fullmatch(name) or name == names.PARTITION_METADATA for name in files) else None


def _directories(paths: Iterable[str | Path]) -> Iterator[Path]:
    for text in (part.strip() for path in paths for part in str(path).split(",")):
        local = text.removeprefix(_LOCAL)
        if text.startswith(_LOCAL):
            local = "/" + local.lstrip("/")
        elif _SCHEME.match(text):
            raise NoLogs(f"{text} is not a local path: only local paths can be read")
        matches = sorted(glob(local)) if has_magic(local) else [local]
        directories = [Path(match).absolute() for match in matches if os.path.isdir(match)]
        if not directories:
            raise NoLogs(f"{text}: there is no such directory")
        if has_magic(local):  # a pattern can also match the directories of deleted topics
            directories = [each for each in directories if any(_below(each))]
            if not directories:
                raise NoLogs(f"{text}: no matching directory contains a partition's log")
        yield from directories


def _below(directory: Path) -> Iterator[PartitionLog]:
    own = partition_of(directory)
    if own is not None:
        yield _with_checkpoints(PartitionLog(*own, directory), _Checkpoints.of(directory.parent))
        return
    checkpoints = _Checkpoints.of(directory)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                named = partition_of(Path(entry.path))
                if named is not None:
                    yield _with_checkpoints(PartitionLog(*named, directory / entry.name), checkpoints)


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    log_starts: Mapping[tuple[str, int], int]
    cleaned: Mapping[tuple[str, int], int]
    was_stopped: bool

    @classmethod
    def of(cls, directory: Path) -> _Checkpoints:
        return cls(
            offsets_in(directory / names.LOG_START_OFFSETS),
            offsets_in(directory / names.CLEANER_OFFSETS),
            (directory / names.CLEAN_SHUTDOWN).exists(),
        )


def _with_checkpoints(log: PartitionLog, checkpoints: _Checkpoints) -> PartitionLog:
    key = (log.topic, log.partition)
    return replace(
        log,
        log_start_offset=checkpoints.log_starts.get(key, 0),
        is_compacted=key in checkpoints.cleaned,
        was_stopped=checkpoints.was_stopped,
    )


def offsets_in(checkpoint: Path) -> dict[TopicPartition, int]:
    """Returns the offset of each partition in a checkpoint. The result is empty if the file is missing or damaged."""
    try:
        return decode_offsets(checkpoint.read_bytes())
    except (OSError, CorruptCheckpoint):
        return {}
