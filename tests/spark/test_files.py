"""Tests that Spark reads a broker's records from the broker's directory, with `format("odradek").option("path", …)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from odradek.client.sync import Producer
from odradek.spark.data_source import OdradekSource
from odradek.spark.options import OptionError
from tests.clients.admin import create_topic
from tests.support.broker_process import Broker

ROWS = 300


@pytest.fixture(scope="module")
def directory(broker: Broker) -> str:
    """Returns the directory of a running broker.

    The directory has a topic with committed, aborted and open transactions, and another topic with plain records.
    """
    bootstrap = broker.bootstrap
    create_topic(bootstrap, "filed", partitions=2, exact=True)
    for outcome in ("commit", "abort", "open"):
        with Producer(
            bootstrap_servers=bootstrap, transactional_id=f"files-{outcome}", two_phase_commit=outcome == "open"
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(ROWS):
                producer.send("filed", b"%s%d" % (outcome.encode(), number), key=b"k%d" % number, partition=number % 2)
            producer.flush()
            match outcome:
                case "commit":
                    producer.commit_transaction()
                case "abort":
                    producer.abort_transaction()
                case "open":
                    producer.prepare_transaction()
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("orders", b"v", headers=[("h", b"1")])
    return str(broker.data_dir)


def files(spark: Any, directory: str, **options: str) -> Any:
    return spark.read.format("odradek").options(path=directory, **options)


def test_committed_records_of_a_running_broker_are_read_from_its_files(spark: Any, directory: str) -> None:
    frame = files(spark, directory, subscribe="filed").load()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert {bytes(row.value) for row in frame.collect()} == {b"commit%d" % number for number in range(ROWS)}
    everything = files(spark, directory, subscribe="filed", **{"kafka.isolation.level": "read_uncommitted"}).load()
    assert everything.count() == 3 * ROWS
    assert files(spark, directory, subscribe="filed").schema("value binary").load().columns == ["value"]
    [row] = files(spark, str(Path(directory, "orders-*")), includeHeaders="true").load().collect()
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"1")]


def test_the_views_are_tables_of_the_batch_headers(spark: Any, directory: str) -> None:
    def view(name: str, **options: str) -> Any:
        return files(spark, directory, view=name, **options).load()

    batches = view("batches", subscribe="filed")
    assert batches.where("not isControl").selectExpr("sum(records)").first()[0] == 3 * ROWS
    assert sorted(row.controlType for row in batches.where("isControl").collect()) == ["ABORT"] * 2 + ["COMMIT"] * 2
    assert batches.where("not isValid").count() == 0
    states = view("transactions", subscribe="filed").groupBy("state").sum("records").collect()
    assert {row[0]: row[1] for row in states} == {"committed": ROWS, "aborted": ROWS, "open": ROWS}
    bounds = view("offsets", subscribe="filed").orderBy("partition").collect()
    assert [row.endOffset - row.lastStableOffset for row in bounds] == [ROWS // 2] * 2
    assert view("producers", subscribe="filed").where("currentTransactionStartOffset is not null").count() == 2
    assert view("segments", subscribe="filed").where("isActive").count() == 2
    internal = view("internal", subscribe="__transaction_state").where("state = 'Ongoing'").collect()
    assert '{"transactionalId": "files-open"}' in {row.key for row in internal}


def test_filters_leave_out_files_where_query_and_session_say_so(spark: Any, directory: str) -> None:
    condition = "partition = 1 and offset < 10 and timestamp > timestamp'2020-01-01'"
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        few = files(spark, directory, subscribe="filed", pushFilters="true").load().where(condition)
        assert few.rdd.getNumPartitions() == 1  # The topic has two partitions.
        assert sorted(row.offset for row in few.collect()) == list(range(10))
        frame = files(spark, directory, subscribe="filed").load()
        assert (frame.where(condition).count(), frame.count()) == (10, ROWS)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_pattern_without_topics_has_no_rows(spark: Any, directory: str) -> None:
    assert files(spark, directory, subscribePattern="no-such-topic").load().count() == 0


def test_a_stream_of_files_is_refused() -> None:
    """The query raises the refusal when it starts, because PySpark would replace an earlier refusal with its own
    error."""
    stream = OdradekSource({"path": "data"}).streamReader(StructType())
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        stream.initialOffset()
