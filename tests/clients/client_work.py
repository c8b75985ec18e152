"""Small jobs for a client under test: producing a record, committing a transaction, or consuming a record.

Each function returns when its job is done. Refused requests are retried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer, TopicPartition

from odradek.client import TopicPartition as OwnPartition
from odradek.client import sync as own
from odradek.testing.sync import Cluster
from tests.clients.admin import list_topics
from tests.clients.speakers import wait_for

CLIENT = "matrix"
TRANSACTIONAL_ID = "t"
GROUP = "g"
TOPIC = "orders"
PATIENCE_S = 60
Work: TypeAlias = Callable[[Cluster, int], None]  # The arguments are a cluster and the client's request timeout in ms.


def librdkafka_settings(kafka: Cluster, timeout_ms: int) -> dict[str, object]:
    backoff = {"reconnect.backoff.max.ms": 100, "retry.backoff.max.ms": 100}
    return {"bootstrap.servers": kafka.bootstrap, "client.id": CLIENT, "socket.timeout.ms": timeout_ms, **backoff}


def librdkafka_produce(kafka: Cluster, timeout_ms: int) -> None:
    producer = Producer({**librdkafka_settings(kafka, timeout_ms), "enable.idempotence": True})
    producer.produce(TOPIC, b"a", partition=0)
    assert producer.flush(PATIENCE_S) == 0


def librdkafka_transact(kafka: Cluster, timeout_ms: int) -> None:
    producer = Producer({**librdkafka_settings(kafka, timeout_ms), "transactional.id": TRANSACTIONAL_ID})
    list_topics(producer, TOPIC)
    # Waits for the bootstrap connection to close, because the client could otherwise close it while a FindCoordinator
    # is pending on it.
    first = kafka.requests(client_id=CLIENT)[0]["connection"]
    wait_for("the bootstrap connection to end", lambda: all(each["id"] != first for each in kafka.connections()))
    again_and_again(producer.init_transactions)
    producer.begin_transaction()
    producer.produce(TOPIC, b"a", partition=0)
    again_and_again(producer.commit_transaction)


def again_and_again(call: Callable[[float], object]) -> None:
    """Retries a call until it succeeds, as librdkafka's documentation requires after retriable errors. Raises all other
    errors."""
    while True:
        try:
            call(PATIENCE_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def librdkafka_consume(kafka: Cluster, timeout_ms: int) -> None:
    settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    refresh = {"topic.metadata.refresh.interval.ms": 500, "fetch.wait.max.ms": 100}
    consumer = Consumer({**librdkafka_settings(kafka, timeout_ms), **settings, **refresh})
    consumer.assign([TopicPartition(TOPIC, 0)])
    until_s = monotonic() + PATIENCE_S
    while (message := consumer.poll(1)) is None or message.error() is not None:
        assert monotonic() < until_s
    assert message.value() == b"a"
    again_and_again(lambda _: consumer.commit(message=message, asynchronous=False))
    consumer.close()


def is_stored(kafka: Cluster) -> bool:
    """Returns whether any rule of the cluster has matched. Tests with a share consumer set a single rule, which matches
    the write of the share partition's state."""
    return any(each["hits"] for each in kafka.faults())


def librdkafka_share(kafka: Cluster, timeout_ms: int) -> None:
    consumer = ShareConsumer({**librdkafka_settings(kafka, timeout_ms), "group.id": GROUP})
    consumer.subscribe([TOPIC])
    wait_for("a record", lambda: [each for each in consumer.poll(0.2) if each.error() is None])
    wait_for("its acknowledgement", lambda: consumer.poll(0.2) is not None and is_stored(kafka))
    consumer.close()


def own_settings(kafka: Cluster, timeout_ms: int) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.bootstrap,
        "client_id": CLIENT,
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": PATIENCE_S * 1000,
    }


def own_producer(kafka: Cluster, timeout_ms: int, transactional_id: str | None = None) -> own.Producer:
    return own.Producer(transactional_id=transactional_id, **own_settings(kafka, timeout_ms))


def own_produce(kafka: Cluster, timeout_ms: int) -> None:
    with own_producer(kafka, timeout_ms) as producer:
        producer.send(TOPIC, b"a", partition=0).result(PATIENCE_S)


def own_transact(kafka: Cluster, timeout_ms: int) -> None:
    with own_producer(kafka, timeout_ms, TRANSACTIONAL_ID) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"a", partition=0).result(PATIENCE_S)
        producer.commit_transaction()


def own_consume(kafka: Cluster, timeout_ms: int) -> None:
    with own.Consumer(group_id=GROUP, **own_settings(kafka, timeout_ms)) as consumer:
        consumer.assign([OwnPartition(TOPIC, 0)])
        assert consumer.getone().value == b"a"
        consumer.commit()


def own_share(kafka: Cluster, timeout_ms: int) -> None:
    with own.ShareConsumer(group_id=GROUP, **own_settings(kafka, timeout_ms)) as consumer:
        consumer.subscribe([TOPIC])
        wait_for("a record", lambda: consumer.getmany(timeout_ms=200))
        wait_for("its acknowledgement", lambda: consumer.getmany(timeout_ms=200) is not None and is_stored(kafka))


CLIENTS: Mapping[str, Mapping[str, Work]] = {
    "librdkafka": {
        "produce": librdkafka_produce,
        "transact": librdkafka_transact,
        "consume": librdkafka_consume,
        "share": librdkafka_share,
    },
    "own": {"produce": own_produce, "transact": own_transact, "consume": own_consume, "share": own_share},
}
