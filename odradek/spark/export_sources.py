"""What an export reads: the topics of a cluster, or directories of logs. Knows nothing of Spark until a task reads."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from odradek.client.common.values import TopicPartition
from odradek.client.sync import Admin
from odradek.spark.file_options import FileOptions
from odradek.spark.file_plan import FileTask, chosen_logs, plan
from odradek.spark.file_records import read_task
from odradek.spark.inputs import Input
from odradek.spark.jobs.export_plan import Bounds, Chunk, ExportError, cut
from odradek.spark.offsets import OffsetReader, Offsets, Range
from odradek.spark.options import SourceOptions
from odradek.spark.record_columns import ARROW
from odradek.tools.offline.survey import Survey, survey
from odradek.tools.offline.transactions import overlapping

CHUNK_RECORDS = 1_000_000  # of a topic over the network
CHUNK_BYTES = 128 * 1024 * 1024  # of logs in a directory


class ChunkTask(Protocol):
    """Can be sent to another process."""

    @property
    def chunk(self) -> Chunk: ...

    def read(self) -> Iterator[pa.RecordBatch]:
        """Its records, with all columns of ARROW."""


class ExportSource(Protocol):
    def identity(self) -> Mapping[str, Any]:
        """What has to be the same for all plans of an export."""

    def bounds(self) -> Bounds: ...

    def chunks(self, start: Offsets, end: Offsets) -> list[Chunk]: ...

    def tasks(self, chunks: Sequence[Chunk]) -> Sequence[ChunkTask]: ...


def export_source(
    source: Input,
    *,
    starting_ms: int | None = None,
    ending_ms: int | None = None,
    chunk_records: int = CHUNK_RECORDS,
    chunk_bytes: int = CHUNK_BYTES,
    allows_loss: bool = False,
) -> ExportSource:
    """
    starting_ms   begin each partition at the first record that is not older
    ending_ms     end each partition before the first record that is not older

    Raises OptionError.
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
    """Topics over the network."""

    def __init__(self, options: SourceOptions, starting_ms: int | None, chunk_records: int) -> None:
        self._options = options
        self._starting_ms = starting_ms
        self._chunk_records = chunk_records

    def identity(self) -> Mapping[str, Any]:
        return {"isolation_level": self._options.isolation_level, "starting_ms": self._starting_ms}

    def bounds(self) -> Bounds:
        reader = OffsetReader(self._options)
        try:
            partitions = reader.partitions()
            return Bounds(
                reader.earliest(partitions),
                reader.resolve(self._options.starting, partitions),
                reader.resolve(self._options.ending, partitions),
                self._topic_ids(),
            )
        finally:
            reader.close()

    def chunks(self, start: Offsets, end: Offsets) -> list[Chunk]:
        return cut(start, end, self._chunk_records)

    def tasks(self, chunks: Sequence[Chunk]) -> Sequence[ChunkTask]:
        return [TopicChunk(chunk, self._options) for chunk in chunks]

    def _topic_ids(self) -> dict[str, str]:
        brokers = self._options.brokers
        with Admin(
            bootstrap_servers=brokers.bootstrap_servers,
            bootstrap_timeout_ms=brokers.bootstrap_timeout_ms,
            **brokers.security,
        ) as admin:
            told = admin.describe_topics(self._options.topics)
        return {topic: _text(each.topic_id) for topic, each in told.items() if any(each.topic_id)}


@dataclass(frozen=True, slots=True)
class TopicChunk:
    chunk: Chunk
    options: SourceOptions

    def read(self) -> Iterator[pa.RecordBatch]:
        from odradek.spark.source import read_range  # with Spark, which a worker has

        return read_range(self.options, Range(*self.chunk), ARROW)


class DirectoryExport:
    """Logs in a directory, at rest or being written. Batch headers tell where their transactions and chunks end."""

    def __init__(self, options: Mapping[str, str], times: Mapping[str, str], starting_ms: int | None) -> None:
        self._options = FileOptions.read(options)
        self._timed = FileOptions.read({**options, **times}) if times else None
        self._starting_ms = starting_ms
        self._surveys: dict[TopicPartition, Survey] = {}

    def identity(self) -> Mapping[str, Any]:
        return {"isolation_level": self._options.isolation_level, "starting_ms": self._starting_ms}

    def bounds(self) -> Bounds:
        self._surveys = {}
        surveys = self._surveyed()
        earliest = {each: found.start_offset for each, found in surveys.items()}
        latest = {each: self._end(found) for each, found in surveys.items()}
        first = earliest
        if self._timed is not None:
            ranges: dict[TopicPartition, list[Range]] = {each: [] for each in surveys}
            for task in plan(self._timed):
                ranges.setdefault(TopicPartition(task.range.topic, task.range.partition), []).append(task.range)
            first = {each: min((r.start_offset for r in found), default=latest[each]) for each, found in ranges.items()}
            latest = {each: max((r.end_offset for r in found), default=first[each]) for each, found in ranges.items()}
        return Bounds(earliest, first, latest, self._topic_ids())

    def chunks(self, start: Offsets, end: Offsets) -> list[Chunk]:
        surveys = self._surveyed()
        most = self._options.max_bytes_per_partition
        return [
            Chunk(each.topic, each.partition, *part)
            for each in sorted(start)
            for part in _cut_at(surveys[each], start[each], end[each], most)
        ]

    def tasks(self, chunks: Sequence[Chunk]) -> Sequence[ChunkTask]:
        surveys = self._surveyed()
        return [self._task(chunk, surveys.get(TopicPartition(chunk.topic, chunk.partition))) for chunk in chunks]

    def _task(self, chunk: Chunk, found: Survey | None) -> ChunkTask:
        start, end = chunk.start_offset, chunk.end_offset
        if found is None or self._end(found) < end:
            raise ExportError(
                f"an export of {chunk.topic}-{chunk.partition} up to offset {end} was begun, and the log does not go so"
                " far any more: finish it where it was begun, or export into another directory"
            )
        if found.start_offset > start and self._options.fail_on_data_loss:
            raise ExportError(
                f"the offsets {start} to {found.start_offset} of {chunk.topic}-{chunk.partition} were deleted before"
                " they were exported; --allow-data-loss goes on without them"
            )
        place = max((place for place in found.places if place.offset <= start), default=None)
        hint = None if place is None else (place.base_offset, place.inode, place.position)
        aborted = tuple(overlapping(found.aborted, start, end)) if self._options.is_committed else ()
        return DirectoryChunk(chunk, FileTask(Range(*chunk), found.log.directory, hint, aborted), self._options)

    def _surveyed(self) -> dict[TopicPartition, Survey]:
        if not self._surveys:
            self._surveys = {
                TopicPartition(log.topic, log.partition): survey(log, cut_bytes=self._options.max_bytes_per_partition)
                for log in chosen_logs(self._options)
            }
        return self._surveys

    def _end(self, found: Survey) -> int:
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
    chunk: Chunk
    task: FileTask
    options: FileOptions

    def read(self) -> Iterator[pa.RecordBatch]:
        return read_task(self.task, self.options, ARROW)


def _cut_at(found: Survey, start: int, end: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """At places of the survey, as many bytes together as a chunk may have."""
    at, size_bytes = start, 0
    for place in found.places:
        if place.offset <= start:
            size_bytes = 0
        elif size_bytes + place.size_bytes > most_bytes and place.offset < end:
            yield at, place.offset
            at, size_bytes = place.offset, 0
        size_bytes += place.size_bytes
    if at < end:
        yield at, end


def _text(topic_id: bytes) -> str:
    """As Kafka writes it into partition.metadata."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
