"""Settings that came with Kafka 4.4: a broker that emulates an older release neither shows nor takes them.

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
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.errors import KafkaError
from odradek.protocol.kafka_rules import KafkaRules
from tests.support.metadata import NODE, config_with, decided, ids, image_with

TOPIC, GROUP = 2, 32
OF_BROKERS = {"errors.deadletterqueue.auto.create.topics.enable", "errors.deadletterqueue.topic.name.prefix"}
OF_TOPICS = {"errors.deadletterqueue.group.enable"}
OF_GROUPS = {"errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"}


def names(described: list[DescribedConfig]) -> set[str]:
    return {each.name for each in described}


def seen(rules: KafkaRules) -> list[set[str]]:
    """The names in descriptions of a broker, a topic, a topic that is created, and a group."""
    config = config_with()
    return [
        names(describe_broker(config, rules)),
        names(describe_topic(config, {}, rules)),
        names(effective_topic_settings(config, {}, rules)),
        names(describe_group(config, {}, rules)),
    ]


def test_only_the_new_settings_are_hidden() -> None:
    pairs = zip(seen(KafkaRules.KAFKA_4_4), seen(KafkaRules.KAFKA_4_3), strict=True)
    assert [now - before for now, before in pairs] == [OF_BROKERS, OF_TOPICS, OF_TOPICS, OF_GROUPS]


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
