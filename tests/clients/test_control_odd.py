"""Tests that clients keep their guarantees when the broker gives rare but valid answers, and that a seed reproduces
these answers (docs/testing.md)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.broker.control.odd.odd import PERCENT
from odradek.client import sync as own
from odradek.protocol.errors import ErrorCode
from odradek.testing.sync import Cluster, Odradek, Refused
from tests.clients.admin import create_topic
from tests.clients.client_work import CLIENTS, TOPIC
from tests.support.broker_process import BrokerProcess

PER_COPY = 25  # number of records that a test copies in one go
PATIENCE_S = 60
REQUEST_TIMEOUT_MS = 30_000
Member: TypeAlias = "Callable[[Cluster, str, Callable[[], bool]], None]"
# If addresses change while connections close, librdkafka 2.16 occasionally never sends a TxnOffsetCommit.
PERCENT_OF_COPIES = {"other address": 0, "closed idle": 0, "empty fetch": 40}
IN_COPIES = {  # oddities that occur soon while copying; other tests cover the rest
    *("unknown tags", "other order", "throttled", "passing error", "early fetch", "empty fetch", "null", "no leader"),
    *("unknown APIs", "higher versions", "cut write"),
}


def undone(kafka: Cluster, names: Collection[str]) -> list[str]:
    return [each["name"] for each in kafka.odd()["oddities"] if each["name"] in names and not each["done"]]


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
    """Copies records exactly once. Each record of `in` is written once to `out`, and its offset is committed in the
    same transaction."""
    consumer = new_copier(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "copier"})
    producer.init_transactions(60)
    done = 0
    while done < transactions:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            # After this error, librdkafka 2.16 never retries OffsetFetch.
            if error.code() == ErrorCode.NOT_COORDINATOR.value:
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
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(3)])
    found: list[bytes] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until_s:
        found += [each.value() or b"" for each in consumer.consume(count, 0.2) if each.error() is None]
    consumer.close()
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_copies_are_exactly_once_under_lawful_but_rare_answers(odradek: Odradek, seed: int) -> None:
    with odradek.cluster() as kafka:
        kafka.odd(seed, PERCENT_OF_COPIES)
        make_topics(kafka, "in", "out")
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
        values: list[bytes] = []
        report = kafka.odd()
        while undone(kafka, IN_COPIES) and len(values) < 20 * PER_COPY:
            more = [b"%03d" % number for number in range(len(values), len(values) + PER_COPY)]
            for value in more:
                producer.produce("in", value)
                producer.flush(30)
            copy(kafka, PER_COPY)
            values += more
            report = kafka.odd()
        assert read_all(kafka, "out", len(values)) == values
        assert report["seed"] == seed
        assert undone(kafka, IN_COPIES) == []
        kafka.odd(0)
        before = kafka.odd()
        make_topics(kafka, "more")
        assert kafka.odd() == before == {"seed": 0, "oddities": []}


def only(*names: str) -> dict[str, int]:
    return {name: 100 if name in names else 0 for name in PERCENT}


@pytest.mark.parametrize("name", ["cut batch", "cut write", "other address", "old metadata", "high producer epoch"])
def test_records_are_read_under_each_rare_answer_alone(odradek: Odradek, name: str) -> None:
    """The cluster has two nodes, because the first node never has old metadata."""
    with odradek.cluster(nodes=2) as kafka:
        kafka.odd(1, {**only(name), **({"cut batch": 70} if name == "cut batch" else {})})
        make_topics(kafka, "in")
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
        values = [b"%02d" % number for number in range(30)]
        for value in values:
            producer.produce("in", value)
            producer.flush(30)
        until_s = time.monotonic() + PATIENCE_S
        assert read_all(kafka, "in", len(values)) == values
        while undone(kafka, {name}):
            assert time.monotonic() < until_s, kafka.odd()
            kafka.move_leader("in", 0, 2)
            AdminClient({"bootstrap.servers": kafka.bootstrap.split(",")[1]}).list_topics(timeout=30)
            assert read_all(kafka, "in", len(values)) == values


def test_a_member_goes_on_where_its_heartbeat_interval_changes_and_its_connections_close(odradek: Odradek) -> None:
    """The short heartbeat interval causes many heartbeats. The consumer is idle while there are no new records."""
    settings = {"group.consumer.min.heartbeat.interval.ms": 400, "group.consumer.heartbeat.interval.ms": 400}
    with odradek.cluster(settings=settings) as kafka:
        make_topics(kafka, "in")
        kafka.odd(1, only("heartbeat interval", "closed idle"))
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["in"])
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        found: list[bytes | None] = []
        until_s = time.monotonic() + PATIENCE_S
        while undone(kafka, {"heartbeat interval", "closed idle"}) or not found:
            assert time.monotonic() < until_s, kafka.odd()
            producer.produce("in", b"a")
            producer.flush(30)
            found += [each.value() for each in consumer.consume(10, 0.3) if each.error() is None]
        consumer.close()


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_producer_with_a_high_id_and_epoch_writes_once(odradek: Odradek, client: str) -> None:
    with odradek.cluster() as kafka:
        create_topic(kafka.bootstrap, TOPIC, exact=True)
        kafka.odd(1, only("high producer id", "high producer epoch"))
        CLIENTS[client]["produce"](kafka, REQUEST_TIMEOUT_MS)
        (producer,) = kafka.producers()
        assert producer["producer_id"] >= 2**31
        assert producer["producer_epoch"] >= 32_700
        CLIENTS[client]["consume"](kafka, REQUEST_TIMEOUT_MS)
        assert kafka.wait(topic=TOPIC, log_end_offset=1)["log_end_offset"] == 1


def librdkafka_member(kafka: Cluster, protocol: str, read: Callable[[], bool]) -> None:
    settings = {"group.id": "g", "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **settings})
    consumer.subscribe(["in"])
    while not consumer.consume(1, 0.1):
        assert not read()
    consumer.commit(asynchronous=False)
    consumer.close()


def own_member(kafka: Cluster, protocol: str, read: Callable[[], bool]) -> None:
    with own.Consumer(
        bootstrap_servers=kafka.bootstrap, group_id="g", group_protocol=protocol, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["in"])
        while not consumer.getmany(timeout_ms=100):
            assert not read()
        consumer.commit()


def read_one(kafka: Cluster, member: Member, protocol: str, *oddities: str) -> None:
    make_topics(kafka, "in")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("in", b"a")
    producer.flush(30)
    kafka.odd(1, only(*oddities))
    until_s = time.monotonic() + PATIENCE_S
    member(kafka, protocol, lambda: time.monotonic() > until_s)
    assert undone(kafka, oddities) == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("member", [librdkafka_member, own_member])
def test_a_group_whose_epoch_begins_high_reads_and_commits(odradek: Odradek, member: Member, protocol: str) -> None:
    with odradek.cluster() as kafka:
        read_one(kafka, member, protocol, "high group epoch")
        commit = kafka.requests(api="OffsetCommit")[0]
        assert commit["request"]["generationIdOrMemberEpoch"] > 2**23
        assert codes(commit["answer"]) == {0}


@pytest.mark.parametrize("client", ["librdkafka", "own"])
def test_a_share_group_whose_epoch_begins_high_reads(odradek: Odradek, client: str) -> None:
    with odradek.cluster() as kafka:
        make_topics(kafka, "in")
        kafka.odd(1, only("high group epoch"))
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        until_s = time.monotonic() + PATIENCE_S

        def read(poll: Callable[[], object]) -> None:
            # The consumer starts at the log end offset, so it gets only records produced later.
            while not poll():
                assert time.monotonic() < until_s
                producer.produce("in", b"a")
                producer.flush(30)

        if client == "own":
            with own.ShareConsumer(bootstrap_servers=kafka.bootstrap, group_id="g") as consumer:
                consumer.subscribe(["in"])
                read(lambda: consumer.getmany(timeout_ms=100))
        else:
            sharing = ShareConsumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
            sharing.subscribe(["in"])
            read(lambda: [each for each in sharing.poll(0.1) if each.error() is None])
            sharing.close()
        epochs = [each["answer"]["memberEpoch"] for each in kafka.requests(api="ShareGroupHeartbeat") if each["answer"]]
        assert max(epochs) > 2**23
        assert undone(kafka, ["high group epoch"]) == []


@pytest.mark.parametrize("member", [librdkafka_member, own_member])
def test_a_member_with_a_long_id_reads_and_commits(odradek: Odradek, member: Member) -> None:
    with odradek.cluster() as kafka:
        read_one(kafka, member, "classic", "long member id")
        joined = [each["request"]["memberId"] for each in kafka.requests(api="SyncGroup")]
        assert {len(each) for each in joined} == {255}
        commits = [each for each in kafka.requests(api="OffsetCommit") if each["request"]["memberId"] == joined[-1]]
        assert codes(commits[-1]["answer"]) == {0}


def codes(answer: Mapping[str, Any]) -> set[int]:
    return {each["errorCode"] for topic in answer["topics"] for each in topic["partitions"]}


def test_seeds_and_percentages_are_numbers(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        few: dict[str, object] = {"seed": 1, "percent": {"cut writes": 1}}
        for body in ({"seed": -1}, {"seed": "x"}, {}, {"seeds": 1}, few, {"seed": 1, "percent": {"cut write": 101}}):
            with pytest.raises(Refused):
                kafka.call("POST", "/odd", body)


class BrokerThatBegins(BrokerProcess):
    """A broker with additional options for `odradek serve`."""

    options: tuple[str, ...] = ()

    def command(self, ready_file: Path) -> list[str]:
        return [*super().command(ready_file), *self.options]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThatBegins]:
    made = BrokerThatBegins(tmp_path / "data", {"odradek.http.port": 0})
    yield made
    if made.is_running():
        made.stop()


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_broker_begins_with_odd_answers_and_rules(broker: BrokerThatBegins, tmp_path: Path, form: str) -> None:
    rule = {"name": "first", "match": {"api": "Produce"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 1}
    path = tmp_path / f"rules.{form}"
    path.write_text(json.dumps([rule]) if form == "json" else yaml.safe_dump([rule]))
    broker.options = ("--odd", "7", "--faults", str(path))
    broker.start()
    default = Odradek("127.0.0.1", broker.ready["http_port"]).default
    assert default.odd()["seed"] == 7
    producer = Producer({"bootstrap.servers": default.bootstrap})
    producer.produce("orders", b"a")
    producer.flush(20)
    assert default.faults()[0]["hits"] == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("rules.json", '{"match": {"api": "Prodce"}, "do": {"hold": "h"}}', "did you mean Produce"),
        ("rules.json", "no JSON", "Expecting value"),
        ("rules.json", None, "No such file"),
        ("rules.json", "[" * 100_000, "nested too deeply"),
        ("rules.yaml", "[" * 100_000, "nested too deeply"),
        ("rules.yaml", "match: {api: Prodce}\ndo: {hold: h}\n", "did you mean Produce"),
        ("rules.yml", "match: {api: [", "line 1, column"),
        ("rules.yaml", "match: {api: Produce}\ndo: {hold: 2026-11-26}\n", "date is not JSON"),
    ],
)
def test_an_invalid_rules_file_stops_the_start_and_is_named(
    broker: BrokerThatBegins, tmp_path: Path, name: str, text: str | None, words: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    broker.options = ("--faults", str(path))
    with pytest.raises(RuntimeError, match="ended with status 1"):
        broker.start()
    log_text = broker.log_text()
    assert words in log_text
    assert str(path) in log_text
    assert "Traceback" not in log_text


def test_copies_go_on_where_the_coordinator_of_the_offsets_has_moved(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        make_topics(kafka, "in", "out")
        kafka.fault({"match": {"api": "OffsetFetch"}, "do": {"error": "NOT_COORDINATOR"}, "times": 1})
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce("in", b"a")
        producer.flush(30)
        copy(kafka, 1)
        assert read_all(kafka, "out", 1) == [b"a"]
