"""Produces and consumes on the host with an unmodified client."""

from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

TIMEOUT_S = 30.0


def produce(bootstrap: str, topic: str, values: Sequence[str]) -> None:
    """Sends the values. Raises AssertionError unless the broker acknowledges all of them."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 20_000})
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: failed.append(error) if error else None)
    left = producer.flush(TIMEOUT_S)
    assert (left, failed) == (0, []), f"{left} records were not acknowledged: {failed[:1]}"


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    """Returns the first `count` values of a topic. They are in order if the topic has one partition."""
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


def advertised_address(bootstrap: str) -> tuple[str, int]:
    """Returns the host and port that the broker advertises to a client connecting to this address."""
    found = Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S)
    (broker,) = found.brokers.values()
    return broker.host, broker.port
