"""Tests that franz-go's share consumers (1.22 and later) can use strict limits, renewal, and each type of
acknowledgement."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.admin import create_topic
from tests.clients.test_share_consumers import QUICK, configure
from tests.support.broker_process import Broker, new_broker

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")

SOURCES = Path(__file__).parent / "go"
TEN = [str(number) for number in range(10)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"offsets.topic.num.partitions": 4, **QUICK}
    with new_broker(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        yield running


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("go") / "shares"
    done = subprocess.run(["go", "build", "-o", str(built), "./shares"], cwd=SOURCES, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return built


def produce_one_batch(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 60_000})
    for value in TEN:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_records_are_acknowledged_in_each_way(broker: Broker, program: Path) -> None:
    topic = create_topic(broker.bootstrap, "shares")
    configure(broker, f"{topic}-g", share_auto_offset_reset="earliest")
    produce_one_batch(broker, topic)
    ran = subprocess.run([program, broker.bootstrap, topic, f"{topic}-g"], capture_output=True, text=True, timeout=120)
    assert ran.stdout.splitlines() == [
        "three: 0×1 1×1 2×1",
        "the others: 3×1 4×1 5×1 6×1 7×1 8×1 9×1",
        "acknowledged in each way",
        "released: 2×2",
        "released again: 2 1",
    ], ran.stderr
