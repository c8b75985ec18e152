"""Tests which parts of a directory a query reads, and which records it finds there. The tests need no JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from odradek.files.offline import DamagedLog
from odradek.protocol.compression import Compression
from odradek.protocol.records import NewRecord
from odradek.spark.files.options import EVERYTHING, FileOptions, LogView, Pruning, pruned
from odradek.spark.files.plan import plan
from odradek.spark.files.views import columns, read, schema_of, tasks
from odradek.spark.offsets import DataLost
from odradek.spark.options import OptionError
from tests.support.batches import NOW_MS
from tests.support.written_log import WrittenLog, flip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Creates three partitions. t-0 has offsets 0 to 29, a second apart, in three segments with one batch of ten
    records each. t-1 has 2 records, and u-0 has 1 record."""
    first = WrittenLog(tmp_path)
    for number in range(3):
        if number:
            first.roll()
        first.append([NewRecord(b"k", b"%d" % n, NOW_MS + 1000 * (10 * number + n)) for n in range(10)])
    WrittenLog(tmp_path, partition=1).append(2, at_ms=NOW_MS + 5_500)
    WrittenLog(tmp_path, "u").append(1)
    WrittenLog(tmp_path, "__consumer_offsets").append(1)
    return tmp_path


def rows(path: Path | str, pruning: Pruning = EVERYTHING, /, **options: str) -> list[dict[str, Any]]:
    chosen = replace(FileOptions.read({"path": str(path), **options}), pruning=pruning)
    schema = schema_of(chosen.view)
    return [row for task in tasks(chosen) for batch in read(task, chosen, schema) for row in batch.to_pylist()]


def offsets(path: Path | str, pruning: Pruning = EVERYTHING, /, **options: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows(path, pruning, **options):
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    return found


def span(first: int, after: int) -> list[int]:
    return list(range(first, after))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"t-0": span(0, 30), "t-1": [0, 1], "u-0": [0]}),
        ({"subscribe": "u"}, {"u-0": [0]}),
        ({"subscribePattern": "u|__.*"}, {"__consumer_offsets-0": [0], "u-0": [0]}),
        ({"assign": '{"t": [1]}'}, {"t-1": [0, 1]}),
        (
            {"subscribe": "t", "startingOffsets": '{"t": {"0": 13, "1": -2}}', "endingOffsets": '{"t": {"0": 21}}'},
            {"t-0": span(13, 21), "t-1": [0, 1]},
        ),
        ({"assign": '{"t": [0]}', "startingTimestamp": str(NOW_MS + 12_001)}, {"t-0": span(13, 30)}),
        ({"assign": '{"t": [0]}', "endingTimestamp": str(NOW_MS + 12_001)}, {"t-0": span(0, 13)}),
        ({"assign": '{"t": [0]}', "endingTimestamp": str(NOW_MS + 99_000)}, {"t-0": span(0, 30)}),
        (
            {"subscribe": "t", "startingOffsetsByTimestamp": json.dumps({"t": {"0": NOW_MS + 29_000, "1": 0}})},
            {"t-0": [29], "t-1": [0, 1]},
        ),
    ],
)
def test_the_options_select_the_offsets_to_read(
    data: Path, options: dict[str, str], expected: dict[str, list[int]]
) -> None:
    assert offsets(data, **options) == expected


@pytest.mark.parametrize("how", ["t-*", "t-0,{data}/t-1", "?-[01]"])
def test_directories_of_partitions_can_be_named(data: Path, how: str) -> None:
    found = offsets(f"{data}/{how.format(data=data)}")
    assert found.pop("u-0", [0]) == [0]
    assert {each: len(read) for each, read in found.items()} == {"t-0": 30, "t-1": 2}
    assert offsets(f"file://{data}/t-1") == {"t-1": [0, 1]}


def test_the_strategy_decides_what_happens_where_no_record_is_late_enough(data: Path) -> None:
    options = {"subscribe": "t", "startingTimestamp": str(NOW_MS + 20_000)}
    with pytest.raises(OptionError, match=rf"t-1 \({NOW_MS + 20_000}\); set startingOffsetsByTimestampStrategy"):
        rows(data, **options)
    assert offsets(data, **options, startingOffsetsByTimestampStrategy="Latest") == {"t-0": span(20, 30)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nothing"}, "not in .*: nothing"),
        ({"assign": '{"t": [7]}'}, "not in"),
        ({"kafka.bootstrap.servers": "x"}, "cannot be combined"),
        ({"kafka.client.id": "x"}, r"no broker is used.*kafka\.client\.id"),
        ({"view": "record"}, "view must be one of records, batches"),
        ({"mode": "dropMalformed"}, "mode must be one of failfast, permissive"),
        ({"transactions": "yes"}, "scan or index"),
        ({"startingOffsetsByTimestampStrategy": "never"}, "error or latest"),
        ({"subscribe": "t", "assign": '{"t": [0]}'}, "only one"),
        ({"subscribe": "u", "startingOffsets": '{"t": {"0": 1}}'}, "partitions that are not read"),
    ],
)
def test_options_that_cannot_be_are_refused(data: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        rows(data, **options)


def test_paths_without_logs_and_with_two_copies_are_refused(data: Path, tmp_path: Path) -> None:
    for path, message in ((tmp_path / "no", "no such directory"), ("s3://bucket/x", "only local paths")):
        with pytest.raises(ValueError, match=message):
            rows(path)
    WrittenLog(tmp_path / "replica" / "data").append(1)
    with pytest.raises(ValueError, match=r"t-0 is in .* and in .*: give only one of them"):
        rows(f"{data},{tmp_path / 'replica' / 'data'}")


def test_offsets_that_are_gone_or_not_there_yet_are_data_loss(data: Path) -> None:
    (data / "t-0" / f"{0:020d}.log").unlink()
    options = {"assign": '{"t": [0]}', "startingOffsets": '{"t": {"0": 5}}'}
    with pytest.raises(DataLost, match="5 to 10 of t-0"):
        rows(data, **options)
    assert offsets(data, **options, failOnDataLoss="false") == {"t-0": span(10, 30)}
    options = {"assign": '{"t": [0]}', "endingOffsets": '{"t": {"0": 31}}'}
    with pytest.raises(DataLost, match=r"up to offset 31, but .* ends at 30"):
        rows(data, **options)
    assert offsets(data, **options, failOnDataLoss="false") == {"t-0": span(10, 30)}


def test_deleted_records_stay_deleted_although_their_segment_is_there(data: Path) -> None:
    (data / "log-start-offset-checkpoint").write_text("0\n1\nt 0 14\n")
    assert offsets(data, assign='{"t": [0]}') == {"t-0": span(14, 30)}
    assert rows(data, assign='{"t": [0]}', view="offsets")[0]["logStartOffset"] == 14


def test_tasks_are_cut_by_size_and_by_number(data: Path) -> None:
    def ranges(**options: str) -> list[tuple[int, int]]:
        chosen = FileOptions.read({"path": str(data), "assign": '{"t": [0]}', **options})
        return [(task.range.start_offset, task.range.end_offset) for task in plan(chosen)]

    size = (data / "t-0" / f"{0:020d}.log").stat().st_size
    assert ranges() == [(0, 30)]
    assert ranges(maxBytesPerPartition=str(2 * size + 5)) == [(0, 20), (20, 30)]
    assert ranges(maxBytesPerPartition="1") == [(0, 10), (10, 20), (20, 30)]
    assert ranges(minPartitions="6") == [(n, n + 5) for n in range(0, 30, 5)]


def test_a_transaction_of_several_tasks_is_left_out_in_each(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    for number in range(6):
        log.append(2, producer_id=number % 2, transactional=True, compression=Compression.ZSTD)
    log.end(0, commit=False)
    log.end(1, commit=True)
    expected = [2, 3, 6, 7, 10, 11]
    for size in ("1", "300", "100000"):
        assert offsets(tmp_path, maxBytesPerPartition=size) == {"t-0": expected}
        assert len(rows(tmp_path, maxBytesPerPartition=size, view="batches")) == 8
    assert offsets(tmp_path, **{"kafka.isolation.level": "read_uncommitted"}) == {"t-0": span(0, 12)}


def test_damage_fails_the_query_unless_it_is_to_be_left_out(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = data / "t-0" / f"{0:020d}.log"
    flip(first, 100)
    with pytest.raises(DamagedLog, match=rf"{first} is damaged at byte 0, offset 0: the CRC"):
        rows(data)
    assert offsets(data, mode="PERMISSIVE")["t-0"] == span(10, 30)
    assert f"{first} is damaged" in capfd.readouterr().err
    assert [row["isValid"] for row in rows(data, view="batches", assign='{"t": [0]}')] == [False, True, True]


@dataclass
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


class GreaterThan(EqualTo): ...


class GreaterThanOrEqual(EqualTo): ...


class LessThanOrEqual(EqualTo): ...


class In(EqualTo): ...


class StringContains(EqualTo): ...


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("topic",), "u")], {"u-0": [0]}),
        ([In(("partition",), (1, 2)), EqualTo(("topic",), "t")], {"t-1": [0, 1]}),
        ([EqualTo(("topic",), "t"), EqualTo(("topic",), "u")], {}),
        ([GreaterThan(("offset",), 27), LessThanOrEqual(("offset",), 28)], {"t-0": [28]}),
        ([StringContains(("value",), "x"), EqualTo(("headers", "key"), "x"), EqualTo(("topic",), "u")], {"u-0": [0]}),
        # A timestamp filter only narrows down the part of a file to read, so some records outside the range remain.
        (
            [GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(NOW_MS / 1000 + 21, UTC))],
            {"t-0": span(20, 30)},
        ),
    ],
)
def test_filters_leave_out_what_cannot_match(data: Path, filters: Sequence[EqualTo], expected: dict[str, Any]) -> None:
    assert offsets(data, pruned(filters), maxBytesPerPartition="1") == expected


def test_a_filter_does_not_turn_offsets_for_other_partitions_into_an_error(data: Path) -> None:
    found = offsets(data, pruned([EqualTo(("partition",), 1)]), subscribe="t", startingOffsets='{"t": {"0": 5}}')
    assert found == {"t-1": [0, 1]}


@pytest.mark.parametrize("view", [each.value for each in LogView])
def test_each_view_has_the_columns_that_it_announces(data: Path, view: str) -> None:
    chosen = FileOptions.read({"path": str(data), "view": view, "includeHeaders": "true"})
    announced = [each.strip().split(" ")[0] for each in columns(chosen).split(", ")]
    assert [name for name in announced if name in schema_of(chosen.view).names] == schema_of(chosen.view).names
    for row in rows(data, view=view):
        assert list(row) == schema_of(chosen.view).names


def test_the_view_of_transactions_lists_open_and_ended_ones(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    log.transaction(1, commit=True, records=3)
    log.transaction(2, commit=False, records=2)
    log.append(4, producer_id=1, epoch=1, transactional=True)
    found = rows(tmp_path, view="transactions")
    facts = ["producerId", "state", "firstOffset", "lastOffset", "markerOffset", "records"]
    assert [tuple(row[name] for name in facts) for row in found] == [
        (1, "committed", 0, 2, 3, 3),
        (2, "aborted", 4, 5, 6, 2),
        (1, "open", 7, 10, None, 4),
    ]
    [bounds] = rows(tmp_path, view="offsets")
    assert (bounds["lastStableOffset"], bounds["endOffset"], bounds["records"]) == (7, 11, 9)
    producers = rows(tmp_path, view="producers")
    facts = ["producerId", "producerEpoch", "lastSequence", "lastOffset", "currentTransactionStartOffset"]
    assert [tuple(row[name] for name in facts) for row in producers] == [(1, 1, 3, 10, 7), (2, 1, None, None, None)]
    [segment] = rows(tmp_path, view="segments")
    assert (segment["baseOffset"], segment["nextOffset"], segment["batches"], segment["records"]) == (0, 11, 5, 9)
    assert segment["tailInBytes"] == 0
