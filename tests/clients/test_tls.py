"""Tests that real clients can use TLS listeners, and that invalid peers get an alert or are disconnected
(docs/spec/security.md#s1-2)."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from odradek.protocol.certificates import Credential, new_client
from odradek.protocol.codec import decode
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from tests.clients.tls_peers import (
    ASK,
    TIMEOUT_S,
    address,
    alert_of,
    client_context,
    client_hello,
    connect,
    is_served,
    librdkafka,
    logged,
    secured,
)
from tests.support.broker_process import IS_KAFKA, BrokerProcess, without_abilities
from tests.support.certs_directory import another_authority, certificates, ssl_settings

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="the settings are those of this broker's tests")

CERTIFICATE_REQUIRED = 116  # a TLS alert
PROTOCOLS = {
    "PLAIN": "PLAINTEXT",
    "ANY": "SSL",
    "MAYBE": "SSL",
    "CERT": "SSL",
    "OLD": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "HIDDEN": "PLAINTEXT",
}
ACCOUNT = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'


@pytest.fixture(scope="module")
def directory() -> Path:
    return certificates("kate", "mallory")


@pytest.fixture(scope="module")
def broker(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Yields a broker with all kinds of listeners.

    ANY requests no certificate, MAYBE requests one, and CERT requires one. OLD supports only TLS 1.2. LOGIN and BOTH
    require a login, and HIDDEN is not advertised.
    """
    settings = ssl_settings(directory) | {
        "listeners": ",".join(f"{name}://localhost:0" for name in PROTOCOLS),
        "advertised.listeners": ",".join(f"{name}://localhost:0" for name in PROTOCOLS if name != "HIDDEN"),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": ACCOUNT,
        "listener.name.both.plain.sasl.jaas.config": ACCOUNT,
        "listener.name.maybe.ssl.client.auth": "requested",
        "listener.name.cert.ssl.client.auth": "required",
        "listener.name.cert.ssl.principal.mapping.rules": "RULE:^CN=(kate),.*$/$1/",
        "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
    }
    with BrokerProcess(tmp_path_factory.mktemp("tls") / "data", settings) as running:
        assert isinstance(running, BrokerProcess)
        yield running


# --- Accepted clients: scenario 9.


@pytest.mark.parametrize(("listener", "client"), [("ANY", None), ("MAYBE", None), ("MAYBE", "kate"), ("CERT", "kate")])
def test_scenario_009_librdkafka_produces_and_consumes(
    broker: BrokerProcess, directory: Path, listener: str, client: str | None
) -> None:
    settings = librdkafka(broker, listener, directory, client)
    topic = f"librdkafka-{listener}-{client}"
    producer = Producer(settings)
    values = [os.urandom(100_000) for _ in range(20)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received: list[bytes | None] = []
    while len(received) < len(values):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        received.append(message.value())
    consumer.close()
    assert received == values


def test_scenario_009_kafka_python_produces_and_consumes(broker: BrokerProcess, directory: Path) -> None:
    settings = {
        "bootstrap_servers": address(broker, "CERT"),
        "security_protocol": "SSL",
        "ssl_context": client_context(directory, "kate"),
    }
    producer = KafkaProducer(**settings)
    producer.send("kafka-python", b"x" * 300_000).get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", **settings)
    assert len(next(consumer).value) == 300_000
    consumer.close()


async def test_scenario_009_aiokafka_produces_and_consumes(broker: BrokerProcess, directory: Path) -> None:
    settings = {
        "bootstrap_servers": address(broker, "CERT"),
        "security_protocol": "SSL",
        "ssl_context": client_context(directory, "kate"),
    }
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("aiokafka", b"x" * 300_000)
    async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **settings) as consumer:
        async with asyncio.timeout(TIMEOUT_S):
            assert len((await consumer.getone()).value) == 300_000


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_scenario_009_both_versions_of_tls_are_spoken(
    broker: BrokerProcess, directory: Path, version: ssl.TLSVersion
) -> None:
    context = client_context(directory, minimum_version=version, maximum_version=version)
    with secured(broker, "ANY", context) as client:
        assert is_served(client)
        assert client.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]


def test_scenario_003_each_listener_returns_its_own_address(broker: BrokerProcess, directory: Path) -> None:
    for listener in ("ANY", "CERT"):
        admin = AdminClient(librdkafka(broker, listener, directory, "kate"))
        (listed,) = admin.list_topics(timeout=TIMEOUT_S).brokers.values()
        assert f"{listed.host}:{listed.port}" == address(broker, listener)


def test_scenario_003_a_listener_that_is_not_advertised_returns_no_brokers(broker: BrokerProcess) -> None:
    with connect(broker, "HIDDEN") as client:
        client.sendall(request_bytes(MetadataRequest(topics=[]), 9, 1, "test"))
        (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
        answer = decode(MetadataResponse, 9, client.recv(size, socket.MSG_WAITALL), 5)
    assert (answer.brokers, answer.controller_id) == ([], 1)


def test_a_client_logs_in_over_tls(broker: BrokerProcess, directory: Path) -> None:
    """The client's certificate has no effect: the principal is alice, the user who logs in."""
    settings = librdkafka(broker, "BOTH", directory, "mallory") | {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
    }
    producer = Producer(settings | {"sasl.password": "alice-secret"})
    producer.produce("by-alice", b"x")
    assert producer.flush(TIMEOUT_S) == 0
    errors: list[KafkaError] = []
    refused = Producer(settings | {"sasl.password": "wrong", "error_cb": errors.append})
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        refused.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


# --- Refused clients and their errors: scenarios 10 to 17.


def test_scenario_010_a_client_with_an_unsupported_tls_version_gets_an_alert(
    broker: BrokerProcess, directory: Path
) -> None:
    context = client_context(directory, minimum_version=ssl.TLSVersion.TLSv1_3)
    assert alert_of(broker, "OLD", context) == "TLSV1_ALERT_PROTOCOL_VERSION"


def test_scenario_011_a_client_without_a_certificate_gets_an_alert(broker: BrokerProcess, directory: Path) -> None:
    assert alert_of(broker, "CERT", client_context(directory)) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    older = client_context(directory, maximum_version=ssl.TLSVersion.TLSv1_2)
    assert alert_of(broker, "CERT", older) == "SSLV3_ALERT_HANDSHAKE_FAILURE"


@pytest.mark.parametrize("listener", ["MAYBE", "CERT"])
def test_scenario_012_a_certificate_of_another_authority_is_refused_even_where_none_is_needed(
    broker: BrokerProcess, directory: Path, listener: str
) -> None:
    context = client_context(directory)
    context.load_cert_chain(another_authority("kate") / "client-kate.pem")
    assert alert_of(broker, listener, context) == "TLSV1_ALERT_UNKNOWN_CA"
    logged(broker, "TLS handshake: CERTIFICATE_VERIFY_FAILED")


@pytest.mark.parametrize("listener", ["MAYBE", "CERT"])
def test_a_certificate_that_has_expired_is_refused_even_where_none_is_needed(
    broker: BrokerProcess, directory: Path, listener: str, tmp_path: Path
) -> None:
    authority = Credential.of_pem((directory / "ca-key.pem").read_bytes() + (directory / "ca.pem").read_bytes())
    expired = new_client(authority, "kate", datetime.now(UTC) - timedelta(days=2), days=1)
    (tmp_path / "kate.pem").write_bytes(expired.key_pem + expired.certificate_pem)
    context = client_context(directory)
    context.load_cert_chain(tmp_path / "kate.pem")
    assert alert_of(broker, listener, context) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"


def test_scenario_011_librdkafka_reports_the_alert(broker: BrokerProcess, directory: Path) -> None:
    errors: list[KafkaError] = []
    producer = Producer(librdkafka(broker, "CERT", directory) | {"error_cb": errors.append})
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._TRANSPORT
    assert f"SSL alert number {CERTIFICATE_REQUIRED}" in errors[0].str()


@pytest.mark.parametrize("bytes_in_the_clear", [ASK, b"GET / HTTP/1.0\r\n\r\n", bytes(64), b"\x80" * 64])
def test_scenario_013_a_plaintext_client_is_disconnected_without_a_response(
    broker: BrokerProcess, bytes_in_the_clear: bytes
) -> None:
    with connect(broker, "ANY") as client:
        client.sendall(bytes_in_the_clear)
        port = client.getsockname()[1]
        assert client.recv(100) == b""
    logged(broker, f":{port}: TLS handshake: the client spoke plain text, but this listener expects TLS")


def test_scenario_014_tls_to_a_plaintext_listener_is_closed(broker: BrokerProcess, directory: Path) -> None:
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        secured(broker, "PLAIN", client_context(directory))
    logged(broker, "the client began a TLS handshake, but this listener expects plain text")


@pytest.mark.parametrize("bytes_in_the_clear", [b"\x16\x03\x01\x02\x00" + bytes(507), b"GET / HTTP/1.0\r\n\r\n"])
def test_scenario_015_tls_and_http_to_a_listener_with_a_login_are_closed(
    broker: BrokerProcess, bytes_in_the_clear: bytes
) -> None:
    with connect(broker, "LOGIN") as client:
        client.sendall(bytes_in_the_clear)
        assert client.recv(100) == b""


def test_scenario_016_a_peer_that_connects_and_leaves_leaves_nothing_in_the_log(
    broker: BrokerProcess, directory: Path
) -> None:
    client = connect(broker, "ANY")
    port = client.getsockname()[1]
    client.close()
    with secured(broker, "ANY", client_context(directory)) as after:
        assert is_served(after)
    assert f":{port}:" not in broker.log_text()


def test_scenario_017_a_client_that_no_rule_names_is_closed_at_its_first_request(
    broker: BrokerProcess, directory: Path
) -> None:
    with secured(broker, "CERT", client_context(directory, "mallory")) as client:
        assert not is_served(client)
    logged(broker, "no rule of ssl.principal.mapping.rules matches CN=mallory")


# --- Hostile peers do not affect other clients.


def test_a_client_is_served_beside_a_thousand_unfinished_handshakes(broker: BrokerProcess, directory: Path) -> None:
    idle = [connect(broker, "ANY") for _ in range(500)]
    begun = [connect(broker, "CERT") for _ in range(500)]
    hello = client_hello(directory)
    for peer in begun:
        peer.sendall(hello)
    try:
        with secured(broker, "ANY", client_context(directory)) as client:
            assert is_served(client)
        with secured(broker, "CERT", client_context(directory, "kate")) as client:
            assert is_served(client)
    finally:
        for peer in idle + begun:
            peer.close()


def test_an_unfinished_handshake_is_ended(directory: Path, tmp_path: Path) -> None:
    settings = ssl_settings(directory) | {"odradek.authentication.timeout.ms": 200}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        assert isinstance(broker, BrokerProcess)
        with connect(broker, "SSL") as silent, connect(broker, "SSL") as stopped:
            stopped.sendall(client_hello(directory)[:100])
            assert silent.recv(1) == stopped.recv(1) == b""
        logged(broker, "the handshake did not finish within odradek.authentication.timeout.ms=200")


def test_more_handshakes_than_allowed_push_out_the_oldest(directory: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", ssl_settings(directory) | {"odradek.ssl.handshakes.max": 3}) as broker:
        assert isinstance(broker, BrokerProcess)
        peers = [connect(broker, "SSL") for _ in range(5)]
        assert peers[0].recv(1) == peers[1].recv(1) == b""
        with secured(broker, "SSL", client_context(directory)) as client:
            assert is_served(client)
        for peer in peers:
            peer.close()
        logged(broker, "too many TLS handshakes are in flight")


def send_junk_after_handshakes(broker: BrokerProcess, directory: Path) -> None:
    for junk in (b"\x17\x03\x03\x00\x10" + os.urandom(16), b"\x17\x03\x03\xff\xff", os.urandom(200)):
        client = secured(broker, "ANY", client_context(directory))
        with socket.socket(fileno=client.detach()) as raw:
            raw.settimeout(TIMEOUT_S)
            raw.sendall(junk)
            raw.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while raw.recv(4096):
                    pass


def test_damaged_tls_records_and_junk_after_a_handshake_do_no_harm(broker: BrokerProcess, directory: Path) -> None:
    """The test sends parts of a ClientHello, ClientHellos with changed bytes, a truncated record, and junk within a
    session."""
    hello = client_hello(directory)
    for length in range(0, len(hello), 7):
        with connect(broker, "ANY") as peer:
            peer.sendall(hello[:length])
    for position in range(0, len(hello), 5):
        with connect(broker, "ANY") as peer:
            peer.sendall(hello[:position] + bytes([hello[position] ^ 0xFF]) + hello[position + 1 :])
    send_junk_after_handshakes(broker, directory)
    with secured(broker, "ANY", client_context(directory)) as client:
        assert is_served(client)
    assert "Traceback" not in broker.log_text()


def test_junk_after_a_handshake_does_no_harm_without_uvloop(directory: Path, tmp_path: Path) -> None:
    """The test fails if the broker logs a traceback."""
    settings = ssl_settings(directory) | {
        "listeners": "ANY://localhost:0",
        "listener.security.protocol.map": "ANY:SSL",
        "inter.broker.listener.name": "ANY",
    }
    with BrokerProcess(tmp_path / "data", settings, environment=without_abilities("uvloop")) as broker:
        assert isinstance(broker, BrokerProcess)
        for _ in range(5):
            send_junk_after_handshakes(broker, directory)
        with secured(broker, "ANY", client_context(directory)) as client:
            assert is_served(client)


def test_a_client_cannot_renegotiate(broker: BrokerProcess, directory: Path) -> None:
    """With renegotiation, a TLS 1.2 client could make the broker compute one handshake after another."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    command = [openssl, "s_client", "-connect", address(broker, "ANY"), "-tls1_2", "-legacy_renegotiation"]
    done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=TIMEOUT_S, check=False)
    said = done.stdout + done.stderr
    assert b"RENEGOTIATING" in said
    assert b"no renegotiation" in said


def test_several_requests_behind_the_handshake_are_answered(broker: BrokerProcess, directory: Path) -> None:
    """A client may send its first bytes together with the end of its handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(directory).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with connect(broker, "ANY") as peer:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                peer.sendall(outgoing.read())
                incoming.write(peer.recv(65536))
        client.write(ASK * 3)
        peer.sendall(outgoing.read())
        answered = b""
        while len(answered) < 4 or len(answered) < 3 * (4 + struct.unpack(">i", answered[:4])[0]):
            try:
                answered += client.read(65536)
            except ssl.SSLWantReadError:
                incoming.write(peer.recv(65536))
