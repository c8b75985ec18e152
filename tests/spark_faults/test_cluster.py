"""Tests that each row is written once if executors of a standalone cluster are killed, frozen or too slow (T4 to T6;
docs/spec/spark.md#s2).

In each case the first attempt of a task has prepared its transaction, but its vote never arrives, so the decision
contains another attempt.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.spark.names import Sink, task_of
from tests.spark.checks import checked, decision_of
from tests.spark.faults import WAIT
from tests.spark_faults.drivers import Cluster, Query, jvm_of
from tests.support.broker_process import Broker

EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.task.maxFailures": "8",
}
# With these settings, Spark soon considers an executor dead if it sends no heartbeats.
DEAD_SOON = {
    "spark.executor.heartbeatInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "20000",
    "spark.network.timeoutInterval": "2s",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}
BATCH, LAST_BATCH = 1, 3


@pytest.fixture
def start(
    broker: Broker, output: str, tmp_path: Path, environment: Mapping[str, str], cluster: Cluster
) -> Iterator[Callable[[dict[str, str]], Query]]:
    made: list[Query] = []

    def query(conf: dict[str, str]) -> Query:
        made.append(Query(broker, output, tmp_path, environment, master=cluster.master, conf=EXECUTORS | conf))
        return made[-1]

    yield query
    for each in made:
        each.close()


def test_each_row_is_written_once_although_an_executor_is_killed_with_a_prepared_task(
    start: Callable[[dict[str, str]], Query], broker: Broker, output: str
) -> None:
    query = start({})
    driver = query.start_until_fault("task.PREPARED", WAIT, batch=BATCH, attempt=0, last_batch=LAST_BATCH)
    os.kill(jvm_of(driver.plan.pid()), signal.SIGKILL)
    driver.plan.go_on()
    assert query.finished(driver)["error"] is None
    check(query, broker, output)


def test_each_row_is_written_once_although_an_executor_freezes_while_its_worker_continues(
    start: Callable[[dict[str, str]], Query], broker: Broker, output: str
) -> None:
    """Spark declares the frozen executor dead, so its worker's vote never arrives."""
    query = start(DEAD_SOON)
    driver = query.start_until_fault("task.PREPARED", WAIT, batch=BATCH, attempt=0, last_batch=LAST_BATCH)
    executor = jvm_of(driver.plan.pid())
    os.kill(executor, signal.SIGSTOP)
    try:
        driver.plan.go_on()
        ended = query.finished(driver)
    finally:
        with suppress(ProcessLookupError):  # The cluster may already have killed it.
            os.kill(executor, signal.SIGKILL)
    assert ended["error"] is None
    check(query, broker, output)


def test_each_row_is_written_once_although_a_task_loses_to_its_speculative_copy(
    start: Callable[[dict[str, str]], Query], broker: Broker, output: str
) -> None:
    """The slow copy has prepared its transaction and is paused until the query has finished."""
    query = start(SPECULATION)
    driver = query.start_until_fault("task.PREPARED", WAIT, batch=BATCH, attempt=0, last_batch=LAST_BATCH)
    ended = query.finished(driver)
    driver.plan.go_on()
    assert ended["error"] is None
    check(query, broker, output)


def check(query: Query, broker: Broker, output: str) -> None:
    """Checks that each row was written once, and that the decision contains another attempt and dooms the first
    attempt."""
    sink = Sink("spark", query.id())
    decided = asyncio.run(decision_of(broker.bootstrap, sink, BATCH))
    tasks = [task_of(part.transactional_id) for part in decided.parts]
    assert [task.partition for task in tasks if task is not None].count(0) == 1
    doomed = [(task.batch, task.partition, task.attempt) for each in decided.doomed if (task := task_of(each))]
    assert (BATCH, 0, 0) in doomed
    assert asyncio.run(checked(broker.bootstrap, output, sink)) >= LAST_BATCH
