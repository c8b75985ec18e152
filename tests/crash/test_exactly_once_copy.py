"""Tests that a copy made in transactions equals its source, with each record once and in order, no matter which
processes are killed during the copy.

Copiers consume, transform and produce RECORDS records (100,000 with `make soak`), PER_TRANSACTION of them in each
transaction, which also commits their offsets. The copiers abort some transactions at random. At 20, 40, 60 and 80 % of
the copy the broker and copiers are killed with SIGKILL. SEED repeats a run's choices.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.checker.anomalies import anomalies
from tests.clients.admin import create_topic
from tests.clients.speakers import wait_for
from tests.crash.copier import Job, copied
from tests.crash.copying import CopierProcess, Watcher, first_difference, history, journal, python
from tests.support.broker_process import Broker, new_broker

RECORDS = int(os.environ.get("RECORDS") or 12_000)
PER_TRANSACTION = int(os.environ.get("PER_TRANSACTION") or 750)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
PARTITIONS = 4
COPIERS = 2
KILLED_AT = (0.2, 0.4, 0.6, 0.8)
PATIENCE_S = 60.0
SETTINGS = {
    "log.segment.bytes": 1_048_576,  # Segments roll during the copy, so the broker takes producer snapshots.
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 3,
    "group.min.session.timeout.ms": 500,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with new_broker(tmp_path / "data", SETTINGS) as running:
        yield running


@pytest.fixture(params=["copier", "own_copier"])
def copiers(tmp_path: Path, broker: Broker, request: pytest.FixtureRequest) -> Iterator[list[CopierProcess]]:
    """Yields copiers based on librdkafka, then copiers based on Odradek's client."""
    made = [
        CopierProcess(
            Job(
                bootstrap=broker.bootstrap,
                source="source",
                target="copy",
                group="copiers",
                transactional_id=f"copier-{number}",
                journal=journal(tmp_path, f"copier-{number}"),
                per_transaction=PER_TRANSACTION,
                aborts=0.15,
                seed=SEED + number,
            ),
            python(f"tests.crash.{request.param}"),
        )
        for number in range(COPIERS)
    ]
    yield made
    for copier in made:
        copier.kill9()


def test_the_copy_equals_its_source_once_and_in_order(broker: Broker, copiers: list[CopierProcess]) -> None:
    print(f"SEED={SEED} RECORDS={RECORDS} PER_TRANSACTION={PER_TRANSACTION}")
    rng = random.Random(SEED)
    for topic in ("source", "copy"):
        create_topic(broker.bootstrap, topic, PARTITIONS, exact=True)
    source = filled(broker.bootstrap)
    for copier in copiers:
        copier.start()
    watcher = Watcher(broker.bootstrap, "copy", PARTITIONS, "watcher")
    watcher.start()
    began = time.monotonic()
    for share in KILLED_AT:
        wait_for_copies(watcher, copiers, int(share * RECORDS))
        time.sleep(rng.uniform(0.0, 0.1))  # a random moment during a transaction
        kill_and_start(broker, copiers, rng)
    wait_for_copies(watcher, copiers, RECORDS)
    print(f"copied in {time.monotonic() - began:.1f} s, {sum(one.gave_up for one in copiers)} copiers gave up")
    for copier in copiers:
        copier.stop()
    watcher.finish(reached_end=False)  # The next watcher detects any additional records.

    last = Watcher(broker.restart().bootstrap, "copy", PARTITIONS, "last")
    last.start()
    wait_for_copies(last, [], RECORDS)
    time.sleep(1.0)  # leaves time for unexpected records
    last.finish(reached_end=True)
    expected = {index: [copied(value) for value in values] for index, values in source.items()}
    assert anomalies(history(copiers, watcher, last), once=True)[:20] == []
    assert {index: first_difference(last.values()[index], expected[index]) for index in expected} == dict.fromkeys(
        expected
    )
    assert watcher.values() == last.values()
    assert sum(copier.gave_up for copier in copiers) <= len(KILLED_AT) * COPIERS


def filled(bootstrap: str) -> dict[int, list[str]]:
    """Fills the source and returns its content."""
    values: dict[int, list[str]] = {index: [] for index in range(PARTITIONS)}
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(RECORDS):
        partition, value = number % PARTITIONS, f"{number % PARTITIONS}:{number}"
        values[partition].append(value)
        producer.produce(
            "source", value, partition=partition, on_delivery=lambda error, _: refused.append(error) if error else None
        )
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert refused == []
    return values


def kill_and_start(broker: Broker, copiers: list[CopierProcess], rng: random.Random) -> None:
    """Kills and restarts the broker and either one copier or all of them, in any order. The others must recover on
    their own."""
    victims = rng.choice([*([copier] for copier in copiers), copiers])
    steps = [broker.kill9, *(victim.kill9 for victim in victims)]
    rng.shuffle(steps)
    for step in steps:
        step()
        time.sleep(rng.uniform(0.0, 0.02))
    starts = [broker.start, *(victim.start for victim in victims)]
    rng.shuffle(starts)
    for start in starts:
        start()


def wait_for_copies(watcher: Watcher, copiers: list[CopierProcess], count: int) -> None:
    def are_there() -> bool:
        time.sleep(0.002)
        for copier in copiers:
            copier.check()
        return watcher.count >= count

    wait_for(f"{count} copies; there are {watcher.count}", are_there, PATIENCE_S)
