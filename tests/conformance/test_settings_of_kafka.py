"""Tests that the settings tables match those in Kafka 4.4.0: every name, type, default, rule and error message."""

import base64
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.configuration.config_description import kafka_text
from odradek.broker.configuration.settings import InvalidSetting, Setting, UpdateMode, ValueType
from odradek.broker.configuration.topic_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from tests.support.broker_process import REFERENCE
from tests.support.oracle import needs_kafka, run_kafka

pytestmark = needs_kafka

OWN_PREFIX = "odradek."
# The authorizer's settings, which are in none of Kafka's tables.
OF_THE_AUTHORIZER = ("allow.everyone.if.no.acl.found", "super.users")
TABLES: Mapping[str, Mapping[str, Setting]] = {
    "broker": {
        name: setting
        for name, setting in BROKER_SETTINGS.items()
        if not name.startswith(OWN_PREFIX) and name not in OF_THE_AUTHORIZER
    },
    "topic": TOPIC_SETTINGS,
    "group": GROUP_SETTINGS,
    "client-metrics": CLIENT_METRICS_SETTINGS,
}
ONE_NODE = {  # Odradek's default and Kafka's default for each setting
    "controller.listener.names": ("CONTROLLER", None),
    "group.initial.rebalance.delay.ms": ("0", "3000"),
    "listeners": ("PLAINTEXT://localhost:9092", "PLAINTEXT://:9092"),
    "node.id": ("1", None),
    "offsets.topic.replication.factor": ("1", "3"),
    "process.roles": ("broker,controller", None),
    "share.coordinator.state.topic.min.isr": ("1", "2"),
    "share.coordinator.state.topic.replication.factor": ("1", "3"),
    "transaction.state.log.min.isr": ("1", "2"),
    "transaction.state.log.replication.factor": ("1", "3"),
}
VALUES = (
    *("", " ", "x", "-2", "-1", "0", "1", "2", "3", "5", "9", "10", "11", "17", "22", "23", "100", "+7", " 8 ", "0x10"),
    *("1_0", "1e3", "0.5", "1.5", "-0.1", "nan", "30000", "65536", "1048576", "2147483647", "2147483648"),
    *("9223372036854775807", "9223372036854775808", "true", "FALSE", "yes", "a,b", "a, b ,a", "a,,b", ",", "*"),
    *("compact", "delete,compact", "CreateTime", "createtime", "gzip", "producer", "uncompressed", "none", "required"),
    *("0:1", "0:1,1:1", "1:x", "latest", "EARLIEST", "by_duration:P1D", "by_duration:PT1H", "by_duration:1D", "é"),
    *("read_committed", "upgrade", "DISABLED", "RS256", "consumer,classic", "broker", "PLAINTEXT", "SSL"),
)
# Settings whose rules are not in Kafka's table, or that concern parts of Kafka that Odradek does not have.
OTHER_RULES = frozenset(
    {
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "max.connections.per.ip.overrides",  # Kafka validates this setting later.
    }
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    folder = tmp_path_factory.mktemp("settings")
    classpath = run_kafka("classpath", "--version", REFERENCE).strip()
    source = Path(__file__).parent / "java" / "Settings.java"
    subprocess.run(["javac", "-cp", classpath, "-d", folder, source], check=True)
    values = "".join(f"{base64.b64encode(value.encode()).decode()}\n" for value in VALUES)
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{classpath}:{folder}", "Settings"]
    answer = subprocess.run(java, input=values, capture_output=True, text=True, check=True, timeout=300)
    return [line.split("\t") for line in answer.stdout.splitlines()]


def text_of(word: str) -> str | None:
    return None if word == "-" else base64.b64decode(word[1:]).decode()


def test_the_tables_have_kafkas_names_and_no_others(kafka: list[list[str]]) -> None:
    for table, ours in TABLES.items():
        theirs = {row[2] for row in kafka if row[:2] == ["setting", table]}
        assert ours.keys() == theirs, table


def test_types_defaults_and_update_modes_are_kafkas_but_for_what_one_node_needs(kafka: list[list[str]]) -> None:
    different = {}
    for _, table, name, kind, default, internal, mode in (row for row in kafka if row[0] == "setting"):
        setting = TABLES[table][name]
        assert (setting.kind, setting.is_internal) == (ValueType[kind], internal == "true"), name
        assert setting.update == UpdateMode(mode), name
        if setting.default != text_of(default):
            different[name] = (setting.default, text_of(default))
    assert different == ONE_NODE


def outcomes(kafka: list[list[str]]) -> Iterator[tuple[Setting, str, str]]:
    for row in kafka:
        if row[0] == "value" and row[2] not in OTHER_RULES:
            value, outcome = text_of(row[3]), text_of(row[4])
            assert value is not None
            assert outcome is not None
            yield TABLES[row[1]][row[2]], value, outcome


def test_every_value_is_accepted_or_refused_as_by_kafka_with_the_same_message(kafka: list[list[str]]) -> None:
    different = []
    for setting, value, outcome in outcomes(kafka):
        if setting.kind is ValueType.CLASS:
            continue  # Kafka's outcome depends on whether it can load the named class.
        try:
            setting.parse(value)
            ours = f"ok {kafka_text(setting, value)}"
        except InvalidSetting as refusal:
            ours = f"no {refusal}"
        if setting.kind is ValueType.PASSWORD:
            outcome = f"ok {value.strip()}" if outcome.startswith("ok") else outcome
        if ours != outcome:
            different.append(f"{setting.name}={value!r}\n  Kafka: {outcome}\n  ours:  {ours}")
    assert not different, f"{len(different)} differ\n" + "\n".join(different[:40])
