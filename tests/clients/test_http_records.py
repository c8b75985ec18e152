"""Tests that clients can write and read records over HTTP, as docs/http-records.md describes. The tests run the page's
commands and check its statements about rights, sizes and disconnected clients."""

import base64
import json
import re
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from odradek.broker.http.records.reading import FORMATS, MAX_READERS
from odradek.tools.commands.schema_options import TYPES
from tests.support.broker_process import BrokerProcess

GUIDE = Path(__file__).resolve().parents[2] / "docs/http-records.md"
COMMANDS = [found.replace("\\\n", " ") for found in re.findall(r"^    (curl (?:.*\\\n)*.*)$", GUIDE.read_text(), re.M)]
EVENTS, LINES = {"Accept": "text/event-stream"}, {"Accept": "application/x-ndjson"}
SCHEMA = {"schema": json.dumps({"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]})}


class Http:
    """The HTTP port of a broker."""

    def __init__(self, broker: BrokerProcess, port: int | None = None) -> None:
        self.port = port or broker.ready["http_port"]

    def call(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://localhost:{self.port}{path}", data, headers or {})
        if body is not None and "Content-type" not in request.headers:
            request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
                is_json = answer.headers["Content-Type"].endswith(("/json", "/json; charset=utf-8", "+json"))
                return answer.status, json.loads(text) if is_json else text
        except HTTPError as error:
            return error.code, json.loads(error.read())

    def write(self, topic: str, body: object) -> tuple[int, Any]:
        return self.call(f"/api/topics/{topic}/records", body)

    def read(self, topic: str, query: str = "", headers: dict[str, str] | None = None) -> tuple[int, Any]:
        return self.call(f"/api/topics/{topic}/records?{query}", headers=headers)

    def values(self, topic: str, query: str = "") -> list[str]:
        status, answer = self.read(topic, query)
        assert status == 200, answer
        return [each["value"] for each in answer["records"]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "odradek.http.actions": "true",
        "odradek.schema.registry.enable": "true",
        "odradek.schema.registry.port": "0",
    }
    with BrokerProcess(tmp_path_factory.mktemp("http") / "data", settings) as broker:
        assert isinstance(broker, BrokerProcess)
        yield broker


@pytest.fixture
def http(broker: BrokerProcess) -> Http:
    return Http(broker)


def test_the_commands_of_the_guide_run(http: Http) -> None:
    assert len(COMMANDS) == 7
    for command in COMMANDS:
        done = subprocess.run(
            ["bash", "-c", command.replace("curl", "curl -sS --fail-with-body", 1).replace("9644", str(http.port))],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        is_endless = "event-stream" in command  # curl exits after the time given by its -m option.
        assert done.returncode == (28 if is_endless else 0), done.stdout + done.stderr
    values = http.values("orders")
    assert values == ['{"total":12}', "plain text", None]


def test_records_have_the_partition_of_their_key_their_headers_and_their_timestamp(http: Http) -> None:
    record = {"key": "k", "value": "v", "headers": [["a", "1"], ["a", None]], "timestamp": 1000, "partition": 0}
    assert http.write("whole", record) == (200, {"records": [{"partition": 0, "offset": 0}]})
    status, answer = http.read("whole")
    assert status == 200
    assert answer == {"records": [{**record, "offset": 0}], "next": "0:1", "is_at_end": True}
    http.write("whole", {"value": "now"})
    assert http.values("whole", f"timestamp={int(time.time() * 1000) - 60_000}") == ["now"]


def test_one_partition_can_fail_alone(http: Http) -> None:
    status, answer = http.write("partly", {"records": [{"value": "a"}, {"value": "b", "partition": 7}]})
    assert (status, answer["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert answer["records"][0] == {"partition": 0, "offset": 0}
    assert answer["records"][1]["error"] == "There is no such topic or partition."
    assert http.values("partly") == ["a"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"value": "x", "transactional_id": "t"}, "Transactions are not supported over HTTP"),
        ({"value": "x", "acks": 2}, "Acks must be all, 1 or 0"),
        ({"records": []}, "Records must be a list of 1 to 1000"),
        ({"records": [{}], "value": "x"}, "Value cannot be given together with records"),
        ({"records": [{"value": "x"}, {"valeu": 1}]}, "Records[1].valeu is not a field"),
        ([], "The body must be a JSON object"),
        ({"value": 1, "value_subject": ""}, "must be the names of subjects"),
        ({"value_base64": "eA==", "value_subject": "s"}, "cannot be encoded with the schema of a subject"),
        ({"value": 1, "value_subject": "missing"}, "Subject 'missing' not found."),
    ],
)
def test_an_invalid_record_is_refused_and_its_field_is_named(http: Http, body: object, words: str) -> None:
    status, answer = http.write("refused", body)
    assert status == 400
    assert words in answer["error"]


def test_a_value_is_encoded_by_the_latest_schema_of_a_subject(broker: BrokerProcess, http: Http) -> None:
    registry = Http(broker, broker.ready["schema_registry_port"])
    _, registered = registry.call("/subjects/sums-value/versions", SCHEMA)
    assert http.write("sums", {"value": {"total": 3}, "value_subject": "sums-value"})[0] == 200
    status, answer = http.write("sums", {"value": {"sum": 3}, "value_subject": "sums-value"})
    assert (status, "does not fit sums-value" in answer["error"]) == (400, True)
    assert http.values("sums") == [(b"\0" + registered["id"].to_bytes(4, "big") + b"\x06").decode()]


def test_values_are_decoded_by_the_schema_registry(broker: BrokerProcess, http: Http) -> None:
    assert FORMATS == TYPES  # The formats are those of `odradek consume`.
    registry = Http(broker, broker.ready["schema_registry_port"])
    status, schema = registry.call("/subjects/decoded-value/versions", SCHEMA)
    assert status == 200
    http.write("decoded", {"value": {"total": 7}, "value_subject": "decoded-value", "key": "plain"})
    http.write("decoded", {"records": [{"value": "plain"}, {"value": None}]})
    status, answer = http.read("decoded", "value_format=avro")
    assert status == 200, answer
    decoded, plain, tombstone = answer["records"]
    assert decoded["value"] == {"total": 7}
    names = {"id": schema["id"], "type": "AVRO", "subject": "decoded-value", "version": 1}
    assert decoded["value_schema"] == names
    assert decoded["key"] == "plain"
    assert plain["value"] == "plain"
    assert plain["value_error"] == "its bytes do not begin with a zero byte and the id of a schema"
    assert (tombstone["value"], "value_error" in tombstone) == (None, False)
    other = http.read("decoded", "value_format=protobuf&max=1")[1]["records"][0]
    assert other["value_error"] == f"the schema {schema['id']} is AVRO, not PROTOBUF: use value_format=avro"
    assert other["value"].endswith("\u000e")
    keys = http.read("decoded", "key_format=schema&max=1")[1]["records"][0]
    assert keys["key_error"].startswith("its bytes do not begin")
    assert "value_schema" not in keys


def test_decoded_values_keep_their_numbers_on_one_line_in_each_media_type(broker: BrokerProcess, http: Http) -> None:
    registry = Http(broker, broker.ready["schema_registry_port"])
    body = {"schema": "{}", "schemaType": "JSON"}
    schema_id = registry.call("/subjects/written-value/versions", body)[1]["id"]
    value = struct.pack(">bI", 0, schema_id) + b'{"price":\n10.00}'
    http.write("written", {"value_base64": base64.b64encode(value).decode()})
    text = '"value": {"price": 10.00}'
    url = f"http://localhost:{http.port}/api/topics/written/records?value_format=json-schema"
    with urlopen(url, timeout=60) as answer:
        assert text in answer.read().decode()
    lines = http.read("written", "value_format=json-schema", LINES)[1]
    assert [text in line for line in lines.splitlines()] == [True]
    with urlopen(Request(url, headers=EVENTS), timeout=60) as stream:
        assert stream.readline() == b"id: 0:1\n"
        assert text in stream.readline().decode()


def test_an_answer_ends_where_decoding_would_take_too_much_work(broker: BrokerProcess, http: Http) -> None:
    registry = Http(broker, broker.ready["schema_registry_port"])
    schema = {"schema": json.dumps({"type": "array", "items": "null"})}
    schema_id = registry.call("/subjects/nulls-value/versions", schema)[1]["id"]
    sixty_thousand, million = bytes.fromhex("c0 a9 07 00"), bytes.fromhex("80 89 7a 00")
    for payload in (sixty_thousand, sixty_thousand, million, sixty_thousand):
        value = struct.pack(">bI", 0, schema_id) + payload
        http.write("nulls", {"value_base64": base64.b64encode(value).decode()})
    at, sizes = "0:0", []
    while True:
        answer = http.read("nulls", f"value_format=avro&from={at}")[1]
        sizes.append(
            [len(each["value"]) if "value_schema" in each else each["value_error"] for each in answer["records"]]
        )
        at = answer["next"]
        if answer["is_at_end"]:
            break
    assert sizes == [[60_000], [60_000], ["it contains more values than this registry decodes"], [60_000]]


def test_without_acks_the_response_has_no_offsets(http: Http) -> None:
    http.write("unheard", {"value": "first"})
    assert http.write("unheard", {"value": "a", "acks": 0}) == (202, {"records": [{"partition": 0}]})
    assert http.values("unheard", "from=1&wait_ms=10000") == ["a"]


def test_a_reader_resumes_and_waits(http: Http) -> None:
    http.write("waited", {"records": [{"value": str(number)} for number in range(5)]})
    _, first = http.read("waited", "max=3")
    assert [each["value"] for each in first["records"]] == ["0", "1", "2"]
    assert http.values("waited", f"from={first['next']}") == ["3", "4"]
    assert http.values("waited", "from=4") == ["4"]
    assert http.values("waited", "from=end") == []
    late = threading.Timer(0.5, http.write, ("waited", {"value": "late"}))
    late.start()
    assert http.values("waited", "from=end&wait_ms=30000") == ["late"]
    late.join()


def test_a_request_looks_at_a_bounded_part_of_the_log(http: Http) -> None:
    for _ in range(10):
        rows = [{"value": "x" * 950} for _ in range(1000)]
        assert http.write("sparse", {"records": rows})[0] == 200
    http.write("sparse", {"value": "needle"})
    position, looks = "beginning", 0
    while True:
        status, answer = http.read("sparse", f"from={position}&find=needle")
        assert status == 200
        position, looks = answer["next"], looks + 1
        if answer["is_at_end"]:
            break
        assert answer["records"] == []
    assert looks > 1
    assert [each["value"] for each in answer["records"]] == ["needle"]
    status, text = http.read("sparse", "find=needle", LINES)
    assert [json.loads(line)["value"] for line in text.splitlines()] == ["needle"]


def test_lines_end_when_there_is_no_record_for_the_time(http: Http) -> None:
    http.write("lines", {"records": [{"value": str(number)} for number in range(5)]})
    status, text = http.read("lines", "max=2&wait_ms=100", LINES)
    assert status == 200
    assert [json.loads(line)["value"] for line in text.splitlines()] == ["0", "1", "2", "3", "4"]


def test_events_come_as_they_are_written_and_resume(http: Http) -> None:
    http.write("events", {"records": [{"value": "a"}, {"value": "b"}]})
    url = f"http://localhost:{http.port}/api/topics/events/records"
    with urlopen(Request(url, headers=EVENTS), timeout=60) as answer:
        lines = iter(answer)
        assert json.loads(next(line for line in lines if line.startswith(b"data"))[6:])["value"] == "a"
        position = next(line for line in lines if line.startswith(b"id"))[4:].decode().strip()
        http.write("events", {"value": "c"})
        values = [json.loads(next(line for line in lines if line.startswith(b"data"))[6:])["value"] for _ in "bc"]
        assert values == ["b", "c"]
    with urlopen(Request(url, headers={**EVENTS, "Last-Event-ID": position}), timeout=60) as answer:
        assert json.loads(next(line for line in answer if line.startswith(b"data"))[6:])["value"] == "c"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("form=end", "There is no parameter form; the parameters are cluster, find, from"),
        ("from=yesterday", "From must be beginning, end, an offset"),
        ("max=1001", "Max must be from 1 to 1000"),
        ("wait_ms=60001", "Wait_ms must be from 0 to 60000"),
        ("isolation=none", "Isolation must be one of committed, uncommitted"),
        ("partition=a", "Partition must be a whole number"),
        ("value_format=json", "Value_format must be one of avro, json-schema, protobuf, schema"),
    ],
)
def test_an_invalid_parameter_is_refused_by_name(http: Http, query: str, words: str) -> None:
    http.write("asked", {"value": "x"})
    status, answer = http.read("asked", query)
    assert status == 400
    assert words in answer["error"]


def test_a_topic_that_does_not_exist_is_not_read(http: Http) -> None:
    status, answer = http.read("nowhere")
    assert (status, answer["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_client_that_disconnects_makes_room_for_another(http: Http) -> None:
    http.write("crowded", {"value": "x"})
    head = b"GET /api/topics/crowded/records HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    clients = [socket.create_connection(("localhost", http.port), 60) for _ in range(MAX_READERS)]
    try:
        for client in clients:
            client.sendall(head)
            assert client.recv(1)
        status, answer = http.read("crowded")
        assert (status, answer["error"]) == (503, "64 requests are already reading records: try again later")
    finally:
        for client in clients:
            client.close()
    deadline = time.monotonic() + 30
    while http.read("crowded")[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_body_that_is_not_json_is_refused(http: Http) -> None:
    plain = {"Content-Type": "text/plain"}
    assert http.call("/api/topics/asked/records", {"value": "x"}, plain)[0] == 415
    other = {"Origin": "http://evil.example"}
    assert http.call("/api/topics/asked/records", {"value": "x"}, other)[0] == 403


def test_a_body_that_is_too_large_is_refused_with_a_document(http: Http) -> None:
    status, answer = http.write("large", {"value": "a" * 1024 * 1024})
    assert (status, answer) == (413, {"error": "the body is larger than 1 MiB", "code": "MESSAGE_TOO_LARGE"})


def test_the_openapi_document_describes_both_calls(http: Http) -> None:
    status, document = http.call("/openapi.json")
    calls = document["paths"]["/api/topics/{topic}/records"]
    assert (status, calls.keys()) == (200, {"get", "post"})
    assert "value_subject" in calls["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"from", "wait_ms"} <= {each["name"] for each in calls["get"]["parameters"]}


def test_writing_is_off_by_default_and_acls_apply_as_on_the_kafka_port(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        assert isinstance(broker, BrokerProcess)
        status, answer = Http(broker).write("t", {"value": "x"})
        assert (status, "odradek.http.actions=true" in answer["error"]) == (403, True)
        assert Http(broker).read("t")[0] == 403
    with BrokerProcess(tmp_path / "other", {**settings, "odradek.http.actions": "true"}) as broker:
        assert isinstance(broker, BrokerProcess)
        status, answer = Http(broker).write("t", {"value": "x"})
        assert (status, answer["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")


def as_user(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_users_of_the_broker_log_in_and_have_the_same_acls_as_on_the_kafka_port(tmp_path: Path) -> None:
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_admin="admin-secret" user_reader="r-secret";'
    )
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "odradek.http.actions": "true",
        "odradek.http.token": "the-token",
    }
    path = "/api/topics/orders/records"
    with BrokerProcess(tmp_path / "data", settings) as broker:
        assert isinstance(broker, BrokerProcess)
        http = Http(broker)
        admin, reader = as_user("admin", "admin-secret"), as_user("reader", "r-secret")
        assert http.call(path, {"value": "x"}, admin) == (200, {"records": [{"partition": 0, "offset": 0}]})
        status, answer = http.call(path, {"value": "x"}, reader)
        assert (status, answer["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
        assert answer["error"].startswith("User:reader may not do this.")
        status, answer = http.call(path, headers=reader)  # Unlike the token, a login grants only its user's rights.
        assert (status, answer["error"]) == (403, "This needs READ on topic orders. No ACL allows this to User:reader.")
        assert http.call(path, headers=as_user("anybody", "the-token"))[0] == 200
        status, answer = http.call(path, headers=as_user("admin", "wrong"))
        assert (status, answer["error"]) == (401, "The user or the password is wrong")
        assert http.call(path)[0] == 401
        status, answer = http.call(f"{path}?value_format=avro", headers=admin)
        assert (status, "set odradek.schema.registry.enable=true" in answer["error"]) == (400, True)
        assert http.call("/api/topics", headers=admin)[0] == 401  # The page does not support logins.

        login = {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin-secret"}
        wire = AdminClient({"bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT", **login})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        for done in wire.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", scram, b"a-secret")]
        ).values():
            done.result(30)
        allowed = AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for done in wire.create_acls([allowed]).values():
            done.result(30)
        alice = as_user("alice", "a-secret")
        assert [each["value"] for each in http.call(path, headers=alice)[1]["records"]] == ["x"]
        assert http.call(path, {"value": "x"}, alice)[0] == 403
        assert http.call(path, headers=as_user("alice", "wrong"))[0] == 401
