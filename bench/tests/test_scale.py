"""Tests that the scale benchmark finds where a cost has doubled, draws charts and a table, and writes a large log that
takes up little disk space."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.scale.chart import svg
from bench.scale.figures import METRICS, Curve, Point, knee, knees, table
from bench.scale.sparse_log import SEGMENT_BYTES, VALUE_BYTES, write_sparse_log
from odradek.protocol.records import LOG_OVERHEAD, batches, crc_ok

CURVE = Curve(
    "log",
    "Size of a log",
    "a Produce <1 KiB>",
    (
        Point(10, 20.0, 90.0, 40.0, 0.3, 0.4),
        Point(1_000, 21.0, 95.0, 41.0, 0.3, 0.9),
        Point(50_000, 22.0, 99.0, 42.0, 0.4, 1.9),
    ),
)


@pytest.mark.parametrize(
    ("values", "at"),
    [
        ([10.0, 11.0, 19.9], None),
        ([10.0, 20.0, 30.0], 10),
        ([10.0, 11.0, 20.0], 100),
        ([10.0, 25.0, 12.0], None),  # the cost fell again, so other work on the machine must have raised it
        ([10.0, 25.0, 22.0], 10),
    ],
)
def test_the_knee_is_where_the_cost_has_doubled_and_stays(values: list[float], at: int | None) -> None:
    assert knee([1, 10, 100], values) == at


def test_each_metric_is_told_with_the_size_of_its_knee() -> None:
    assert knees(CURVE) == [
        "CPU per request: no knee",
        "p99: no knee",
        "RSS: no knee",
        "CPU of a restart, stopped: no knee",
        "CPU of a restart, killed: doubled at 1 GB",
    ]


def test_the_table_has_a_row_for_each_size() -> None:
    assert table([CURVE]).splitlines()[2:] == [
        "| Size of a log | 10 MB | 20.0 µs | 90.0 µs | 40.0 MiB | 0.30 s | 0.40 s |",
        "|  | 1 GB | 21.0 µs | 95.0 µs | 41.0 MiB | 0.30 s | 0.90 s |",
        "|  | 50 GB | 22.0 µs | 99.0 µs | 42.0 MiB | 0.40 s | 1.90 s |",
    ]


def test_a_chart_is_svg_with_a_point_for_each_figure_and_both_schemes() -> None:
    drawn = svg(CURVE, "2026-11-22, two cores")
    root = ElementTree.fromstring(drawn)
    names = [element.tag.rpartition("}")[2] for element in root.iter()]
    figures = sum(len(metric.fields) for metric in METRICS)
    assert names.count("polyline") == figures
    assert names.count("circle") == figures * len(CURVE.points) + 2  # plus two circles in the restart legend
    assert "prefers-color-scheme: dark" in drawn
    assert "script" not in names


def test_a_sparse_log_is_whole_and_takes_little_of_the_disk(tmp_path: Path) -> None:
    count = write_sparse_log(tmp_path, 1_100)
    files = sorted(tmp_path.glob("*.log"))
    assert [int(path.stem) for path in files] == [0, SEGMENT_BYTES // (files[0].stat().st_size // int(files[1].stem))]
    assert sum(path.stat().st_blocks * 512 for path in files) < 20_000_000 < sum(path.stat().st_size for path in files)
    last = files[1].read_bytes()
    found = list(batches(memoryview(last)))
    assert int(files[1].stem) + len(found) == count
    sizes = {header.batch_length + LOG_OVERHEAD for _, header in found}
    assert min(sizes) > VALUE_BYTES
    assert all(crc_ok(last, position, header.batch_length + LOG_OVERHEAD) for position, header in found)
