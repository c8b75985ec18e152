"""Tests the commands `odradek spark export`, `diff` and `profile` on log directories and on a cluster's topic."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.compression import Compression
from odradek.protocol.records import NewRecord
from odradek.tools.commands.errors import DIFFERENT, DONE
from odradek.tools.commands.tree import run
from tests.support.batches import NOW_MS
from tests.support.broker_process import Broker
from tests.support.written_log import WrittenLog, flip

HOUR_MS = 60 * 60 * 1_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Returns the directory of a topic with two partitions, 58 committed and 10 aborted records, and 2 records in open
    transactions."""
    for partition in (0, 1):
        log = WrittenLog(tmp_path / "data", "orders", partition)
        for hour in range(4):
            records = [NewRecord(b"k%d" % (n % 3), b"v" * n, NOW_MS + hour * HOUR_MS + n) for n in range(5)]
            log.append(records, compression=Compression.ZSTD)
            log.append(2 + partition, producer_id=7, epoch=hour, transactional=True, at_ms=NOW_MS)
            log.end(7, commit=hour % 2 == 0, epoch=hour, at_ms=NOW_MS + 40)
            log.append(1, at_ms=NOW_MS + hour * HOUR_MS)
        log.roll()
        log.append(1, producer_id=8, transactional=True)
    return tmp_path / "data"


def json_output(capsys: pytest.CaptureFixture[str], *words: object, status: int = DONE) -> Any:
    assert run(["spark", *map(str, words), "--json"]) == status, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def test_an_export_has_the_rows_that_spark_reads_from_the_topic(
    spark: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    export = json_output(capsys, "export", f"{data}/orders", "--to", out)
    there = spark.read.parquet(str(out)).selectExpr("partition", "offset", "topic")
    records = Counter(map(tuple, there.collect()))
    frame = spark.read.format("odradek").option("path", str(data)).load().selectExpr("partition", "offset", "topic")
    assert records == Counter(map(tuple, frame.collect()))
    assert export["records"] == records.total() == len(records) == 58
    assert json_output(capsys, "export", f"{data}/orders", "--to", out)["records"] == 0
    assert run(["spark", "export", f"{data}/orders", "--to", str(out)]) == DONE
    assert capsys.readouterr().out == f"{out}: there are no new records\n"


def test_a_topic_of_a_cluster_is_exported_as_well(
    spark: Any, broker: Broker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.spark.test_exactly_once import write

    at = f"kafka://{broker.bootstrap}/{topic}"
    for values, count in (([b"1", b"2", b"3"], 3), ([b"4"], 1), ([], 0)):
        if values:
            write(broker, topic, values, aborted=[b"never"])
        assert json_output(capsys, "export", at, "--to", tmp_path / "out")["records"] == count
    found = spark.read.parquet(str(tmp_path / "out")).selectExpr("cast(value as string)").collect()
    assert sorted(row[0] for row in found) == ["1", "2", "3", "4"]


def test_a_copy_does_not_differ_and_a_change_is_found(
    spark: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    found = json_output(capsys, "diff", data, copy, "--overlap")
    assert found["is_same"]
    assert [(each["partition"], each["batches"]) for each in found["partitions"]] == [(0, 0), (1, 0)]

    log = WrittenLog(tmp_path / "other", "orders", 0)
    # the same records in different batches, except for one value, one marker and the end of the log
    for hour in range(4):
        records = [NewRecord(b"k%d" % (n % 3), b"v" * n, NOW_MS + hour * HOUR_MS + n) for n in range(5)]
        if hour == 3:
            records[2] = NewRecord(b"k2", b"changed", records[2].timestamp)
        for record in records:
            log.append([record])
        log.append(2, producer_id=7, epoch=hour, transactional=True, at_ms=NOW_MS)
        log.end(7, commit=hour != 2 and hour % 2 == 0, epoch=hour, at_ms=NOW_MS + 40)
        log.append(1, at_ms=NOW_MS + hour * HOUR_MS)
    found = json_output(capsys, "diff", data, log.data, status=DIFFERENT)
    first, second = found["partitions"]
    numbers = {name: first[name] for name in ("missing_left", "missing_right", "changed", "markers")}
    assert numbers == {"missing_left": 0, "missing_right": 1, "changed": 1, "markers": 1}
    assert (second["right"], second["missing_right"]) == (None, 37)
    changed = next(each for each in found["examples"] if each["difference"] == "changed")
    assert (changed["offset"], changed["columns"]) == (29, ["value"])
    assert (changed["left"]["value"], changed["right"]["value"]) == ("vv", "changed")


def test_a_profile_counts_records_and_keys_and_writes_a_page(
    spark: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    found = json_output(capsys, "profile", f"{data}/orders", "--html", page)
    assert found["records"] == 58
    assert [tuple(each[:2]) for each in found["partitions"]] == [(0, 28), (1, 30)]
    assert sum(found["record_bytes"]["counts"].values()) == 58
    assert found["distinct_keys"] == 3
    assert found["top_keys"][0] == ["k0", 28]
    log = found["log"]
    assert (log["committed"], log["aborted"], log["still_open"]) == (4, 4, 2)
    assert log["producers"] == 2
    assert set(log["codecs"]) == {"none", "zstd"}
    assert sum(log["open_for"]["counts"].values()) == 4
    assert sum(each[1] for each in found["over_time"]) == 62 + 2 + 6
    text = page.read_text()
    assert "<svg" in text
    assert "http" not in text
    assert run(["spark", "profile", f"{data}/orders"]) == DONE
    assert "4 committed, 4 aborted, 2 open; median time to commit" in capsys.readouterr().out


def test_the_error_for_a_damaged_directory_names_the_file(
    spark: Any, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data / "orders-0" / f"{0:020d}.log"
    flip(path, 200)
    assert run(["spark", "profile", f"{data}/orders"]) == 1
    assert str(path) in capsys.readouterr().err
