"""Tests `odradek serve` with a seed.

The first start creates the state that the seed describes, before clients can connect. Later starts do not repeat steps
and keep clients' changes. An invalid seed prevents the start.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.commands import command
from tests.support.registry_caller import SETTINGS as REGISTRY
from tests.support.registry_caller import RegistryCaller

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no seeds")

YAML = """\
topics:
  - name: orders
    partitions: 3
    settings: {cleanup.policy: compact}
    records:
      - {key: a, value: {id: 1}, timestamp: 2026-01-01T00:00:00Z, headers: {trace: [x, y]}, partition: 1}
      - {key: b, value: text, partition: 1}
      - {key: b, value: null, partition: 2}
groups:
  - name: billing
    offsets: {orders: {1: 1}}
users:
  - {name: alice, password: secret}
acls:
  - {topic: orders, principal: "User:alice", operations: [read, describe]}
"""
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    file = tmp_path / "seed.yaml"
    file.write_text(YAML)
    return file


def records(broker: BrokerProcess, topic: str, partition: int) -> list[tuple[bytes | None, bytes | None, int, object]]:
    """Returns the key, value, timestamp and headers of all records of a partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    try:
        at = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(at, timeout=30)
        consumer.assign([at])
        found = consumer.consume(end, timeout=30)
        return [(each.key(), each.value(), each.timestamp()[1], each.headers()) for each in found]
    finally:
        consumer.close()


def committed(broker: BrokerProcess, group: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=30)
        assert isinstance(found.offset, int)
        return found.offset
    finally:
        consumer.close()


def test_a_seed_is_there_when_the_broker_is_ready_and_the_next_start_adds_nothing(tmp_path: Path, seed: Path) -> None:
    with BrokerProcess(tmp_path / "data", ACLS, words=["--seed", str(seed)]) as broker:
        assert isinstance(broker, BrokerProcess)
        for _ in range(2):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            assert len(admin.list_topics("orders", timeout=30).topics["orders"].partitions) == 3
            resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
            settings = admin.describe_configs([resource])[resource].result(30)
            assert settings["cleanup.policy"].value == "compact"
            first, second = records(broker, "orders", 1)
            assert first == (b"a", b'{"id":1}', 1_767_225_600_000, [("trace", b"x"), ("trace", b"y")])
            assert second[:2] == (b"b", b"text")
            assert [each[:2] for each in records(broker, "orders", 2)] == [(b"b", None)]
            assert committed(broker, "billing", "orders", 1) == 1
            described = admin.describe_user_scram_credentials(["alice"])
            assert isinstance(described, dict)
            user = described["alice"].result(30)
            assert [each.iterations for each in user.scram_credential_infos] == [4096]
            of_the_topic = AclBindingFilter(
                ResourceType.TOPIC,
                "orders",
                ResourcePatternType.LITERAL,
                "User:alice",
                "*",
                AclOperation.ANY,
                AclPermissionType.ALLOW,
            )
            acls = admin.describe_acls(of_the_topic).result(30)
            assert sorted(acl.operation.name for acl in acls) == ["DESCRIBE", "READ"]
            broker.restart()
        assert "seed: added topics: 1, records: 3, offsets: 1, users: 1, ACLs: 2" in broker.log_text()
        assert broker.log_text().count("seed: everything existed already") == 2


def test_the_next_start_keeps_the_changes_of_clients(tmp_path: Path, seed: Path) -> None:
    seed.write_text(YAML.partition("acls:")[0])  # leaves out the ACLs, which need an authorizer
    with BrokerProcess(tmp_path / "data", words=["--seed", str(seed), "--topic", "clicks:2"]) as broker:
        assert isinstance(broker, BrokerProcess)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"mine", b"c", 1)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 1, 3)], asynchronous=False)
        consumer.close()
        seed.write_text(YAML.partition("acls:")[0].replace("partitions: 3", "partitions: 4"))
        broker.kill9()
        broker.start()
        assert [each[1] for each in records(broker, "orders", 1)] == [b'{"id":1}', b"text", b"mine"]
        assert committed(broker, "billing", "orders", 1) == 3
        assert "topics[0]: the topic orders already exists, and keeps its 3 partitions" in broker.log_text()


def test_topics_come_from_options_and_from_the_variable_of_older_images(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "data",
        words=["--topic", "orders:6:cleanup.policy=compact", "--topic=plain"],
        environment={"KAFKA_CREATE_TOPICS": "older:2:1:compact,simple:1:1"},
    )
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = admin.list_topics(timeout=30).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {
            "orders": 6,
            "plain": 1,
            "older": 2,
            "simple": 1,
        }
        assert "settings are unknown" not in broker.log_text()


@pytest.mark.parametrize(
    ("words", "document", "complaint"),
    [
        (["--topic", "a:x"], {}, "--topic a:x: the number of partitions must be a whole number of at least 1"),
        (
            [],
            {"topics": [{"name": "a", "partitions": 0}]},
            "seed.json:1: topics[0].partitions: partitions must be a number",
        ),
        ([], {"topics": [{"name": "a", "settings": {"no.such": 1}}]}, "seed.json:1: topics[0]: "),
        ([], {"topics": [{"name": "a", "replicas": 3}]}, "seed.json:1: topics[0]: "),
        (
            [],
            {"topics": [{"name": "a", "partitions": 1, "records": [{"partition": 1}]}]},
            "seed.json:1: topics[0].records[0].partition: the topic has 1 partitions",
        ),
        (
            [],
            {"groups": [{"name": "g", "offsets": {"a": {"0": 1}}}]},
            "seed.json:1: groups[0].offsets.a.0: the topic a has no partition 0",
        ),
        (
            [],
            {"acls": [{"topic": "t", "principal": "User:a", "operations": "read"}]},
            "seed.json:1: acls[0].operations: No Authorizer is configured",
        ),
    ],
)
def test_a_seed_that_cannot_be_applied_keeps_the_broker_from_starting(
    tmp_path: Path, words: Sequence[str], document: object, complaint: str
) -> None:
    file = tmp_path / "seed.json"
    file.write_text(json.dumps(document))
    broker = BrokerProcess(tmp_path / "data", words=["--seed", str(file), *words])
    with pytest.raises(RuntimeError, match="the broker ended with status"):
        broker.start()
    assert complaint in broker.log_text()


DESCRIBED = """\
schemas:
  - subject: money
    schema: {type: record, name: Money, fields: [{name: units, type: long}]}
  - subject: orders-value
    schema: {type: record, name: Order, fields: [{name: id, type: long}, {name: price, type: Money}]}
    references: [{name: Money, subject: money, version: 1}]
  - subject: clicks-value
    type: PROTOBUF
    schema: 'syntax = "proto3"; message Click { string page = 1; }'
  - subject: audit-value
    type: JSON
    schema: {type: object, properties: {who: {type: string}}}
topics:
  - name: orders
    partitions: 1
    value_schema: orders-value
    records: [{key: a, value: {id: 1, price: {units: 2}}}, {key: a, value: null}]
  - {name: clicks, partitions: 1, value_schema: clicks-value, records: [{value: {page: /}}]}
  - {name: audit, partitions: 1, value_schema: audit-value, records: [{value: {who: kate}}]}
"""


def test_records_with_schemas_are_encoded_by_the_registry_once(tmp_path: Path) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text(DESCRIBED)
    with BrokerProcess(tmp_path / "data", REGISTRY, words=["--seed", str(seed)]) as broker:
        assert isinstance(broker, BrokerProcess)
        registry = RegistryCaller(broker)
        for _ in range(2):
            values = {name: [each[1] for each in records(broker, name, 0)] for name in ("orders", "clicks", "audit")}
            assert values["orders"] == [b"\0\0\0\0\2\2\4", None]
            assert values["clicks"] == [b"\0\0\0\0\3\0\x0a\1/"]
            assert values["audit"] == [b'\0\0\0\0\4{"who":"kate"}']
            subjects = ["audit-value", "clicks-value", "money", "orders-value"]
            assert registry.ask("GET", "/subjects") == (200, subjects)
            assert registry.ask("GET", "/subjects/orders-value/versions") == (200, [1])
            broker.restart()


def test_a_record_that_does_not_fit_its_schema_stops_the_start_by_name(tmp_path: Path) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text(DESCRIBED.replace("id: 1,", "id: x,"))
    place = r"seed.yaml:17: topics\[0\].records\[0\].value: it does not fit the schema of orders-value: id must be"
    with pytest.raises(RuntimeError, match=place):
        BrokerProcess(tmp_path / "data", REGISTRY, words=["--seed", str(seed)]).start()
    with pytest.raises(RuntimeError, match=r"seed.yaml:2: schemas\[0\]: this needs the schema registry"):
        BrokerProcess(tmp_path / "other", words=["--seed", str(seed)]).start()


def test_the_demonstration_fills_each_topic_once_and_is_a_seed_file_too(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", REGISTRY) as broker:
        assert isinstance(broker, BrokerProcess)
        url = f"http://127.0.0.1:{broker.ready['schema_registry_port']}"
        at = ("-b", broker.bootstrap, "--registry", url)
        first = command("seed", "--demo", *at)
        assert first.stdout.splitlines()[1:3] == ["customers: 8 records are written", "clicks: 120 records are written"]
        assert command("seed", "--demo", *at).stdout.count("nothing is written, because the topic has records") == 4
        shown = command("consume", "-t", "clicks", "-c", "1", "-e", "--value-format", "protobuf", *at).stdout
        assert json.loads(shown)["page"].startswith("/")
    seed = tmp_path / "demo.json"
    seed.write_text(command("seed", "--demo", "--print").stdout)
    with BrokerProcess(tmp_path / "seeded", REGISTRY, words=["--seed", str(seed)]) as broker:
        assert len(records(cast(BrokerProcess, broker), "customers", 0)) == 8
