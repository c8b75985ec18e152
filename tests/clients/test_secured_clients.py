"""Tests every client library with every security protocol and mechanism, on one broker with five listeners.

The tests also check each client's error when it is refused (docs/spec/security.md#s5-1).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaConnectionError
from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaTimeoutError

from odradek import client as own
from odradek.client.administration.users import delete_password, set_password
from odradek.protocol.errors import ErrorCode
from odradek.protocol.scram import ScramMechanism
from tests.clients.secured_clients import (
    CLIENTS,
    PATIENCE_S,
    Access,
    aiokafka_settings,
    confluent_settings,
    kafka_python_settings,
    own_settings,
)
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CASES = [
    (protocol, mechanism)
    for protocol in LISTENERS
    for mechanism in (MECHANISMS if protocol.startswith("SASL") else (None,))
]
MODULES = "org.apache.kafka.common.security"
LOGIN_MODULES = {
    "PLAIN": f'{MODULES}.plain.PlainLoginModule required user_alice="pw";',
    "SCRAM-SHA-256": f"{MODULES}.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule required;",
    "OAUTHBEARER": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
}
SHORT, SHORT_SESSION_MS = "SHORT", 1_000  # This listener has short sessions.
TOPIC = "secured"


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    listeners: dict[str, str]
    ca_file: Path
    other_ca_file: Path

    def access(self, protocol: str, mechanism: str | None = None) -> Access:
        return Access(self.listeners[protocol], mechanism, str(self.ca_file) if protocol.endswith("SSL") else None)


def settings_of(certificate: Path) -> dict[str, object]:
    settings: dict[str, object] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in (*LISTENERS, SHORT)),
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in LISTENERS) + f",{SHORT}:SASL_PLAINTEXT",
        f"listener.name.{SHORT.lower()}.connections.max.reauth.ms": SHORT_SESSION_MS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificate,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    }
    for listener in ("sasl_plaintext", "sasl_ssl", SHORT.lower()):
        for mechanism, module in LOGIN_MODULES.items():
            settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = module
    return settings


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority.make("Test CA")
    (folder / "ca.pem").write_text(authority.pem)
    (folder / "other-ca.pem").write_text(Authority.make("Another CA").pem)
    certificate = authority.issue("broker").write(folder / "broker.pem")
    broker = BrokerProcess(folder / "data", settings_of(certificate))
    with broker:
        asyncio.run(prepare(broker.bootstrap))
        yield SecuredBroker(broker.ready["listeners"], folder / "ca.pem", folder / "other-ca.pem")


async def prepare(bootstrap: str) -> None:
    """Creates the topic and alice's SCRAM credentials."""
    async with own.Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([own.NewTopic(TOPIC, 1)])
        for mechanism in ScramMechanism:
            await set_password(admin.requests, "alice", "pw", mechanism)


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_record_is_produced_and_consumed(
    secured: SecuredBroker, client: str, protocol: str, mechanism: str | None
) -> None:
    value = f"{client} {protocol} {mechanism}".encode()
    assert CLIENTS[client](secured.access(protocol, mechanism), TOPIC, value) == value


async def refused(access: Access) -> own.ClientError:
    with pytest.raises(own.ClientError) as refused:
        async with own.Admin(
            bootstrap_servers=access.bootstrap, default_api_timeout_ms=10_000, **own_settings(access)
        ) as admin:
            await admin.list_topics()
    return refused.value


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_our_client_reports_why_a_login_is_refused(secured: SecuredBroker, protocol: str, mechanism: str) -> None:
    right = secured.access(protocol, mechanism)
    wrong = replace(right, user="") if mechanism == "OAUTHBEARER" else replace(right, password="wrong")
    error = await refused(wrong)
    assert isinstance(error, own.AuthenticationFailed)
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "refused the login" in str(error)


async def test_our_client_names_the_security_protocol_that_the_listener_expects(secured: SecuredBroker) -> None:
    """The client's settings for TLS and for the login are each the opposite of the listener's."""
    without_tls = replace(secured.access("PLAINTEXT"), bootstrap=secured.listeners["SSL"])
    with_tls = replace(secured.access("SSL"), bootstrap=secured.listeners["PLAINTEXT"])
    without_login = replace(secured.access("PLAINTEXT"), bootstrap=secured.listeners["SASL_PLAINTEXT"])
    with_login = replace(secured.access("SASL_PLAINTEXT", "PLAIN"), bootstrap=secured.listeners["PLAINTEXT"])
    stranger = replace(secured.access("SSL"), ca_file=str(secured.other_ca_file))
    assert "security_protocol" in str(await refused(without_tls))
    assert "its listener may not use TLS" in str(await refused(with_tls))
    assert "its listener may require TLS or SASL (security_protocol=PLAINTEXT)" in str(await refused(without_login))
    assert "its listener has no SASL" in str(await refused(with_login))
    assert "ssl_cafile" in str(await refused(stranger))


async def test_our_clients_fail_at_once_when_a_later_login_is_refused(secured: SecuredBroker) -> None:
    """bob loses his password while his clients run. Each call fails long before the delivery timeout."""
    async with own.Admin(bootstrap_servers=secured.listeners["PLAINTEXT"]) as admin:
        await set_password(admin.requests, "bob", "pw", ScramMechanism.SHA_256)
        bob = Access(secured.listeners[SHORT], "SCRAM-SHA-256", user="bob")
        address, security = bob.bootstrap, own_settings(bob)
        async with (
            own.Producer(bootstrap_servers=address, **security) as producer,
            own.Producer(bootstrap_servers=address, transactional_id="bob", **security) as transactional,
            own.Consumer(TOPIC, bootstrap_servers=address, group_id="bobs", **security) as consumer,
            own.ShareConsumer(TOPIC, bootstrap_servers=address, group_id="bobs-queue", **security) as sharing,
        ):
            await transactional.init_transactions()
            await transactional.begin_transaction()
            await delete_password(admin.requests, "bob", ScramMechanism.SHA_256)

            async def produce(by: own.Producer) -> None:
                while True:
                    await (await by.send(TOPIC, b"still here"))

            async def consume() -> None:
                while True:
                    await consumer.getone()

            async def share() -> None:
                while True:
                    await sharing.getmany(timeout_ms=1_000)

            async with asyncio.timeout(PATIENCE_S):
                ends = await asyncio.gather(
                    produce(producer), produce(transactional), consume(), share(), return_exceptions=True
                )
            assert [type(end) for end in ends] == [own.AuthenticationFailed] * 4
            with pytest.raises(own.AuthenticationFailed):
                await transactional.commit_transaction()


def wait_for_event(access: Access, name: str) -> None:
    """Waits for a confluent-kafka event."""
    events: list[confluent_kafka.KafkaError] = []
    admin = AdminClient(confluent_settings(access) | {"error_cb": events.append})
    deadline = time.monotonic() + PATIENCE_S
    while name not in [event.name() for event in events]:
        admin.poll(0.1)
        assert time.monotonic() < deadline, events


def kafka_python_reports(access: Access) -> list[str]:
    with pytest.raises(KafkaTimeoutError) as error:
        kafka.KafkaConsumer(**kafka_python_settings(access), bootstrap_timeout_ms=1_000)
    return [type(error.value).__name__]


def aiokafka_reports(access: Access) -> list[str]:
    async def start() -> list[str]:
        producer = aiokafka.AIOKafkaProducer(**aiokafka_settings(access))
        try:
            with pytest.raises(KafkaConnectionError) as error:
                await producer.start()
        finally:
            await producer.stop()
        return [type(error.value).__name__]

    return asyncio.run(start())


@pytest.mark.parametrize("mistake", ["password", "authority", "without TLS", "without a login"])
def test_other_client_libraries_report_the_refusal(secured: SecuredBroker, mistake: str) -> None:
    access, event = {
        "password": (replace(secured.access("SASL_SSL", "SCRAM-SHA-512"), password="wrong"), "_AUTHENTICATION"),
        "authority": (replace(secured.access("SSL"), ca_file=str(secured.other_ca_file)), "_SSL"),
        "without TLS": (replace(secured.access("PLAINTEXT"), bootstrap=secured.listeners["SSL"]), "_ALL_BROKERS_DOWN"),
        "without a login": (
            replace(secured.access("PLAINTEXT"), bootstrap=secured.listeners["SASL_PLAINTEXT"]),
            "_ALL_BROKERS_DOWN",
        ),
    }[mistake]
    wait_for_event(access, event)
    assert kafka_python_reports(access) == ["KafkaTimeoutError"]
    assert aiokafka_reports(access) == ["KafkaConnectionError"]
