"""Tests that an export contains each record once, even after a crash, with two simultaneous exports, or while the log
is growing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from odradek.client import TopicPartition
from odradek.protocol.records import NewRecord
from odradek.spark.jobs.export import Exported, ExportOptions, ExportSource, at_once, export_source, export_with
from odradek.spark.jobs.export_plan import (
    ExportChunk,
    ExportDirectory,
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
from odradek.spark.jobs.inputs import input_of
from odradek.spark.jobs.parquet import MAX_DAYS
from tests.support.batches import NOW_MS
from tests.support.written_log import WrittenLog

DAY_MS = 24 * 60 * 60 * 1_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Crash(Exception):
    pass


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return written(tmp_path / "data")


def written(data: Path) -> WrittenLog:
    """Writes records from several days, and records of aborted and committed transactions, in three segments."""
    log = WrittenLog(data)
    for day in (2, 1, 0):
        log.append(3, at_ms=NOW_MS - day * DAY_MS)
        log.transaction(7, commit=False, records=2, epoch=2 - day)
        log.append([NewRecord(None, None, NOW_MS, (("h", b"1"), ("h", None))), NewRecord(b"k", b"", NOW_MS - DAY_MS)])
        log.transaction(8, commit=True, records=2, epoch=2 - day)
        log.roll()
    return log


def source(log: WrittenLog, **settings: Any) -> ExportSource:
    return export_source(input_of(f"{log.data}/t"), **{"chunk_bytes": 900, **settings})


def exported(log: WrittenLog, out: Path, observe: Observe = observe_nothing, **settings: Any) -> Exported:
    options = ExportOptions(allows_loss=settings.get("allows_loss", False))
    return export_with(at_once, source(log, **settings), out, options, observe)


def committed(log: WrittenLog) -> Counter[int]:
    """Counts the offsets visible to a read_committed reader. Unlike an export, the reader reads the log in chunks."""
    read = export_source(input_of(f"{log.data}/t"))
    bounds = read.bounds()
    return Counter(
        offset
        for task in read.tasks(read.chunks(bounds.first, bounds.latest))
        for batch in task.read()
        for offset in batch.column("offset").to_pylist()
    )


def rows(out: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows found in the directory by a reader that knows nothing about exports."""
    for path in out.glob("topic=*/**/*.parquet"):
        yield from pq.ParquetFile(path).read().to_pylist()


def offsets(out: Path) -> Counter[int]:
    return Counter(row["offset"] for row in rows(out))


def test_each_committed_record_is_in_one_file_of_its_day(log: WrittenLog, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = exported(log, out)
    assert offsets(out) == committed(log)
    assert len(offsets(out)) == result.rows == 21
    assert (result.plans, result.resumed, result.offsets) == (1, 0, log.next_offset)
    for path in out.glob("topic=t/*/*.parquet"):
        days = {str(row["timestamp"].date()) for row in pq.ParquetFile(path).read().to_pylist()}
        assert path.parent.name == f"date={days.pop()}"
        assert not days
    assert {each.path for each in result.files} == {path.relative_to(out).as_posix() for path in out.glob("t*/*/*.p*")}


def test_a_record_is_exported_as_spark_would_read_it(log: WrittenLog, tmp_path: Path) -> None:
    exported(log, tmp_path / "out")
    row = next(row for row in rows(tmp_path / "out") if row["key"] is None)
    at = datetime.fromtimestamp(NOW_MS / 1_000, UTC)
    assert row == {
        "key": None,
        "value": None,
        "partition": 0,
        "offset": row["offset"],
        "timestamp": at,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }


def test_a_second_call_adds_what_is_new_and_a_third_nothing(log: WrittenLog, tmp_path: Path) -> None:
    out = tmp_path / "out"
    exported(log, out)
    log.append(4)
    before = set(out.glob("topic=*/**/*.parquet"))
    assert exported(log, out).rows == 4
    assert before < set(out.glob("topic=*/**/*.parquet"))
    assert offsets(out) == committed(log)
    assert exported(log, out) == Exported()


def test_an_open_transaction_is_exported_when_it_has_ended(log: WrittenLog, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = log.append(2, producer_id=9, transactional=True)
    log.append(3)
    exported(log, out)
    assert max(offsets(out)) < first
    log.end(9, commit=True)
    assert exported(log, out).rows == 5
    assert offsets(out) == committed(log)


def test_a_crash_at_any_step_leaves_neither_a_hole_nor_a_record_twice(tmp_path: Path) -> None:
    """Checks that an export interrupted by a crash at any step is completed by the next export, although the log has
    grown in the meantime."""
    for number in range(100):
        out, log = tmp_path / f"out-{number}", written(tmp_path / f"data-{number}")
        steps = itertools.count()

        def crash_at(step: ExportStep, number: int = number, steps: Iterator[int] = steps) -> None:
            if next(steps) == number:
                raise Crash(step.name)

        try:
            exported(log, out, crash_at)
        except Crash:
            log.append(1)
            assert max(offsets(out).values(), default=1) == 1
        else:
            break
        exported(log, out)
        assert offsets(out) == committed(log)
        assert not list(out.glob("_odradek/unfinished*"))
        assert not [path for path in (out / "_odradek/plans").iterdir() if path.is_dir()]
    assert 8 < number < 99


def test_two_crashes_in_a_row_at_any_two_steps(tmp_path: Path) -> None:
    for first, second in itertools.product(range(0, 12, 4), repeat=2):
        out, log = tmp_path / f"out-{first}-{second}", written(tmp_path / f"data-{first}-{second}")
        for number in (first, second):
            steps = itertools.count()

            def crash_at(step: ExportStep, number: int = number, steps: Iterator[int] = steps) -> None:
                if next(steps) == number:
                    raise Crash(step.name)

            try:
                exported(log, out, crash_at)
            except Crash:
                log.append(1)
        exported(log, out)
        assert offsets(out) == committed(log)


def test_two_exports_at_once_write_the_same_plan(log: WrittenLog, tmp_path: Path) -> None:
    """Checks that a second export that starts and finishes at any step of the first one does not change the result."""
    for number in itertools.count():
        out = tmp_path / f"out-{number}"
        steps = itertools.count()
        others: list[Exported] = []

        def another(
            step: ExportStep,
            number: int = number,
            steps: Iterator[int] = steps,
            others: list[Exported] = others,
            out: Path = out,
        ) -> None:
            if next(steps) == number:
                others.append(exported(log, out))

        exported(log, out, another)
        if not others:
            assert number > 15
            break
        assert offsets(out) == committed(log)
        assert exported(log, out) == Exported()
        log.append(1)


def test_an_export_of_something_else_is_refused(log: WrittenLog, tmp_path: Path) -> None:
    out = tmp_path / "out"
    exported(log, out)
    topic = input_of(f"{log.data}/t")
    everything = topic.with_options(**{"kafka.isolation.level": "read_uncommitted"})
    for read in (export_source(topic, starting_ms=NOW_MS), export_source(everything)):
        with pytest.raises(ExportError, match=r"was exported with other settings .*: export into another directory"):
            export_with(at_once, read, out, ExportOptions())
    with pytest.raises(ExportError, match="is not empty, and contains no export"):
        exported(log, log.data)


def test_times_bound_an_export_by_the_first_record_that_is_not_older(tmp_path: Path) -> None:
    out, log = tmp_path / "out", WrittenLog(tmp_path / "data")
    for day in (2, 1, 0):
        log.append(3, at_ms=NOW_MS - day * DAY_MS)
    start = NOW_MS - DAY_MS
    exported(log, out, starting_ms=start, ending_ms=start + 1)
    assert sorted(offsets(out)) == [3, 4, 5]
    assert exported(log, out, starting_ms=start, ending_ms=start + 1) == Exported()
    exported(log, out, starting_ms=start)
    assert sorted(offsets(out)) == [3, 4, 5, 6, 7, 8]
    exported(log, tmp_path / "none", starting_ms=NOW_MS + 1)
    assert offsets(tmp_path / "none") == {}
    log.append(1, at_ms=NOW_MS + 1)
    assert exported(log, tmp_path / "none", starting_ms=NOW_MS + 1).rows == 1


def test_records_that_were_deleted_before_their_export_are_reported(log: WrittenLog, tmp_path: Path) -> None:
    out = tmp_path / "out"
    exported(log, out)
    log.append(5)
    log.roll()
    log.append(2)
    for path in sorted(log.directory.glob("*.log"))[:-1]:
        path.unlink()
    with pytest.raises(ExportError, match=r"of t-0 were deleted before they were exported; --allow-data-loss"):
        exported(log, out)
    assert exported(log, out, allows_loss=True).rows == 2
    assert max(offsets(out).values()) == 1


def test_another_log_under_the_same_name_is_refused(log: WrittenLog, tmp_path: Path) -> None:
    out = tmp_path / "out"
    exported(log, out)
    shorter = WrittenLog(tmp_path / "restored")
    shorter.append(1)
    with pytest.raises(ExportError, match="t-0 ends at 1, but was exported up to 33: this is another log"):
        exported(shorter, out)


def test_timestamps_of_too_many_days_are_refused_unless_dates_are_off(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "data")
    log.append([NewRecord(b"k", b"v", day * DAY_MS) for day in range(MAX_DAYS + 1)])
    with pytest.raises(ExportError, match="more than 500 days: export with --no-dates"):
        exported(log, tmp_path / "out")
    export_with(at_once, source(log), tmp_path / "undated", ExportOptions(by_date=False))
    (only,) = (tmp_path / "undated").glob("topic=t/*.parquet")
    assert pq.ParquetFile(only).metadata.num_rows == MAX_DAYS + 1


def test_a_plan_begins_where_the_last_one_has_ended() -> None:
    plan = Plan(3, {P0: 0}, {P0: 10}, (), {"t": "A"})
    bounds = SourceBounds({P0: 2, P1: 5}, {P0: 2, P1: 7}, {P0: 12, P1: 9}, {"t": "A"})
    start, end = begin(plan, bounds)
    assert (start, end) == ({P0: 10, P1: 7}, {P0: 12, P1: 9})
    made = next_plan(plan, start, end, cut(start, end, 100), {"t": "A"})
    assert made.number == 4
    assert made.chunks == (ExportChunk("t", 0, 10, 12), ExportChunk("t", 1, 7, 9))
    assert Plan.from_json(made.to_json()) == made


def test_a_topic_that_was_created_anew_is_refused() -> None:
    plan = Plan(0, {P0: 0}, {P0: 10}, (), {"t": "A"})
    with pytest.raises(ExportError, match="its id was A, and is B"):
        begin(plan, SourceBounds({P0: 0}, {P0: 0}, {P0: 20}, {"t": "B"}))


def test_a_partition_that_is_not_read_this_time_keeps_its_place() -> None:
    plan = Plan(0, {P0: 0, P1: 0}, {P0: 10, P1: 20}, (), {})
    assert next_plan(plan, {P0: 10}, {P0: 30}, [], {}).end == {P0: 30, P1: 20}


@pytest.mark.parametrize(
    ("start", "end", "chunks"),
    [(0, 0, []), (0, 10, [(0, 10)]), (7, 25, [(7, 10), (10, 20), (20, 25)]), (10, 20, [(10, 20)])],
)
def test_chunks_of_a_topic_end_at_round_offsets(start: int, end: int, chunks: list[tuple[int, int]]) -> None:
    assert [(each.start_offset, each.end_offset) for each in cut({P0: start}, {P0: end}, 10)] == chunks


def test_the_first_of_two_plans_of_one_number_stands(tmp_path: Path) -> None:
    out = ExportDirectory(tmp_path / "out")
    out.open({})
    first, second = (Plan(0, {P0: 0}, {P0: end}, (ExportChunk("t", 0, 0, end),)) for end in (5, 6))
    assert out.store(first) == first
    assert out.store(second) == first
    assert out.last_plan() == first
