"""Implements `odradek spark export`, which writes topics as Parquet, partitioned by topic and day, with each record
exactly once.

An export reads the topics of a cluster, or directories of logs. It divides them into chunks, which are ranges of
offsets. Each Spark task reads one chunk and writes that chunk's files. If an export crashes, the next call finishes its
plan (`export_plan.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from odradek.client.common.values import TopicPartition
from odradek.files.offline.survey import PartitionSurvey, survey
from odradek.files.offline.transactions import overlapping
from odradek.spark.files.options import FileOptions
from odradek.spark.files.plan import FileTask, chosen_logs, plan
from odradek.spark.files.views import read_task
from odradek.spark.jobs.export_plan import (
    ExportChunk,
    ExportDirectory,
    ExportedFile,
    ExportError,
    ExportStep,
    Observe,
    Plan,
    SourceBounds,
    begin,
    cut,
    next_plan,
    observe_nothing,
)
from odradek.spark.jobs.inputs import Input
from odradek.spark.jobs.parquet import write_chunk
from odradek.spark.offsets import OffsetRange, OffsetReader, Offsets
from odradek.spark.options import SourceOptions
from odradek.spark.record_columns import ARROW

CHUNK_RECORDS = 1_000_000  # number of offsets in a chunk of a topic read over the network
CHUNK_BYTES = 128 * 1024 * 1024  # number of bytes in a chunk of a log in a directory


class ChunkTask(Protocol):
    """A chunk to write. It can be pickled and sent to another process."""

    @property
    def chunk(self) -> ExportChunk: ...

    def read(self) -> Iterator[pa.RecordBatch]:
        """Reads the chunk's records with all the columns of ARROW."""


class ExportSource(Protocol):
    """The source of an export: topics of a cluster, or a directory of logs."""

    def identity(self) -> Mapping[str, Any]:
        """Returns the properties that must be the same in all of an export's plans."""

    def bounds(self) -> SourceBounds: ...

    def chunks(self, start: Offsets, end: Offsets) -> list[ExportChunk]: ...

    def tasks(self, chunks: Sequence[ExportChunk]) -> Sequence[ChunkTask]: ...


def export_source(
    source: Input,
    *,
    starting_ms: int | None = None,
    ending_ms: int | None = None,
    chunk_records: int = CHUNK_RECORDS,
    chunk_bytes: int = CHUNK_BYTES,
    allows_loss: bool = False,
) -> ExportSource:
    """Creates the source of an export. Raises OptionError.

    starting_ms    start each partition at the first record with at least this timestamp in ms
    ending_ms      end each partition before the first record with at least this timestamp in ms
    chunk_records  number of offsets in a chunk when exporting topics of a cluster
    chunk_bytes    maximum size of a chunk when exporting directories
    allows_loss    continue if records were deleted before they were exported
    """
    times: dict[str, str] = {}
    if starting_ms is not None:
        times |= {"startingTimestamp": str(starting_ms), "startingOffsetsByTimestampStrategy": "latest"}
    if ending_ms is not None:
        times["endingTimestamp"] = str(ending_ms)
    common = {"includeHeaders": "true", "failOnDataLoss": str(not allows_loss).lower()}
    options = source.source_options() | common
    if source.is_directory:
        return DirectoryExport(options | {"maxBytesPerPartition": str(chunk_bytes)}, times, starting_ms)
    return TopicExport(SourceOptions.read(options | times, is_stream=False), starting_ms, chunk_records)


class TopicExport:
    """Exports topics over the network."""

    def __init__(self, options: SourceOptions, starting_ms: int | None, chunk_records: int) -> None:
        self._options = options
        self._starting_ms = starting_ms
        self._chunk_records = chunk_records

    def identity(self) -> Mapping[str, Any]:
        return {"isolation_level": self._options.isolation_level, "starting_ms": self._starting_ms}

    def bounds(self) -> SourceBounds:
        reader = OffsetReader(self._options)
        try:
            partitions = reader.partitions()
            starting = reader.resolve(self._options.starting, partitions)
            ending = reader.resolve(self._options.ending, partitions)
            ids = {topic: bytes.fromhex(topic_id) for topic, topic_id in reader.topic_ids.items()}
            topic_ids = {  # topic ids in the format of partition.metadata
                topic: base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
                for topic, topic_id in ids.items()
                if any(topic_id)
            }
            return SourceBounds(reader.earliest(partitions), starting, ending, topic_ids)
        finally:
            reader.close()

    def chunks(self, start: Offsets, end: Offsets) -> list[ExportChunk]:
        return cut(start, end, self._chunk_records)

    def tasks(self, chunks: Sequence[ExportChunk]) -> Sequence[ChunkTask]:
        return [TopicChunk(chunk, self._options) for chunk in chunks]


@dataclass(frozen=True, slots=True)
class TopicChunk:
    chunk: ExportChunk
    options: SourceOptions

    def read(self) -> Iterator[pa.RecordBatch]:
        from odradek.spark.source import read_range  # imported here because it needs pyspark, which workers have

        return read_range(self.options, OffsetRange(*self.chunk), ARROW)


class DirectoryExport:
    """Exports logs in a directory, even while a broker is writing to them. Transactions and chunk boundaries are
    determined from the batch headers."""

    def __init__(self, options: Mapping[str, str], times: Mapping[str, str], starting_ms: int | None) -> None:
        self._options = FileOptions.read(options)
        self._timed = FileOptions.read({**options, **times}) if times else None
        self._starting_ms = starting_ms
        self._surveys: dict[TopicPartition, PartitionSurvey] = {}

    def identity(self) -> Mapping[str, Any]:
        return {"isolation_level": self._options.isolation_level, "starting_ms": self._starting_ms}

    def bounds(self) -> SourceBounds:
        self._surveys = {}
        surveys = self._surveyed()
        earliest = {each: found.start_offset for each, found in surveys.items()}
        latest = {each: self._end(found) for each, found in surveys.items()}
        first = earliest
        if self._timed is not None:
            ranges: dict[TopicPartition, list[OffsetRange]] = {each: [] for each in surveys}
            for task in plan(self._timed):
                ranges.setdefault(TopicPartition(task.range.topic, task.range.partition), []).append(task.range)
            first = {each: min((r.start_offset for r in found), default=latest[each]) for each, found in ranges.items()}
            latest = {each: max((r.end_offset for r in found), default=first[each]) for each, found in ranges.items()}
        return SourceBounds(earliest, first, latest, self._topic_ids())

    def chunks(self, start: Offsets, end: Offsets) -> list[ExportChunk]:
        surveys = self._surveyed()
        most = self._options.max_bytes_per_partition
        return [
            ExportChunk(each.topic, each.partition, *part)
            for each in sorted(start)
            for part in _cut_at(surveys[each], start[each], end[each], most)
        ]

    def tasks(self, chunks: Sequence[ExportChunk]) -> Sequence[ChunkTask]:
        surveys = self._surveyed()
        return [self._task(chunk, surveys.get(TopicPartition(chunk.topic, chunk.partition))) for chunk in chunks]

    def _task(self, chunk: ExportChunk, found: PartitionSurvey | None) -> ChunkTask:
        start, end = chunk.start_offset, chunk.end_offset
        if found is None or self._end(found) < end:
            raise ExportError(
                f"an export of {chunk.topic}-{chunk.partition} up to offset {end} was started, but the log no longer"
                " reaches this offset: finish the export where it was started, or export into another directory"
            )
        if found.start_offset > start and self._options.fail_on_data_loss:
            raise ExportError(
                f"the offsets {start} to {found.start_offset} of {chunk.topic}-{chunk.partition} were deleted"
                " before they were exported; --allow-data-loss continues without them"
            )
        place = max((place for place in found.places if place.offset <= start), default=None)
        hint = None if place is None else (place.base_offset, place.inode, place.position)
        aborted = tuple(overlapping(found.aborted, start, end)) if self._options.is_committed else ()
        return DirectoryChunk(chunk, FileTask(OffsetRange(*chunk), found.log.directory, hint, aborted), self._options)

    def _surveyed(self) -> dict[TopicPartition, PartitionSurvey]:
        if not self._surveys:
            self._surveys = {
                TopicPartition(log.topic, log.partition): survey(log, cut_bytes=self._options.max_bytes_per_partition)
                for log in chosen_logs(self._options)
            }
        return self._surveys

    def _end(self, found: PartitionSurvey) -> int:
        return found.last_stable_offset if self._options.is_committed else found.end_offset

    def _topic_ids(self) -> dict[str, str]:
        found = {}
        for each, one in self._surveys.items():
            with suppress(FileNotFoundError):
                for line in (one.log.directory / "partition.metadata").read_text().splitlines():
                    if line.startswith("topic_id: "):
                        found[each.topic] = line.removeprefix("topic_id: ").strip()
        return found


@dataclass(frozen=True, slots=True)
class DirectoryChunk:
    chunk: ExportChunk
    task: FileTask
    options: FileOptions

    def read(self) -> Iterator[pa.RecordBatch]:
        return read_task(self.task, self.options, ARROW)


def _cut_at(found: PartitionSurvey, start: int, end: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Cuts a range at the survey's places into parts of at most `max_bytes`. A part can be larger if it consists of a
    single place."""
    at, size_bytes = start, 0
    for place in found.places:
        if place.offset <= start:
            size_bytes = 0
        elif size_bytes + place.size_bytes > max_bytes and place.offset < end:
            yield at, place.offset
            at, size_bytes = place.offset, 0
        size_bytes += place.size_bytes
    if at < end:
        yield at, end


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Write: TypeAlias = Callable[[ChunkTask], list[ExportedFile]]
Run: TypeAlias = Callable[[Sequence[ChunkTask], Write], None]
"""Calls the given function for each task, in any process and in any order. Raises the error of a failed task."""

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of an export.

    by_date      write a separate file for each day
    compression  the codec of the Parquet files, one of COMPRESSIONS
    allows_loss  continue if records were deleted before they were exported
    """

    by_date: bool = True
    compression: str = "zstd"
    allows_loss: bool = False


@dataclass(slots=True)
class Exported:
    """The result of one call of `export`.

    plans    number of plans that this call completed
    resumed  number of these plans that an earlier call had left unfinished
    offsets  number of offsets in these plans
    files    the files that belong to these plans
    """

    plans: int = 0
    resumed: int = 0
    offsets: int = 0
    files: list[ExportedFile] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)


def export(spark: SparkSession, source: ExportSource, to: Path, options: ExportOptions | None = None) -> Exported:
    """Exports the records added to the source since the last call, or all records on the first call. Returns once they
    are on disk. Raises ExportError if another source was exported to this directory before.

    to  a directory that every worker has mounted
    """
    return export_with(on_spark(spark), source, to, options or ExportOptions())


def export_with(
    run: Run, source: ExportSource, to: Path, options: ExportOptions, observe: Observe = observe_nothing
) -> Exported:
    """Exports records like `export`, but runs the tasks with `run`, which need not use Spark."""
    out = ExportDirectory(to.expanduser().resolve())
    out.open({"by_date": options.by_date, **source.identity()})
    exported = Exported()
    while True:
        plan = out.last_plan()
        is_left = plan is not None and not out.is_done(plan)
        if not is_left:
            made = _planned(plan, source, options)
            if made is None:
                return exported
            plan = out.store(made)
            observe(ExportStep.PLANNED)
            is_left = plan != made  # another export has stored its plan first
        assert plan is not None
        completed = out.completed(plan)
        waiting = [chunk for chunk in plan.chunks if chunk not in completed]
        number = plan.number

        def write(task: ChunkTask, number: int = number) -> list[ExportedFile]:
            return write_chunk(
                out,
                number,
                task.chunk,
                task.read(),
                by_date=options.by_date,
                compression=options.compression,
                observe=observe,
            )

        try:
            run(source.tasks(waiting), write)
        except Exception:
            # If the plan is done, another export has finished it and removed the files that this export was writing.
            if not out.is_done(plan):
                raise
        exported.files += out.finish(plan)
        observe(ExportStep.DONE)
        exported.plans += 1
        exported.resumed += is_left
        exported.offsets += sum(chunk.end_offset - chunk.start_offset for chunk in plan.chunks)
        if not is_left:
            return exported


def _planned(previous: Plan | None, source: ExportSource, options: ExportOptions) -> Plan | None:
    bounds = source.bounds()
    start, end = begin(previous, bounds, allows_loss=options.allows_loss)
    chunks = source.chunks(start, end)
    return next_plan(previous, start, end, chunks, bounds.topic_ids) if chunks else None


def on_spark(spark: SparkSession) -> Run:
    """Returns a function that runs each chunk as a Spark task."""
    from pyspark.sql import functions as F

    def run(tasks: Sequence[ChunkTask], write: Write) -> None:
        if not tasks:
            return

        def work(number: int) -> int:
            return len(write(tasks[number]))

        # This is a plain Python UDF, because Arrow UDFs need pandas.
        written = F.udf(work, "int", useArrow=False)("id")
        spark.range(0, len(tasks), 1, len(tasks)).select(written).collect()

    return run


def at_once(tasks: Sequence[ChunkTask], write: Write) -> None:
    """Runs the tasks in this process, one by one."""
    for task in tasks:
        write(task)
