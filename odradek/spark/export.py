"""`odradek spark export`: topics as Parquet, partitioned by topic and day, each record exactly once.

Spark hands the chunks of a plan to its tasks; a task reads its range of offsets and writes the files of it. What a
crash leaves is finished by the next call (`export_plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from odradek.spark.export_sources import ChunkTask, ExportSource
from odradek.spark.jobs.export_plan import (
    ExportDirectory,
    ExportedFile,
    Observe,
    Plan,
    Step,
    begin,
    next_plan,
    observe_nothing,
)
from odradek.spark.jobs.parquet import write_chunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Write: TypeAlias = Callable[[ChunkTask], list[ExportedFile]]
Run: TypeAlias = Callable[[Sequence[ChunkTask], Write], None]
"""Has each task written, anywhere, in any order; raises what one of them has raised."""

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """
    allows_loss   go on where records were deleted before they were exported
    """

    by_date: bool = True
    compression: str = "zstd"
    allows_loss: bool = False


@dataclass(slots=True)
class Exported:
    """What one call has added. `resumed` counts plans that another call had left unfinished."""

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
    """Everything that is new in the source since the last call, or everything. Returns when it is on disk.

    to   a directory that all workers have mounted

    Raises ExportError where the source is not what was exported so far.
    """
    return export_with(on_spark(spark), source, to, options or ExportOptions())


def export_with(
    run: Run, source: ExportSource, to: Path, options: ExportOptions, observe: Observe = observe_nothing
) -> Exported:
    """The same, with tasks that need not be Spark's."""
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
            observe(Step.PLANNED)
            is_left = plan != made  # another export was faster
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
            if not out.is_done(plan):  # by another export, which has removed what this one was writing
                raise
        exported.files += out.finish(plan)
        observe(Step.DONE)
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
    """One task of Spark for each chunk."""
    from pyspark.sql import functions as F

    def run(tasks: Sequence[ChunkTask], write: Write) -> None:
        if not tasks:
            return

        def work(number: int) -> int:
            return len(write(tasks[number]))

        # A plain function of Python: those on Arrow need pandas.
        written = F.udf(work, "int", useArrow=False)("id")
        spark.range(0, len(tasks), 1, len(tasks)).select(written).collect()

    return run


def at_once(tasks: Sequence[ChunkTask], write: Write) -> None:
    """In this process, one after the other."""
    for task in tasks:
        write(task)
