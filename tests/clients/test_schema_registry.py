"""Tests the schema registry's HTTP interface on a running broker."""

import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection, RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.tls_peers import client_context
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.certs_directory import certificates, ssl_settings
from tests.support.registry_caller import SETTINGS, RegistryCaller, record

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no registry")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", SETTINGS) as running:
        assert isinstance(running, BrokerProcess)
        yield running


@pytest.fixture
def registry(broker: BrokerProcess) -> RegistryCaller:
    return RegistryCaller(broker)


def test_schemas_levels_and_modes_survive_a_kill(broker: BrokerProcess, registry: RegistryCaller) -> None:
    assert registry.register("orders-value", "id") == (200, {"id": 1})
    assert registry.register("orders-value", "id", "note") == (200, {"id": 2})
    assert registry.ask("PUT", "/config/orders-value", {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert registry.ask("PUT", "/mode/orders-value", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    broker.kill9()
    broker.start()
    assert registry.ask("GET", "/subjects/orders-value/versions") == (200, [1, 2])
    assert registry.ask("GET", "/config/orders-value") == (200, {"compatibilityLevel": "FULL"})
    assert registry.ask("GET", "/mode/orders-value") == (200, {"mode": "READONLY"})
    status, found = registry.ask("GET", "/subjects/orders-value/versions/latest")
    assert (status, found["id"], found["version"], found["subject"]) == (200, 2, 2, "orders-value")
    assert registry.ask("GET", "/schemas/ids/2") == (200, {"schema": found["schema"]})


def test_requests_at_the_same_time_for_one_schema_get_one_id(registry: RegistryCaller) -> None:
    gate = threading.Barrier(8)

    def register(number: int) -> Any:
        gate.wait()
        return registry.register(f"s{number % 2}", "same")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(register, range(8)))
    assert answers == [(200, {"id": 1})] * 8
    assert registry.ask("GET", "/schemas/ids/1/subjects") == (200, ["s0", "s1"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/none/versions", None, 404, 40401),
        ("GET", "/subjects/a/versions/9", None, 404, 40402),
        ("GET", "/subjects/a/versions/none", None, 422, 42202),
        ("GET", "/subjects/a/versions/0", None, 422, 42202),
        ("GET", "/schemas/ids/9", None, 404, 40403),
        ("GET", "/schemas/ids/9999999999", None, 404, 40403),
        ("POST", "/subjects/a/versions", {"schema": "{"}, 422, 42201),
        ("POST", "/subjects/a/versions", {"schema": ""}, 422, 42201),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "schemaType": "THRIFT"}, 422, 42201),
        ("POST", "/subjects/a/versions", {"schema": '"int"'}, 409, 409),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "metadata": {}}, 501, 501),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "colour": "red"}, 422, 422),
        ("POST", "/subjects/a/versions", "{", 400, 400),
        ("POST", "/subjects/a/versions", "[" * 100_000, 400, 400),
        ("POST", "/subjects/:.other:a/versions", {"schema": '"int"'}, 501, 501),
        ("POST", "/subjects/a", {"schema": '"int"'}, 404, 40403),
        ("POST", "/subjects/none", {"schema": '"int"'}, 404, 40401),
        ("GET", "/config/a", None, 404, 40408),
        ("PUT", "/config", {"compatibility": "SOMETIMES"}, 422, 42203),
        ("PUT", "/mode/a", {"mode": "ASLEEP"}, 422, 42204),
        ("GET", "/mode/a", None, 404, 40409),
        ("DELETE", "/subjects/a?permanent=true", None, 404, 40405),
        ("DELETE", "/subjects/a/versions/1?permanent=true", None, 404, 40407),
        ("GET", "/exporters", None, 501, 501),
        ("GET", "/nowhere", None, 404, 404),
        ("PATCH", "/subjects", None, 405, 405),
    ],
)
def test_a_refusal_has_the_code_of_the_interface(
    registry: RegistryCaller, method: str, path: str, body: object, status: int, code: int
) -> None:
    registry.register("a", "id")
    found, answer = registry.ask(method, path, body)
    assert (found, answer["error_code"]) == (status, code)
    assert answer["message"]


def test_bodies_of_other_types_and_pages_of_other_sites_are_refused(registry: RegistryCaller) -> None:
    body = {"schema": '"int"'}
    assert registry.ask("POST", "/subjects/a/versions", body, Content_Type="text/plain")[0] == 415
    assert registry.ask("POST", "/subjects/a/versions", body, Origin="http://evil.example")[0] == 403
    assert registry.ask("GET", "/subjects") == (200, [])


def test_a_compatibility_check_registers_nothing_and_names_the_incompatible_part(registry: RegistryCaller) -> None:
    registry.register("a", "id")
    path = "/compatibility/subjects/a/versions/latest"
    assert registry.ask("POST", path, {"schema": record("id", "more")}) == (200, {"is_compatible": True})
    status, found = registry.ask("POST", path + "?verbose=true", {"schema": '"int"'})
    assert (status, found["is_compatible"]) == (200, False)
    assert "TYPE_MISMATCH" in found["messages"][0]
    assert registry.ask("GET", "/subjects/a/versions") == (200, [1])


def test_all_schemas_come_in_pieces_and_in_parts(registry: RegistryCaller) -> None:
    # A schema with this many fields does not fit into one piece of the response.
    large = ["f" + "x" * 100 + str(number) for number in range(500)]
    for number in range(8):
        assert registry.register(f"s{7 - number}", f"n{number}", *large)[0] == 200
    assert registry.register("s3", "n4", "more", *large)[0] == 200
    assert registry.ask("DELETE", "/subjects/s5")[0] == 200

    def places(query: str = "") -> list[tuple[str, int]]:
        status, found = registry.ask("GET", f"/schemas{query}")
        assert status == 200
        return [(each["subject"], each["version"]) for each in found]

    everything = [("s0", 1), ("s1", 1), ("s2", 1), ("s3", 1), ("s3", 2), ("s4", 1), ("s6", 1), ("s7", 1)]
    assert places() == everything
    assert places("?offset=2&limit=3") == everything[2:5]
    assert places("?offset=7") == everything[7:]
    assert places("?offset=9") == places("?limit=0") == places("?subjectPrefix=none") == []
    assert places("?latestOnly=true") == [each for each in everything if each != ("s3", 1)]
    assert places("?deleted=true&subjectPrefix=s5") == [("s5", 1)]
    assert registry.ask("GET", "/schemas?limit=x")[0] == 422
    for number in range(300):  # The response takes more than one slice.
        assert registry.register(f"t{number:03}", "one")[0] == 200
    assert places("?subjectPrefix=t") == [(f"t{number:03}", 1) for number in range(300)]
    assert registry.ask("GET", "/subjects?offset=5&limit=3") == (200, ["s6", "s7", "t000"])
    assert registry.ask("GET", "/subjects?deletedOnly=true") == (200, ["s5"])


def test_a_subject_with_a_slash_is_one_subject(registry: RegistryCaller) -> None:
    assert registry.register("a%2Fb", "id") == (200, {"id": 1})
    assert registry.ask("GET", "/subjects") == (200, ["a/b"])


def test_a_topic_with_several_partitions_stops_the_start_by_name(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("_schemas", 3)])["_schemas"].result()
    with pytest.raises(RuntimeError, match="_schemas has 3 partitions, but the schema registry needs exactly one"):
        BrokerProcess(tmp_path / "data", SETTINGS).start()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists(), "the failed start has closed the directory"


def test_acls_of_the_topic_decide_for_users_of_the_broker(tmp_path: Path) -> None:
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_admin="admin-secret" user_writer="w-secret";'
    )
    settings = {
        **SETTINGS,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with BrokerProcess(tmp_path / "data", settings) as broker:
        assert isinstance(broker, BrokerProcess)
        registry = RegistryCaller(broker)

        def as_user(user: str, password: str) -> str:
            return "Basic " + b64encode(f"{user}:{password}".encode()).decode()

        path, body = "/subjects/orders-value/versions", {"schema": '"int"'}
        assert registry.ask("POST", path, body)[0] == 403
        assert registry.ask("POST", path, body, Authorization=as_user("admin", "wrong"))[0] == 401
        assert registry.ask("POST", path, body, Authorization="Bearer x")[0] == 401
        assert registry.ask("POST", path, body, Authorization=as_user("writer", "w-secret"))[0] == 403
        assert registry.ask("POST", path, body, Authorization=as_user("admin", "admin-secret")) == (200, {"id": 1})
        assert registry.ask("GET", "/subjects", Authorization=as_user("writer", "w-secret")) == (200, [])
        assert registry.ask("GET", "/schemas/ids/1")[0] == 403
        assert registry.ask("PUT", "/config", {"compatibility": "NONE"})[0] == 403


def test_the_registry_uses_the_tls_of_the_http_port(tmp_path: Path) -> None:
    directory = certificates("kate")
    settings = {**ssl_settings(directory), **SETTINGS, "odradek.http.security.protocol": "SSL"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        assert isinstance(broker, BrokerProcess)
        port = broker.ready["schema_registry_port"]
        connection = HTTPSConnection("localhost", port, timeout=30, context=client_context(directory, "kate"))
        connection.request("GET", "/subjects")
        assert connection.getresponse().read() == b"[]"
        connection.close()
        with pytest.raises((RemoteDisconnected, ConnectionError)):
            RegistryCaller(broker).ask("GET", "/subjects")
