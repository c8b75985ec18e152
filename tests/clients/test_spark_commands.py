"""Tests `odradek spark sinks | recover`, and `odradek transactions list --in-doubt`, which names the sink. The tests do
not need Spark."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from odradek.spark.steps import CommitStep
from tests.clients.admin import create_topic
from tests.clients.conftest import StartBroker
from tests.clients.own_producers import TWO_PHASE
from tests.support.broker_process import IS_KAFKA, Broker
from tests.support.commands import command
from tests.support.oracle import REPOSITORY
from tests.support.spark_queries import PARTITIONS, Query, Stop

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="no released Kafka keeps prepared transactions")


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    return start_broker(TWO_PHASE)


def odradek(*words: str, status: int = 0) -> str:
    done = command(*words)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


async def json_output(*words: str) -> Any:
    return json.loads(await asyncio.to_thread(odradek, *words, "--json"))


async def test_the_open_transactions_of_a_query_are_listed_and_ended_according_to_its_ledger(broker: Broker) -> None:
    at = ("-b", broker.bootstrap)
    topic = await asyncio.to_thread(create_topic, broker.bootstrap, "out", partitions=PARTITIONS)
    query, stop = Query(broker.bootstrap, topic), Stop(CommitStep.DECIDED)
    assert await json_output("spark", "sinks", *at) == []
    driver = query.driver(stop)
    await driver.write_until(stop)
    orphan = await query.prepare("run-9999", 1, 0)
    name, decided = query.sink.name, {vote.transactional_id for vote in driver.votes}

    (sink,) = await json_output("spark", "sinks", *at)
    assert (sink["sink"], sink["batch"], sink["rows"]) == (name, 0, 6)
    verdicts = {each["transactional_id"]: each["verdict"] for each in sink["in_doubt"]}
    assert verdicts == dict.fromkeys(decided, "commit") | {orphan.transactional_id: "abort"}
    in_doubt = await json_output("transactions", "list", "--in-doubt", *at)
    assert {each["transactional_id"]: each["ledger_verdict"] for each in in_doubt} == verdicts
    assert {each["spark_sink"] for each in in_doubt} == {name}
    assert "2 to commit, 1 to abort" in await asyncio.to_thread(odradek, "spark", "sinks", *at)

    assert "committed 2, aborted 1" in await asyncio.to_thread(odradek, "spark", "recover", name, *at)
    assert await json_output("transactions", "list", "--in-doubt", *at) == []
    await query.check()
    await query.close()


async def test_an_unknown_sink_is_refused(broker: Broker) -> None:
    text = await asyncio.to_thread(odradek, "spark", "recover", "spark.none", "-b", broker.bootstrap, status=4)
    assert "there is no sink 'spark.none'" in text


def test_the_commands_need_no_spark() -> None:
    script = (
        "import sys, odradek.tools.commands.spark, odradek.spark.two_phase, odradek.spark.ledger\n"
        "print([name for name in ('pyspark', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
