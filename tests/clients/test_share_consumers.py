"""Tests confluent-kafka's share consumer. Every record is delivered to one of the members, and to another member if the
first one dies."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.clients.admin import create_topic, new_admin
from tests.clients.conftest import StartBroker
from tests.support.broker_process import Broker

QUICK = {
    "group.share.min.heartbeat.interval.ms": 200,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1000,
}
TIMEOUT_S = 60.0


@pytest.fixture
def quick(start_broker: StartBroker) -> Broker:
    return start_broker(QUICK)


@contextmanager
def member(broker: Broker, group: str, topic: str) -> Iterator[Any]:
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def configure(broker: Broker, group: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    admin = new_admin(broker.bootstrap)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def produce(broker: Broker, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(TIMEOUT_S) == 0


def polled(*consumers: Any, until: int) -> list[str]:
    """Polls until `until` records have arrived or the time is up and returns their values. Fails if a message contains
    an error."""
    got: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(got) < until and time.monotonic() < deadline:
        for consumer in consumers:
            for message in consumer.poll(0.2) or ():
                assert message.error() is None, message.error()
                got.append(message.value().decode())
    return got


def test_each_record_goes_to_one_of_the_members(quick: Broker) -> None:
    topic = create_topic(quick.bootstrap, "shared", partitions=2)
    configure(quick, "g", share_auto_offset_reset="earliest")
    values = [str(number) for number in range(2000)]
    produce(quick, topic, values)
    with member(quick, "g", topic) as a, member(quick, "g", topic) as b:
        assert sorted(polled(a, b, until=2000), key=int) == values
        for consumer in (a, b):
            consumer.commit_sync()  # This acknowledges the records of the last poll, which `close` would release.
    with member(quick, "g", topic) as late:
        produce(quick, topic, ["last"])
        assert polled(late, until=1) == ["last"]


def test_acknowledged_records_are_not_delivered_again_after_a_restart(quick: Broker) -> None:
    topic = create_topic(quick.bootstrap, "restarted")
    configure(quick, "g", share_auto_offset_reset="earliest")
    produce(quick, topic, ["0", "1", "2"])
    with member(quick, "g", topic) as first:
        assert polled(first, until=3) == ["0", "1", "2"]
        first.commit_sync()
    quick.kill9()
    quick.start()
    produce(quick, topic, ["3"])
    with member(quick, "g", topic) as second:
        assert polled(second, until=1) == ["3"]
