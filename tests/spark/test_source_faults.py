"""Tests that a query reads every committed record once, whatever fails while it is running, and that it reports records
that are no longer in the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from odradek.client import TopicPartition
from odradek.client.sync import Admin, Producer
from tests.clients.speakers import wait_for
from tests.spark.checks import PATIENCE_S, finished
from tests.spark.faults import EXIT, FORMAT, RAISE, WAIT, Plan
from tests.support.broker_process import Broker
from tests.support.spark_queries import committed_values

ROWS = 120
READ = ["read.BEGUN", "read.ROWS"]
PLANNED = ["plan.LATEST", "plan.PARTITIONS"]


def written(broker: Broker, topic: str, start: int = 0) -> Counter[bytes]:
    """Writes ROWS committed records after the same number of aborted ones, and returns their values."""
    values = [b"%d" % number for number in range(start, start + ROWS)]
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"writer-{topic}") as producer:
        producer.init_transactions()
        for commit in (False, True):
            producer.begin_transaction()
            for number, value in enumerate(values):
                producer.send(topic, value if commit else b"aborted", partition=number % 2)
            producer.flush()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    return Counter(values)


def copy(spark: Any, broker: Broker, topic: str, output: str, checkpoint: str, plan: Plan, **options: str) -> Any:
    return (
        spark.readStream.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "fault": plan.option()})
        .options(**{"startingOffsets": "earliest", "maxOffsetsPerTrigger": "160"} | options)
        .load()
        .select("value")
        .writeStream.format("odradek")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": output, "checkpointLocation": checkpoint})
        .trigger(availableNow=True)
        .start()
    )


def copied(broker: Broker, output: str) -> Counter[bytes]:
    return Counter(asyncio.run(committed_values(broker.bootstrap, output)))


@pytest.mark.parametrize("how", [RAISE, EXIT])
@pytest.mark.parametrize("at", READ)
def test_a_read_that_fails_is_tried_again(
    spark: Any, broker: Broker, topic: str, output: str, checkpoint: str, marks: str, at: str, how: str
) -> None:
    expected = written(broker, topic)
    plan = Plan(at, how, marks)
    query = finished(lambda: copy(spark, broker, topic, output, checkpoint, plan))
    assert query.exception() is None
    assert plan.count == 1
    assert copied(broker, output) == expected


@pytest.mark.parametrize("how", [RAISE, EXIT])
@pytest.mark.parametrize("at", PLANNED)
def test_planning_that_fails_ends_the_query_and_the_next_run_goes_on(
    spark: Any, broker: Broker, topic: str, output: str, checkpoint: str, marks: str, at: str, how: str
) -> None:
    expected = written(broker, topic)
    plan = Plan(at, how, marks)
    query = finished(lambda: copy(spark, broker, topic, output, checkpoint, plan))
    assert query.exception() is not None
    assert plan.count == 1
    again = finished(lambda: copy(spark, broker, topic, output, checkpoint, plan))
    assert again.exception() is None
    assert copied(broker, output) == expected


@pytest.mark.parametrize("at", [*READ, *PLANNED])
def test_a_read_survives_a_killed_broker(
    spark: Any, broker: Broker, topic: str, output: str, checkpoint: str, marks: str, at: str
) -> None:
    expected = written(broker, topic)
    plan = Plan(at, WAIT, marks)

    def killed_under_it() -> Any:
        query = copy(spark, broker, topic, output, checkpoint, plan)
        wait_for("the fault", lambda: plan.count > 0 or not query.isActive, PATIENCE_S)
        if query.isActive and broker.pid == before:
            broker.kill9()
            plan.go_on()
            broker.start()
        return query

    before = broker.pid
    query = finished(killed_under_it)
    assert query.exception() is None
    assert broker.pid != before
    assert copied(broker, output) == expected


def test_a_batch_read_that_fails_is_tried_again(spark: Any, broker: Broker, topic: str, marks: str) -> None:
    expected = written(broker, topic)
    plan = Plan("read.ROWS", EXIT, marks, batch=None)
    rows = (
        spark.read.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "fault": plan.option()})
        .load()
        .collect()
    )
    assert plan.count == 1
    assert Counter(bytes(row.value) for row in rows) == expected


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_were_deleted_before_they_were_read_fail_the_query_if_configured(
    spark: Any, broker: Broker, topic: str, output: str, checkpoint: str, marks: str, fails: bool
) -> None:
    never = Plan("never", RAISE, marks)
    expected = written(broker, topic)
    finished(lambda: copy(spark, broker, topic, output, checkpoint, never))
    written(broker, topic, start=ROWS)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, number): -1 for number in (0, 1)})
    later = written(broker, topic, start=2 * ROWS)
    query = finished(lambda: copy(spark, broker, topic, output, checkpoint, never, failOnDataLoss=str(fails)))
    if fails:
        assert "no longer in the log" in str(query.exception())
        assert copied(broker, output) == expected
    else:
        assert query.exception() is None
        assert copied(broker, output) == expected + later


def test_partitions_that_are_added_are_read_from_their_beginning(
    spark: Any, broker: Broker, topic: str, output: str, checkpoint: str, marks: str
) -> None:
    never = Plan("never", RAISE, marks)
    expected = written(broker, topic)
    finished(lambda: copy(spark, broker, topic, output, checkpoint, never))
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_partitions({topic: 3})
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"in a new one", partition=2)
    finished(lambda: copy(spark, broker, topic, output, checkpoint, never))
    assert copied(broker, output) == expected + Counter([b"in a new one"])
