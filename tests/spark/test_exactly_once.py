"""Tests that `odradek.spark.audit` finds, counts and shows the lost, repeated and invented records in an output."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from odradek.client.sync import Producer
from odradek.spark.jobs.audit import Comparison, compare, exactly_once
from odradek.spark.jobs.shown import RecordPlace
from odradek.tools.commands.errors import DIFFERENT, DONE, MISUNDERSTOOD, REFUSED
from odradek.tools.commands.tree import run
from tests.support.broker_process import Broker

PLACED = "key binary, value string, partition int, offset bigint"


def placed(spark: Any, *rows: tuple[str | None, str]) -> Any:
    return spark.createDataFrame(
        [(None if key is None else key.encode(), value, 0, offset) for offset, (key, value) in enumerate(rows)],
        PLACED,
    )


def test_rows_that_were_written_once_are_no_difference_in_any_order(spark: Any) -> None:
    rows = [("a", "1"), ("a", "1"), ("b", "2"), (None, "3")]
    source, output = placed(spark, *rows), placed(spark, *reversed(rows))
    assert exactly_once(source, output, on=["key", "value"]).collect() == []
    compared = compare(source, output, ["key", "value"])
    assert compared == Comparison(4, 4, 0, 0, 0, [])
    assert compared.is_exact
    assert str(compared) == "4 in, 4 out, 0 lost, 0 twice, 0 invented"


def test_lost_repeated_and_invented_rows_are_reported_with_their_places(spark: Any) -> None:
    source = placed(spark, ("a", "1"), ("b", "2"), ("b", "2"), ("c", "3"), (None, "4"))
    output = placed(spark, ("a", "1"), ("a", "1"), ("a", "1"), ("b", "2"), ("d", "5"))
    compared = compare(source, output, ["key", "value"])
    assert (compared.input_rows, compared.output_rows) == (5, 5)
    assert (compared.lost, compared.repeated, compared.invented) == (3, 2, 1)
    assert not compared.is_exact
    found = {(each.verdict, each.value["key"]): each for each in compared.examples}
    assert set(found) == {("lost", "b"), ("lost", "c"), ("lost", None), ("repeated", "a"), ("invented", "d")}
    repeated = found["repeated", "a"]
    assert (repeated.input_count, repeated.output_count) == (1, 3)
    assert (repeated.first_input, repeated.first_output, repeated.last_output) == (
        RecordPlace(0, 0),
        RecordPlace(0, 0),
        RecordPlace(0, 2),
    )
    assert found["lost", "c"].first_output is None


def test_input_and_output_can_have_different_comparison_expressions(spark: Any) -> None:
    source = placed(spark, ("1", "tea"), ("2", "milk"))
    output = placed(spark, ("x", json.dumps({"order": "1"})), ("y", json.dumps({"order": "7"})))
    compared = compare(source, output, "cast(key as string)", output_on="get_json_object(value, '$.order')", examples=1)
    assert (compared.lost, compared.invented) == (1, 1)
    assert [each.value for each in compared.examples] == [
        {"key": "2"},
        {"key": "7"},
    ]


def test_rows_without_a_place_are_compared_too(spark: Any) -> None:
    (row,) = exactly_once(spark.range(3), spark.range(2), on="id").collect()
    assert (row.id, row.verdict, row.input_count, row.output_count, row.first_input) == (2, "lost", 1, 0, None)


def test_columns_of_different_types_are_refused(spark: Any) -> None:
    with pytest.raises(ValueError, match="key is binary in the input but string in the output: cast one of them"):
        exactly_once(spark.sql("select binary('a') key"), spark.sql("select 'a' key"), on="key")
    with pytest.raises(ValueError, match="2 columns are given for the input, but 1 for the output"):
        exactly_once(spark.range(1), spark.range(1), on=["id", "id + 1"], output_on="id")


def test_any_multisets_are_compared_as_counters_say(spark: Any) -> None:
    rng = random.Random(7)
    ours = [rng.randrange(60) for _ in range(200)]
    theirs = [rng.randrange(60) for _ in range(200)]
    compared = compare(
        spark.createDataFrame([(each,) for each in ours], "id int"),
        spark.createDataFrame([(each,) for each in theirs], "id int"),
        "id",
        examples=1_000,
    )
    one, other = Counter(ours), Counter(theirs)
    more = other - one
    assert compared.lost == (one - other).total()
    assert compared.invented == sum(count for value, count in more.items() if value not in one)
    assert compared.repeated == more.total() - compared.invented
    assert {each.value["id"] for each in compared.examples} == {str(each) for each in {*(one - other), *more}}


def test_the_command_reports_the_differences_and_their_places(
    spark: Any, broker: Broker, topic: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command uses the active Spark session of these tests. It ignores aborted records in the input and in the
    output."""
    write(broker, topic, [b"1", b"2", b"3"], aborted=[b"9"])
    write(broker, output, [b"1", b"2", b"2"], aborted=[b"3"])
    at = f"kafka://{broker.bootstrap}"
    words = ["spark", "exactly-once", "--input", f"{at}/{topic}", "--output", f"{at}/{output}", "--on", "value"]
    assert run(words) == DIFFERENT
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "NOT exactly once: 3 in, 3 out, 1 lost, 1 twice, 0 invented"
    assert [line.split()[:4] for line in lines[3:]] == [["lost", "3", "1", "0"], ["repeated", "2", "1", "2"]]
    assert run([*words, "--json"]) == DIFFERENT
    report = json.loads(capsys.readouterr().out)
    assert (report["is_exact"], report["lost"], report["repeated"], report["invented"]) == (False, 1, 1, 0)
    assert report["examples"][0]["value"] == {"value": "3"}
    write(broker, output, [b"3"])
    assert run([*words[:-4], "--output", f"{at}/{topic}", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["is_exact"]


def write(broker: Broker, topic: str, values: list[bytes], aborted: list[bytes] | None = None) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"writer-{topic}") as producer:
        producer.init_transactions()
        for several, is_committed in ((values, True), (aborted or [], False)):
            producer.begin_transaction()
            for value in several:
                producer.send(topic, value)
            producer.flush()
            if is_committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()


def test_a_job_that_fails_says_why(spark: Any, broker: Broker, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = f"kafka://{broker.bootstrap}/{topic}"
    assert run(["spark", "exactly-once", "--input", at, "--output", at, "--on", "no_such"]) == REFUSED
    assert "no_such" in capsys.readouterr().err
    assert run(["spark", "exactly-once", "--input", "nowhere/orders", "--output", at]) == MISUNDERSTOOD
    assert capsys.readouterr().err == "odradek spark: nowhere/orders: there is no such directory\n"
