"""Tests a Spark job's input argument, the errors if there is nothing to read, and the texts that jobs print."""

import argparse
import io
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.spark.jobs.inputs import InputError, input_of, one_topic, topics_in
from odradek.spark.jobs.session import bar, drawn
from odradek.spark.jobs.shown import MAX_LENGTH, shown, size
from odradek.tools.commands.errors import REFUSED
from odradek.tools.commands.spark_jobs import columns_of
from tests.support.oracle import REPOSITORY


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Creates a data directory with two topics."""
    for name in ("orders-0", "orders-1", "order-lines-0"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "00000000000000000000.log").touch()
    (tmp_path / "data" / "meta.properties").touch()
    (tmp_path / "data" / "empty-0").mkdir()
    return tmp_path / "data"


def test_an_address_of_a_cluster_with_a_topic_is_an_input() -> None:
    found = one_topic(input_of("kafka://one:9092,[::1]:9093/orders"))
    assert found.source_options() == {"kafka.bootstrap.servers": "one:9092,[::1]:9093", "subscribe": "orders"}
    assert not found.is_directory
    assert input_of("kafka://one:9092", ["orders"]).topics == ("orders",)


def test_a_data_directory_and_one_topic_of_it_are_inputs(data: Path) -> None:
    assert topics_in(data) == ["order-lines", "orders"]
    assert input_of(str(data)).source_options() == {"path": str(data)}
    for given in (input_of(f"{data}/orders"), one_topic(input_of(str(data), ["orders"]))):
        assert given.source_options() == {"path": str(data), "subscribe": "orders"}


def test_the_directory_of_a_partition_is_its_topic(data: Path) -> None:
    assert one_topic(input_of(f"{data}/orders-1")).topics == ("orders",)


def test_options_are_added(data: Path) -> None:
    given = input_of(f"{data}/orders").with_options(view="batches")
    assert given.source_options() == {"path": str(data), "subscribe": "orders", "view": "batches"}


@pytest.mark.parametrize(
    ("text", "topics", "advice"),
    [
        ("kafka://localhost/orders", [], r"kafka://HOST:PORT/TOPIC"),
        ("kafka://localhost:9092", [], r"kafka://localhost:9092/TOPIC"),
        ("kafka://localhost:9092/orders", ["other"], r"give only one of the two"),
        ("s3://bucket/orders", [], r"a mounted directory"),
        ("DATA/payments", [], r"the topics are order-lines, orders"),
        ("DATA", ["payments"], r"the topics are order-lines, orders"),
        ("DATA", [], r"give one topic, as in .*data/TOPIC; the topics are order-lines, orders"),
        ("DATA/orders", ["order-lines"], r"give only one of the two"),
        ("DATA/meta.properties", [], r"is a file"),
        ("DATA/empty-0", [], r"this directory contains no logs"),
        ("nowhere/at/all", [], r"no such directory"),
    ],
)
def test_a_missing_input_is_refused_with_advice(data: Path, text: str, topics: list[str], advice: str) -> None:
    with pytest.raises(InputError, match=advice):
        one_topic(input_of(text.replace("DATA", str(data)), topics))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("key", ["key"]),
        ("key, value", ["key", "value"]),
        ("substring(value, 1, 5),key", ["substring(value, 1, 5)", "key"]),
        ("replace(value, ',', \"(\"), headers[0].value", ["replace(value, ',', \"(\")", "headers[0].value"]),
    ],
)
def test_columns_are_parted_by_commas_outside_of_brackets_and_quotes(text: str, columns: list[str]) -> None:
    assert columns_of(text) == columns


@pytest.mark.parametrize("text", ["", "key,", "f(key", "key)", "'key"])
def test_what_is_no_list_of_columns_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        columns_of(text)


def test_values_are_shown_as_text_where_they_are_text() -> None:
    assert shown(b"tea") == "tea"
    assert shown("käse".encode()) == "käse"
    assert shown(b"\xff\x00") == "0xff00"
    assert shown(b"a\nb") == "0x610a62"
    assert (shown(None), shown(7)) == (None, "7")
    long = shown(b"x" * 500)
    assert long is not None
    assert len(long) == MAX_LENGTH


def test_sizes_are_printed_in_the_largest_fitting_unit() -> None:
    assert [size(each) for each in (0, 1023, 1536, 5 * 1024**3, 3 * 1024**4)] == [
        "0 B",
        "1,023 B",
        "1.5 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]


def test_the_bar_shows_tasks_and_time_and_is_erased_at_the_end() -> None:
    assert bar("export", 0, 0, 3.9).endswith("starting  0:03")
    assert "██████████████░" in bar("export", 1_000, 2_001, 75)
    assert bar("export", 1_000, 2_001, 75).endswith("1,000 of 2,001 tasks  1:15")
    stream = io.StringIO()
    calls: list[int] = []

    def counts() -> tuple[int, int]:
        calls.append(1)
        return 1, 2

    with drawn("export", counts, stream, every_s=0.001):
        while not calls:
            pass
    assert "1 of 2 tasks" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_without_spark_a_job_says_how_to_get_it() -> None:
    script = (
        "import sys\n"
        "sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "from odradek.tools.commands.tree import run\n"
        "sys.exit(run(['spark', 'exactly-once', '--input', 'kafka://a:1/t', '--output', 'kafka://a:1/u']))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == REFUSED
    assert done.stderr.startswith("odradek spark: Spark is missing: pip install odradek[spark]")
