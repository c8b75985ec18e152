"""Tests clusters with ports, TLS and logins chosen by the test, with real clients."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.certificates import new_authority, new_client, new_server
from odradek.testing.sync import Cluster, Odradek, Refused
from tests.clients.secured_clients import Access, RoundTrip, with_aiokafka, with_confluent, with_kafka_python, with_own
from tests.support.ports import free_ports

USERS = {"alice": 'pw "1"\\', "bob": "b"}
CLIENTS = [with_confluent, with_kafka_python, with_aiokafka, with_own]
SCRAM = "SCRAM-SHA-512"
SECURE: Mapping[str, Any] = {"name": "secure", "protocol": "SASL_SSL"}
NO_PEM = {"key": "k", "chain": "c"}


def access(kafka: Cluster, folder: Path, mechanism: str | None = SCRAM, listener: str = "SECURE") -> Access:
    file = None
    if kafka.ca_certificate is not None:
        file = str(folder / f"{kafka.id}.pem")
        Path(file).write_text(kafka.ca_certificate)
    return Access(kafka.listeners[listener]["bootstrap"], mechanism, file, "alice", USERS["alice"])


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", SCRAM])
def test_users_log_in_over_tls_with_every_mechanism(
    odradek: Odradek, tmp_path: Path, client: RoundTrip, mechanism: str
) -> None:
    with odradek.cluster(listeners=[SECURE], users=USERS, topics={"orders": 1}) as kafka:
        assert client(access(kafka, tmp_path, mechanism), "orders", b"a") == b"a"
        assert {each["principal"] for each in kafka.connections()} <= {"User:alice"}


@pytest.mark.parametrize("nodes", [1, 3])
def test_each_listener_has_a_bootstrap_address_and_clients_stay_on_theirs(
    odradek: Odradek, tmp_path: Path, nodes: int
) -> None:
    listeners: list[Mapping[str, Any]] = [
        {"name": "open"},
        {"name": "tls", "protocol": "SSL"},
        {"name": "login", "protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"]},
        SECURE,
    ]
    with odradek.cluster(listeners=listeners, users=USERS, nodes=nodes, topics={"orders": nodes}) as kafka:
        assert kafka.bootstrap == kafka.listeners["OPEN"]["bootstrap"]
        assert len({each["bootstrap"] for each in kafka.listeners.values()}) == 4
        assert all(len(each["bootstrap"].split(",")) == nodes for each in kafka.listeners.values())
        assert kafka.listeners["LOGIN"]["mechanisms"] == ["PLAIN"]
        plain = Access(kafka.bootstrap)
        assert with_confluent(plain, "orders", b"1") == b"1"
        assert with_confluent(access(kafka, tmp_path, None, "TLS"), "orders", b"2") == b"2"
        login = Access(kafka.listeners["LOGIN"]["bootstrap"], "PLAIN", None, "alice", USERS["alice"])
        assert with_confluent(login, "orders", b"3") == b"3"
        assert with_confluent(access(kafka, tmp_path), "orders", b"4") == b"4"
        seen = {(each["listener"], each["principal"]) for each in kafka.connections()}
        assert seen <= {
            *(("OPEN", "User:ANONYMOUS"), ("TLS", "User:ANONYMOUS")),
            *(("LOGIN", "User:alice"), ("SECURE", "User:alice")),
        }


def test_a_node_that_stops_and_starts_keeps_its_listeners_and_their_ports(odradek: Odradek, tmp_path: Path) -> None:
    listeners: list[Mapping[str, Any]] = [{"name": "open"}, SECURE]
    with odradek.cluster(listeners=listeners, users=USERS, nodes=2, topics={"orders": 1}) as kafka:
        before = kafka.listeners
        kafka.stop_node(1)
        kafka.stop_node(2)
        kafka.start_node(2)
        kafka.start_node(1)
        assert with_confluent(access(kafka, tmp_path), "orders", b"a") == b"a"
        kafka.crash()
        kafka.restart()
        assert odradek.call("GET", f"/clusters/{kafka.id}")[1]["listeners"] == list(before.values())
        assert with_confluent(access(kafka, tmp_path, "PLAIN"), "orders", b"b") == b"b"


def test_rules_see_requests_behind_logins(odradek: Odradek, tmp_path: Path) -> None:
    with odradek.cluster(listeners=[SECURE], users=USERS, nodes=2, topics={"orders": 1}) as kafka:
        rule = {"match": {"api": "Produce", "principal": "User:alice", "listener": "SECURE"}, "times": 1}
        name = kafka.fault({**rule, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}})
        assert with_confluent(access(kafka, tmp_path), "orders", b"a") == b"a"
        kafka.wait(fault=name, hits=1)
        assert USERS["alice"] not in str(kafka.requests())


def test_ports_are_the_chosen_ones_also_after_a_restart(odradek: Odradek) -> None:
    one, two, three, four = free_ports(4)
    listeners: list[Mapping[str, Any]] = [{"ports": [one, two]}, {"name": "more", "ports": [three, four]}]
    with odradek.cluster(listeners=listeners, nodes=2, topics={"orders": 1}) as kafka:
        assert kafka.bootstrap == f"localhost:{one},localhost:{two}"
        assert kafka.listeners["MORE"]["bootstrap"] == f"localhost:{three},localhost:{four}"
        kafka.restart()
        assert with_confluent(Access(kafka.bootstrap), "orders", b"a") == b"a"
        with odradek.cluster(fork=kafka) as fork:
            assert not set(fork.bootstrap.split(",")) & set(kafka.bootstrap.split(","))
            assert list(fork.listeners) == ["PLAINTEXT", "MORE"]
    with odradek.cluster(listeners=[{"port": one}]) as again:
        assert again.bootstrap == f"localhost:{one}"
        with pytest.raises(Refused, match=f"port {one} is taken"):
            odradek.cluster(listeners=[{"port": one}])
        assert [each["id"] for each in odradek.call("GET", "/clusters")[1]] == ["default", again.id]


def test_a_node_whose_port_is_taken_reports_it_and_can_start_later(odradek: Odradek) -> None:
    with odradek.cluster(listeners=[{}, {"name": "more"}], nodes=2, topics={"orders": 1}) as kafka:
        port = int(kafka.listeners["MORE"]["bootstrap"].rpartition(":")[2])
        kafka.stop_node(2)
        with (
            socket.create_server(("localhost", port)),
            pytest.raises(Refused, match=f"port {port} is taken") as refused,
        ):
            kafka.start_node(2)
        assert refused.value.status == 409
        kafka.start_node(2)
        assert [each["state"] for each in kafka.nodes()] == ["running", "running"]


def test_a_fork_has_the_users_and_the_authority_of_its_source(odradek: Odradek, tmp_path: Path) -> None:
    with odradek.cluster(listeners=[SECURE], users=USERS, topics={"orders": 1}) as kafka:
        with odradek.cluster(fork=kafka) as fork:
            assert fork.ca_certificate == kafka.ca_certificate
            for mechanism in ("PLAIN", SCRAM):
                assert with_confluent(access(fork, tmp_path, mechanism), "orders", b"a") == b"a"
        with odradek.cluster(fork=kafka, users={"alice": "new"}, settings={}) as other:
            new = access(other, tmp_path)
            assert with_confluent(Access(new.bootstrap, SCRAM, new.ca_file, "alice", "new"), "orders", b"a") == b"a"


def test_a_client_shows_the_certificate_that_was_made_for_its_user(odradek: Odradek, tmp_path: Path) -> None:
    listener = {"name": "mutual", "protocol": "SSL", "client_auth": "required"}
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/,DEFAULT"}
    with odradek.cluster(listeners=[listener], users=USERS, settings=rules, topics={"orders": 1}) as kafka:
        assert kafka.client_certificates.keys() == USERS.keys()
        pem = tmp_path / "alice.pem"
        pem.write_text(kafka.client_certificates["alice"])
        context = ssl.create_default_context(cadata=kafka.ca_certificate)
        context.load_cert_chain(pem)
        host, _, port = kafka.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as plain, context.wrap_socket(plain, server_hostname=host):
            while not (open_now := kafka.connections()):
                pass
            assert [each["principal"] for each in open_now] == ["User:alice"]
        facts = odradek.call("GET", f"/clusters/{kafka.id}")[1]
        assert "client_certificates" not in facts
        assert "PRIVATE KEY" not in str(facts)


def test_a_test_can_use_its_own_certificates(odradek: Odradek, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority(now, 1)
    server = new_server(authority, ("localhost",), now, 1)
    brought = {"key": server.key_pem.decode(), "chain": server.certificate_pem.decode()}
    listener = {
        "protocol": "SSL",
        "certificate": brought,
        "client_auth": "required",
        "client_ca": authority.certificate_pem.decode(),
    }
    with odradek.cluster(listeners=[listener]) as kafka:
        assert kafka.ca_certificate is None
        client = new_client(authority, "carol", now, 1)
        pem = tmp_path / "carol.pem"
        pem.write_bytes(client.key_pem + client.certificate_pem)
        context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
        context.load_cert_chain(pem)
        host, _, port = kafka.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as plain:
            context.wrap_socket(plain, server_hostname=host).close()


def test_topics_are_made_as_a_super_user_where_an_authorizer_refuses_others(odradek: Odradek, tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    with odradek.cluster(listeners=[SECURE], users=USERS, settings=settings, topics={"orders": 1}) as kafka:
        assert with_confluent(access(kafka, tmp_path), "orders", b"a") == b"a"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"listeners": []}, "listeners"),
        ({"listeners": [{}] * 9}, "listeners"),
        ({"listeners": [{"port": 70_000}]}, "listeners[0].port"),
        ({"listeners": [{"ports": [1, 2]}]}, "listeners[0].ports"),
        ({"listeners": [{"port": 1, "ports": [1]}]}, "listeners[0].ports"),
        ({"listeners": [{"port": 9092}], "nodes": 2}, "listeners[0].port"),
        ({"listeners": [{"port": 9092}, {"name": "b", "port": 9092}]}, "listeners"),
        ({"listeners": [{}, {}]}, "listeners[1].name"),
        ({"listeners": [{"name": "a://b"}]}, "listeners[0].name"),
        ({"listeners": [{"protocol": "TLS"}]}, "listeners[0].protocol"),
        ({"listeners": [{"protocl": "SSL"}]}, "listeners[0].protocl"),
        ({"listeners": [{"protocol": "SSL", "mechanisms": ["PLAIN"]}]}, "listeners[0].mechanisms"),
        ({"listeners": [{"protocol": "SASL_SSL", "mechanisms": ["GSSAPI"]}]}, "listeners[0].mechanisms[0]"),
        ({"listeners": [{"client_auth": "required"}]}, "listeners[0].client_auth"),
        (
            {"listeners": [{"protocol": "SSL", "certificate": {"key": "k", "chain": "c"}}]},
            "listeners[0].certificate.key",
        ),
        ({"listeners": [SECURE], "users": {"a b": "c"}}, "users.a b"),
        ({"listeners": [SECURE], "users": {"a": ""}}, "users.a"),
        ({"listeners": [SECURE], "users": {"a": "line\nfeed"}}, "users.a"),
        ({"listeners": [SECURE], "users": {str(each): "p" for each in range(101)}}, "users"),
        ({"users": {"a": "b"}}, "users"),
        ({"settings": {"listeners": "PLAINTEXT://:9092"}}, "settings.listeners"),
    ],
)
def test_an_invalid_listener_is_refused_by_its_field(odradek: Odradek, body: Mapping[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        odradek.call("POST", "/clusters", body)
    assert (refused.value.status, refused.value.problem["field"]) == (400, field)
    assert len(odradek.call("GET", "/clusters")[1]) == 1
