"""Tests `odradek consume` and `produce` against a running broker, with keys and values that a schema registry
describes."""

import json
import struct
import subprocess
from collections.abc import Callable, Iterator

import pytest

from odradek.client.common.values import TopicPartition
from odradek.client.sync import Consumer, Producer
from tests.clients.admin import create_topic
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.commands import command

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no registry")

SETTINGS = {"odradek.schema.registry.enable": "true", "odradek.schema.registry.port": "0"}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
CLICK = 'syntax = "proto3"; message Click { string page = 1; }'
AUDIT = json.dumps({"type": "object", "properties": {"who": {"type": "string"}}})
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        assert isinstance(running, BrokerProcess)
        yield running


@pytest.fixture
def at(broker: BrokerProcess) -> Run:
    """Returns a function that runs a command against the broker and its registry. The function fails unless the exit
    status is `status`."""

    def run(*words: str, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        url = f"http://127.0.0.1:{broker.ready['schema_registry_port']}"
        cluster = () if words[0] == "schemas" else ("-b", broker.bootstrap)
        done = command(*words, *cluster, "--registry", url, stdin=stdin)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def registered(at: Run, subject: str, schema: str, kind: str = "AVRO") -> int:
    """Registers a schema and returns its id."""
    return int(at("schemas", "register", subject, "-", "--type", kind, stdin=schema).stdout.split()[-1])


def test_bytes_of_each_type_are_printed_as_json(at: Run, broker: BrokerProcess) -> None:
    topic = create_topic(broker.bootstrap, "mixed")
    values = [
        (registered(at, "mixed-order", ORDER), b"\x02\xd0\x0f"),
        (registered(at, "mixed-click", CLICK, "PROTOBUF"), b"\x00\x0a\x01a"),
        (registered(at, "mixed-audit", AUDIT, "JSON"), b'{"who": "kate"}'),
    ]
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for schema_id, payload in values:
            producer.send(topic, struct.pack(">bI", 0, schema_id) + payload).result()
        producer.send(topic, None, key=b"plain").result()
    lines = at("consume", "-t", topic, "-e", "--value-format", "schema").stdout.splitlines()
    assert [json.loads(line) for line in lines[:3]] == [
        {"id": 1, "at": "1970-01-01T00:00:01.000Z"},
        {"page": "a"},
        {"who": "kate"},
    ]
    assert lines[3] == "NULL"
    first = at("consume", "-t", topic, "-c", "1", "--json", "--value-format", "avro").stdout
    assert json.loads(first)["payload"]["id"] == 1
    second = at("consume", "-t", topic, "-e", "--value-format", "avro", status=1).stderr
    assert f"the value of the record at offset 1 of {topic}-0 cannot be decoded" in second
    assert "is PROTOBUF, not AVRO: give --value-format protobuf" in second


def test_a_record_without_a_known_schema_ends_the_command_by_name(at: Run, broker: BrokerProcess) -> None:
    topic = create_topic(broker.bootstrap, "foreign")
    at("produce", "-t", topic, "-H", "a=b", stdin="plain text\n")
    refused = at("consume", "-t", topic, "-e", "--value-format", "schema", status=1).stderr
    assert f"offset 0 of {topic}-0 cannot be decoded: its first byte is 112, not 0" in refused
    assert "Omit --value-format" in refused
    topic = create_topic(broker.bootstrap, "lost")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, struct.pack(">bI", 0, 99_999)).result()
    assert "99999 not found" in at("consume", "-t", topic, "-e", "--value-format", "schema", status=4).stderr


def test_keys_and_values_are_encoded_by_the_subjects_of_the_topic(at: Run, broker: BrokerProcess) -> None:
    topic = create_topic(broker.bootstrap, "encoded")
    key_id = registered(at, f"{topic}-key", '"string"')
    value_id = registered(at, f"{topic}-value", ORDER)
    line = '"a"|{"id": 1, "at": "1970-01-01T00:00:01Z"}\n'
    both = ("--key-format", "schema", "--value-format", "avro")
    at("produce", "-t", topic, "-K", "|", *both, stdin=line)
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        record = next(iter(consumer))
    assert record.key == struct.pack(">bI", 0, key_id) + b"\x02a"
    assert record.value == struct.pack(">bI", 0, value_id) + b"\x02\xd0\x0f"
    shown = json.loads(at("consume", "-t", topic, "-e", "--json", *both).stdout)
    assert (shown["key"], shown["payload"]["id"]) == ("a", 1)


def test_json_keeps_its_spelling_from_produce_to_consume(at: Run, broker: BrokerProcess) -> None:
    topic = create_topic(broker.bootstrap, "spelling")
    registered(at, f"{topic}-value", AUDIT, "JSON")
    text = '{"who": "kate", "sum": 10.00, "sum": 9007199254740993.0}'
    at("produce", "-t", topic, "--value-format", "json-schema", stdin=f"{text}\n")
    consume = ("consume", "-t", topic, "-e", "--value-format", "json-schema")
    assert at(*consume).stdout == f"{text}\n"
    assert at(*consume, "--json").stdout.endswith(f', "payload": {text}}}\n')


def test_a_value_may_have_another_subject_or_an_id(at: Run, broker: BrokerProcess) -> None:
    topic = create_topic(broker.bootstrap, "chosen")
    schema_id = registered(at, "shop.Click", CLICK, "PROTOBUF")
    by_format = ("produce", "-t", topic, "--value-format", "protobuf")
    at(*by_format, "--subject", "shop.Click", stdin='{"page": "a"}\n')
    at(*by_format, "--schema-id", str(schema_id), stdin='{"page": "b"}\n')
    shown = at("consume", "-t", topic, "-e", "--value-format", "protobuf", "-f", "%s,").stdout
    assert shown == '{"page": "a"},{"page": "b"},'
    assert f"{topic}-value" in at(*by_format, stdin="{}\n", status=4).stderr
    at("produce", "-t", topic, "--schema-id", str(schema_id), stdin="{}\n", status=2)


def test_json_that_does_not_fit_is_refused_by_its_number(at: Run, broker: BrokerProcess) -> None:
    topic = create_topic(broker.bootstrap, "refused")
    registered(at, f"{topic}-value", ORDER)
    words = ("produce", "-t", topic, "--value-format", "avro")
    good = '{"id": 1, "at": 0}\n'
    unfit = at(*words, stdin=good + '{"id": 1}\n', status=1).stderr
    assert "record 2: the value does not fit the schema" in unfit
    assert "the field at is missing" in unfit
    assert "record 1: the value is not JSON" in at(*words, stdin="x\n", status=1).stderr
