"""Tests that keys and values are decoded with the schema registry, in the page's list of records and in an opened
record."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from odradek.broker.http.page.record_decoding import MAX_CANDIDATES
from odradek.client.sync import Producer
from tests.clients.admin import create_topic
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.registry_caller import SETTINGS, RegistryCaller

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no page and no registry")

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        ],
    }
)
ORDER_BYTES, ORDER_JSON = (
    bytes.fromhex("82 80 80 80 80 80 80 20 04 04 d2"),
    '{"id": 9007199254740993, "total": "12.34"}',
)
CLICK = 'syntax = "proto3"; message Click { string page = 1; int64 at = 2; }'
CLICK_BYTES, CLICK_JSON = b"\x00\x0a\x01a\x10\x03", '{"page": "a", "at": "3"}'
AUDIT = json.dumps({"type": "object"})
AUDIT_BYTES, AUDIT_JSON = b'{"who":\n"kate", "price": 10.00}', '{"who": "kate", "price": 10.00}'
NULLS = json.dumps({"type": "array", "items": "null"})
TEN_THOUSAND_NULLS = bytes.fromhex("a0 9c 01 00")
MILLION_NULLS = bytes.fromhex("80 89 7a 00")


def written(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + payload


class Viewer:
    """A client that requests the page's views and registers schemas."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self._registry = RegistryCaller(broker)

    def register(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        body = {"schema": schema, "schemaType": kind}
        status, answer = self._registry.ask("POST", f"/subjects/{subject}/versions", body)
        assert status == 200, answer
        return int(answer["id"])

    def write(self, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
        create_topic(self.broker.bootstrap, topic)
        with Producer(bootstrap_servers=self.broker.bootstrap) as producer:
            for value in values:
                producer.send(topic, value, key=key).result()

    def url(self, path: str, /, **query: object) -> str:
        return f"http://localhost:{self.broker.ready['http_port']}{path}?{urlencode(query)}"

    def get(self, path: str, /, **query: object) -> tuple[int, str]:
        try:
            with urlopen(self.url(path, **query), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def stored(self, topic: str) -> bytes:
        """Returns the bytes of the value at offset 0 of partition 0, as the page offers them for download."""
        with urlopen(self.url("/download", topic=topic, partition=0, offset=0), timeout=60) as answer:
            return bytes(answer.read())

    def records(self, topic: str) -> list[Mapping[str, Any]]:
        status, text = self.get("/api/records", topic=topic, order="oldest")
        assert status == 200, text
        found: list[Mapping[str, Any]] = json.loads(text)["records"]
        return found

    def search(self, topic: str, **query: object) -> list[int]:
        """Returns the offsets of all records that a search finds, in order of arrival."""
        at = ""
        offsets: list[int] = []
        while True:
            status, text = self.get("/api/records", topic=topic, at=at, **query)
            assert status == 200, text
            answer = json.loads(text)
            offsets += [each["offset"] for each in answer["records"]]
            if answer["is_done"]:
                return offsets
            assert answer["next"] != at, "the search stands still"
            at = answer["next"]

    def opened(self, topic: str, offset: int = 0, path: str = "/api/record", **query: object) -> tuple[int, str]:
        return self.get(path, topic=topic, partition=0, offset=offset, decoded="true", **query)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        assert isinstance(running, BrokerProcess)
        yield running


@pytest.fixture
def viewer(broker: BrokerProcess) -> Viewer:
    return Viewer(broker)


@pytest.mark.parametrize(
    ("kind", "schema", "payload", "shown"),
    [
        ("AVRO", ORDER, ORDER_BYTES, ORDER_JSON),
        ("PROTOBUF", CLICK, CLICK_BYTES, CLICK_JSON),
        ("JSON", AUDIT, AUDIT_BYTES, AUDIT_JSON),
    ],
)
def test_a_value_is_decoded_by_the_schema_that_its_bytes_name(
    viewer: Viewer, kind: str, schema: str, payload: bytes, shown: str
) -> None:
    topic = f"of-{kind.lower()}"
    schema_id = viewer.register(f"{topic}-value", schema, kind)
    viewer.write(topic, written(schema_id, payload))
    (record,) = viewer.records(topic)
    names = {"id": schema_id, "type": kind, "subject": f"{topic}-value", "version": 1}
    assert record["value_schema"] == {**names, "text": shown}
    assert "key_schema" not in record
    status, text = viewer.opened(topic)
    assert (status, json.loads(text)["text"]) == (200, shown)
    assert viewer.opened(topic, path="/download") == (200, shown)
    assert viewer.stored(topic) == written(schema_id, payload)


def test_keys_are_decoded_by_themselves(viewer: Viewer) -> None:
    key_id = viewer.register("keyed-key", '"long"')
    viewer.write("keyed", b"plain", None, key=written(key_id, b"\x06"))
    plain, tombstone = viewer.records("keyed")
    assert plain["key_schema"]["text"] == "3"
    assert plain["key_schema"]["subject"] == "keyed-key"
    assert plain["value"] == {"text": "plain"}
    assert "value_schema" not in plain
    assert tombstone["key_schema"]["text"] == "3"
    assert tombstone["value"] is None
    assert json.loads(viewer.opened("keyed", of="key")[1])["text"] == "3"


def test_a_schema_of_another_subject_is_named_by_that_subject(viewer: Viewer) -> None:
    schema_id = viewer.register("shop.Click", CLICK.replace("Click", "Elsewhere"), "PROTOBUF")
    viewer.write("clicks", written(schema_id, CLICK_BYTES))
    assert viewer.records("clicks")[0]["value_schema"]["subject"] == "shop.Click"


def test_bytes_that_cannot_be_decoded_say_why_and_are_shown_as_before(viewer: Viewer) -> None:
    schema_id = viewer.register("broken-value", ORDER)
    values = [written(99_999, b"x"), written(schema_id, b"\x02"), written(schema_id, ORDER_BYTES), b"\0\0\0"]
    viewer.write("broken", *values)
    unknown, cut, whole, short = viewer.records("broken")
    assert unknown["value_schema"] == {"id": 99_999, "error": "Schema 99999 not found", "is_large": False}
    assert bytes.fromhex(unknown["value"]["hex"]) == written(99_999, b"x")
    assert "its bytes are not a value of the schema" in cut["value_schema"]["error"]
    assert cut["value_schema"]["subject"] == "broken-value"
    assert whole["value_schema"]["text"] == ORDER_JSON
    assert "value_schema" not in short
    status, text = viewer.opened("broken", 0)
    assert status == 404
    assert "Schema 99999 not found" in json.loads(text)["error"]
    assert "do not name a schema" in json.loads(viewer.opened("broken", 3)[1])["error"]


def test_a_value_too_large_for_the_list_is_decoded_alone(viewer: Viewer) -> None:
    schema_id = viewer.register("nulls-value", NULLS)
    viewer.write("nulls", written(schema_id, TEN_THOUSAND_NULLS), written(schema_id, MILLION_NULLS))
    large, too_large = viewer.records("nulls")
    assert large["value_schema"]["is_large"] is True
    assert large["value_schema"]["error"] == "it contains more values than this registry decodes"
    assert too_large["value_schema"]["is_large"] is True
    assert json.loads(viewer.opened("nulls", 0, path="/download")[1]) == [None] * 10_000
    assert "more values than this registry decodes" in json.loads(viewer.opened("nulls", 1)[1])["error"]


def test_a_long_json_is_truncated_in_the_list_and_comes_in_pieces(viewer: Viewer) -> None:
    schema_id = viewer.register("long-value", AUDIT.replace("object", "string"), "JSON")
    json_text = json.dumps("a" * 300_000)
    viewer.write("long", written(schema_id, json_text[:1000].encode() + b'"'), written(schema_id, json_text.encode()))
    short, long = viewer.records("long")
    assert short["value_schema"]["text"] == json_text[:512]
    assert short["value_schema"]["size"] == 1001
    assert long["value_schema"]["is_large"] is True
    first = json.loads(viewer.opened("long", 1)[1])
    second = json.loads(viewer.opened("long", 1, **{"from": first["next"]})[1])
    assert first["text"] + second["text"] == json_text
    assert second["next"] is None


def test_without_a_registry_nothing_of_it_is_imported_and_bytes_are_shown_as_they_are(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as plain:
        assert isinstance(plain, BrokerProcess)
        viewer = Viewer(plain)
        viewer.write("plain", written(1, ORDER_BYTES))
        (record,) = viewer.records("plain")
        assert "value_schema" not in record
        assert "set odradek.schema.registry.enable=true" in viewer.opened("plain")[1]
    program = (
        "import sys\n"
        "import odradek.broker.http.pages\n"
        "print([name for name in sys.modules if name.startswith(('odradek.registry', 'odradek.broker.registry'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def searched(broker: BrokerProcess) -> str:
    """Creates a topic with a record that has an Avro schema, one with a JSON Schema, and one without a schema. Returns
    the topic's name."""
    viewer = Viewer(broker)
    key = written(viewer.register("searched-key", '"long"'), b"\x06")
    order = viewer.register("searched-order", ORDER)
    audit = viewer.register("searched-audit", AUDIT, "JSON")
    viewer.write("searched", written(order, ORDER_BYTES), written(audit, AUDIT_BYTES), b"plain", key=key)
    return "searched"


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ({"find": "9007199254740993"}, [0]),
        ({"find": "12.34"}, [0]),
        ({"find": "kate"}, [1]),
        ({"find": '"price": 10.00'}, [1]),
        ({"find": "plain"}, [2]),
        ({"find": "3"}, [0, 1, 2]),  # All records have the key 3, and the first value contains a 3.
        ({"find": "3", "in": "key"}, [0, 1, 2]),
        ({"find": "3", "in": "value"}, [0]),
        ({"find": "3", "in": "headers"}, []),
        ({"path": "$.id == 9007199254740993"}, [0]),
        ({"path": "$.price == 10.0"}, []),
        ({"path": "$.price == 10.00", "find": "kate"}, [1]),
        ({"path": "$.price == 10.00", "find": "12.34"}, []),
        ({"find": "12.34", "until": 0}, []),
        ({"find": "12.34", "state": "committed"}, []),
    ],
)
def test_a_search_finds_text_in_values_that_the_schema_registry_decodes(
    viewer: Viewer, searched: str, query: Mapping[str, object], offsets: list[int]
) -> None:
    assert viewer.search(searched, **query, order="oldest") == offsets
    assert viewer.search(searched, **query, order="newest") == offsets[::-1]


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_a_search_in_decoded_values_continues_until_all_records_are_decoded(viewer: Viewer, order: str) -> None:
    topic = f"long-search-{order}"
    schema_id = viewer.register(topic, '"long"')
    values = [written(schema_id, bytes([2 * (number % 60)])) for number in range(MAX_CANDIDATES * 2 + 100)]
    viewer.write(topic, *values)
    in_order = [number for number in range(len(values)) if "5" in str(number % 60)]
    found = viewer.search(topic, find="5", order=order)
    assert found == (in_order if order == "oldest" else in_order[::-1])


def test_a_search_decodes_values_of_many_partitions_once_and_in_order(viewer: Viewer) -> None:
    schema_id = viewer.register("partitioned-value", '"long"')
    topic = create_topic(viewer.broker.bootstrap, "partitioned", partitions=3)
    with Producer(bootstrap_servers=viewer.broker.bootstrap) as producer:
        for number in range(600):
            value = written(schema_id, bytes([2 * (number % 60)]))
            producer.send(topic, value, partition=number % 3, timestamp_ms=1_000 + number).result()
    found = viewer.search(topic, find="5", order="newest")
    assert len(found) == 10 * 15
    assert found == sorted(found, reverse=True)


def test_a_value_that_is_too_large_to_decode_is_searched_as_it_is_stored(viewer: Viewer) -> None:
    schema_id = viewer.register("large-search-value", NULLS)
    viewer.write("large-search", *[written(schema_id, MILLION_NULLS)] * 100)
    assert viewer.search("large-search", find="null", order="oldest") == []
