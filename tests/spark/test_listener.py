"""Tests that, when a query is stopped in the middle of a batch, the listener ends the transactions that the run has
left open and no others (T8)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.spark import install
from odradek.spark.listener import SinkListener, WrongWorkerPython, require_worker_python
from tests.clients.speakers import wait_for
from tests.spark.checks import ROWS, Numbers, open_ids
from tests.spark.faults import FORMAT, WAIT, Plan
from tests.support.broker_process import Broker

TASKS = 2
LAST_BATCH = 1  # the last batch that is done before the query is stopped
PATIENCE_S = 120.0  # limit for work that takes a second on an idle machine


@pytest.fixture
def plan(marks: str) -> Plan:
    """Returns a plan that makes both tasks pause after preparing their transactions.

    If one task returned its vote, Spark's abort would learn which run it belongs to and end the other task's
    transaction as well.
    """
    return Plan("task.PREPARED", WAIT, marks, batch=LAST_BATCH + 1, partition=None, times=TASKS)


@pytest.fixture
def listener(spark: Any) -> Iterator[SinkListener]:
    made = SinkListener(spark, formats=[FORMAT])
    spark.streams.addListener(made)
    yield made
    spark.streams.removeListener(made)


def stopped_in_mid_batch(numbers: Numbers, plan: Plan) -> None:
    numbers.run_until("the tasks", lambda: plan.count == TASKS, plan).stop()


def test_the_prepared_transactions_of_a_stopped_query_are_ended(
    numbers: Numbers, broker: Broker, plan: Plan, listener: SinkListener
) -> None:
    stopped_in_mid_batch(numbers, plan)
    wait_for("the listener", lambda: open_ids(broker, numbers.query.id) == [], PATIENCE_S)
    assert listener.wait(PATIENCE_S)
    (seen,) = [each for each in listener.progress if each.query == numbers.query.id]
    assert seen.sink is not None
    assert (seen.sink.query, seen.is_active) == (seen.query, False)
    assert seen.ended is not None
    assert seen.ended > 0
    assert (seen.batch, seen.rows) == (LAST_BATCH, (LAST_BATCH + 1) * ROWS)
    assert numbers.check() == LAST_BATCH


def test_without_a_listener_the_next_run_ends_the_transactions(numbers: Numbers, broker: Broker, plan: Plan) -> None:
    stopped_in_mid_batch(numbers, plan)
    assert open_ids(broker, numbers.query.id) != []
    numbers.run(LAST_BATCH + 2)
    assert numbers.check() >= LAST_BATCH + 2


def test_a_query_that_is_started_again_at_once_is_not_disturbed(
    numbers: Numbers, plan: Plan, listener: SinkListener
) -> None:
    stopped_in_mid_batch(numbers, plan)
    numbers.start(plan)
    numbers.go_on("two more batches", lambda: numbers.done(LAST_BATCH + 2))
    numbers.stop()
    assert listener.wait(PATIENCE_S)
    assert numbers.check() >= LAST_BATCH + 2


def test_a_listener_that_is_added_late_ends_the_transactions_too(
    spark: Any, numbers: Numbers, broker: Broker, plan: Plan
) -> None:
    query = numbers.run_until("the tasks", lambda: plan.count == TASKS, plan)
    late = install(spark, bootstrap_servers=broker.bootstrap)
    query.stop()
    wait_for("the listener", lambda: open_ids(broker, query.id) == [], PATIENCE_S)
    assert late.wait(PATIENCE_S)
    spark.streams.removeListener(late)
    assert numbers.check() == LAST_BATCH


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo Traceback >&2; echo \"ModuleNotFoundError: No module named 'odradek'\" >&2; exit 1", "No module named"),
        ("exit 7", "exit status 7"),
        (None, "No such file"),
    ],
    ids=["without odradek", "broken", "missing"],
)
def test_the_error_for_workers_without_odradek_fits_on_one_line(
    tmp_path: Path, script: str | None, reason: str
) -> None:
    """The message fits on one line and tells the user to set PYSPARK_PYTHON. If it is not set, Spark uses the `python3`
    on the PATH."""
    python = tmp_path / "python3"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    context = SimpleNamespace(pythonExec=str(python), getConf=dict)
    with pytest.raises(WrongWorkerPython) as raised:
        install(SimpleNamespace(_sc=context))
    message = str(raised.value)
    assert message.count("\n") == 0
    assert reason in message
    assert message.endswith(f"set PYSPARK_PYTHON={sys.executable} before you create the session")


def test_workers_may_run_another_python_that_has_odradek(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    require_worker_python(str(python))
