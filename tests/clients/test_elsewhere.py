"""Tests that a broker works without the system calls that macOS and Windows lack (tests/elsewhere): it serves clients,
removes files and stops as usual."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import TopicPartition as OwnPartition
from odradek.client import sync as own
from tests.clients.admin import create_topic, new_admin
from tests.clients.client_work import PATIENCE_S
from tests.clients.speakers import wait_for
from tests.support.broker_process import IS_KAFKA, BrokerProcess, without_abilities

RECORD_BYTES = 100_000
RECORDS = 50  # enough records to fill five segments
SETTINGS = {
    "log.segment.bytes": 1_048_576,
    "odradek.tail.cache.bytes": 0,
    "log.segment.delete.delay.ms": 0,
    "log.retention.check.interval.ms": 100,
}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(IS_KAFKA, reason="Kafka has no fallbacks of ours")]


@pytest.fixture(params=["macos", "windows"])
def without(request: pytest.FixtureRequest) -> dict[str, str]:
    return without_abilities(request.param)


@pytest.fixture
def broker(tmp_path: Path, without: dict[str, str]) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", SETTINGS, environment=without) as running:
        assert isinstance(running, BrokerProcess)
        yield running


def content(number: int) -> bytes:
    return b"%06d" % number + bytes(RECORD_BYTES)


def produce(broker: BrokerProcess, topic: str) -> None:
    with own.Producer(bootstrap_servers=broker.bootstrap, transactional_id="t") as producer:
        producer.init_transactions()
        for first in range(0, RECORDS, 10):
            producer.begin_transaction()
            for number in range(first, first + 10):
                producer.send(topic, content(number), partition=0)
            producer.commit_transaction()


def consume(broker: BrokerProcess, topic: str, group: str) -> list[bytes | None]:
    read: list[bytes | None] = []
    with own.Consumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        while len(read) < RECORDS:
            read.append(consumer.getone().value)
        consumer.commit()
    return read


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return create_topic(broker.bootstrap, "orders")


def directories(broker: BrokerProcess, topic: str) -> list[str]:
    return [each.name for each in broker.data_dir.iterdir() if each.name.startswith(topic)]


def test_records_survive_a_stop_and_a_kill(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic)
    assert consume(broker, topic, "first") == [content(number) for number in range(RECORDS)]
    broker.restart()
    assert consume(broker, topic, "second") == [content(number) for number in range(RECORDS)]
    broker.kill9()
    broker.start()
    assert consume(broker, topic, "third") == [content(number) for number in range(RECORDS)]


def test_the_files_of_a_deleted_topic_are_removed(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic)
    consume(broker, topic, "first")
    admin = new_admin(broker.bootstrap)
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    wait_for("the directory to be removed", lambda: not directories(broker, topic))
    create_topic(broker.bootstrap, topic, exact=True)
    produce(broker, topic)
    assert consume(broker, topic, "second") == [content(number) for number in range(RECORDS)]


def test_segments_are_removed_while_a_consumer_has_read_them(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic)
    consume(broker, topic, "first")
    with own.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_records({OwnPartition(topic, 0): -1})
    folder = broker.data_dir / f"{topic}-0"
    wait_for("one segment to be left", lambda: len(list(folder.glob("*.log*"))) == 1)


def test_a_second_broker_does_not_get_the_directory(broker: BrokerProcess, without: dict[str, str]) -> None:
    with pytest.raises(RuntimeError, match="another"):
        BrokerProcess(broker.data_dir, environment=without).start()
