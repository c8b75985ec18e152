"""Tests that real clients can log in with the right password or token and are refused with a wrong one
(docs/spec/security.md#s5-1, #s2-4)."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import admin as confluent_admin
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider
from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker_process import BrokerProcess

PASSWORD = "Al1ce's password"
WRONG = "wrong"
SETTINGS: dict[str, object] = {
    "listeners": "SECURE://127.0.0.1:0,OPEN://127.0.0.1:0",
    "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT,OPEN:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "connections.max.reauth.ms": 60_000,
    "listener.name.secure.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    ),
    "listener.name.secure.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";'
    ),
    **{
        f"listener.name.secure.{mechanism}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        for mechanism in ("scram-sha-256", "scram-sha-512")
    },
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("sasl") / "data", SETTINGS) as broker:
        create_scram_users(broker.bootstrap)
        yield broker.bootstrap
        assert PASSWORD not in broker.log_text()


def create_scram_users(bootstrap: str) -> None:
    """Creates users through a client that has logged in with PLAIN."""
    client: Any = confluent_admin
    admin: Any = client.AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
    )
    mechanisms = client.ScramMechanism.SCRAM_SHA_256, client.ScramMechanism.SCRAM_SHA_512
    for mechanism in mechanisms:  # A request may contain each user only once.
        info = client.ScramCredentialInfo(mechanism, 4096)
        changes = [client.UserScramCredentialUpsertion("alice", info, PASSWORD.encode())]
        for done in admin.alter_user_scram_credentials(changes).values():
            done.result(TIMEOUT_S)
    (described,) = admin.describe_user_scram_credentials(["alice"]).values()
    assert [info.mechanism for info in described.result(TIMEOUT_S).scram_credential_infos] == [*mechanisms]


class LoginDenied(Exception):
    """Raised when a client reports that its authentication has failed."""


def with_confluent(bootstrap: str, mechanism: str, password: str) -> int:
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "error_cb": errors.append,
        "log_level": 0,
    }
    admin = confluent_admin.AdminClient(settings)
    for _ in range(int(TIMEOUT_S)):
        try:
            return len(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            admin.poll(0)
            if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
                raise LoginDenied from None
    raise AssertionError(errors)


def with_kafka_python(bootstrap: str, mechanism: str, password: str) -> int:
    try:
        admin: Any = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
            bootstrap_timeout_ms=3_000 if password == WRONG else 60_000,
        )
    except Exception as error:
        raise LoginDenied from error
    try:
        return len(admin.describe_cluster()["brokers"])
    finally:
        admin.close()


def with_aiokafka(bootstrap: str, mechanism: str, password: str) -> int:
    async def ask() -> int:
        admin = AIOKafkaAdminClient(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
        )
        try:
            await admin.start()
            return len((await admin.describe_cluster())["brokers"])
        except (SaslAuthenticationFailed, KafkaConnectionError) as error:
            raise LoginDenied from error
        finally:
            await admin.close()

    return asyncio.run(asyncio.wait_for(ask(), TIMEOUT_S))


CLIENTS = (with_confluent, with_kafka_python, with_aiokafka)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_scenario_160_the_right_password_is_let_in(
    client: Callable[[str, str, str], int], bootstrap: str, mechanism: str
) -> None:
    assert client(bootstrap, mechanism, PASSWORD) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_scenario_160_a_wrong_password_is_refused(
    client: Callable[[str, str, str], int], bootstrap: str, mechanism: str
) -> None:
    with pytest.raises(LoginDenied):
        client(bootstrap, mechanism, WRONG)


def token_that_lives(seconds: float) -> str:
    def encoded(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    now_s = time.time()
    return f"{encoded({'alg': 'none'})}.{encoded({'sub': 'alice', 'iat': now_s - 5, 'exp': now_s + seconds})}."


class PythonTokens(PythonTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def token(self) -> str:
        return token_that_lives(60)


class AioTokens(AioTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    async def token(self) -> str:
        return token_that_lives(60)


def test_scenario_072_confluents_client_logs_in_with_a_token(bootstrap: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token_that_lives(60), time.time() + 60),
    }
    admin = confluent_admin.AdminClient(settings)
    for _ in range(int(TIMEOUT_S)):
        admin.poll(0.1)  # Polling makes the client request the token.
        with suppress(KafkaException):
            assert len(admin.list_topics(timeout=1).brokers) == 1
            return
    raise AssertionError("no login")


def test_scenario_072_kafka_python_logs_in_with_a_token(bootstrap: str) -> None:
    admin: Any = KafkaAdminClient(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=PythonTokens(),
    )
    assert len(admin.describe_cluster()["brokers"]) == 1
    admin.close()


async def test_scenario_072_aiokafka_logs_in_with_a_token(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=AioTokens(),
    )
    await admin.start()
    assert len((await admin.describe_cluster())["brokers"]) == 1
    await admin.close()


# --- Sessions.


def metric(http_port: int, name: str) -> float:
    with urlopen(f"http://127.0.0.1:{http_port}/metrics") as response:
        text = response.read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"kafka_server_socket_server_metrics_{name}_total"
    )


@pytest.mark.slow  # runs in `make test-slow`
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_confluents_client_renews_its_session_while_it_produces(tmp_path: Path, mechanism: str) -> None:
    """Waits until the connection has re-authenticated twice and checks that no record was lost in the process."""
    session_ms = 2_000
    with BrokerProcess(tmp_path / "data", SETTINGS | {"connections.max.reauth.ms": session_ms}) as broker:
        create_scram_users(broker.bootstrap)
        assert isinstance(broker, BrokerProcess)
        http_port = broker.ready["http_port"]
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "linger.ms": 0,
        }
        if mechanism == "OAUTHBEARER":
            settings["oauth_cb"] = lambda _: (token_that_lives(60), time.time() + 60)
        else:
            settings |= {"sasl.username": "alice", "sasl.password": PASSWORD}
        producer = Producer(settings)
        delivered: list[bool] = []
        ends_at = time.monotonic() + 2 * TIMEOUT_S
        sent = 0
        while metric(http_port, "successful_reauthentication") < 2:
            assert time.monotonic() < ends_at
            producer.produce("renewed", b"%d" % sent, on_delivery=lambda error, _: delivered.append(error is None))
            sent += 1
            producer.poll(0.1)
        assert producer.flush(TIMEOUT_S) == 0
        assert delivered == [True] * sent
        assert metric(http_port, "failed_reauthentication") == 0
