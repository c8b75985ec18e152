"""Writes a chunk's records as Parquet files, with one file for each day (UTC) of the records' timestamps. Independent
of Spark."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odradek.spark.jobs.export_plan import (
    ExportChunk,
    ExportDirectory,
    ExportedFile,
    ExportError,
    ExportStep,
    Observe,
    observe_nothing,
)
from odradek.system.files import sync_directory

ROW_GROUP_BYTES = 32 * 1024 * 1024  # size of the columns in memory
WAITING_BYTES = 4 * ROW_GROUP_BYTES  # limit on the number of buffered rows for all days together
MAX_DAYS = 500  # maximum number of days in a chunk, because each day has an open file


def write_chunk(
    out: ExportDirectory,
    plan_number: int,
    chunk: ExportChunk,
    records: Iterable[pa.RecordBatch],
    *,
    by_date: bool = True,
    compression: str = "zstd",
    observe: Observe = observe_nothing,
) -> list[ExportedFile]:
    """Writes a chunk, and returns once all its files are synced and have their final names. Writes nothing if the chunk
    is already complete.

    records  the records of the chunk, with a column `timestamp`. The column `topic` is dropped, because the directory's
             name contains the topic.
    """
    done = out.files_of(plan_number, chunk)
    if done is not None:
        return done
    scratch = out.scratch(plan_number) / f"{chunk.name}-{uuid.uuid4().hex}"
    scratch.mkdir(parents=True)
    days = _Days(scratch, compression)
    try:
        for batch in records:
            for day, table in _by_day(batch) if by_date else [("", pa.Table.from_batches([batch]))]:
                days.add(day, table.drop_columns(["topic"]))
        written = days.close()
    except BaseException:
        days.abandon()
        raise
    observe(ExportStep.WRITTEN)
    files = []
    for day, (path, rows) in sorted(written.items()):
        folder = out.root / f"topic={chunk.topic}" / (f"date={day}" if by_date else "")
        place = folder / f"{chunk.name}.parquet"
        size_bytes = path.stat().st_size
        folder.mkdir(parents=True, exist_ok=True)
        path.replace(place)
        for each in (folder, folder.parent, out.root):
            sync_directory(str(each))
        files.append(ExportedFile(place.relative_to(out.root).as_posix(), rows, size_bytes))
        observe(ExportStep.PUBLISHED)
    out.complete(plan_number, chunk, files)
    scratch.rmdir()
    observe(ExportStep.COMPLETED)
    return files


@dataclass(slots=True)
class _Day:
    path: Path
    writer: pq.ParquetWriter
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0

    def write(self) -> None:
        if self.waiting:
            table = pa.concat_tables(self.waiting)
            self.writer.write_table(table, row_group_size=max(1, len(table)))
            self.waiting, self.waiting_bytes = [], 0


class _Days:
    """A chunk's open files. Rows are buffered until there are enough for a row group."""

    def __init__(self, folder: Path, compression: str) -> None:
        self._folder = folder
        self._compression = compression
        self._days: dict[str, _Day] = {}
        self._waiting_bytes = 0

    def add(self, name: str, table: pa.Table) -> None:
        day = self._days.get(name) or self._opened(name, table.schema)
        day.waiting.append(table)
        day.waiting_bytes += table.nbytes
        day.rows += len(table)
        self._waiting_bytes += table.nbytes
        if day.waiting_bytes >= ROW_GROUP_BYTES or self._waiting_bytes >= WAITING_BYTES:
            largest = max(self._days.values(), key=lambda each: each.waiting_bytes)
            self._waiting_bytes -= largest.waiting_bytes
            largest.write()

    def close(self) -> dict[str, tuple[Path, int]]:
        """Closes and syncs all files. Returns the path and the number of rows of each day's file."""
        for day in self._days.values():
            day.write()
            day.writer.close()
            with day.path.open("rb") as file:
                os.fsync(file.fileno())
        return {name: (day.path, day.rows) for name, day in self._days.items()}

    def abandon(self) -> None:
        for day in self._days.values():
            day.writer.close()
            day.path.unlink(missing_ok=True)
        self._folder.rmdir()

    def _opened(self, name: str, schema: pa.Schema) -> _Day:
        if len(self._days) >= MAX_DAYS:
            raise ExportError(
                f"the timestamps of one chunk span more than {MAX_DAYS} days: export with --no-dates into another"
                " directory"
            )
        path = self._folder / f"{name or 'all'}.parquet"
        self._days[name] = day = _Day(path, pq.ParquetWriter(path, schema, compression=self._compression))
        return day


def _by_day(batch: pa.RecordBatch) -> Iterable[tuple[str, pa.Table]]:
    """Divides rows by day. Within a day, the rows remain in log order."""
    days = batch.column("timestamp").cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    table = pa.Table.from_batches([batch])
    distinct = pc.unique(days)
    if len(distinct) == 1:
        return [(str(distinct[0]), table)]
    return [(str(day), table.filter(pc.equal(days, day))) for day in distinct]
