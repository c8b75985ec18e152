"""An unmodified client on the host, or on the network of the containers."""

from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

TIMEOUT_S = 30.0


def produce(bootstrap: str, topic: str, values: Sequence[str]) -> None:
    """Acknowledged by the broker, or AssertionError."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 20_000})
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: failed.append(error) if error else None)
    left = producer.flush(TIMEOUT_S)
    assert (left, failed) == (0, []), f"{left} records were not acknowledged: {failed[:1]}"


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    """The first `count` values, in order where there is one partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    values: list[str] = []
    try:
        while len(values) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{values} and nothing more"
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return values


def told(bootstrap: str) -> tuple[str, int]:
    """Where a client of that address is told to connect to."""
    found = Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S)
    (broker,) = found.brokers.values()
    return broker.host, broker.port
