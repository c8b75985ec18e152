"""Tests that the broker reads its configuration from all sources with the right precedence and refuses invalid values.
The tests also cover listeners, topic defaults, and the tables of settings."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS, EFFECTIVE_SETTINGS, BrokerSettings
from odradek.broker.configuration.config import BrokerConfig, ConfigError, configure, load_config, without_effect
from odradek.broker.configuration.listeners import Listener
from odradek.broker.configuration.settings import Range, Setting, SettingKind, SettingRow, ValueType
from odradek.broker.configuration.topic_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from odradek.broker.configuration.unused_settings import UNUSED_ON_ONE_NODE, WITHOUT_EFFECT
from tests.support.oracle import REPOSITORY

DAY_MS = 86_400_000


def given(**settings: str) -> BrokerConfig:
    return configure({}, {}, {name.replace("_", "."): value for name, value in settings.items()})[0]


def refusal(settings: Mapping[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        configure({}, {}, settings)
    return str(refused.value)


# Sources of settings


def test_without_any_configuration_everything_has_kafkas_default() -> None:
    config, warnings = configure({}, {}, {})
    assert (config.num_partitions, config.log_segment_bytes, config.message_max_bytes) == (1, 1 << 30, 1048588)
    assert warnings == ()


def test_defaults_that_do_not_suit_one_node_differ_from_kafkas() -> None:
    config = given()
    assert config.node_id == 1
    assert config.offsets_topic_replication_factor == 1
    assert config.transaction_state_log_replication_factor == 1
    assert config.transaction_state_log_min_isr == 1
    assert config.group_initial_rebalance_delay_ms == 0


def test_overrides_win_over_the_environment_and_that_over_the_file() -> None:
    file = {"num.partitions": "2", "log.roll.hours": "2", "fetch.max.bytes": "2000"}
    environment = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_ROLL_HOURS": "3"}
    config, _ = configure(file, environment, {"num.partitions": "4"})
    assert (config.num_partitions, config.log_roll_hours, config.fetch_max_bytes) == (4, 3, 2000)


def test_a_file_is_read_as_java_properties(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# mine\nnum.partitions = 7\n")
    assert load_config(file, {}, {})[0].num_partitions == 7


def test_unknown_names_are_warned_about_in_one_line_and_ignored() -> None:
    config, warnings = configure({"no.such": "1"}, {"KAFKA_OTHER": "2"}, {})
    assert warnings == ("these settings are unknown, and are ignored: no.such, other",)
    assert "no.such" not in config.given_settings


def test_an_unknown_setting_is_named_with_the_one_that_was_probably_meant() -> None:
    _, warnings = configure({"num.partitons": "3"}, {}, {})
    assert warnings == ("these settings are unknown, and are ignored: num.partitons (did you mean num.partitions?)",)


def test_settings_of_kafka_that_do_nothing_here_are_warned_about() -> None:
    assert configure({"log.cleaner.threads": "4"}, {}, {})[1] == (
        "these settings have no effect in this broker: log.cleaner.threads",
    )


def test_a_kraft_configuration_of_one_node_is_accepted_without_a_warning() -> None:
    file = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "num.network.threads": "4",
    }
    config, warnings = configure(file, {}, {})
    assert warnings == ()
    assert [listener.name for listener in config.serving] == ["PLAINTEXT"]


@pytest.mark.parametrize("settings", [{"broker.id": "5"}, {"node.id": "5"}, {"node.id": "5", "broker.id": "7"}])
def test_broker_id_is_an_older_name_of_node_id(settings: dict[str, str]) -> None:
    config, _ = configure(settings, {}, {})
    assert config.node_id == 5
    assert config.current_text("broker.id") == "5"


# Refusals, which name the setting, the value and the permitted values


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("num.partitions", "many", "Not a number of type INT (allowed: a whole number, at least 1)"),
        ("num.partitions", "0", "Value must be at least 1 (allowed: a whole number, at least 1)"),
        ("log.segment.bytes", "99999999999", "Not a number of type INT (allowed: a whole number, at least 1048576)"),
        ("delete.topic.enable", "yes", "Expected value to be either true or false (allowed: true or false)"),
        ("log.cleaner.min.cleanable.ratio", "2", "Value must be no more than 1 (allowed: a number, 0 to 1)"),
        ("log.message.timestamp.type", "now", "CreateTime, LogAppendTime (allowed: one of CreateTime, LogAppendTime)"),
        ("log.cleanup.policy", "burn", "String must be one of: compact, delete"),
        ("log.cleanup.policy", "delete,,compact", "values must not be empty"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("max.connections.per.ip.overrides", "here", "Expected address:count"),
        ("odradek.transactional.id.expiration.rules", "task-", "Expected prefix=milliseconds, with a prefix and"),
        ("odradek.transactional.id.expiration.rules", "=5", "Expected prefix=milliseconds, with a prefix and"),
        ("odradek.transactional.id.expiration.rules", "a=5,b=0", "at least 1 millisecond"),
        ("odradek.transactional.id.expiration.rules", "a=5,b=7,a=6", "Two rules have the prefix a"),
        ("log.dirs", "/a,/b", "must name exactly one directory"),
        ("process.roles", "controller", "must contain broker"),
        ("metadata.log.dir", "/elsewhere", "must be /tmp/kafka-logs"),
        ("log.retention.ms", "0", "must be -1 (no limit) or at least 1"),
        ("group.min.session.timeout.ms", "1800001", "must not exceed group.max.session.timeout.ms (1800000)"),
    ],
)
def test_a_bad_value_is_refused_with_name_value_and_what_is_allowed(name: str, value: str, words: str) -> None:
    message = refusal({name: value})
    assert message.startswith(f"{name}={value}: ")
    assert words in message


# Listeners


def test_the_default_listener_is_for_this_machine_only() -> None:
    assert given().serving == (Listener("PLAINTEXT", "localhost", 9092),)


def test_two_plaintext_listeners_can_have_different_advertised_addresses() -> None:
    config = given(
        listeners="INSIDE://:29092,OUTSIDE://0.0.0.0:9092",
        advertised_listeners="INSIDE://broker:29092,OUTSIDE://localhost:9092",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    )
    assert config.serving == (Listener("INSIDE", "", 29092), Listener("OUTSIDE", "0.0.0.0", 9092))
    assert config.advertise_listeners({"INSIDE": 29092, "OUTSIDE": 9092}, lambda: "unused") == (
        Listener("INSIDE", "broker", 29092),
        Listener("OUTSIDE", "localhost", 9092),
    )


def test_a_free_port_is_advertised_once_it_is_known() -> None:
    config = given(listeners="PLAINTEXT://localhost:0")
    assert config.advertise_listeners({"PLAINTEXT": 43210}, lambda: "unused") == (
        Listener("PLAINTEXT", "localhost", 43210),
    )


def test_a_listener_on_every_interface_is_advertised_by_the_hosts_name() -> None:
    config = given(listeners="PLAINTEXT://:9092")
    assert config.advertise_listeners({"PLAINTEXT": 9092}, lambda: "here.example")[0].host == "here.example"


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert given(listeners="PLAINTEXT://[::1]:9092").serving[0].host == "::1"


def test_odradek_port_replaces_the_port_of_the_first_listener() -> None:
    assert given(odradek_port="0").serving == (Listener("PLAINTEXT", "localhost", 0),)


@pytest.mark.parametrize("prefix", ["offsets.topic.", "transaction.state.log.", "share.coordinator.state.topic."])
@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("segment.bytes", 65536, "at least 1048576, as in every topic"),
        ("replication.factor", 3, "1, because the cluster has only this broker"),
        ("num.partitions", 9_995, "1 to 9994"),
    ],
)
def test_a_state_topic_that_could_not_be_created_is_refused_at_start(
    prefix: str, setting: str, value: int, allowed: str
) -> None:
    why = f"the internal topic cannot be created with this value (allowed: {allowed})"
    assert refusal({prefix + setting: str(value)}) == f"{prefix}{setting}={value}: {why}"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "nonsense"}, "'nonsense' is not of the form NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999"}, "is not of the form NAME://host:port"),
        ({"listeners": "OTHER://:9092"}, "OTHER has no entry in listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "PLAINTEXT appears twice"),
        ({"listeners": "CONTROLLER://:9093"}, "there is no listener for clients"),
        ({"advertised.listeners": "SSL://a:1"}, "each entry must name one of the listeners PLAINTEXT"),
        ({"listener.security.protocol.map": "A=B"}, "'A=B' is not of the form NAME:PROTOCOL"),
    ],
)
def test_a_listener_that_cannot_be_served_is_refused(settings: dict[str, str], words: str) -> None:
    assert words in refusal(settings)


# Time limits in several units


def test_the_finest_unit_of_retention_and_of_rolling_counts() -> None:
    config = given(log_retention_hours="1", log_retention_minutes="3", log_roll_hours="2", log_roll_ms="5")
    assert config.topic_defaults()["retention.ms"] == "180000"
    assert config.topic_defaults()["segment.ms"] == "5"
    assert given(log_retention_ms="-5").topic_defaults()["retention.ms"] == "-1"


# Settings of topics


def test_a_topic_takes_the_brokers_values_where_it_has_none() -> None:
    config = given(log_retention_hours="1", compression_type="zstd", log_flush_interval_messages="1")
    log_config = config.log_config({"segment.bytes": "2000000", "retention.bytes": "5"})
    assert (log_config.retention_ms, log_config.compression_type, log_config.flush_messages) == (3_600_000, "zstd", 1)
    assert (log_config.segment_bytes, log_config.retention_bytes) == (2_000_000, 5)


def test_retention_of_minus_one_becomes_none_for_the_log() -> None:
    log_config = given().log_config({"retention.ms": "-1"})
    assert (log_config.retention_ms, log_config.retention_bytes) == (None, None)


def test_an_empty_cleanup_policy_means_that_nothing_is_cleaned_up() -> None:
    assert given().log_config({"cleanup.policy": ""}).cleanup_policy == frozenset()


def test_a_recorded_value_that_cannot_be_read_counts_as_unset() -> None:
    assert given().log_config({"segment.ms": "soon"}).segment_ms == 7 * DAY_MS


def test_topics_of_the_same_settings_share_one_value_until_the_broker_changes() -> None:
    config = given()
    before = config.log_config({})
    assert config.log_config({}) is before
    config.set_dynamic({"log.segment.bytes": "3000000"}, {})
    assert config.log_config({}).segment_bytes == 3_000_000


# Settings from AlterConfigs


def test_dynamic_values_of_the_broker_override_those_of_the_cluster_and_of_the_file() -> None:
    config = given(log_segment_bytes="2000000", message_max_bytes="1000")
    config.set_dynamic({"log.segment.bytes": "3000000", "message.max.bytes": "2000"}, {"log.segment.bytes": "4000000"})
    assert (config.log_segment_bytes, config.message_max_bytes) == (4_000_000, 2000)
    config.set_dynamic({}, {})
    assert (config.log_segment_bytes, config.message_max_bytes) == (2_000_000, 1000)


def test_recorded_values_that_may_not_be_dynamic_or_cannot_be_read_take_no_effect() -> None:
    config = given()
    config.set_dynamic({"node.id": "9", "log.segment.bytes": "soon", "foo": "bar"}, {})
    assert config.node_id == 1
    assert config.log_segment_bytes == 1 << 30
    assert config.recorded_defaults["foo"] == "bar"


# Tables with one row for each setting

TABLES = ("broker_settings.py", "unused_settings.py", "topic_settings.py")
# Length of the longest list of setting names outside the tables. The list is part of a rule about several settings.
MAX_SETTINGS_ELSEWHERE = 6


def code_of_the_broker() -> Iterator[ast.AST]:
    """Yields the nodes of the broker's code, excluding the tables of settings and the rules for AlterConfigs."""
    for path in (REPOSITORY / "odradek" / "broker").rglob("*.py"):
        if path.name not in (*TABLES, "config_rules.py"):
            yield from ast.walk(ast.parse(path.read_text()))


def texts_in(nodes: Iterable[ast.AST | None]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_no_setting_that_the_code_reads_is_reported_as_without_effect() -> None:
    groups = {f"group.{name}" for name in GROUP_SETTINGS}
    given = dict.fromkeys((texts_in(code_of_the_broker()) | groups) & BROKER_SETTINGS.keys(), "other")
    assert "group.share.record.lock.duration.ms" in given
    assert without_effect(given) == []
    assert without_effect({"log.cleaner.threads": "7"}) == ["log.cleaner.threads"]


def test_a_row_in_the_table_is_enough_to_add_a_broker_setting() -> None:
    class MoreSettings(BrokerSettings):
        odradek_more_ms = SettingKind[int](ValueType.INT)("7", "More.", Range(1))

    assert MoreSettings.__dict__["odradek_more_ms"].setting == Setting(
        "odradek.more.ms", ValueType.INT, "7", "More.", Range(1)
    )
    config = given()
    rows = {name for name, row in vars(BrokerSettings).items() if isinstance(row, SettingRow)}
    assert len(rows) > 200
    assert {name.replace(".", "_") for name in EFFECTIVE_SETTINGS} == rows == rows & vars(config).keys()


@pytest.mark.parametrize("table", [BROKER_SETTINGS, TOPIC_SETTINGS, GROUP_SETTINGS, CLIENT_METRICS_SETTINGS])
def test_every_row_says_in_a_sentence_what_the_setting_is(table: Mapping[str, Setting]) -> None:
    bad = re.compile(r"(How|What|Whether|Who|Whose|Which|After|Those|Of|As)\b|.*[^.]$")
    assert [name for name, setting in table.items() if name != setting.name or bad.match(setting.text)] == []


def test_no_setting_has_two_rows_and_no_other_file_lists_them() -> None:
    assert not EFFECTIVE_SETTINGS.keys() & (UNUSED_ON_ONE_NODE.keys() | WITHOUT_EFFECT.keys())
    assert not UNUSED_ON_ONE_NODE.keys() & WITHOUT_EFFECT.keys()
    names = BROKER_SETTINGS.keys() | TOPIC_SETTINGS.keys() | GROUP_SETTINGS.keys()
    for path in (REPOSITORY / "odradek" / "broker").rglob("*.py"):
        if path.name in TABLES:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
            assert len(texts_in(parts) & names) <= MAX_SETTINGS_ELSEWHERE, path
