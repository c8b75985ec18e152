"""Tests that a query on a standalone cluster copies each record once, while its driver, its executors and the broker
are killed.

The environment variable RECORDS sets the number of records, and KILLS the total number of kills. A consumer from
another library compares the topics. If there are many records, `odradek spark exactly-once` compares them too. `make
soak-spark` uses 100,000 records and 30 kills. SEED repeats a run's random choices, but not its timing.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa

from odradek.client.sync import Producer
from odradek.spark.brokers import Brokers
from odradek.spark.names import Sink
from odradek.spark.two_phase import TwoPhaseSink
from tests.clients.admin import create_topic
from tests.spark_faults.conftest import PARTITIONS
from tests.spark_faults.drivers import PATIENCE_S, Cluster, Query
from tests.spark_faults.test_cluster import EXECUTORS
from tests.support.broker_process import Broker
from tests.support.oracle import REPOSITORY

RECORDS = int(os.environ.get("RECORDS") or 2_000)
KILLS = int(os.environ.get("KILLS") or 3)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
BATCHES = 4 * KILLS
VICTIMS = ("driver", "executor", "broker")
# With at least this many records, `odradek spark exactly-once` runs too. Other tests cover the command with few
# records.
COMPARED = 10_000
PER_TRANSACTION = 100
ABORTED = 5  # One in this many transactions is aborted and then written again.


class Copy:
    """A query that is restarted whenever it fails, as an operator would restart it."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.driver = query.start()

    def is_over(self) -> bool:
        """Returns whether the query has copied all records."""
        report = self.driver.report()
        return "over" in report and report["error"] is None

    def runs_until(self, what: str, condition: Callable[[], object]) -> None:
        """Keeps the query running until the condition holds or the query has copied everything."""
        deadline = time.monotonic() + PATIENCE_S
        while not (condition() or self.is_over()):
            if not self.driver.is_running():
                self.driver = self.query.start()
            assert time.monotonic() < deadline, f"{what} does not come: {self.driver.log_text()}"
            time.sleep(0.02)

    def restart(self) -> None:
        self.driver.kill9()
        self.driver = self.query.start()


def test_each_record_is_written_once_whatever_is_killed(
    broker: Broker, output: str, cluster: Cluster, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    rng = random.Random(SEED)
    source = create_topic(broker.bootstrap, "source", partitions=PARTITIONS)
    filled(broker.bootstrap, source)
    per_batch = RECORDS * (ABORTED + 1) // ABORTED // BATCHES
    more: dict[str, Any] = {"master": cluster.master, "conf": EXECUTORS, "source": source, "rows": per_batch}
    victims = list(islice(cycle(VICTIMS), KILLS))
    rng.shuffle(victims)
    killed: Counter[str] = Counter()
    with closing(Query(broker, output, tmp_path, environment, **more)) as query:
        copy = Copy(query)
        for number, victim in enumerate(victims):
            batch = BATCHES * number // KILLS
            copy.runs_until(f"batch {batch}", lambda batch=batch: query.last_done() >= batch)  # type: ignore[misc]
            # Wait for a random moment within the batch.
            until_s = time.monotonic() + rng.uniform(0.0, 1.0)
            copy.runs_until("a moment", lambda: time.monotonic() > until_s or query.last_done() > batch)  # noqa: B023
            killed[victim] += kill(victim, copy, cluster, broker, rng)
        copy.runs_until("the end", lambda: False)
        sink = Sink("spark", query.id())
        starts = len(query.drivers)
    left = asyncio.run(left_open(broker.bootstrap, sink))

    expected, found = (committed(broker.bootstrap, topic) for topic in (source, output))
    lost, twice = (expected - found).total(), (found - expected).total()
    print(
        f"SEED={SEED}: {expected.total():,} in, {found.total():,} out, {lost} lost, {twice} twice, {len(left)} left"
        f" open; killed: {dict(killed)}; {starts} starts of the driver"
    )
    assert killed.total() == KILLS, "the query was over too soon"
    assert expected.total() == RECORDS
    assert (lost, twice, left) == (0, 0, [])
    if RECORDS >= COMPARED:
        comparison = compared(broker.bootstrap, source, output, environment)
        assert (comparison["input_rows"], comparison["output_rows"], comparison["is_exact"]) == (RECORDS, RECORDS, True)


def filled(bootstrap: str, topic: str) -> None:
    """Writes RECORDS committed records. Every fifth transaction is written twice and aborted the first time."""
    with Producer(bootstrap_servers=bootstrap, transactional_id="filler") as producer:
        producer.init_transactions()
        for number, first in enumerate(range(0, RECORDS, PER_TRANSACTION)):
            numbers = range(first, min(first + PER_TRANSACTION, RECORDS))
            keys = pa.array([b"%d" % each for each in numbers], pa.binary())
            for commits in (False, True) if number % ABORTED == 0 else (True,):
                values = pa.array([b"%d %d" % (each, commits) for each in numbers], pa.binary())
                producer.begin_transaction()
                producer.send_batch(topic, number % PARTITIONS, keys, values)
                producer.flush()
                if commits:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()


def kill(victim: str, copy: Copy, cluster: Cluster, broker: Broker, rng: random.Random) -> bool:
    """Kills the driver, an executor or the broker. Returns False if the query had already finished."""
    copy.runs_until("an executor", cluster.executors)
    if copy.is_over():
        return False
    match victim:
        case "driver":
            copy.restart()
        case "executor":
            with suppress(ProcessLookupError, IndexError):  # The executor may have exited in the meantime.
                os.kill(rng.choice(cluster.executors()), signal.SIGKILL)
        case "broker":
            broker.kill9()
            time.sleep(rng.uniform(0.0, 1.0))
            broker.start()
    return True


async def left_open(bootstrap: str, sink: Sink) -> list[str]:
    """Recovers the sink and returns the transactional ids that are still open afterwards."""
    two_phase = TwoPhaseSink(Brokers(bootstrap), sink)
    await two_phase.recover()
    left = await two_phase.open_ids()
    await two_phase.close()
    return left


def committed(bootstrap: str, topic: str) -> Counter[tuple[bytes | None, bytes | None]]:
    """Returns the keys and values of all committed records, read with librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: Counter[tuple[bytes | None, bytes | None]] = Counter()
    at_end: set[int | None] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} is not read to its end"
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                found[message.key(), message.value()] += 1
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
    consumer.close()
    return found


def compared(bootstrap: str, source: str, output: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Runs `odradek spark exactly-once` and returns its result."""
    at = f"kafka://{bootstrap}"
    words = ["spark", "exactly-once", "--input", f"{at}/{source}", "--output", f"{at}/{output}", "--json"]
    words += ["--master", "local[2]", "--conf", "spark.driver.memory=512m"]
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *words],
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))
