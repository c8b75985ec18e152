"""Peers of TLS listeners: sockets, `ssl` contexts, and librdkafka settings."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from tests.support.broker_process import BrokerProcess

TIMEOUT_S = 60
ASK = request_bytes(ApiVersionsRequest(), 0, 1, "test")


def address(broker: BrokerProcess, listener: str) -> str:
    found: str = broker.ready["listeners"][listener]
    return found


def connect(broker: BrokerProcess, listener: str) -> socket.socket:
    host, _, port = address(broker, listener).rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def client_context(directory: Path, client: str | None = None, **limits: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    if client is not None:
        context.load_cert_chain(directory / f"client-{client}.pem")
    for name, version in limits.items():
        setattr(context, name, version)
    return context


def secured(broker: BrokerProcess, listener: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(connect(broker, listener), server_hostname="localhost")


def is_served(client: socket.socket) -> bool:
    """Returns whether the broker answers a request. False means that the broker closes the connection instead."""
    client.sendall(ASK)
    try:
        return len(client.recv(4)) == 4
    except ConnectionResetError:
        return False


def alert_of(broker: BrokerProcess, listener: str, context: ssl.SSLContext) -> str:
    """Returns the broker's TLS alert, which may arrive only when the client reads."""
    with pytest.raises(ssl.SSLError) as refused, secured(broker, listener, context) as client:
        is_served(client)
    return str(refused.value.reason)


def librdkafka(broker: BrokerProcess, listener: str, directory: Path, client: str | None = None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": address(broker, listener),
        "security.protocol": "ssl",
        "ssl.ca.location": str(directory / "ca.pem"),
    }
    if client is not None:
        pem = str(directory / f"client-{client}.pem")
        settings |= {"ssl.certificate.location": pem, "ssl.key.location": pem}
    return settings


def logged(broker: BrokerProcess, words: str) -> None:
    """Waits until the broker's log contains this text."""
    deadline = time.monotonic() + TIMEOUT_S
    while words not in broker.log_text():
        assert time.monotonic() < deadline, f"not in the log: {words}"
        time.sleep(0.01)


def client_hello(directory: Path) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(directory).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
