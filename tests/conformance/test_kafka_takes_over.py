"""Tests that Apache Kafka starts on a directory that Odradek wrote and continues it, and that Odradek then continues
where Kafka stopped."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, TopicPartition

from tests.clients.admin import create_topic, new_admin
from tests.support.broker_process import EMULATED, Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

SETTINGS: dict[str, object] = {"offsets.topic.num.partitions": 3}
Stop = Callable[[Broker], None]


def write(broker: Broker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    refused: list[object] = []
    for value in values:
        producer.produce(topic, value, "key", on_delivery=lambda error, _: refused.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not refused


def read(broker: Broker, topic: str, count: int) -> list[str]:
    """Returns the values of the first `count` records of partition 0 and of any additional records."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    while (message := consumer.poll(20 if len(values) < count else 0.5)) is not None:
        assert not message.error()
        content = message.value()
        assert content is not None
        values.append(content.decode())
    consumer.close()
    return values


def committed(broker: Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "lasting"})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    return int(found.offset)


def commit(broker: Broker, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "lasting"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def set_retention(broker: Broker, topic: str, value: str) -> None:
    entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = new_admin(broker.bootstrap)
    admin.incremental_alter_configs([resource])[resource].result(30)


def retention(broker: Broker, topic: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = new_admin(broker.bootstrap)
    found = admin.describe_configs([resource])[resource].result(30)
    return str(found["retention.ms"].value)


def topics(broker: Broker) -> dict[str, int]:
    admin = new_admin(broker.bootstrap)
    listed = admin.list_topics(timeout=30).topics
    return {name: len(one.partitions) for name, one in listed.items() if not name.startswith("__")}


@pytest.mark.parametrize("stop", [Broker.stop, Broker.kill9], ids=["stopped", "killed"])
@pytest.mark.parametrize("release", EMULATED)
def test_a_directory_goes_from_us_to_kafka_and_back(tmp_path: Path, release: str, stop: Stop) -> None:
    """Kafka and Odradek use the directory in turn, because no file format differs (P7 of
    docs/spec/kafka-4.4.md#s6-1)."""
    data = tmp_path / "data"
    ours = BrokerProcess(data, SETTINGS, emulate=EMULATED[release])
    ours.start()
    create_topic(ours.bootstrap, "ledger", exact=True)
    create_topic(ours.bootstrap, "gone", exact=True)
    create_topic(ours.bootstrap, "grown", exact=True)
    write(ours, "ledger", "1 ours", "2 ours")
    set_retention(ours, "ledger", "-1")
    commit(ours, "ledger", 1)
    admin = new_admin(ours.bootstrap)
    admin.delete_topics(["gone"])["gone"].result(30)
    admin.create_partitions([NewPartitions("grown", 3)])["grown"].result(30)
    stop(ours)

    kafka = KafkaProcess(data, SETTINGS, version=release)
    with kafka:
        assert topics(kafka) == {"ledger": 1, "grown": 3}
        assert retention(kafka, "ledger") == "-1"
        assert read(kafka, "ledger", 2) == ["1 ours", "2 ours"]
        assert committed(kafka, "ledger") == 1
        write(kafka, "ledger", "3 kafka")
        set_retention(kafka, "ledger", "86400000")
        commit(kafka, "ledger", 2)
        create_topic(kafka.bootstrap, "theirs", 2, exact=True)
        write(kafka, "theirs", "1 kafka")
        stop(kafka)

    again = BrokerProcess(data, SETTINGS, emulate=EMULATED[release])
    with again:
        assert topics(again) == {"ledger": 1, "grown": 3, "theirs": 2}
        assert retention(again, "ledger") == "86400000"
        assert read(again, "ledger", 3) == ["1 ours", "2 ours", "3 kafka"]
        assert committed(again, "ledger") == 2
        write(again, "ledger", "4 ours")
        assert read(again, "ledger", 4) == ["1 ours", "2 ours", "3 kafka", "4 ours"]
