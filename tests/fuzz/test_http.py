"""Tests that the broker never responds with status 500 to mutated HTTP requests to the page, the actions, the control
API and the schema registry, and that it refuses invalid text and JSON.

The environment variable HTTP sets the number of requests per test, and FUZZ_SEED selects another series of requests.
"""

import json
import os
import re
import socket
from collections.abc import Iterator
from random import Random

import pytest

from odradek.control_calls import table
from tests.support.broker_process import BrokerProcess
from tests.support.registry_caller import SETTINGS as REGISTRY_SETTINGS
from tests.support.registry_caller import V1, RegistryCaller

REQUESTS = int(os.environ.get("HTTP", "1000"))
PATIENCE_S = float(os.environ.get("HTTP_PATIENCE_S", "0.05"))  # Most requests get no response.
SEED = os.environ.get("FUZZ_SEED", "0")
PATHS = (
    "/", "/metrics", "/healthz", "/readyz", "/api/overview", "/api/topics", "/api/topic?name=t", "/api/groups",
    "/api/partition?topic=t&partition=0", "/api/records?topic=t&partition=0&offset=0", "/api/group?id=g",
    "/api/record?topic=t&offset=0", "/download?topic=t&offset=0", "/api/records?topic=t&find=a&path=$.a&at=0:1",
    "/api/transactions", "/api/transaction?id=x", "/api/shares", "/api/connections", "/api/warnings", "/api/actions",
)  # fmt: skip
ACTIONS = ("create-topic", "delete-records", "reset-offsets", "abort", "force-terminate", "delete-topic", "none")
BODIES: tuple[object, ...] = (
    {"topic": "t", "partition": 0, "before_offset": 1}, {"name": "n", "partitions": 1, "configs": {"a": "b"}},
    {"group": "g", "topic": "t", "to": "earliest"}, {"transactional_id": "x"}, [], None, 7, "text", {"name": 10**30},
)  # fmt: skip
CONTROL: tuple[tuple[str, object], ...] = (
    ("clusters", {"settings": {"num.partitions": 2}, "ttl_s": 1}), ("clusters", {"fork": "default", "ttl_s": 1}),
    ("faults", {"match": {"api": "EndTxn", "topic": "t", "when": "Committed == true"}, "do": {"error": "NONE"}}),
    ("faults", [{"at": "applied", "match": {"api": "Fetch"}, "do": {"edit": {"ErrorCode": 1}}, "every": 2}]),
    ("clock", {"advance_ms": 10}), ("clock/set", {"ms": 10}), ("wait", {"hold": "h", "timeout_ms": 0}),
    ("wait", {"group": "g", "members": 1, "timeout_ms": 0}), ("wait", {"transaction": "t", "state": "Empty"}),
    ("holds/h/release", {}), ("checkpoint", {"name": "c"}), ("clusters/c1/restart", {"clean": False}),
    ("clusters/c1/rewind", {"name": "c"}), ("clusters/c1/crash", {}), ("clusters/c1/lease", {"ttl_s": 1}),
)  # fmt: skip
REGISTRY_PATHS = (
    "GET /", "GET /subjects?deleted=true", "POST /subjects/a", "DELETE /subjects/b?permanent=true",
    "DELETE /subjects/b", "GET /subjects/a/versions?offset=0&limit=2", "POST /subjects/a/versions?normalize=true",
    "GET /contexts", "POST /subjects/b/versions", "GET /subjects/a/versions/latest", "GET /exporters",
    "GET /subjects/a/versions/1/referencedby", "DELETE /subjects/b/versions/1", "GET /schemas?subjectPrefix=a",
    "GET /schemas/ids/1?format=serialized", "GET /schemas/ids/1/versions", "GET /schemas/types",
    "GET /config/a?defaultToGlobal=true", "PUT /config/b", "DELETE /config/b", "PUT /mode/b?force=true",
    "DELETE /mode/b", "GET /mode", "POST /compatibility/subjects/a/versions/latest?verbose=true",
    "POST /compatibility/subjects/a/versions", "GET /v1/metadata/id",
)  # fmt: skip
PROTO = (
    'syntax = "proto3"; import "m.proto";'
    " message A { repeated M m = 1; map<string, int32> n = 2; oneof o { string s = 3; } }"
)
AVRO = {"type": "record", "name": "A", "fields": [{"name": "f", "type": ["null", "long"], "default": None}]}
JSON_SCHEMA = {"$ref": "#/definitions/a", "definitions": {"a": {"anyOf": [{"type": "string"}, {"minimum": 1}]}}}
REFERENCES = [{"name": "m.proto", "subject": "m", "version": 1}]
REGISTRY_BODIES: tuple[object, ...] = (
    {"schema": json.dumps(AVRO)}, {"schema": json.dumps(AVRO), "references": REFERENCES, "schemaType": "AVRO"},
    {"schema": json.dumps(JSON_SCHEMA), "schemaType": "JSON"}, {"schema": '"bytes"', "id": 7, "version": 3},
    {"schema": PROTO, "schemaType": "PROTOBUF", "references": REFERENCES}, {"schema": PROTO, "schemaType": "PROTOBUF"},
    {"schema": "CgdhLnByb3RvEgFh", "schemaType": "PROTOBUF"}, {"compatibility": "FULL"}, {"mode": "READWRITE"}, [], {},
)  # fmt: skip
# Every call of the control API. `mutated` fills the path parameters with VALUES and sends a body from CONTROL.
CALLS = [(call.method, path.lstrip("/")) for call in table.CALLS for path, _ in call.paths()]
VALUES = ("c1", "default", "t", "0", "1", "group", "advance", "open-transaction", "h")
ODD = (
    b"\xff",
    b"%ff",
    b"%00",
    b"\xed\xa0\x80",
    b"-1",
    b"9" * 400,
    b"e",
    b"&",
    b"?",
    b"/",
    b"..",
    b"{",
    b'"',
    b"\\ud800",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("data"),
        {"odradek.http.actions": "true", "odradek.control.enable": "true", **REGISTRY_SETTINGS},
    ) as broker:
        assert isinstance(broker, BrokerProcess)
        yield broker


def ask(broker: BrokerProcess, request: bytes, port: str = "http_port") -> int | None:
    """Returns the status of the response, or None if the broker closes the connection without a response or does not
    respond within PATIENCE_S."""
    with socket.create_connection(("127.0.0.1", broker.ready[port]), 30) as connection:
        connection.sendall(request)
        connection.settimeout(PATIENCE_S)
        try:
            line = connection.makefile("rb").readline()
        except (ConnectionResetError, TimeoutError):
            return None
    return int(line.split()[1]) if line else None


def token_of(broker: BrokerProcess) -> bytes:
    with socket.create_connection(("127.0.0.1", broker.ready["http_port"]), 30) as connection:
        connection.sendall(b"GET /api/actions HTTP/1.0\r\nHost: localhost\r\n\r\n")
        body = connection.makefile("rb").read().partition(b"\r\n\r\n")[2]
    return str(json.loads(body)["token"]).encode()


def post(token: bytes, body: bytes, action: str = "create-topic") -> bytes:
    head = f"POST /api/actions/{action} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    length = str(len(body)).encode()
    return head + b"X-Odradek-Token: " + token + b"\r\nContent-Length: " + length + b"\r\n\r\n" + body


def control(path: str, body: bytes, method: str = "POST") -> bytes:
    head = f"{method} /control/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def mutated(rng: Random, token: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.15:
        method, path = rng.choice(CALLS)
        path = re.sub(r"\{\w+\}", lambda _: rng.choice(VALUES), path)
        request = control(path, json.dumps(rng.choice(CONTROL)[1]).encode(), method)
    elif kind < 0.3:
        path, body = rng.choice(CONTROL)
        request = control(path, json.dumps(body).encode())
    elif kind < 0.65:
        request = f"GET {rng.choice(PATHS)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    else:
        request = post(token, json.dumps(rng.choice(BODIES)).encode(), rng.choice(ACTIONS))
    return damaged(rng, request)


def registry_request(rng: Random) -> bytes:
    body = json.dumps(rng.choice(REGISTRY_BODIES)).encode()
    body = damaged(rng, body) if rng.random() < 0.5 else body  # Content-Length matches the damaged body.
    head = f"{rng.choice(REGISTRY_PATHS)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    request = f"{head}Content-Type: {V1}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    return damaged(rng, request) if rng.random() < 0.5 else request


def damaged(rng: Random, request: bytes) -> bytes:
    for _ in range(rng.randrange(4)):
        at, end = sorted(rng.randrange(len(request) + 1) for _ in range(2))
        match rng.randrange(4):
            case 0:
                request = request[:at] + rng.choice(ODD) + request[at:]
            case 1:
                request = request[:at] + request[min(end, at + 8) :]
            case 2:
                request = request[:at] + request[at:end][:64] + request[at:]
            case _:
                request = request[:at] + bytes([rng.randrange(256)]) + request[at + 1 :]
    return request


def test_no_mutated_request_is_answered_500(broker: BrokerProcess) -> None:
    rng, token = Random(f"{SEED}/http"), token_of(broker)
    for number in range(REQUESTS):
        request = mutated(rng, token)
        status = ask(broker, request)
        assert status is None or status < 500 or status == 503, f"FUZZ_SEED={SEED}, request {number}: {request!r}"


def test_no_mutated_request_to_the_registry_is_answered_500(broker: BrokerProcess) -> None:
    rng, registry = Random(f"{SEED}/registry"), RegistryCaller(broker)
    money = 'syntax = "proto3"; message M { int32 a = 1; }'
    assert registry.ask("POST", "/subjects/m/versions", {"schema": money, "schemaType": "PROTOBUF"})[0] == 200
    assert registry.register("a", "f")[0] == 200
    for number in range(REQUESTS):
        request = registry_request(rng)
        status = ask(broker, request, "schema_registry_port")
        words = f"FUZZ_SEED={SEED}, request {number}: {request!r}"
        assert status is None or status < 500 or status in (501, 503), words


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [
        (b"\xff\xfe", b"{}", 403),
        (b"\xed\xa0\x80", b"{}", 403),
        (None, b"[" * 100_000, 400),
        (None, b'{"name": "\\ud800"}', 400),
        (None, b'{"\\udfff": 1}', 400),
        (None, b'{"name": "t", "configs": {"a": "\\ud800"}}', 400),
        (None, b'{"name": ' + b"9" * 5000 + b"}", 400),
        (None, b"\xff", 400),
    ],
    ids=["token", "half a pair in the token", "depth", "half a pair", "as a name", "as a value", "number", "bytes"],
)
def test_a_body_that_is_not_text_or_not_json_is_refused(
    broker: BrokerProcess, token: bytes | None, body: bytes, status: int
) -> None:
    with socket.create_connection(("127.0.0.1", broker.ready["http_port"]), 30) as connection:
        connection.sendall(post(token_of(broker) if token is None else token, body))
        assert int(connection.makefile("rb").readline().split()[1]) == status
