"""Tests that real clients continue correctly after an unclean election that truncates the log below offsets that the
clients have read, committed or acquired."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.client import OffsetOutOfRange
from odradek.client import TopicPartition as OwnPlace
from odradek.client.sync import Consumer as OwnConsumer
from odradek.testing.sync import Cluster, Odradek, Refused

PATIENCE_S = 30


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    with odradek.cluster(nodes=2) as cluster:
        yield cluster


def make_topic(kafka: Cluster, name: str = "orders") -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1)]).values():
        made.result(10)


def produce(kafka: Cluster, *values: str) -> None:
    """Produces each value in a separate batch."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce("orders", value)
        assert producer.flush(20) == 0


def take(consumer: Consumer, count: int) -> tuple[list[bytes | None], str]:
    """Returns the next `count` values and an empty string or, after an error, the values before the error and its
    text."""
    found: list[bytes | None] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until_s:
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            return found, str(error)
        found.append(message.value())
    return found, ""


def consumer_of(kafka: Cluster, reset: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "g",
            "auto.offset.reset": reset,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    return consumer


def test_a_truncated_log_reports_its_offsets_and_begins_a_leader_epoch(kafka: Cluster) -> None:
    make_topic(kafka)
    produce(kafka, *"abcd")
    before = kafka.wait(topic="orders", log_end_offset=4)
    facts = kafka.truncate("orders", 0, 3)
    assert (facts["log_start_offset"], facts["last_stable_offset"], facts["log_end_offset"]) == (0, 3, 3)
    assert facts["leader_epoch"] == before["leader_epoch"] + 1
    assert facts["leader"] == before["leader"]
    assert kafka.truncate("orders", 0, 3, node=3 - before["leader"])["leader"] == 3 - before["leader"]
    produce(kafka, "e")
    assert kafka.wait(topic="orders", log_end_offset=4)["log_end_offset"] == 4


def test_librdkafka_detects_the_truncation_of_records_that_it_has_read(kafka: Cluster) -> None:
    make_topic(kafka)
    produce(kafka, *"abcd")
    consumer = consumer_of(kafka, "error")
    assert take(consumer, 4) == ([b"a", b"b", b"c", b"d"], "")
    kafka.truncate("orders", 0, 2)
    produce(kafka, "C", "D", "E")
    _, error = take(consumer, 1)
    consumer.close()
    assert "truncation detected" in error


def test_librdkafka_continues_where_the_logs_diverge(kafka: Cluster) -> None:
    make_topic(kafka)
    produce(kafka, *"abcd")
    consumer = consumer_of(kafka, "earliest")
    assert take(consumer, 4) == ([b"a", b"b", b"c", b"d"], "")
    kafka.truncate("orders", 0, 2)
    produce(kafka, "C", "D", "E")
    assert take(consumer, 3) == ([b"C", b"D", b"E"], "")
    consumer.close()


@pytest.mark.parametrize("reset", ["none", "latest"])
def test_our_client_continues_where_the_logs_diverge(kafka: Cluster, reset: str) -> None:
    make_topic(kafka)
    produce(kafka, *"abcd")
    with OwnConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset=reset) as consumer:
        place = OwnPlace("orders", 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        for expected in (b"a", b"b", b"c", b"d"):
            assert next(consumer).value == expected
        kafka.truncate("orders", 0, 2)
        produce(kafka, "C", "D", "E")
        if reset == "none":
            with pytest.raises(OffsetOutOfRange):
                next(consumer)
        else:
            assert [next(consumer).value for _ in range(3)] == [b"C", b"D", b"E"]


def test_a_committed_offset_behind_the_end_is_reset(kafka: Cluster) -> None:
    facts = kafka.preset("log-end-before-commit", topic="orders", records=10, lost=5)
    assert (facts["committed_offset"], facts["log_end_offset"]) == (10, 5)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert take(consumer, 5) == ([b"record"] * 5, "")
    consumer.close()


def test_a_truncated_open_transaction_does_not_block_readers(kafka: Cluster) -> None:
    facts = kafka.preset("open-transaction", topic="orders", records=2, open_records=1)
    assert facts["last_stable_offset"] == 2
    assert kafka.truncate("orders", 0, 2)["last_stable_offset"] == 2
    produce(kafka, "behind")
    assert kafka.wait(topic="orders", last_stable_offset=3)["log_end_offset"] == 3


def test_a_share_group_gets_records_that_replace_truncated_records(kafka: Cluster) -> None:
    kafka.preset("last-delivery", topic="orders", group="g")
    kafka.truncate("orders", 0, 0)
    produce(kafka, "new")
    consumer = ShareConsumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    consumer.subscribe(["orders"])
    found: list[bytes | None] = []
    until_s = time.monotonic() + PATIENCE_S
    while not found and time.monotonic() < until_s:
        found = [each.value() for each in consumer.poll(0.2) if each.error() is None]
    consumer.close()
    assert found == [b"new"]


def test_a_log_is_as_it_was_cut_after_a_crash(kafka: Cluster) -> None:
    make_topic(kafka)
    produce(kafka, *"abcd")
    kafka.truncate("orders", 0, 2)
    produce(kafka, "C")
    kafka.restart(clean=False)
    assert kafka.wait(topic="orders", log_end_offset=3)["log_end_offset"] == 3


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "status", "word"),
    [
        ("orders", 0, 5, 400, "from 0 to 1"),
        ("orders", 1, 0, 404, "no partition"),
        ("others", 0, 0, 404, "no partition"),
        ("__consumer_offsets", 0, 0, 409, "internal topic"),
    ],
)
def test_a_truncation_outside_of_the_log_is_refused(
    kafka: Cluster, topic: str, partition: int, offset: int, status: int, word: str
) -> None:
    make_topic(kafka)
    produce(kafka, "a")
    kafka.preset("static-twin", topic="orders")
    with pytest.raises(Refused, match=word) as refused:
        kafka.truncate(topic, partition, offset)
    assert refused.value.status == status
