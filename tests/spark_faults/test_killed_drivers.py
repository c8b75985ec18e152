"""Tests that each row is written once if drivers are killed at each step, one after another, or if two drivers run at
the same time (D1 to D7, D2z and W1 of the rule book).

A killed driver's commit worker stays paused, and continues when the next driver is in the middle of its own batch. The
environment variable ROUNDS sets the number of drivers that are killed in a row. The default is 2; 8 covers every step.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from odradek.spark.names import Sink
from tests.clients.speakers import wait_for
from tests.spark.checks import checked
from tests.spark.faults import WAIT
from tests.spark_faults.drivers import PATIENCE_S, Driver, Query
from tests.support.broker_process import Broker

ROUNDS = int(os.environ.get("ROUNDS") or 2)
KILLED_AT = [
    ("commit.DECIDED", 0),
    ("task.PREPARED", 0),
    ("commit.ENDING", 1),
    ("commit.APPENDED", 0),
    ("commit.LISTED", 0),
    ("commit.FINISHED", 0),
    ("task.WRITTEN", 0),
    ("commit.BEGUN", 0),
][:ROUNDS]


def test_drivers_that_are_killed_in_a_row_write_each_row_once(query: Query, broker: Broker, output: str) -> None:
    before: Driver | None = None
    for at, number in KILLED_AT:
        driver = query.start_until_fault(at, WAIT, number=number)
        if before is not None:
            before.plan.go_on()
        driver.kill9()
        before = driver
    last = query.last_done() + 3
    assert query.run(last)["error"] is None
    assert asyncio.run(checked(broker.bootstrap, output, Sink("spark", query.id()))) >= last


def test_two_drivers_on_one_checkpoint_write_each_row_once(query: Query, broker: Broker, output: str) -> None:
    """The old driver is paused before its decision, and the new one gets two batches ahead of it."""
    old = query.start_until_fault("commit.LISTED", WAIT)
    assert query.run(2)["error"] is None
    old.plan.go_on()
    wait_for("the old one's failure", lambda: "over" in old.report() or not old.is_running(), PATIENCE_S)
    assert "the checkpoint is an older copy" in old.report()["error"]
    assert asyncio.run(checked(broker.bootstrap, output, Sink("spark", query.id()))) >= 2


def test_a_stage_that_is_retried_after_a_lost_shuffle_file_writes_each_row_once(
    broker: Broker, output: str, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """There is one core, so only the first of three tasks has prepared its transaction when the files are lost."""
    local = tmp_path / "local"
    conf = {"spark.local.dir": str(local)}
    more: dict[str, Any] = {"master": "local[1,4]", "shuffled": 3, "conf": conf}
    with closing(Query(broker, output, tmp_path, environment, **more)) as query:
        driver = query.start_until_fault("task.PREPARED", WAIT, last_batch=2, batch=1)
        lost = [path for path in local.rglob("shuffle_*") if path.is_file()]
        for path in lost:
            path.unlink()
        driver.plan.go_on()
        assert lost
        assert query.finished(driver)["error"] is None
        assert sum(each.report()["retried_stages"] for each in query.drivers) >= 1
        assert asyncio.run(checked(broker.bootstrap, output, Sink("spark", query.id()))) >= 2
