"""Lawful but rare answers: librdkafka keeps its promises under them, and a seed repeats them (docs/testing.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.protocol.errors import ErrorCode
from odradek.testing.sync import Cluster, Odradek, Refused
from tests.support.broker_process import BrokerProcess

PER_COPY = 25  # records


@pytest.fixture(scope="module")
def odradek() -> Iterator[Odradek]:
    with Odradek.start() as started:
        yield started


def make_topics(kafka: Cluster, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, 3) for name in names]).values():
        made.result(20)


def new_copier(kafka: Cluster) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "copier",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe(["in"])
    return consumer


def copy(kafka: Cluster, transactions: int) -> None:
    """Exactly-once copies: each record of `in` once to `out`, offsets in the same transaction."""
    consumer = new_copier(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "copier"})
    producer.init_transactions(60)
    done = 0
    while done < transactions:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.code() == ErrorCode.NOT_COORDINATOR.value:  # of OffsetFetch: librdkafka 2.16 never asks again
                consumer.close()
                consumer = new_copier(kafka)
            continue
        producer.begin_transaction()
        producer.produce("out", message.value())
        position = TopicPartition("in", message.partition() or 0, (message.offset() or 0) + 1)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        done += 1
    consumer.close()


def read_all(kafka: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(3)])
    found = []
    for _ in range(200):
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        if len(found) == count:
            break
    consumer.close()
    return sorted(found)


@pytest.mark.parametrize("seed", [1, 2])
def test_copies_are_exactly_once_under_lawful_but_rare_answers(odradek: Odradek, seed: int) -> None:
    with odradek.cluster() as kafka:
        kafka.odd(seed)
        make_topics(kafka, "in", "out")
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
        values: list[bytes] = []
        told = kafka.odd()
        while not all(each["done"] for each in told["oddities"]) and len(values) < 20 * PER_COPY:
            more = [b"%03d" % number for number in range(len(values), len(values) + PER_COPY)]
            for value in more:
                producer.produce("in", value)
                producer.flush(30)
            copy(kafka, PER_COPY)
            values += more
            told = kafka.odd()
        assert read_all(kafka, "out", len(values)) == values
        assert told["seed"] == seed
        assert all(each["done"] for each in told["oddities"]), told
        kafka.odd(0)
        before = kafka.odd()
        make_topics(kafka, "more")
        assert kafka.odd() == before == {"seed": 0, "oddities": []}


def test_a_seed_is_a_number(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        for body in ({"seed": -1}, {"seed": "x"}, {}, {"seeds": 1}):
            with pytest.raises(Refused):
                kafka.call("POST", "/odd", body)


class BrokerThatBegins(BrokerProcess):
    """With options of `odradek serve` besides the usual ones."""

    options: tuple[str, ...] = ()

    def command(self, ready_file: Path) -> list[str]:
        return [*super().command(ready_file), *self.options]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThatBegins]:
    made = BrokerThatBegins(tmp_path / "data", {"odradek.http.port": 0})
    yield made
    if made.is_running():
        made.stop()


def test_a_broker_begins_with_odd_answers_and_rules(broker: BrokerThatBegins, tmp_path: Path) -> None:
    rule = {"name": "first", "match": {"api": "Produce"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 1}
    (tmp_path / "rules.json").write_text(json.dumps([rule]))
    broker.options = ("--odd", "7", "--faults", str(tmp_path / "rules.json"))
    broker.start()
    default = Odradek("127.0.0.1", broker.ready["http_port"]).default
    assert default.odd()["seed"] == 7
    producer = Producer({"bootstrap.servers": default.bootstrap})
    producer.produce("orders", b"a")
    producer.flush(20)
    assert default.faults()[0]["hits"] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"match": {"api": "Prodce"}, "do": {"hold": "h"}}', "did you mean Produce"),
        ("no JSON", "Expecting value"),
        (None, "No such file"),
    ],
)
def test_rules_that_mean_nothing_end_the_start_by_name(
    broker: BrokerThatBegins, tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "rules.json"
    if text is not None:
        path.write_text(text)
    broker.options = ("--faults", str(path))
    with pytest.raises(RuntimeError, match="ended with status 1"):
        broker.start()
    told = broker.log_text()
    assert words in told
    assert str(path) in told
    assert "Traceback" not in told


def test_copies_go_on_where_the_coordinator_of_the_offsets_has_moved(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        make_topics(kafka, "in", "out")
        kafka.fault({"match": {"api": "OffsetFetch"}, "do": {"error": "NOT_COORDINATOR"}, "times": 1})
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce("in", b"a")
        producer.flush(30)
        copy(kafka, 1)
        assert read_all(kafka, "out", 1) == [b"a"]
