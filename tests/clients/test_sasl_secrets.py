"""Tests that secrets never appear in a broker's output: responses, errors, configs, HTTP, the log, or its files.

Source: docs/spec/security.md#s5-1.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.scram import ScramMechanism, client_key, salted_password, server_key, stored_key
from odradek.protocol.struct import Message
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka logs some of them")

PASSWORD = "planted-password-of-alice"
GUESS = "planted-guess"
TOKEN_SECRET = "planted-secret-of-tokens"
SCRAM_PASSWORD = "planted-password-of-bob"
BEARER = base64.urlsafe_b64encode(b'{"sub":"planted-subject","exp":1}').rstrip(b"=").decode()
SALT = b"salt"
SALTED = salted_password(ScramMechanism.SHA_256, SCRAM_PASSWORD.encode(), SALT, 4096)
JAAS = "org.apache.kafka.common.security.{}LoginModule required {};"
SETTINGS = {
    "listeners": "SECURE://127.0.0.1:0",
    "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.secure.plain.sasl.jaas.config": JAAS.format("plain.Plain", f'user_alice="{PASSWORD}"'),
    "listener.name.secure.scram-sha-256.sasl.jaas.config": JAAS.format("scram.Scram", ""),
    "listener.name.secure.oauthbearer.sasl.jaas.config": JAAS.format("oauthbearer.OAuthBearer", ""),
    "delegation.token.secret.key": TOKEN_SECRET,
    "connection.failed.authentication.delay.ms": 0,
    "odradek.http.port": 0,
}
# Secrets that the metadata log must not contain. It contains keys derived from passwords, but no passwords.
NEVER_ON_DISK = (PASSWORD, GUESS, TOKEN_SECRET, SCRAM_PASSWORD, BEARER, SALTED)
VIEWS = ("overview", "connections", "topics", "groups", "transactions", "settings", "warnings")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    environment = {"KAFKA_LOG4J_ROOT_LOGLEVEL": "TRACE"}
    with BrokerProcess(tmp_path / "data", SETTINGS, environment=environment) as running:
        assert isinstance(running, BrokerProcess)
        yield running


def login(broker: BrokerProcess, mechanism: str, token: bytes) -> tuple[Wire, list[Message]]:
    wire = Wire(broker.bootstrap)
    handshake: Message = wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    answer: Message = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
    return wire, [handshake, answer]


def http(broker: BrokerProcess, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", broker.ready["http_port"], timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def shown(message: Any) -> str:
    """Returns all fields of a message as text."""
    if isinstance(message, Message):
        names: tuple[str, ...] = type(message).__slots__
        return " ".join(shown(getattr(message, name)) for name in names)
    if isinstance(message, list):
        return " ".join(map(shown, message))
    return str(message)


def as_text(secret: str | bytes) -> tuple[str, ...]:
    """Returns all textual forms in which a broker could reveal the secret."""
    if isinstance(secret, str):
        return (secret,)
    return str(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode()


def test_scenario_158_no_secret_is_returned_or_logged(broker: BrokerProcess) -> None:
    texts: list[str] = []
    for mechanism, token in (
        ("PLAIN", f"\0alice\0{GUESS}".encode()),
        ("PLAIN", f"{GUESS}\0alice\0{GUESS}".encode()),
        ("PLAIN", GUESS.encode()),
        ("SCRAM-SHA-256", GUESS.encode()),
        ("OAUTHBEARER", f"n,,\x01auth=Bearer e30.{BEARER}.\x01\x01".encode()),
        ("OAUTHBEARER", BEARER.encode()),
    ):
        wire, answers = login(broker, mechanism, token)
        texts.append(shown(answers))
        wire.close()
    wire, answers = login(broker, "PLAIN", f"\0alice\0{PASSWORD}".encode())
    texts.append(shown(answers))
    upsertion = ScramCredentialUpsertion(name="bob", mechanism=1, iterations=4096, salt=SALT, salted_password=SALTED)
    bad = ScramCredentialUpsertion(name="eve", mechanism=1, iterations=1, salt=SALT, salted_password=SALTED)
    texts.append(shown(wire.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion, bad]), 0)))
    texts.append(shown(wire.ask(DescribeUserScramCredentialsRequest(users=None), 0)))
    token_answer: Any = wire.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    proof = bytes(token_answer.hmac)
    assert len(proof) == 64
    own = AlterableConfig(name="listener.name.secure.plain.sasl.jaas.config", config_operation=0, value=f"x {GUESS};")
    plain = AlterableConfig(name="sasl.jaas.config", config_operation=0, value=GUESS)
    for config in (own, plain):
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
        texts.append(shown(wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)))
    described = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    configs: Any = wire.ask(
        DescribeConfigsRequest(resources=[described], include_synonyms=True, include_documentation=True), 4
    )
    jaas = [one for one in configs.results[0].configs if one.name.endswith("jaas.config")]
    assert len(jaas) >= 3
    assert all(one.is_sensitive and one.value is None for one in jaas)
    texts.append(shown(configs))
    texts += [http(broker, path) for path in ("/", "/metrics", "/healthz", "/readyz", "/api/actions")]
    texts += [http(broker, f"/api/{view}") for view in VIEWS]
    texts.append(json.dumps(broker.ready))
    wire.close()
    broker.stop()
    texts.append(broker.log_text())
    assert "authentication failed" in texts[-1]
    keys = client_key(ScramMechanism.SHA_256, SALTED)
    kept = stored_key(ScramMechanism.SHA_256, keys), server_key(ScramMechanism.SHA_256, SALTED)
    secrets = (*NEVER_ON_DISK, proof, keys, *kept)
    for secret in secrets:
        for form in as_text(secret):
            assert [text[:200] for text in texts if form in text] == []


def test_no_password_is_written_to_the_data_directory(broker: BrokerProcess) -> None:
    test_scenario_158_no_secret_is_returned_or_logged(broker)
    content = b"".join(path.read_bytes() for path in broker.data_dir.rglob("*") if path.is_file())
    assert b"bob" in content
    for secret in NEVER_ON_DISK:
        assert (secret.encode() if isinstance(secret, str) else secret) not in content
