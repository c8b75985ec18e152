"""Tests that Kafka's tools create users and ACLs over SASL_SSL, work with the granted rights, and are refused in the
same cases as with Kafka.

The broker's settings and the tools' properties files are those of examples/secure. Rules: docs/spec/security.md#s5-1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.java_properties import parse_properties
from tests.conformance.tools import ToolResult, Tools
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.oracle import REPOSITORY, needs_kafka

pytestmark = needs_kafka

EXAMPLE = REPOSITORY / "examples" / "secure"
LISTENER = "SASL_SSL://127.0.0.1:0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with certificates, and with client properties files that name these certificates."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority.make("Test CA")
    authority.issue("broker").write(folder / "server.pem")
    (folder / "ca.pem").write_text(authority.pem)
    (folder / "other-ca.pem").write_text(Authority.make("Another CA").pem)
    for name in ("admin", "alice"):
        text = (EXAMPLE / f"{name}.properties").read_text().replace("certs/", f"{folder}/")
        (folder / f"{name}.properties").write_text(text)
    alice = (folder / "alice.properties").read_text()
    (folder / "wrong-password.properties").write_text(alice.replace("alice-secret", "guessed"))
    (folder / "wrong-authority.properties").write_text(alice.replace("ca.pem", "other-ca.pem"))
    return folder


@pytest.fixture(scope="module")
def bootstrap(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings: dict[str, object] = dict(parse_properties((EXAMPLE / "broker.properties").read_text()))
    settings |= {"listeners": LISTENER, "ssl.keystore.location": folder / "server.pem"}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as broker:
        yield broker.bootstrap


def test_kafkas_tools_set_up_a_user_work_as_one_and_are_refused(tools: Tools, folder: Path, bootstrap: str) -> None:
    def run(tool: str, who: str, *words: object, stdin: str = "", status: int = 0) -> ToolResult:
        config = ("--command-config", folder / f"{who}.properties")
        return tools.run(tool, "--bootstrap-server", bootstrap, *config, *words, stdin=stdin, status=status)

    alice = ("--entity-type", "users", "--entity-name", "alice")
    run("configs", "admin", "--alter", "--add-config", "SCRAM-SHA-512=[password=alice-secret]", *alice)
    assert "SCRAM-SHA-512=iterations=4096" in run("configs", "admin", "--describe", *alice).stdout
    allowed = ("--allow-principal", "User:alice", "--topic", "orders")
    run("acls", "admin", "--add", *allowed, "--producer")
    run("acls", "admin", "--add", *allowed, "--consumer", "--group", "billing")
    run("console-producer", "alice", "--topic", "orders", stdin="two teas\n")
    reading = ("--topic", "orders", "--group", "billing", "--from-beginning", "--max-messages", 1)
    assert run("console-consumer", "alice", *reading, "--timeout-ms", 20_000).lines == ["two teas"]

    denied = run("topics", "alice", "--delete", "--topic", "orders", status=1)
    assert "TopicAuthorizationException" in denied.stdout + denied.stderr
    wrong_password = run("topics", "wrong-password", "--list", status=1)
    assert "SaslAuthenticationException" in wrong_password.stdout + wrong_password.stderr
    wrong_authority = run("topics", "wrong-authority", "--list", status=1)
    assert "SslAuthenticationException" in wrong_authority.stdout + wrong_authority.stderr
