"""Tests that DescribeConfigs returns the values, sources and synonyms of settings. The expected values were observed on
Kafka 4.3.1."""

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.configuration.config_description import (
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
    effective_topic_settings,
    kafka_text,
    select_settings,
)
from odradek.broker.configuration.settings import ValueType, java_double
from odradek.broker.configuration.topic_settings import TOPIC_SETTINGS
from odradek.protocol.kafka_rules import KafkaRules
from tests.support.metadata import config_with
from tests.support.oracle import exchanges, needs_oracle

S = ConfigSource


def one(described: list[DescribedConfig], name: str) -> DescribedConfig:
    (found,) = select_settings(described, [name])
    return found


def synonyms(described: DescribedConfig) -> list[tuple[str, str | None, ConfigSource]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in described.synonyms]


def test_the_own_value_of_a_topic_precedes_its_synonyms() -> None:
    config = config_with()
    config.set_dynamic({"log.segment.bytes": "2000000"}, {"log.segment.bytes": "3000000"})
    described = one(describe_topic(config, {"segment.bytes": "4000000"}), "segment.bytes")
    assert (described.value, described.source, described.kind) == ("4000000", S.TOPIC, ValueType.INT)
    assert synonyms(described) == [
        ("segment.bytes", "4000000", S.TOPIC),
        ("log.segment.bytes", "3000000", S.DYNAMIC_BROKER),
        ("log.segment.bytes", "2000000", S.DYNAMIC_DEFAULT),
        ("log.segment.bytes", "1073741824", S.DEFAULT),
    ]


def test_without_a_value_of_its_own_a_topic_shows_the_brokers() -> None:
    described = one(describe_topic(config_with(compression_type="zstd"), {}), "compression.type")
    assert (described.value, described.source) == ("zstd", S.GIVEN)
    assert synonyms(described) == [
        ("compression.type", "zstd", S.GIVEN),
        ("compression.type", "producer", S.DEFAULT),
    ]


def test_retention_in_a_coarser_unit_is_converted_but_its_source_is_not_shown() -> None:
    config = config_with(log_retention_hours="5")
    described = one(describe_topic(config, {}), "retention.ms")
    assert (described.value, described.source, synonyms(described)) == ("18000000", S.DEFAULT, [])
    config.set_dynamic({}, {"log.retention.ms": "777"})
    described = one(describe_topic(config, {}), "retention.ms")
    assert (described.value, described.source) == ("777", S.DYNAMIC_BROKER)
    assert synonyms(described)[1:] == [
        ("log.retention.hours", "5", S.GIVEN),
        ("log.retention.hours", "168", S.DEFAULT),
    ]


def test_create_topics_answers_the_source_that_describe_configs_does_not_show() -> None:
    config = config_with(log_retention_hours="5", log_flush_interval_messages="7")
    config.set_dynamic({}, {"log.index.interval.bytes": "5000"})
    effective = effective_topic_settings(config, {"segment.bytes": "3000000"})
    sources = {setting.name: (setting.value, setting.source) for setting in effective}
    assert sources["retention.ms"] == ("18000000", S.GIVEN)
    assert sources["flush.messages"] == ("7", S.GIVEN)
    assert sources["index.interval.bytes"] == ("5000", S.DYNAMIC_BROKER)
    assert sources["segment.bytes"] == ("3000000", S.TOPIC)
    assert sources["segment.ms"] == ("604800000", S.DEFAULT)


def test_an_internal_setting_is_shown_only_where_it_is_set() -> None:
    def names(overrides: dict[str, str]) -> set[str]:
        return {described.name for described in describe_topic(config_with(), overrides)}

    assert names({}) == TOPIC_SETTINGS.keys() - {"internal.segment.bytes"}
    assert "internal.segment.bytes" in names({"internal.segment.bytes": "100"})


def test_a_broker_shows_every_setting_of_kafka_that_is_not_internal() -> None:
    described = describe_broker(config_with())
    assert len([one for one in described if not one.name.startswith("odradek.")]) == 350


def test_settings_that_cannot_change_at_run_time_are_read_only() -> None:
    described = describe_broker(config_with())
    assert one(described, "node.id").is_read_only
    assert not one(described, "log.retention.ms").is_read_only
    assert not one(described, "listeners").is_read_only


def test_passwords_and_unknown_settings_are_kept_secret() -> None:
    config = config_with(ssl_keystore_password="secret")
    config.set_dynamic({}, {"foo.bar": "secret too"})
    described = describe_broker(config)
    for name, kind in (("ssl.keystore.password", ValueType.PASSWORD), ("foo.bar", None)):
        secret = one(described, name)
        assert (secret.value, secret.is_sensitive, secret.kind) == (None, True, kind)
        assert all(synonym.value is None for synonym in secret.synonyms)


def test_settings_that_stand_in_for_one_another_are_synonyms() -> None:
    config = config_with()
    config.set_dynamic({}, {"log.flush.interval.ms": "100"})
    assert synonyms(one(describe_broker(config), "log.flush.interval.ms")) == [
        ("log.flush.interval.ms", "100", S.DYNAMIC_BROKER),
        ("log.flush.scheduler.interval.ms", "9223372036854775807", S.DEFAULT),
    ]


def test_the_default_broker_has_only_what_was_set_for_all_brokers() -> None:
    config = config_with(log_segment_bytes="2000000")
    config.set_dynamic({"log.segment.bytes": "3000000"}, {"message.max.bytes": "5"})
    (described,) = describe_broker_defaults(config)
    assert (described.name, described.value, described.source) == ("log.segment.bytes", "3000000", S.DYNAMIC_DEFAULT)
    assert synonyms(described) == [("log.segment.bytes", "3000000", S.DYNAMIC_DEFAULT)]
    assert not described.is_read_only


def test_a_group_and_a_subscription_show_defaults_before_they_exist() -> None:
    timeout = one(describe_group(config_with(), {}), "consumer.session.timeout.ms")
    assert synonyms(timeout) == [("group.consumer.session.timeout.ms", "45000", S.DEFAULT)]
    assert one(describe_client_metrics({}), "interval.ms").value == "300000"


def test_a_groups_own_value_comes_first() -> None:
    described = one(
        describe_group(config_with(), {"consumer.session.timeout.ms": "50000"}), "consumer.session.timeout.ms"
    )
    assert (described.value, described.source) == ("50000", S.GROUP)
    assert synonyms(described) == [
        ("consumer.session.timeout.ms", "50000", S.GROUP),
        ("group.consumer.session.timeout.ms", "45000", S.DEFAULT),
    ]


def test_no_names_and_an_empty_list_of_names_both_mean_all() -> None:
    described = describe_client_metrics({})
    assert select_settings(described, None) == select_settings(described, []) == described
    assert select_settings(described, ["nope"]) == []


def test_values_are_printed_as_java_prints_them() -> None:
    assert kafka_text(TOPIC_SETTINGS["preallocate"], "TRUE") == "true"
    assert kafka_text(TOPIC_SETTINGS["cleanup.policy"], "compact , delete") == "compact,delete"
    assert kafka_text(TOPIC_SETTINGS["segment.bytes"], " +2000000 ") == "2000000"
    assert kafka_text(TOPIC_SETTINGS["min.cleanable.dirty.ratio"], "1e-2") == "0.01"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (12345678.0, "1.2345678E7"),
        (1e7, "1.0E7"),
        (-2.5e-5, "-2.5E-5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_a_double_has_an_exponent_where_java_gives_it_one(value: float, text: str) -> None:
    assert java_double(value) == text


def recorded() -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yields (version, result, exchange) for every topic, group and subscription that a recorded client described on
    Kafka."""
    for exchange in exchanges():
        if exchange.api == "DescribeConfigs" and exchange.response_json is not None:
            for result in exchange.response_json["results"]:
                if result["configs"] and result["resourceType"] != 4:
                    yield exchange.version, result, str(exchange)


@needs_oracle
def test_settings_have_the_recorded_values_and_types_of_kafka() -> None:
    seen = 0
    for version, result, where in recorded():
        shown = {entry["name"]: entry for entry in result["configs"]}
        own = {
            entry["name"]: entry["value"]
            for entry in shown.values()
            if entry["configSource"] in (S.TOPIC.value, S.GROUP.value, S.CLIENT_METRICS.value)
        }
        config = config_with()
        config.set_dynamic({"min.insync.replicas": "1"}, {})  # Kafka records this setting when it formats a directory.
        match result["resourceType"]:
            case 2:
                described = describe_topic(config, own, KafkaRules.KAFKA_4_3)
            case 32:
                described = describe_group(config, own, KafkaRules.KAFKA_4_3)
            case _:
                described = describe_client_metrics(own)
        assert {setting.name for setting in described} == shown.keys(), where
        for setting in described:
            entry = shown[setting.name]
            assert setting.value == entry["value"], where
            assert setting.source.value == entry["configSource"], where
            assert setting.is_read_only == entry["readOnly"], where
            assert setting.is_sensitive == entry["isSensitive"], where
            if entry["synonyms"]:
                theirs = [(synonym["name"], synonym["value"], synonym["source"]) for synonym in entry["synonyms"]]
                assert [(s.name, s.value, s.source.value) for s in setting.synonyms] == theirs, where
            if version >= 3:
                assert setting.kind is not None
                assert setting.kind.value == entry["configType"], where
        seen += 1
    assert seen > 10
