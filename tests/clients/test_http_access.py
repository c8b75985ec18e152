"""Tests that a token, client certificates and timeouts protect the HTTP port of a broker that other machines can
reach."""

import select
import socket
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest

from tests.clients.tls_peers import TIMEOUT_S, client_context
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.certs_directory import certificates, ssl_settings

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no such pages")

EVERYWHERE: dict[str, object] = {"odradek.http.host": ""}


def started(data: Path, settings: Mapping[str, object]) -> BrokerProcess:
    broker = BrokerProcess(data, settings)
    broker.start()
    return broker


def status(connection: HTTPConnection, path: str, authorization: str | None = None) -> int:
    try:
        connection.request("GET", path, headers={} if authorization is None else {"Authorization": authorization})
        return connection.getresponse().status
    finally:
        connection.close()


def test_without_a_token_other_machines_can_read_only_the_health_pages(tmp_path: Path) -> None:
    broker = started(tmp_path / "data", EVERYWHERE)
    port = broker.ready["http_port"]
    assert status(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S), "/readyz") == 200
    for path in ("/", "/metrics", "/api/overview", "/live/overview"):
        assert status(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S), path) == 403
    assert "set odradek.http.token to get metrics and the page" in broker.log_text()
    broker.stop()


def test_clients_with_the_token_are_served_and_the_token_is_not_shown_anywhere(tmp_path: Path) -> None:
    broker = started(tmp_path / "data", EVERYWHERE | {"odradek.http.token": "swordfish"})
    port = broker.ready["http_port"]
    for said, expected in (("Bearer swordfish", 200), ("Bearer perch", 401), (None, 401)):
        assert status(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S), "/metrics", said) == expected
    assert status(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S), "/healthz") == 200
    broker.stop()
    assert "swordfish" not in broker.log_text()


def test_with_tls_clients_with_a_certificate_are_served(tmp_path: Path) -> None:
    directory = certificates("kate", "mallory")
    settings = ssl_settings(directory) | EVERYWHERE | {"odradek.http.security.protocol": "SSL"}
    broker = started(tmp_path / "data", settings | {"listener.name.http.ssl.client.auth": "required"})
    port = broker.ready["http_port"]
    context = client_context(directory, "kate")
    assert status(HTTPSConnection("localhost", port, timeout=TIMEOUT_S, context=context), "/metrics") == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        status(HTTPSConnection("localhost", port, timeout=TIMEOUT_S, context=client_context(directory)), "/metrics")
    broker.stop()


def test_peers_with_unfinished_requests_do_not_keep_other_clients_out(tmp_path: Path) -> None:
    """Each peer sends the beginning of a request and then stops. The broker keeps only a limited number of these
    connections and closes each of them after a limited time."""
    broker = started(tmp_path / "data", {})
    port = broker.ready["http_port"]
    assert status(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S), "/readyz") == 200
    slow = [socket.create_connection(("127.0.0.1", port), TIMEOUT_S) for _ in range(150)]
    for peer in slow:
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: local")
    assert status(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S), "/readyz") == 200
    more = [socket.create_connection(("127.0.0.1", port), TIMEOUT_S) for _ in range(100)]
    closed: set[socket.socket] = set()
    while len(closed) < 40:
        readable, _, _ = select.select([peer for peer in more if peer not in closed], [], [], TIMEOUT_S)
        assert readable
        closed.update(readable)
    for peer in slow + more:
        peer.close()
    broker.stop()
