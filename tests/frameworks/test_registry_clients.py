"""Tests that clients and serializers for Confluent's registry work unmodified with this broker's schema registry.

Each program registers a schema that refers to another one, and then a second version. The registry refuses a third
version because it cannot read data of the second. Then the program writes and reads a record with its serializers. The
program does all of this for each of Avro, JSON Schema and Protobuf that its client supports.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.client_lab.installing import InstalledClient, install
from tests.clients.admin import new_admin
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.commands import command

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no registry")

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_S = 120.0
SETTINGS = {
    "odradek.schema.registry.enable": "true",
    "odradek.schema.registry.port": "0",
    "group.initial.rebalance.delay.ms": "0",
}
ORDER = {"id": 7, "price": {"currency": "EUR", "units": 12}, "note": "gift"}


def avro(id_type: str, *more: dict[str, object]) -> str:
    fields = [{"name": "id", "type": id_type}, {"name": "price", "type": "shop.Money"}, *more]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


def json_schema(id_type: str, **more: object) -> str:
    properties = {"id": {"type": id_type}, "price": {"$ref": "money.json"}, **more}
    return json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Order",
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
        }
    )


def protobuf(id_type: str, more: str = "") -> str:
    return (
        'syntax = "proto3";\npackage shop;\n\nimport "shop/money.proto";\n\n'
        f"message Order {{\n  {id_type} id = 1;\n  .shop.Money price = 2;\n{more}}}\n"
    )


MONEY_FIELDS = [{"name": "currency", "type": "string"}, {"name": "units", "type": "long"}]
MONEY_PROPERTIES = {"currency": {"type": "string"}, "units": {"type": "integer"}}
SCHEMAS = {
    "AVRO": {
        "name": "shop.Money",
        "money": json.dumps({"type": "record", "name": "Money", "namespace": "shop", "fields": MONEY_FIELDS}),
        "first": avro("long"),
        "second": avro("long", {"name": "note", "type": "string", "default": ""}),
        "refused": avro("string"),
    },
    "JSON": {
        "name": "money.json",
        "money": json.dumps({"$id": "money.json", "type": "object", "properties": MONEY_PROPERTIES}),
        "first": json_schema("integer"),
        "second": json_schema("integer", note={"type": "string"}),
        "refused": json_schema("string", note={"type": "string"}),
    },
    "PROTOBUF": {
        "name": "shop/money.proto",
        "money": (
            'syntax = "proto3";\npackage shop;\n\nmessage Money {\n  string currency = 1;\n  int64 units = 2;\n}\n'
        ),
        "first": protobuf("int64"),
        "second": protobuf("int64", "  string note = 3;\n"),
        "refused": protobuf("string"),
    },
}


@dataclass(frozen=True, slots=True)
class RegistryClient:
    """A release of a client in its package registry, and the tool needed to run its program.

    kinds  the types of schemas that the client supports
    """

    package: str
    version: str
    program: str
    needs: tuple[str, ...] = ()
    tool: str = "python3"
    kinds: tuple[str, ...] = ("AVRO", "JSON", "PROTOBUF")

    def __str__(self) -> str:
        return self.package

    def installed(self) -> InstalledClient:
        if shutil.which(self.tool) is None:
            pytest.skip(f"{self.package} needs {self.tool}")
        return install(self.package, self.version, PROGRAMS / self.program, self.needs)


FLINK = (
    "org.apache.flink:flink-core:1.20.0",
    "org.apache.kafka:kafka-clients:4.1.0",
    "org.slf4j:slf4j-nop:1.7.36",
)
GO_CODECS = (
    "github.com/twmb/franz-go@v1.22.3",
    "github.com/hamba/avro/v2@v2.31.0",
    "google.golang.org/protobuf@v1.36.11",
)
CLIENTS = (
    RegistryClient("confluent-kafka[schemaregistry,avro,json,protobuf]", "2.16.1", "confluent_registry.py"),
    RegistryClient("@confluentinc/schemaregistry", "1.10.1", "confluent_registry.js", ("kafkajs@2.2.4",), "node"),
    RegistryClient("@kafkajs/confluent-schema-registry", "3.9.0", "kafkajs_registry.js", ("kafkajs@2.2.4",), "node"),
    RegistryClient("github.com/twmb/franz-go/pkg/sr", "1.8.0", "franz_registry.go", GO_CODECS, "go"),
    # This jar contains Confluent's registry client 7.5.3 under other names, and Flink's serializers for Avro.
    RegistryClient(
        "org.apache.flink:flink-sql-avro-confluent-registry", "1.20.0", "FlinkRegistry.java", FLINK, "mvn", ("AVRO",)
    ),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        assert isinstance(running, BrokerProcess)
        yield running


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_the_serializers_of_a_client_register_evolve_and_are_understood(
    broker: BrokerProcess, client: RegistryClient
) -> None:
    installed = client.installed()
    prefix = client.program.replace(".", "-")
    admin = new_admin(broker.bootstrap)
    topics = [NewTopic(f"{prefix}-{kind.lower()}", 1) for kind in client.kinds]
    for each in admin.create_topics(topics).values():
        each.result()
    url = f"http://127.0.0.1:{broker.ready['schema_registry_port']}"
    words = [*installed.command, broker.bootstrap, url, prefix, json.dumps(SCHEMAS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    rows = {row["type"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert tuple(rows) == client.kinds
    for kind, row in rows.items():
        assert (row["refused"], row["read"]) == (409, ORDER), kind
        assert len(set(row["ids"])) == 2, kind
        if (client.package, kind) not in WITHOUT_MESSAGE_INDEXES:
            assert decoded(broker, f"{prefix}-{kind.lower()}", url) == as_shown(kind), kind


def as_shown(kind: str) -> object:
    """Returns the JSON that `odradek consume` should print for ORDER. Protobuf's JSON mapping represents 64-bit
    integers as strings."""
    if kind != "PROTOBUF":
        return ORDER
    return {"id": "7", "price": {"currency": "EUR", "units": "12"}, "note": "gift"}


# This client omits the message indexes of the wire format, so no other client can read its values.
WITHOUT_MESSAGE_INDEXES = {("@kafkajs/confluent-schema-registry", "PROTOBUF")}


def decoded(broker: BrokerProcess, topic: str, url: str) -> object:
    """Decodes the topic's only record with `odradek consume`."""
    words = ("consume", "-b", broker.bootstrap, "-t", topic, "-e", "--registry", url, "--value-format", "schema")
    done = command(*words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
