"""The plans of an export, which record the exported offsets and the next offsets to export. Independent of Spark and
Parquet.

An export is a sequence of plans. A plan is a list of chunks, each of which is a range of offsets in one partition. A
plan is made before its first record is read, and stored under a name that only one export can claim:

    OUT/topic=orders/date=2026-11-01/orders-0-00000000000000000000-00000000000000500000.parquet
    OUT/_odradek/export.json                     the properties common to all plans
    OUT/_odradek/plans/00000003.json             a plan: each partition's bounds, and the chunks
    OUT/_odradek/plans/00000003/CHUNK.json       this chunk is complete: all its files are in place
    OUT/_odradek/plans/00000003.done.json        all chunks of the plan are complete; lists their files

| a crash, or a second export at the same time | a later export |
|---|---|
| before the plan is stored | makes a new plan |
| in the middle of a chunk | writes the complete chunk again, under the same names, replacing identical files |
| when all chunks are complete | records that the plan is done |
| two exports make a plan at the same time | the second finds the name taken and works on the first one's plan |

Each record is therefore in exactly one file. A file's name is determined before the file is written, and each plan
begins where the previous one ends.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from odradek.spark.offsets import Offsets, from_json, to_json
from odradek.system.files import sync_directory

STATE = "_odradek"  # Spark, Hive and DuckDB's Hive reader ignore names that begin with an underscore
LAYOUT = 1


class ExportError(ValueError):
    """The export cannot continue without losing or repeating records. The message explains how to proceed."""


class ExportStep(Enum):
    """The points at which tests can interrupt an export."""

    PLANNED = auto()  # the plan is stored
    WRITTEN = auto()  # a chunk's files have been written under temporary names
    PUBLISHED = auto()  # one of these files has received its final name; observed once per file
    COMPLETED = auto()  # the chunk is complete
    DONE = auto()  # the plan is done


Observe: TypeAlias = Callable[[ExportStep], None]


def observe_nothing(step: ExportStep) -> None:
    pass


class ExportChunk(NamedTuple):
    """A range of offsets in one partition: start_offset <= offset < end_offset."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}-{self.start_offset:020d}-{self.end_offset:020d}"


class ExportedFile(NamedTuple):
    """A file written by the export. `path` is relative to the export's directory."""

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """An export's plan. `start` and `end` contain offsets for all partitions, and the chunks cover the ranges between
    them.

    topic_ids  the topics' ids, where known
    """

    number: int
    start: Offsets
    end: Offsets
    chunks: tuple[ExportChunk, ...]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "start": to_json(self.start),
            "end": to_json(self.end),
            "topic_ids": dict(self.topic_ids),
            "chunks": [list(chunk) for chunk in self.chunks],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Plan:
        return cls(
            fields["number"],
            from_json(fields["start"]),
            from_json(fields["end"]),
            tuple(ExportChunk(*each) for each in fields["chunks"]),
            fields["topic_ids"],
        )


@dataclass(frozen=True, slots=True)
class SourceBounds:
    """The offset ranges of a source's partitions.

    earliest  start of the log
    first     the offset at which an export starts if it has not read the partition before
    latest    the offset at which this export ends
    """

    earliest: Offsets
    first: Offsets
    latest: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)


def begin(previous: Plan | None, bounds: SourceBounds, *, allows_loss: bool = False) -> tuple[Offsets, Offsets]:
    """Returns the next plan's start and end offsets, given the previous plan and the source's bounds. Raises
    ExportError.

    allows_loss  continue if records were deleted before they were exported
    """
    done = {} if previous is None else previous.end
    previous_ids = {} if previous is None else previous.topic_ids
    for topic, one in bounds.topic_ids.items():
        if previous_ids.get(topic, one) != one:
            raise ExportError(
                f"{topic} is not the topic that was exported before, but was deleted and created again (its id was"
                f" {previous_ids[topic]}, and is {one}): export it into another directory"
            )
    start = {}
    for each, latest in bounds.latest.items():
        at, earliest = done.get(each, bounds.first[each]), bounds.earliest[each]
        if at < earliest and not allows_loss:
            raise ExportError(
                f"the offsets {at} to {earliest} of {each.topic}-{each.partition} were deleted before they were"
                " exported; --allow-data-loss continues without them"
            )
        if latest < done.get(each, 0):
            raise ExportError(
                f"{each.topic}-{each.partition} ends at {latest}, but was exported up to {at}: this is another log"
                " or an older copy; export it into another directory"
            )
        start[each] = min(max(at, earliest), latest)
    return start, dict(bounds.latest)


def next_plan(
    previous: Plan | None, start: Offsets, end: Offsets, chunks: Iterable[ExportChunk], topic_ids: Mapping[str, str]
) -> Plan:
    """Returns the plan after `previous`. Partitions and topics that the new plan does not read retain their
    positions."""
    previous_end = {} if previous is None else previous.end
    previous_ids = {} if previous is None else previous.topic_ids
    number = 0 if previous is None else previous.number + 1
    return Plan(number, previous_end | start, previous_end | end, tuple(chunks), {**previous_ids, **topic_ids})


def cut(start: Offsets, end: Offsets, max_records: int) -> list[ExportChunk]:
    """Cuts ranges into chunks of `max_records` offsets. The boundaries are multiples of `max_records`, so later
    exports' files are aligned too."""
    chunks = []
    for each in sorted(start):
        at = start[each]
        while at < end[each]:
            until = min(end[each], (at // max_records + 1) * max_records)
            chunks.append(ExportChunk(each.topic, each.partition, at, until))
            at = until
    return chunks


class ExportDirectory:
    """An export's directory, which contains the export's files and state. Each file is written under a temporary name
    and synced before it gets its final name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._state = root / STATE
        self._plans = self._state / "plans"

    def open(self, identity: Mapping[str, Any]) -> None:
        """Opens the directory for plans with this `identity`. Raises ExportError if the directory contains anything
        else."""
        expected = {"layout": LAYOUT, **identity}
        path = self._state / "export.json"
        if not path.exists():
            if self.root.exists() and any(each.name != STATE for each in self.root.iterdir()):
                raise ExportError(f"{self.root} is not empty, and contains no export: use a new directory")
            self._plans.mkdir(parents=True, exist_ok=True)
            create(path, expected)
        found = _read(path)
        different = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        if different:
            changes = ", ".join(f"{name} {found.get(name)!r}, now {expected.get(name)!r}" for name in different)
            raise ExportError(
                f"{self.root} was exported with other settings ({changes}): export into another directory"
            )

    def last_plan(self) -> Plan | None:
        numbers = [int(path.stem) for path in self._plans.glob("*.json") if path.stem.isdigit()]
        return Plan.from_json(_read(self._plan(max(numbers)))) if numbers else None

    def is_done(self, plan: Plan) -> bool:
        return self._done(plan.number).exists()

    def store(self, plan: Plan) -> Plan:
        """Stores a plan and returns it. If another export has already stored a plan with the same number, returns that
        plan instead."""
        path = self._plan(plan.number)
        create(path, plan.to_json())
        return Plan.from_json(_read(path))

    def completed(self, plan: Plan) -> dict[ExportChunk, list[ExportedFile]]:
        """Returns the complete chunks and their files, which all have their final names."""
        folder = self._markers(plan.number)
        names = {path.stem for path in folder.glob("*.json")} if folder.exists() else set()
        return {chunk: self.files_of(plan.number, chunk) or [] for chunk in plan.chunks if chunk.name in names}

    def files_of(self, plan_number: int, chunk: ExportChunk) -> list[ExportedFile] | None:
        """Returns a chunk's files, or None if the chunk is not complete."""
        try:
            fields = _read(self._markers(plan_number) / f"{chunk.name}.json")
        except FileNotFoundError:
            return None
        return [ExportedFile(*each) for each in fields["files"]]

    def complete(self, plan_number: int, chunk: ExportChunk, files: Sequence[ExportedFile]) -> None:
        folder = self._markers(plan_number)
        folder.mkdir(exist_ok=True)
        replace(folder / f"{chunk.name}.json", {"files": [list(each) for each in files]})

    def finish(self, plan: Plan) -> list[ExportedFile]:
        """Records that the plan is done, and removes the state of unfinished chunks. Returns the files of all chunks.
        Raises ExportError if a chunk is not complete."""
        with suppress(FileNotFoundError):
            return [ExportedFile(*each) for each in _read(self._done(plan.number))["files"]]
        completed = self.completed(plan)
        missing = [chunk.name for chunk in plan.chunks if chunk not in completed]
        if missing:
            raise ExportError(f"{len(missing)} chunks are not complete, {missing[0]} among them")
        files = [each for chunk in plan.chunks for each in completed[chunk]]
        create(self._done(plan.number), {"files": [list(each) for each in files]})
        shutil.rmtree(self._markers(plan.number), ignore_errors=True)
        shutil.rmtree(self.scratch(plan.number), ignore_errors=True)
        return files

    def scratch(self, plan_number: int) -> Path:
        """Returns the folder that holds files while they are being written."""
        return self._state / f"unfinished-{plan_number:08d}"

    def _plan(self, number: int) -> Path:
        return self._plans / f"{number:08d}.json"

    def _done(self, number: int) -> Path:
        return self._plans / f"{number:08d}.done.json"

    def _markers(self, number: int) -> Path:
        return self._plans / f"{number:08d}"


def create(path: Path, fields: Mapping[str, Any]) -> bool:
    """Creates a file atomically. Returns False if the name is already taken."""
    unnamed = _written(path, fields)
    try:
        os.link(unnamed, path)
    except FileExistsError:
        return False
    finally:
        unnamed.unlink()
    sync_directory(str(path.parent))
    return True


def replace(path: Path, fields: Mapping[str, Any]) -> None:
    _written(path, fields).replace(path)
    sync_directory(str(path.parent))


def _written(path: Path, fields: Mapping[str, Any]) -> Path:
    unnamed = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with unnamed.open("w", encoding="utf-8") as file:
        json.dump(fields, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    return unnamed


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
