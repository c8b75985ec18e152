"""Tests that the sources and sinks of `format("odradek")` work in a Spark session, in batch and streaming queries, and
when a commit fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from odradek.client import PreparedTxnState
from odradek.client.sync import Admin, Producer
from odradek.spark.brokers import Brokers
from odradek.spark.ledger import read_entries
from odradek.spark.names import Sink
from tests.clients.admin import create_topic
from tests.clients.speakers.speaker import wait_for
from tests.spark.checks import finished
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import REPOSITORY
from tests.support.spark_queries import committed_values
from tests.support.spark_session import use_in_this_thread

ROWS = 300
BEGUN_MS = time.time_ns() // 1_000_000  # a recent time, because retention deletes old records


def written(broker: Broker, topic: str, *, rows: int = ROWS, start: int = 0) -> list[bytes]:
    """Writes rows in a committed transaction and returns their values. Also writes the same number of rows in an
    aborted transaction."""
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"writer-{topic}") as producer:
        producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            for number in range(start, start + rows):
                producer.send(
                    topic,
                    b"%s%d" % (b"v" if commit else b"aborted", number),
                    key=b"k%d" % number,
                    timestamp_ms=BEGUN_MS + number,
                    headers=[("h", b"%d" % number)],
                )
            producer.flush()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    return [b"v%d" % number for number in range(start, start + rows)]


def reader(spark: Any, broker: Broker, topic: str, **options: str) -> Any:
    chosen = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic} | options
    return spark.read.format("odradek").options(**chosen)


def committed(broker: Broker, topic: str) -> Counter[bytes]:
    return Counter(asyncio.run(committed_values(broker.bootstrap, topic)))


def test_a_worker_that_plans_loads_neither_arrow_nor_the_client() -> None:
    """A query starts only when the worker has responded to each planning call, so large imports would delay it."""
    script = (
        "import sys, pyspark_odradek, odradek.spark.sink\n"
        "print([name for name in ('pyarrow', 'numpy', 'odradek.client.producer') if name in sys.modules])"
    )
    words = [sys.executable, "-c", script]
    assert subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_batch_has_sparks_columns_and_committed_records_only(spark: Any, broker: Broker, topic: str) -> None:
    values = written(broker, topic)
    frame = reader(spark, broker, topic, includeHeaders="true").load()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    rows = frame.collect()
    assert Counter(bytes(row.value) for row in rows) == Counter(values)
    row = next(row for row in rows if row.value == b"v7")
    assert (bytes(row.key), row.topic, row.timestampType) == (b"k7", topic, 0)
    assert round(row.timestamp.timestamp() * 1_000) == BEGUN_MS + 7
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"7")]
    everything = reader(spark, broker, topic, **{"kafka.isolation.level": "read_uncommitted"}).load().count()
    assert everything > ROWS
    assert reader(spark, broker, topic).schema("value binary").load().columns == ["value"]


def test_a_batch_query_ends_at_the_ending_offsets(spark: Any, broker: Broker, topic: str) -> None:
    written(broker, topic, rows=100)
    bounds = {
        "startingOffsets": f'{{"{topic}": {{"0": 5, "1": -2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 9, "1": 3}}}}',
        "minPartitions": "4",
    }
    frame = reader(spark, broker, topic, **bounds).load()
    assert Counter(row.partition for row in frame.collect()) == {0: 4, 1: 3}
    assert frame.rdd.getNumPartitions() == 4
    late = reader(spark, broker, topic, startingTimestamp=str(BEGUN_MS + 90)).load()
    assert late.count() == 10


def test_an_unknown_option_of_kafka_is_refused_by_name(spark: Any, broker: Broker, topic: str) -> None:
    with pytest.raises(Exception, match=r"kafka\.sasl\.kerberos\.service\.name"):
        reader(spark, broker, topic, **{"kafka.sasl.kerberos.service.name": "x"}).load().collect()


def test_a_batch_write_with_an_idempotency_key_is_written_once(spark: Any, broker: Broker, output: str) -> None:
    frame = spark.range(ROWS).selectExpr("cast(id as string) key", "concat('v', id) value")
    for _ in range(2):
        (
            frame.write.format("odradek")
            .options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": output, "idempotencyKey": output})
            .mode("append")
            .save()
        )
    assert committed(broker, output) == Counter(b"v%d" % number for number in range(ROWS))


def write(frame: Any, broker: Broker, **options: str) -> None:
    frame.write.format("odradek").options(**{"kafka.bootstrap.servers": broker.bootstrap} | options).mode(
        "append"
    ).save()


def test_a_key_with_different_rows_is_refused(spark: Any, broker: Broker, output: str) -> None:
    write(spark.sql("select 'tea' value"), broker, topic=output, idempotencyKey=f"key-{output}")
    with pytest.raises(Exception, match="other rows than those that are now written under the same key"):
        write(spark.sql("select 'rum' value"), broker, topic=output, idempotencyKey=f"key-{output}")
    assert committed(broker, output) == Counter([b"tea"])


@pytest.mark.parametrize(
    "columns",
    [
        "'tea' value, array(struct('h' as key, cast('2' as binary) as value)) headers, 0 partition",
        "'tea' value, array(struct('h' as key, cast('1' as binary) as value)) headers, 1 partition",
        "'tea' value, array(struct('h' as key, cast('1' as binary) as value)) headers",
    ],
    ids=["headers", "partition", "any partition"],
)
def test_a_key_with_different_headers_or_partitions_is_refused(
    spark: Any, broker: Broker, output: str, columns: str
) -> None:
    first = "'tea' value, array(struct('h' as key, cast('1' as binary) as value)) headers, 0 partition"
    for _ in range(2):
        write(spark.sql(f"select {first}"), broker, topic=output, idempotencyKey=f"key-{output}")
    with pytest.raises(Exception, match="other rows than those that are now written under the same key"):
        write(spark.sql(f"select {columns}"), broker, topic=output, idempotencyKey=f"key-{output}")
    assert committed(broker, output) == Counter([b"tea"])


def test_a_key_that_was_first_written_without_rows_is_remembered(spark: Any, broker: Broker, output: str) -> None:
    rows = spark.sql("select 'tea' value")
    for _ in range(2):
        write(rows.where("value = 'rum'"), broker, topic=output, idempotencyKey=f"key-{output}")
    with pytest.raises(Exception, match="was committed with 0 rows, but its replay has 1"):
        write(rows, broker, topic=output, idempotencyKey=f"key-{output}")
    assert committed(broker, output) == Counter()


def test_two_simultaneous_writes_under_one_key_write_once(spark: Any, broker: Broker, output: str) -> None:
    """The write that is decided first succeeds. The other write finds either that its transactions have been aborted or
    that the decision has been recorded."""
    frame = spark.range(ROWS, numPartitions=2).selectExpr("concat('v', id) value")

    def attempt() -> None:
        write(frame, broker, topic=output, idempotencyKey=f"key-{output}")

    with ThreadPoolExecutor(initializer=use_in_this_thread, initargs=(spark,)) as threads:
        errors = [each.exception() for each in [threads.submit(attempt) for _ in range(2)]]
    assert None in errors, errors
    assert committed(broker, output) == Counter(b"v%d" % number for number in range(ROWS))
    assert nothing_is_open(broker, f"key-{output}")
    attempt()
    assert committed(broker, output) == Counter(b"v%d" % number for number in range(ROWS))


def test_large_arrow_types_are_written_and_read(spark: Any, broker: Broker, output: str) -> None:
    row = "cast('k' as binary) key, 'v' value, array(struct('h' as key, cast('1' as binary) as value)) headers"
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        write(spark.sql(f"select {row}, '{output}' topic"), broker)
        (found,) = reader(spark, broker, output, includeHeaders="true").load().collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert (found.key, found.value, found.headers) == (b"k", b"v", [("h", b"1")])


def test_a_batch_may_start_at_the_beginning_of_time(spark: Any, broker: Broker, topic: str) -> None:
    values = written(broker, topic)
    assert reader(spark, broker, topic, startingTimestamp="0").load().count() == len(values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "{"}, "startingOffsets must have the form"),
        ({"endingOffsets": "latest"}, "the option endingOffsets cannot be used with a stream"),
        ({"startingOffset": "latest"}, "the option startingoffset is unknown; did you mean startingOffsets"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger must be a whole number"),
        ({"kafka.fetch.max.bytes": "many"}, "kafka.fetch.max.bytes cannot be 'many'"),
    ],
    ids=["offsets", "an end", "a name", "a number", "a setting of Kafka's"],
)
@pytest.mark.parametrize("available_now", [False, True], ids=["on and on", "available now"])
def test_a_bad_option_of_a_stream_ends_in_one_line_with_its_name(
    spark: Any, broker: Broker, topic: str, options: dict[str, str], message: str, available_now: bool
) -> None:
    def start() -> Any:
        frame = (
            spark.readStream.format("odradek")
            .options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}, **options)
            .load()
        )
        writer = frame.writeStream.format("noop")
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    query = finished(start)
    trace = str(query.exception()).partition(" SQLSTATE")[0].rstrip().splitlines()
    assert trace[-1].startswith(f"odradek.spark.options.OptionError: {message}")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("select 1 value", "the column 'value' is int, but must be string or binary"),
        ("select 'a' value, 7L partition", "the column 'partition' is bigint, but must be int"),
        ("select 'a' value, map('k', 'v') headers", "the column 'headers' is map<string,string>"),
        ("select 'a' text", "a column 'value'.*the columns are text"),
    ],
)
def test_types_are_checked_when_a_write_is_planned(
    spark: Any, broker: Broker, output: str, rows: str, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.sql(rows), broker, topic=output)


def test_the_error_for_a_broker_without_two_phase_commit_names_the_alternatives(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("select 'tea' value")
    with new_broker(tmp_path / "data", {}) as plain:
        topic = create_topic(plain.bootstrap, "out")
        with pytest.raises(Exception, match=r"transaction\.two\.phase\.commit\.enable=true.*delivery=atLeastOnce"):
            write(frame, plain, topic=topic)
        write(frame, plain, topic=topic, delivery="atLeastOnce")


def test_an_unknown_option_is_refused_by_name(spark: Any, broker: Broker, topic: str) -> None:
    with pytest.raises(Exception, match="startingoffset is unknown; did you mean startingOffsets"):
        reader(
            spark, broker, topic, startingOffset="earliest"
        ).load().collect()  # Spark passes option names in lower case.


def test_a_task_reads_no_more_records_than_the_option_says(spark: Any, broker: Broker, topic: str) -> None:
    written(broker, topic, rows=100)
    frame = reader(spark, broker, topic, maxRecordsPerPartition="10").load()
    assert frame.count() == 100
    assert frame.rdd.getNumPartitions() >= 10


def test_a_stream_waits_for_enough_offsets_or_long_enough(
    spark: Any, broker: Broker, topic: str, checkpoint: str
) -> None:
    expected = Counter(written(broker, topic))
    query = (
        spark.readStream.format("odradek")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"})
        .options(minOffsetsPerTrigger="100000", maxTriggerDelay="4s")
        .load()
        .writeStream.format("memory")
        .queryName("waits")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        wait_for("the first batch, at once", lambda: spark.table("waits").count() == ROWS)
        expected += Counter(written(broker, topic, start=ROWS))
        wait_for("the next, when it is due", lambda: spark.table("waits").count() == 2 * ROWS)
        assert Counter(bytes(row.value) for row in spark.table("waits").collect()) == expected
    finally:
        query.stop()


def stream(spark: Any, broker: Broker, topic: str, output: str, checkpoint: str, **options: str) -> Any:
    """Starts a query that copies a topic's existing records to another topic."""
    source = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return (
        spark.readStream.format("odradek")
        .options(**source, maxOffsetsPerTrigger="200")
        .load()
        .selectExpr("key", "concat('out-', cast(value as string)) value")
        .writeStream.format("odradek")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": output, "checkpointLocation": checkpoint})
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_is_written_exactly_once_over_restarts(
    spark: Any, broker: Broker, topic: str, output: str, checkpoint: str
) -> None:
    expected: Counter[bytes] = Counter()
    for start in (0, ROWS):
        expected += Counter(b"out-" + value for value in written(broker, topic, start=start))
        query = finished(lambda: stream(spark, broker, topic, output, checkpoint))
        assert query.exception() is None
        assert committed(broker, output) == expected
    entry = asyncio.run(read_entries(Brokers(broker.bootstrap)))[Sink("spark", query.id).name]
    assert entry.batch >= 2
    assert nothing_is_open(broker, query.id)


def test_a_batch_that_was_decided_before_spark_noted_it_is_not_written_twice(
    spark: Any, broker: Broker, topic: str, output: str, checkpoint: str
) -> None:
    """Simulates a crash between the decision and Spark's file `commits/N`. The batch then runs again with new tasks."""
    expected = Counter(b"out-" + value for value in written(broker, topic))
    first = finished(lambda: stream(spark, broker, topic, output, checkpoint))
    for noted in sorted(Path(checkpoint, "commits").glob("*"), key=lambda path: path.name)[-1:]:
        noted.unlink()
        Path(checkpoint, "commits", f".{noted.name}.crc").unlink(missing_ok=True)
    again = finished(lambda: stream(spark, broker, topic, output, checkpoint))
    assert again.exception() is None
    assert again.id == first.id
    assert committed(broker, output) == expected
    assert nothing_is_open(broker, again.id)


def test_a_task_that_fails_is_tried_again_and_its_rows_are_there_once(
    spark: Any, broker: Broker, output: str, tmp_path: Path
) -> None:
    marks = str(tmp_path)

    def fails_once(number: int) -> str:
        if number % 100 == 99 and not os.path.exists(f"{marks}/failed"):
            os.mkdir(f"{marks}/failed")
            raise RuntimeError("once")
        return f"v{number}"

    from pyspark.sql.functions import udf

    frame = spark.range(ROWS, numPartitions=2).select(udf(fails_once, "string")("id").alias("value"))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": output, "idempotencyKey": f"fails-{output}"}
    frame.write.format("odradek").options(**options).mode("append").save()
    assert (tmp_path / "failed").exists()
    assert committed(broker, output) == Counter(b"v%d" % number for number in range(ROWS))


def nothing_is_open(broker: Broker, query: str) -> bool:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        pattern = Sink("spark", query).pattern()
        return admin.list_transactions(states=["Ongoing"], transactional_id_pattern=pattern) == []


def test_the_next_batch_aborts_the_prepared_transactions_of_a_stopped_driver(
    spark: Any, broker: Broker, topic: str, output: str, checkpoint: str
) -> None:
    expected = Counter(b"out-" + value for value in written(broker, topic))
    query = finished(lambda: stream(spark, broker, topic, output, checkpoint))
    left = Sink("spark", query.id).task_id("deadbeef", 99, 0, 0, "x")
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=left, two_phase_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(output, b"never", partition=0)
        assert producer.prepare_transaction() != PreparedTxnState()
    expected += Counter(b"out-" + value for value in written(broker, topic, start=ROWS))
    finished(lambda: stream(spark, broker, topic, output, checkpoint))
    assert nothing_is_open(broker, query.id)
    assert committed(broker, output) == expected
