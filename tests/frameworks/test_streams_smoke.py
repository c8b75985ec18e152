"""Tests that Kafka's own smoke test for Kafka Streams passes with `group.protocol=streams` and exactly-once processing
while its instances are killed.

The driver and the application come from Kafka's system tests on Maven Central. They use a dozen topics, windows, table
joins and suppressed results. Kafka 4.4.0 was published without its tests. With BROKER=kafka, the same test runs against
Kafka. The rules are in docs/spec/streams-groups.md#s12.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.streams_instances import BROKER_SETTINGS, TRANSACTION_TIMEOUT_MS, Instance, wait_until
from tests.frameworks.running import OPTIONS, class_path, compile_into
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

VERSION = "4.3.1"
COORDINATES = (
    f"org.apache.kafka:kafka-streams:{VERSION}",
    f"org.apache.kafka:kafka-streams:{VERSION}:test",
    f"org.apache.kafka:kafka-clients:{VERSION}:test",
    "org.hamcrest:hamcrest:3.0",
    "org.junit.jupiter:junit-jupiter-api:5.13.1",
)
APPLICATION = "org.apache.kafka.streams.tests.StreamsSmokeTest"
KEYS, RECORDS, SECONDS = 10, 500, 20
INSTANCES = 2
KILL_EVERY_S = 4.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with new_broker(tmp_path / "data", BROKER_SETTINGS) as running:
        yield running


def test_the_driver_finds_what_the_applications_should_have_written_although_they_are_killed(
    broker: Broker, tmp_path: Path
) -> None:
    jars = class_path(f"kafka-streams-smoke-{VERSION}", *COORDINATES)
    compile_into(tmp_path, "SmokeDriver", jars)
    java = ["java", *OPTIONS, "-cp", f"{tmp_path}:{jars}"]
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "application.id": "smoke",
        "group.protocol": "streams",
        "processing.guarantee": "exactly_once_v2",
        "auto.offset.reset": "earliest",
        "num.stream.threads": 1,
        "commit.interval.ms": 200,
        "producer.transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    }

    def start(name: str) -> Instance:
        file = tmp_path / f"{name}.properties"
        every = {**settings, "state.dir": tmp_path / name}
        file.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
        return Instance(name, [*java, APPLICATION, str(file), "process"], tmp_path / f"{name}.stderr")

    driver = Instance(
        "driver",
        [*java, "SmokeDriver", broker.bootstrap, str(KEYS), str(RECORDS), str(SECONDS)],
        tmp_path / "driver.stderr",
    )
    instances: list[Instance] = []
    try:
        wait_until("topics", lambda: "> ready" in driver.lines, driver)
        instances += [start(f"instance-{number}") for number in range(INSTANCES)]
        for number in itertools.count():
            time.sleep(KILL_EVERY_S)
            if "> generated" in driver.lines:
                break
            victim = instances[number % INSTANCES]
            victim.kill9()
            instances[number % INSTANCES] = start(victim.name)
        status = driver.wait_for_end()
    finally:
        for each in (driver, *instances):
            if each.is_running():
                each.kill9()
    assert (status, "> verified" in driver.lines) == (0, True), driver.lines[-40:]
