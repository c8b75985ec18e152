"""Tests settings that Kafka 4.4 introduced. A broker that emulates an older release neither describes nor accepts them.

Names: docs/spec/kafka-4.4.md#s4.
"""

import pytest

from odradek.broker.configuration.config_description import (
    DescribedConfig,
    describe_broker,
    describe_group,
    describe_topic,
    effective_topic_settings,
)
from odradek.broker.configuration.resources import ConfigOperation, SettingChange
from odradek.broker.metadata.config_changes import ResourceChanges, alter_configs
from odradek.broker.metadata.topics import NewTopic, TopicDefaults, create_topics
from odradek.protocol.compression import NO_RECORD_LIMIT_BYTES
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.errors import KafkaError
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.messages.config_record import ConfigRecord
from tests.support.fake_disk import FakeDisk
from tests.support.metadata import NODE, Running, config_with, decided, ids, image_with

TOPIC, GROUP = 2, 32
BROKER_SETTINGS = {
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix",
    "group.streams.assignors",
    "group.streams.rack.aware.assignment.tags",
    "group.streams.topology.description.plugin.class",
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
    "max.decompressed.message.bytes",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
}
TOPIC_SETTINGS = {
    "errors.deadletterqueue.group.enable",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
}
OF_GROUPS = {
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.copy.record.enable",
    "streams.assignor.name",
    "streams.rack.aware.assignment.tags",
}


def names(described: list[DescribedConfig]) -> set[str]:
    return {each.name for each in described}


def setting_names(rules: KafkaRules) -> list[set[str]]:
    """Returns four sets of setting names: a broker's, a topic's, those of a topic that is being created, and a
    group's."""
    config = config_with()
    return [
        names(describe_broker(config, rules)),
        names(describe_topic(config, {}, rules)),
        names(effective_topic_settings(config, {}, rules)),
        names(describe_group(config, {}, rules)),
    ]


def test_only_the_new_settings_are_hidden() -> None:
    pairs = zip(setting_names(KafkaRules.KAFKA_4_4), setting_names(KafkaRules.KAFKA_4_3), strict=True)
    assert [now - before for now, before in pairs] == [BROKER_SETTINGS, TOPIC_SETTINGS, TOPIC_SETTINGS, OF_GROUPS]


def altered(resource_type: int, name: str, setting: str, value: str, rules: KafkaRules) -> KafkaError | None:
    changes = [SettingChange(setting, ConfigOperation.SET.value, value)]
    resources = [ResourceChanges(resource_type, name, changes)]
    steps = alter_configs(image_with("t"), config_with(), resources, node_id=1, is_incremental=True, rules=rules)
    ((_, _, error),) = decided(steps).response
    return error


@pytest.mark.parametrize(
    ("resource_type", "name", "setting", "value", "words"),
    [
        (TOPIC, "t", "errors.deadletterqueue.group.enable", "true", "Unknown topic config name"),
        (TOPIC, "t", "max.decompressed.message.bytes", "1000", "Unknown topic config name"),
        (TOPIC, "t", "remote.copy.lag.ms", "1000", "Unknown topic config name"),
        (GROUP, "g", "streams.assignor.name", "sticky", "Unknown group config name"),
        (GROUP, "g", "consumer.assignor.offload.enable", "false", "Unknown group config name"),
        (GROUP, "g", "errors.deadletterqueue.topic.name", "dlq.t", "Unknown group config name"),
        (GROUP, "g", "errors.deadletterqueue.copy.record.enable", "true", "Unknown group config name"),
    ],
)
def test_before_kafka_4_4_a_new_setting_is_unknown(
    resource_type: int, name: str, setting: str, value: str, words: str
) -> None:
    assert altered(resource_type, name, setting, value, KafkaRules.KAFKA_4_4) is None
    refusal = altered(resource_type, name, setting, value, KafkaRules.KAFKA_4_3)
    assert refusal is not None
    assert (refusal.code, refusal.message) == (E.INVALID_CONFIG, f"{words}: {setting}")


@pytest.mark.parametrize(("rules", "code"), [(KafkaRules.KAFKA_4_4, None), (KafkaRules.KAFKA_4_3, E.INVALID_CONFIG)])
def test_before_kafka_4_4_no_topic_is_created_with_a_new_setting(rules: KafkaRules, code: E | None) -> None:
    topic = NewTopic("new", configs=[("errors.deadletterqueue.group.enable", "true")])
    steps = create_topics(
        image_with(), [topic], node=NODE, defaults=TopicDefaults(1, 1), new_topic_id=ids(), rules=rules
    )
    (result,) = decided(steps).response
    assert (None if result.error is None else result.error.code) is code


BROKER = 4
TOO_SMALL = "Invalid value 0 for configuration max.decompressed.message.bytes: Value must be at least 1"
TOO_LARGE = (
    "Invalid value 2147483647 for configuration max.decompressed.message.bytes: Value must be no more than 2147483639"
)


@pytest.mark.parametrize(
    ("resource_type", "name", "setting", "value", "code", "words"),
    [
        (TOPIC, "t", "max.decompressed.message.bytes", "0", E.INVALID_CONFIG, TOO_SMALL),
        (TOPIC, "t", "max.decompressed.message.bytes", "2147483647", E.INVALID_CONFIG, TOO_LARGE),
        (BROKER, "", "max.decompressed.message.bytes", "0", E.INVALID_REQUEST, TOO_SMALL),
        (
            BROKER,
            "1",
            "log.remote.copy.lag.bytes",
            "-2",
            E.INVALID_REQUEST,
            "Invalid value -2 for configuration log.remote.copy.lag.bytes: Value must be at least -1",
        ),
        (
            GROUP,
            "g",
            "streams.assignor.name",
            "uniform",
            E.INVALID_CONFIG,
            "streams.assignor.name 'uniform' is not a registered task assignor. Registered assignors are: [sticky].",
        ),
        (
            GROUP,
            "g",
            "streams.rack.aware.assignment.tags",
            "a,a",
            E.INVALID_CONFIG,
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
    ],
)
def test_an_invalid_value_of_a_new_setting_is_refused(
    resource_type: int, name: str, setting: str, value: str, code: E, words: str
) -> None:
    refusal = altered(resource_type, name, setting, value, KafkaRules.KAFKA_4_4)
    assert refusal is not None
    assert (refusal.code, refusal.message) == (code, words)


@pytest.mark.parametrize(
    ("setting", "value", "before", "now"),
    [
        (
            "consumer.session.timeout.ms",
            "1",
            "greater than or equal to group.consumer.min.session.timeout.ms",
            "in the range 45000 to 60000 inclusive.",
        ),
        (
            "share.delivery.count.limit",
            "11",
            "less than or equal to group.share.max.delivery.count.limit",
            "in the range 2 to 10 inclusive.",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "less than or equal to group.streams.max.standby.replicas",
            "less than or equal to 2",
        ),
    ],
)
def test_a_group_setting_outside_of_the_limits_is_refused_in_the_words_of_the_release(
    setting: str, value: str, before: str, now: str
) -> None:
    for rules, words in ((KafkaRules.KAFKA_4_3, before), (KafkaRules.KAFKA_4_4, now)):
        refusal = altered(GROUP, "g", setting, value, rules)
        assert refusal is not None
        assert (refusal.code, refusal.message) == (E.INVALID_CONFIG, f"{setting} must be {words}")


def test_the_assignor_of_a_streams_group_is_by_default_the_first_of_the_brokers() -> None:
    config = config_with(group_streams_assignors="sticky,other")
    (shown,) = (one for one in describe_group(config, {}) if one.name == "streams.assignor.name")
    assert shown.value == "sticky"
    assert [(one.name, one.value) for one in shown.synonyms] == [
        ("group.streams.assignors", "sticky,other"),
        ("group.streams.assignors", "sticky"),
    ]


def test_an_internal_setting_of_a_group_is_shown_where_it_or_its_default_was_set() -> None:
    internal = "consumer.assignor.offload.enable"
    assert internal not in names(describe_group(config_with(), {}))
    assert internal in names(describe_group(config_with(), {internal: "false"}))
    assert internal in names(describe_group(config_with(group_consumer_assignor_offload_enable="false"), {}))


def test_before_kafka_4_4_a_broker_shows_a_new_setting_as_one_that_it_does_not_know() -> None:
    name = "max.decompressed.message.bytes"
    config = config_with()
    config.set_dynamic({name: "5000"}, {})
    (now,) = (one for one in describe_broker(config) if one.name == name)
    (before,) = (one for one in describe_broker(config, KafkaRules.KAFKA_4_3) if one.name == name)
    assert (now.value, now.is_sensitive) == ("5000", False)
    assert (before.value, before.is_sensitive) == (None, True)


@pytest.mark.parametrize(
    ("rules", "limit_bytes"), [(KafkaRules.KAFKA_4_4, 5_000), (KafkaRules.KAFKA_4_3, NO_RECORD_LIMIT_BYTES)]
)
@pytest.mark.parametrize("resource", ["", "1"])
def test_before_kafka_4_4_a_new_setting_of_the_broker_has_no_effect(
    resource: str, rules: KafkaRules, limit_bytes: int
) -> None:
    running = Running(FakeDisk(), rules=rules)
    record = ConfigRecord(
        resource_type=BROKER, resource_name=resource, name="max.decompressed.message.bytes", value="5000"
    )
    running.metadata.commit([record])
    assert running.config.max_decompressed_message_bytes == limit_bytes
    assert running.config.log_config({}).max_decompressed_message_bytes == limit_bytes


@pytest.mark.parametrize(
    ("rules", "limit_bytes"), [(KafkaRules.KAFKA_4_4, 5_000), (KafkaRules.KAFKA_4_3, NO_RECORD_LIMIT_BYTES)]
)
def test_before_kafka_4_4_a_new_setting_of_a_topic_has_no_effect(rules: KafkaRules, limit_bytes: int) -> None:
    recorded = {"max.decompressed.message.bytes": "5000", "retention.ms": "7"}
    config = config_with().log_config(recorded, rules)
    assert (config.max_decompressed_message_bytes, config.retention_ms) == (limit_bytes, 7)
