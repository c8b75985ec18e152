"""Tests Kafka's scripts as init containers call them, against a broker with SASL logins and ACLs."""

import io
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.tools.container.kafka_tools import run_script
from tests.support.broker_process import BrokerProcess

Script = Callable[..., str]
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LOGIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="a;b";
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("scripts") / "data", SETTINGS) as broker:
        assert isinstance(broker, BrokerProcess)
        yield broker


@pytest.fixture
def script(broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Script:
    """Returns a function that runs a script with the arguments of a shell command and returns the script's output."""

    def run(line: str, *, stdin: str = "", status: int = 0, at: str = broker.bootstrap) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        tool, *words = shlex.split(line)
        assert run_script(tool, [*words, "--bootstrap-server", at]) == status
        found = capsys.readouterr()
        return found.err if status else found.out

    return run


def test_topics_are_created_listed_changed_and_deleted(script: Script) -> None:
    for _ in range(2):
        script("kafka-topics --create --if-not-exists --topic orders.new --partitions 2 --config retention.ms=1000")
    script("kafka-topics --create --topic audit")
    assert script("kafka-topics --list --exclude-internal --topic 'orders.*'") == "orders.new\n"
    script("kafka-configs --alter --topic orders.new --add-config cleanup.policy=[compact,delete]")
    described = script("kafka-configs --describe --entity-type topics --entity-name orders.new")
    assert "cleanup.policy" in described
    assert "compact,delete" in described
    script("kafka-topics --delete --topic orders.new,audit")
    assert script("kafka-topics --list --exclude-internal") == ""


def test_records_go_through_the_console_scripts(script: Script) -> None:
    script("kafka-topics --create --topic lines --partitions 1")
    script(
        "kafka-console-producer --topic lines --property parse.key=true --property key.separator=:"
        " --producer-property acks=all",
        stdin="a:1\nb:2\n",
    )
    printed = script(
        "kafka-console-consumer --topic lines --from-beginning --max-messages 2 --property print.key=true"
        " --property print.offset=true --property key.separator=' '"
    )
    assert printed == "Offset:0 a 1\nOffset:1 b 2\n"


def test_a_user_logs_in_with_a_file_of_settings_and_needs_rights(
    script: Script, broker: BrokerProcess, tmp_path: Path
) -> None:
    script(
        "kafka-configs --alter --entity-type users --entity-name alice"
        " --add-config 'SCRAM-SHA-256=[iterations=4096,password=a;b]'"
    )
    script("kafka-topics --create --topic secret --partitions 1")
    (tmp_path / "login").write_text(LOGIN)
    at = broker.ready["listeners"]["SASL_PLAINTEXT"]
    list_ = f"kafka-topics --command-config {tmp_path / 'login'} --list --topic secret"
    assert script(list_, at=at) == ""
    script("kafka-acls --add --allow-principal User:alice --operation Describe --topic secret --force")
    assert "alice" in script("kafka-acls --list --topic secret")
    assert script(list_, at=at) == "secret\n"
    script("kafka-acls --remove --allow-principal User:alice --operation Describe --topic secret --force")
    assert script(list_, at=at) == ""


def test_an_option_that_is_not_served_is_refused_by_name(script: Script) -> None:
    refused = script("kafka-topics --create --topic t --replica-assignment 1:2", status=1)
    assert refused == (
        "kafka-topics: --replica-assignment is not supported here; the commands of this image are those of"
        " `odradek --help`\n"
    )
