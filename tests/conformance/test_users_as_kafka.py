"""Tests that Kafka's tools create users and delegation tokens on our broker, and that a directory with users moves to
Kafka and back."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.tools import Tools
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

USERS = ("--entity-type", "users")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS: dict[str, object] = {
    "listeners": "SECURE://127.0.0.1:0",
    "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} user_alice="pw";',
    "delegation.token.secret.key": "secret of tokens",
}


def configs(tools: Tools, broker: Broker, *words: str) -> str:
    ran = tools.run("configs", "--bootstrap-server", broker.bootstrap, *words, status=0)
    return ran.stdout + ran.stderr


LINE = re.compile(r"SCRAM credential configs for user-principal '(.*)' are (.*)")


def described(tools: Tools, broker: Broker) -> dict[str, set[str]]:
    """Returns each user's credentials as a set, because Kafka lists them in arbitrary order."""
    lines = map(LINE.fullmatch, configs(tools, broker, "--describe", *USERS).splitlines())
    return {found[1]: set(found[2].split(", ")) for found in lines if found is not None}


def test_kafkas_tool_sets_users_and_directories_go_to_kafka_and_back(tools: Tools, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        for name, config in (
            ("ann", "SCRAM-SHA-256=[iterations=8192,password=a],SCRAM-SHA-512=[password=b]"),
            ("bob", "SCRAM-SHA-256=[password=c]"),
        ):
            for one in config.split(",SCRAM"):
                text = one if one.startswith("SCRAM") else f"SCRAM{one}"
                said = configs(tools, broker, "--alter", *USERS, "--entity-name", name, "--add-config", text)
                assert "Completed updating" in said
        ours = {
            "ann": {"SCRAM-SHA-256=iterations=8192", "SCRAM-SHA-512=iterations=4096"},
            "bob": {"SCRAM-SHA-256=iterations=4096"},
        }
        assert described(tools, broker) == ours
        port = broker.port
    with KafkaProcess(tmp_path / "data", port=port) as kafka:
        assert described(tools, kafka) == ours
        configs(tools, kafka, "--alter", *USERS, "--entity-name", "ann", "--delete-config", "SCRAM-SHA-512")
    with BrokerProcess(tmp_path / "data") as broker:
        assert described(tools, broker) == {
            "ann": {"SCRAM-SHA-256=iterations=8192"},
            "bob": {"SCRAM-SHA-256=iterations=4096"},
        }


def test_kafkas_tool_creates_renews_describes_and_expires_delegation_tokens(tools: Tools, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="alice" password="pw";\n'
    )
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:

        def tokens(*words: str) -> str:
            client = ("--bootstrap-server", broker.bootstrap, "--command-config", str(properties))
            ran = tools.run("delegation-tokens", *client, *words, status=0)
            return ran.stdout

        created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        row = next(line for line in created.splitlines() if "User:alice" in line).split()
        token_id, proof = row[0], row[1]
        # The tool sends no request unless an owner is given.
        of_alice = ("--describe", "--owner-principal", "User:alice")
        assert token_id in tokens(*of_alice)
        assert "Completed renew" in tokens("--renew", "--renew-time-period", "-1", "--hmac", proof)
        assert "Completed expire" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", proof)
        assert token_id not in tokens(*of_alice)
