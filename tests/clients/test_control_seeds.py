"""Tests that the field `seed` of `POST /clusters` determines the contents of the new cluster, and that the error for an
invalid seed names the invalid field (docs/seed.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from odradek.testing.sync import Cluster, Odradek, Refused
from tests.clients.admin import list_topics
from tests.support.blocking_testing import blocking
from tests.support.broker_process import IS_KAFKA
from tests.support.ports import free_port

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no seeds")

YAML = """\
topics:
  - name: orders
    partitions: 3
    settings: {cleanup.policy: compact}
    records:
      - {key: a, value: {id: 1}, timestamp: 2026-01-01T00:00:00Z, headers: {trace: [x, y]}, partition: 1}
      - {key: b, value: text, partition: 1}
groups:
  - name: billing
    offsets: {orders: {1: 1}}
users:
  - {name: alice, password: secret}
"""
TOPICS_OF_OBJECT = [
    {
        "name": "orders",
        "partitions": 3,
        "settings": {"cleanup.policy": "compact"},
        "records": [
            {
                "key": "a",
                "value": {"id": 1},
                "timestamp": "2026-01-01T00:00:00Z",
                "headers": {"trace": ["x", "y"]},
                "partition": 1,
            },
            {"key": "b", "value": "text", "partition": 1},
        ],
    }
]
OBJECT = {
    "topics": TOPICS_OF_OBJECT,
    "groups": [{"name": "billing", "offsets": {"orders": {"1": 1}}}],
    "users": [{"name": "alice", "password": "secret"}],
}
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
TOPICS: dict[str, Any] = {"topics": [{"name": "orders", "partitions": 1}]}


@pytest.fixture(scope="module", params=["sync", "asyncio"])
def odradek(request: pytest.FixtureRequest) -> Iterator[Odradek]:
    with Odradek.start() if request.param == "sync" else blocking() as started:
        yield started


def records(kafka: Cluster, topic: str, partition: int) -> list[tuple[bytes | None, bytes | None, int, object]]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reader"})
    try:
        at = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(at, timeout=30)
        consumer.assign([at])
        found = consumer.consume(end, timeout=30)
        return [(each.key(), each.value(), each.timestamp()[1], each.headers()) for each in found]
    finally:
        consumer.close()


def committed(kafka: Cluster, group: str, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=30)
        assert isinstance(found.offset, int)
        return found.offset
    finally:
        consumer.close()


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("form", ["object", "yaml", "json", "path"])
def test_a_cluster_begins_with_everything_in_its_seed(odradek: Odradek, tmp_path: Path, form: str, nodes: int) -> None:
    file = tmp_path / "seed.yaml"
    file.write_text(YAML)
    seed: Any = {"object": OBJECT, "yaml": YAML, "json": json.dumps(OBJECT, indent=1), "path": file}[form]
    with odradek.cluster(seed=seed, nodes=nodes) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        partitions = list_topics(admin, "orders").topics["orders"].partitions
        assert len({each.leader for each in partitions.values()}) == nodes
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
        assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == "compact"
        first, second = records(kafka, "orders", 1)
        assert first == (b"a", b'{"id":1}', 1_767_225_600_000, [("trace", b"x"), ("trace", b"y")])
        assert second[:2] == (b"b", b"text")
        assert committed(kafka, "billing", "orders", 1) == 1
        described = admin.describe_user_scram_credentials(["alice"])
        assert isinstance(described, dict)
        assert [each.iterations for each in described["alice"].result(30).scram_credential_infos] == [4096]


def test_users_of_a_seed_log_in_and_its_acls_apply(odradek: Odradek) -> None:
    seed = {
        **TOPICS,
        "users": [{"name": "alice", "password": "secret"}],
        "acls": [{"topic": "orders", "principal": "User:alice", "operations": ["DESCRIBE"]}],
    }
    listeners = [{"protocol": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-512"]}]
    with odradek.cluster(seed=seed, settings=AUTHORIZER, listeners=listeners) as kafka:
        login: dict[str, str | int | float | bool] = {
            "bootstrap.servers": kafka.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        assert set(list_topics(AdminClient(login)).topics) == {"orders"}


def test_a_fork_creates_only_the_objects_of_the_seed_that_its_source_lacks(odradek: Odradek) -> None:
    with odradek.cluster(seed=OBJECT) as source:
        more = {"topics": [*TOPICS_OF_OBJECT, {"name": "clicks", "partitions": 1, "records": [{"value": "v"}]}]}
        with odradek.cluster(fork=source, seed=more) as fork:
            assert len(records(fork, "orders", 1)) == 2
            assert [each[1] for each in records(fork, "clicks", 0)] == [b"v"]
        assert "clicks" not in list_topics(AdminClient({"bootstrap.servers": source.bootstrap})).topics


def test_a_seed_is_applied_once_and_not_again_by_a_restart(odradek: Odradek) -> None:
    with odradek.cluster(seed=TOPICS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics(["orders"])["orders"].result(30)
        kafka.restart()
        assert list_topics(AdminClient({"bootstrap.servers": kafka.bootstrap})).topics == {}


@pytest.mark.parametrize(
    ("seed", "field", "detail"),
    [
        (7, "seed", "seed: seed must be an object with the fields schemas, topics, groups, users, acls"),
        ({"topic": []}, "seed.topic", "seed.topic: there is no such field"),
        (
            {"topics": [{"name": "a", "partitions": 0}]},
            "seed.topics[0].partitions",
            "seed.topics[0].partitions: partitions must be a number from 1 to",
        ),
        (
            "topics:\n- name: a\n  partitions: x\n",
            "seed.topics[0].partitions",
            "line 3: seed.topics[0].partitions: partitions must be a number",
        ),
        (
            '{"topics": [\n {"name": 7}]}',
            "seed.topics[0].name",
            "line 2: seed.topics[0].name: name must be a string",
        ),
        ("topics: [\n", "seed", "line 2: seed: this is not YAML"),
        ('{"topics": [\n,', "seed", "line 2: seed: this is not JSON"),
        ("", "seed", "line 1: seed: the document is empty"),
        # --- Seeds that only the broker can refuse.
        ({"topics": [{"name": "not/a name"}]}, "seed.topics[0]", "seed.topics[0]: Topic name is invalid"),
        ("topics:\n- {name: a, settings: {no.such: 1}}\n", "seed.topics[0]", "line 2: seed.topics[0]: "),
        (
            {"topics": [{"name": "a", "partitions": 2_147_483_647}]},
            "seed.topics[0]",
            "Excessively large number of partitions",
        ),
        (
            {"topics": [{"name": "a", "partitions": 1, "records": [{}, {"partition": 1}]}]},
            "seed.topics[0].records[1].partition",
            "the topic has 1 partitions, which are numbered from 0",
        ),
        (
            {
                "topics": [
                    {
                        "name": "a",
                        "partitions": 1,
                        "settings": {"max.message.bytes": 100},
                        "records": [{"value": "v" * 200}],
                    }
                ]
            },
            "seed.topics[0].records",
            "seed.topics[0].records: the batch with all records of partition 0 was refused: ",
        ),
        (
            {"groups": [{"name": "g", "offsets": {"a": {"0": 1}}}]},
            "seed.groups[0].offsets.a.0",
            "the topic a has no partition 0",
        ),
        (
            {"acls": [{"topic": "t", "principal": "User:a", "operations": "read"}]},
            "seed.acls[0].operations",
            "No Authorizer is configured",
        ),
        (
            {"schemas": [{"subject": "s", "schema": {"type": "long"}}]},
            "seed.schemas[0]",
            "seed.schemas[0]: this needs the schema registry",
        ),
    ],
)
def test_a_refused_seed_names_its_field_and_leaves_no_cluster_behind(
    odradek: Odradek, seed: object, field: str, detail: str
) -> None:
    before = odradek.call("GET", "/clusters")[1]
    with pytest.raises(Refused) as refused:
        odradek.call("POST", "/clusters", {"seed": seed})
    assert refused.value.status == 400
    assert refused.value.problem["field"] == field
    assert detail in refused.value.problem["detail"]
    assert odradek.call("GET", "/clusters")[1] == before


@pytest.mark.parametrize("form", [dict, json.dumps])
def test_a_seed_may_have_very_many_records(odradek: Odradek, form: Any) -> None:
    count = 20_000
    topic = {"name": "many", "partitions": 4, "records": [{"key": str(number)} for number in range(count)]}
    with odradek.cluster(seed=form({"topics": [topic]})) as kafka:
        assert sum(each["log_end_offset"] for each in kafka.partitions() if each["topic"] == "many") == count


def test_a_topic_is_in_the_seed_or_in_topics_but_not_in_both(odradek: Odradek) -> None:
    with pytest.raises(
        Refused, match=r"seed\.topics\[0\]: the topic orders is also in the field topics: leave it out of one of them"
    ):
        odradek.cluster(seed=TOPICS, topics={"orders": 1})


def test_a_preset_finds_the_topics_of_the_seed(odradek: Odradek) -> None:
    with odradek.cluster(seed=TOPICS, preset=("open-transaction", {"topic": "orders"})) as kafka:
        (partition,) = [each for each in kafka.partitions() if each["topic"] == "orders"]
        assert partition["last_stable_offset"] < partition["log_end_offset"]


def ids_of_versions(kafka: Cluster) -> list[int]:
    """Returns the schema ids of all versions of `orders-value` in a cluster's registry."""
    url = urlsplit(kafka.call("GET", "")[1]["schema_registry"])
    assert url.hostname is not None
    connection = HTTPConnection(url.hostname, url.port, timeout=30)
    connection.request("GET", "/subjects/orders-value/versions")
    versions = json.loads(connection.getresponse().read())
    found = []
    for version in versions:
        connection.request("GET", f"/subjects/orders-value/versions/{version}")
        found.append(json.loads(connection.getresponse().read())["id"])
    connection.close()
    return found


def test_schemas_of_a_seed_are_registered_and_encode_its_records_where_the_cluster_has_a_registry(
    odradek: Odradek,
) -> None:
    settings = {"odradek.schema.registry.enable": True}
    order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    seed: dict[str, Any] = {
        "schemas": [{"subject": "orders-value", "schema": order}],
        "topics": [
            {"name": "orders", "partitions": 1, "value_schema": "orders-value", "records": [{"value": {"id": 5}}]}
        ],
    }
    with odradek.cluster(seed=seed, settings=settings) as kafka:
        assert [each[1] for each in records(kafka, "orders", 0)] == [b"\0\0\0\0\1\x0a"]
        assert ids_of_versions(kafka) == [1]
    seed["topics"][0]["records"] = [{"value": {"id": "x"}}]
    with pytest.raises(
        Refused, match=r"seed\.topics\[0\]\.records\[0\]\.value: it does not fit the schema of orders-value"
    ):
        odradek.cluster(seed=seed, settings=settings)


def test_a_schema_registry_on_a_free_port_is_reported_and_keeps_its_port_when_the_cluster_restarts(
    odradek: Odradek,
) -> None:
    seed = {"schemas": [{"subject": "orders-value", "schema": {"type": "long"}}]}
    settings = {"odradek.schema.registry.enable": True, "odradek.schema.registry.port": 0}
    with odradek.cluster(seed=seed, settings=settings) as kafka:
        url = kafka.schema_registry
        assert url == kafka.call("GET", "")[1]["schema_registry"] != "http://localhost:0"
        kafka.crash()
        assert kafka.call("GET", "")[1]["schema_registry"] is None
        kafka.restart()
        assert kafka.call("GET", "")[1]["schema_registry"] == url
        assert ids_of_versions(kafka) == [1]


def test_the_schema_registry_of_a_fork_has_the_same_schemas_on_another_port(odradek: Odradek) -> None:
    seed = {"schemas": [{"subject": "orders-value", "schema": {"type": "long"}}]}
    settings = {"odradek.schema.registry.enable": True, "odradek.schema.registry.port": free_port()}
    with (
        odradek.cluster(seed=seed, settings=settings) as kafka,
        odradek.cluster(fork=kafka) as fork,
        odradek.cluster() as other,
    ):
        assert fork.schema_registry != kafka.schema_registry
        assert ids_of_versions(fork) == [1]
        assert other.schema_registry is None
