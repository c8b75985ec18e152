"""Tests that Kafka Streams, Flink, Spring and Connect run unmodified on this broker and write each record exactly once.

With BROKER=kafka, the same tests run against Kafka.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from odradek.client import TopicPartition
from odradek.client.sync import Consumer, Producer
from tests.clients.admin import create_topic
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import share_group
from tests.clients.speakers import wait_for
from tests.frameworks.running import OPTIONS, class_path, compile_into, lines_of, start
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import needs_kafka
from tests.support.ports import free_port

pytestmark = needs_kafka

PATIENCE_S = 120.0
COUNT = 200
QUICK = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.share.min.heartbeat.interval.ms": 200,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.assignment.interval.ms": 0,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", QUICK) as running:
        yield running


def values_of(broker: Broker, topic: str, isolation: str = "read_committed") -> list[tuple[bytes | None, bytes | None]]:
    """Returns the keys and values in a topic with one partition."""
    place = TopicPartition(topic, 0)
    found: list[tuple[bytes | None, bytes | None]] = []
    with Consumer(bootstrap_servers=broker.bootstrap, isolation_level=isolation) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for records in consumer.getmany(timeout_ms=100).values():
                found += [(record.key, record.value) for record in records]
    return found


def ended(process: subprocess.Popen[str], classes: Path) -> list[str]:
    try:
        return list(lines_of(process, classes, PATIENCE_S))
    finally:
        process.kill()


def test_kafka_streams_counts_exactly_once_although_it_is_killed(broker: Broker, tmp_path: Path) -> None:
    jars = class_path("kafka-streams-4.4.0", "org.apache.kafka:kafka-streams:4.4.0")
    source, counts = create_topic(broker.bootstrap, "words", 2), create_topic(broker.bootstrap, "counts")
    keys = [b"a", b"b", b"c", b"d"]

    def fill() -> None:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(COUNT):
                producer.send(source, b"%d" % number, key=keys[number % 4])
            producer.flush()

    def newest(each: int) -> bool:
        return dict(values_of(broker, counts)) == dict.fromkeys(keys, b"%d" % each)

    fill()
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    killed = start("Streams", jars, first, broker.bootstrap, source, counts)
    wait_for("some counts", lambda: values_of(broker, counts), PATIENCE_S)
    killed.kill()
    killed.wait()
    process = start("Streams", jars, second, broker.bootstrap, source, counts)
    wait_for("the counts", lambda: newest(COUNT // 4), PATIENCE_S)
    fill()
    wait_for("more counts", lambda: newest(COUNT // 2), PATIENCE_S)
    assert ended(process, second) == ["REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING"]


def test_flink_copies_exactly_once(broker: Broker, tmp_path: Path) -> None:
    parts = ("flink-streaming-java", "flink-clients", "flink-connector-base")
    runtime = [f"org.apache.flink:{part}:2.2.0" for part in parts]
    jars = class_path("flink-2.2", "org.apache.flink:flink-connector-kafka:5.0.0-2.2", *runtime)
    source, copy = create_topic(broker.bootstrap, "source"), create_topic(broker.bootstrap, "copy")
    values = [b"%d" % number for number in range(COUNT)]
    produce(broker.bootstrap, source, *values)
    assert ended(start("Flink", jars, tmp_path, broker.bootstrap, source, copy), tmp_path) == ["copied"]
    assert Counter(value for _, value in values_of(broker, copy)) == Counter(values)


def test_spring_copies_in_transactions_and_listens_in_groups_of_each_type(broker: Broker, tmp_path: Path) -> None:
    jars = class_path("spring-kafka-4.1.2", "org.springframework.kafka:spring-kafka:4.1.2", slf4j="2.0.17")
    source, copy = create_topic(broker.bootstrap, "letters"), create_topic(broker.bootstrap, "answers")
    share_group(broker.bootstrap, f"{source}-share")
    values = [b"%d" % number for number in range(40)]
    produce(broker.bootstrap, source, *values)
    lines = ended(start("Spring", jars, tmp_path, broker.bootstrap, source, copy, len(values)), tmp_path)
    assert lines == ["consumed: true", "shared: true"]
    assert [value for _, value in values_of(broker, copy)] == values
    assert len(values_of(broker, copy, "read_uncommitted")) > len(values), "every tenth record was tried twice"


def test_connect_copies_a_file_exactly_once_although_its_worker_is_killed(broker: Broker, tmp_path: Path) -> None:
    """A distributed worker runs the file source, which writes in transactions, and the file sink, which is
    read_committed.

    Kafka 4.4.0 was published without its file connector, so the test uses the one from 4.3.1.
    """
    jars = class_path("connect-4.4.0", "org.apache.kafka:connect-runtime:4.4.0", "org.apache.kafka:connect-file:4.3.1")
    compile_into(tmp_path / "classes", "AppInfoParser", jars)
    jars = f"{tmp_path / 'classes'}:{jars}"
    # The source reads 2,000 lines at a time and writes them in one transaction.
    lines = [f"line {number}" for number in range(9_500)]
    written, copied = tmp_path / "written", tmp_path / "copied"
    written.write_text("".join(f"{line}\n" for line in lines))
    topic = create_topic(broker.bootstrap, "lines")
    with Worker(jars, broker.bootstrap, tmp_path / "first") as worker:
        worker.create("source", "FileStreamSource", topic=topic, file=written)
        worker.create("sink", "FileStreamSink", topics=topic, file=copied)
        wait_for("some lines", lambda: values_of(broker, topic), PATIENCE_S)
    with Worker(jars, broker.bootstrap, tmp_path / "second"):
        wait_for("all lines", lambda: len(values_of(broker, topic)) >= len(lines), PATIENCE_S)
        wait_for("the copy", lambda: copied.exists() and set(lines) <= set(copied.read_text().splitlines()), PATIENCE_S)
    assert [(value or b"").decode() for _, value in values_of(broker, topic)] == lines


class Worker:
    """A distributed Kafka Connect worker, which is killed when the `with` block ends."""

    def __init__(self, jars: str, bootstrap: str, folder: Path) -> None:
        folder.mkdir()
        self._rest = f"http://127.0.0.1:{free_port()}"
        text = "org.apache.kafka.connect.storage.StringConverter"
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "listeners": self._rest,
            "key.converter": text,
            "value.converter": text,
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": 500,
            "plugin.discovery": "only_scan",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "scheduled.rebalance.max.delay.ms": 0,
            "consumer.isolation.level": "read_committed",
        }
        for kind in ("config", "offset", "status"):
            settings |= {f"{kind}.storage.topic": f"connect-{kind}", f"{kind}.storage.replication.factor": 1}
        properties = folder / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        words = ["java", *OPTIONS, "-cp", jars, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)

    def __enter__(self) -> Worker:
        wait_for("the worker", self._answers, PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def create(self, name: str, kind: str, **settings: object) -> None:
        config = {"connector.class": kind, "tasks.max": "1"} | {key: str(each) for key, each in settings.items()}
        if kind.endswith("Source"):
            config["exactly.once.support"] = "required"
        body = json.dumps({"name": name, "config": config}).encode()
        wait_for(name, lambda: self._accepts(body), PATIENCE_S)

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self._rest}/connectors", timeout=30) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    def _accepts(self, body: bytes) -> bool:
        """Creates the connector. Returns False if the worker refuses the request because its group is rebalancing."""
        request = Request(f"{self._rest}/connectors", body, {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=60) as answer:
                return bool(answer.status == HTTPStatus.CREATED)
        except HTTPError as error:
            if error.code == HTTPStatus.CONFLICT:
                return False
            raise AssertionError(error.read().decode()) from error
