"""Tests that a query survives one fault at each step of a task and of a commit, if it is restarted when it fails
(docs/spec/spark.md#s2). Each row is in the output once, and no open transaction blocks readers.

| rows of the rule book | faults in these tests |
|---|---|
| T1 to T3 | a task raises an exception, or its worker exits |
| T7 | all attempts of a task fail |
| D2, D3, D5 to D7 | a commit raises an exception, or its worker exits |
| B1 to B9 | the broker is killed while a task or a commit is paused |
| X1 | another run takes the lease between two batches |
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from odradek.client.sync import Admin
from odradek.spark.brokers import Brokers
from odradek.spark.ledger import ONGOING
from odradek.spark.names import Sink
from odradek.spark.two_phase import TwoPhaseSink
from tests.clients.speakers import wait_for
from tests.spark.checks import PATIENCE_S, ROWS, Numbers
from tests.spark.faults import EXIT, FORMAT, RAISE, WAIT, Plan
from tests.support.broker_process import Broker
from tests.support.spark_queries import committed_values
from tests.support.spark_session import use_in_this_thread

TASK_STEPS = ["BEGUN", "OPENED", "WRITTEN", "PREPARED"]
COMMIT_STEPS = ["BEGUN", "LEASED", "LISTED", "APPENDED", "DECIDED", "ENDING", "ENDING+", "FINISHED"]
TASKS_ARE_TRIED = 4  # number of attempts with the master local[2,4]


def at_commit(step: str, how: str, marks: str) -> Plan:
    """Returns a fault at a step of the commit. `ENDING+` is the step that ends the second of two transactions.

    A lease is acquired for the first batch only, so `LEASED` is a step of batch 0.
    """
    return Plan(
        f"commit.{step.rstrip('+')}", how, marks, batch=0 if step == "LEASED" else 1, number=int(step.endswith("+"))
    )


@pytest.mark.parametrize("how", [RAISE, EXIT])
@pytest.mark.parametrize("step", TASK_STEPS)
def test_a_task_that_fails_is_tried_again(numbers: Numbers, marks: str, step: str, how: str) -> None:
    plan = Plan(f"task.{step}", how, marks)
    numbers.run(2, plan)
    assert plan.count == 1
    assert numbers.starts == 1
    assert numbers.check() >= 2


@pytest.mark.parametrize("how", [RAISE, EXIT])
@pytest.mark.parametrize("step", COMMIT_STEPS)
def test_a_commit_that_fails_is_finished_or_its_batch_written_again(
    numbers: Numbers, marks: str, step: str, how: str
) -> None:
    plan = at_commit(step, how, marks)
    numbers.run(2, plan)
    assert plan.count == 1
    assert numbers.starts == 2
    assert numbers.check() >= 2


@pytest.mark.parametrize("step", ["task.OPENED", "task.WRITTEN", "task.PREPARED"])
def test_a_task_survives_a_killed_broker(numbers: Numbers, marks: str, broker: Broker, step: str) -> None:
    survives_the_broker(numbers, Plan(step, WAIT, marks), broker)


@pytest.mark.parametrize("step", COMMIT_STEPS)
def test_a_commit_survives_a_killed_broker(numbers: Numbers, marks: str, broker: Broker, step: str) -> None:
    survives_the_broker(numbers, at_commit(step, WAIT, marks), broker)


def survives_the_broker(numbers: Numbers, plan: Plan, broker: Broker) -> None:
    """Checks that the query survives a broker restart without being restarted itself, because its clients wait."""
    numbers.run_until("the fault", lambda: plan.count > 0, plan)
    broker.kill9()
    plan.go_on()
    broker.start()
    numbers.go_on("batch 2", lambda: numbers.done(2))
    assert numbers.check() >= 2


def test_a_task_that_fails_whenever_it_is_tried_leaves_nothing(numbers: Numbers, marks: str) -> None:
    """The query fails, and a restart writes the batch again."""
    plan = Plan("task.PREPARED", RAISE, marks, times=TASKS_ARE_TRIED)
    numbers.run(2, plan)
    assert plan.count == TASKS_ARE_TRIED
    assert numbers.starts == 2
    assert numbers.check() >= 2


def test_a_lease_that_somebody_takes_between_two_batches_is_taken_back(numbers: Numbers, broker: Broker) -> None:
    query = numbers.start()
    for batch in (1, 3):
        numbers.go_on("a batch", lambda batch=batch: numbers.done(batch))  # type: ignore[misc]
        asyncio.run(recover_run(broker, Sink("spark", query.id), "another run"))
    numbers.go_on("two more", lambda: numbers.done(5))
    assert numbers.check() >= 5


async def recover_run(broker: Broker, sink: Sink, run: str) -> None:
    two_phase = TwoPhaseSink(Brokers(broker.bootstrap), sink)
    await two_phase.recover(run)
    await two_phase.close()


def test_a_recovery_under_a_running_query_has_its_batch_written_again(
    numbers: Numbers, marks: str, broker: Broker
) -> None:
    """A recovery between the tasks and the commit assumes that the query has stopped. It ends the batch's transactions,
    so the batch fails and is written again (X2)."""
    plan = Plan("commit.BEGUN", WAIT, marks)
    query = numbers.run_until("the fault", lambda: plan.count > 0, plan)
    two_phase = TwoPhaseSink(Brokers(broker.bootstrap), Sink("spark", query.id))
    asyncio.run(two_phase.recover())
    plan.go_on()
    wait_for("its end", lambda: not query.isActive, PATIENCE_S)
    assert "was ended by a recovery or an operator before the batch was decided" in str(query.exception())
    numbers.run(2, plan)
    assert numbers.check() >= 2


@pytest.mark.parametrize("at", ["task.PREPARED", "commit.APPENDED", "commit.DECIDED", "commit.FINISHED"])
def test_a_batch_write_that_is_repeated_under_its_key_is_written_once(
    spark: Any, broker: Broker, output: str, marks: str, at: str
) -> None:
    plan = Plan(at, RAISE, marks, batch=None, times=TASKS_ARE_TRIED if at.startswith("task") else 1)

    def write() -> None:
        (
            spark.range(ROWS, numPartitions=2)
            .selectExpr("cast(id as string) value")
            .write.format(FORMAT)
            .options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": output, "fault": plan.option()})
            .option("idempotencyKey", output)
            .mode("append")
            .save()
        )

    with pytest.raises(Exception, match=at):
        write()
    assert plan.count == plan.times
    for _ in range(2):
        write()
    found = Counter(asyncio.run(committed_values(broker.bootstrap, output)))
    assert found == Counter(b"%d" % number for number in range(ROWS))


def fails_after(mark: str) -> Any:
    """Returns a column function that fails for the number 0 as soon as the file `mark` exists."""
    from pyspark.sql.functions import udf

    def fails(number: int) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while number == 0 and not Path(mark).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        if number == 0:
            raise RuntimeError("as planned")
        return str(number)

    return udf(fails, "string")


def left_open(broker: Broker, prefix: str) -> list[str]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        listed = admin.list_transactions(states=[ONGOING], transactional_id_pattern=f"{prefix}[.].*")
    return [each.transactional_id for each in listed]


@pytest.mark.parametrize("step", ["NAMED", "OPENED", "WRITTEN", "PREPARED"])
def test_a_write_fails_and_leaves_nothing_open_of_the_task_that_is_still_writing(
    spark: Any, broker: Broker, output: str, marks: str, step: str
) -> None:
    """All attempts of one task fail while the other task is still running, so Spark's abort receives no vote from the
    running task."""
    plan = Plan(f"task.{step}", WAIT, marks, batch=None, partition=1)
    frame = spark.range(2, numPartitions=2).select(fails_after(f"{marks}/fault-0")("id").alias("value"))
    servers = {"kafka.bootstrap.servers": broker.bootstrap, "topic": output, "transactionalIdPrefix": output}
    with pytest.raises(Exception, match="as planned"):
        frame.write.format(FORMAT).options(**servers, fault=plan.option()).mode("append").save()
    assert plan.count == 1
    assert left_open(broker, output) == []
    plan.go_on()
    assert asyncio.run(committed_values(broker.bootstrap, output)) == []
    assert left_open(broker, output) == []


def test_a_write_that_cannot_end_its_transactions_names_them_and_the_next_write_ends_them(
    spark: Any, broker: Broker, output: str, marks: str
) -> None:
    """The write fails while the broker is down, so its transactions remain open until the next write."""
    plan = Plan("task.PREPARED", WAIT, marks, batch=None, partition=1)
    frame = spark.range(2, numPartitions=2).select(fails_after(f"{marks}/fail")("id").alias("value"))
    servers = {"kafka.bootstrap.servers": broker.bootstrap, "topic": output, "transactionalIdPrefix": output}
    failing = frame.write.format(FORMAT).options(**servers, fault=plan.option()).mode("append")
    with ThreadPoolExecutor(initializer=use_in_this_thread, initargs=(spark,)) as threads:
        write = threads.submit(failing.save)
        wait_for("the prepared transaction", lambda: plan.count == 1, PATIENCE_S)
        (left,) = left_open(broker, output)
        broker.kill9()
        Path(marks, "fail").touch()
        message = str(write.exception())
    broker.start()
    sink = left.partition(".t.")[0]
    assert "as planned" in message
    assert f"transactions of {sink} could not be ended" in message
    assert f"odradek spark recover {sink} --bootstrap-server {broker.bootstrap}" in message
    assert left_open(broker, output) == [left]
    spark.sql("select 'tea' value").write.format("odradek").options(**servers).mode("append").save()
    assert left_open(broker, output) == []
    assert asyncio.run(committed_values(broker.bootstrap, output)) == [b"tea"]
