"""Tests AlterConfigs and IncrementalAlterConfigs. The expected codes and messages are Kafka 4.3.1's answers to the same
requests."""

import pytest

from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.configuration.resources import ConfigOperation, ConfigResourceType, SettingChange
from odradek.broker.metadata.config_changes import ResourceChanges, Result, alter_configs
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.records import MAX_RECORDS, Decision
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from tests.support.metadata import apply, config_with, decided, image_with

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
ConfigChange = tuple[str, int, str | None]


def ask(
    image: MetadataImage,
    resource_type: int,
    name: str,
    *changes: ConfigChange,
    incremental: bool = True,
    config: BrokerConfig | None = None,
) -> tuple[E | None, str | None]:
    """Alters one resource. Returns (error code, error message). A successful change is applied to the image."""
    resources = [ResourceChanges(resource_type, name, [SettingChange(*change) for change in changes])]
    decision = decided(alter_configs(image, config or config_with(), resources, node_id=1, is_incremental=incremental))
    ((_, _, error),) = decision.response
    apply(image, decision)
    return (None, None) if error is None else (error.code, error.message)


OK = (None, None)


def settings(image: MetadataImage, name: str = "t") -> dict[str, str]:
    return dict(image.topic_configs(name))


# --- IncrementalAlterConfigs, which changes single settings.


def test_a_setting_is_set_changed_and_unset() -> None:
    image = image_with("t")
    assert ask(image, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "6")) == OK
    assert ask(image, TOPIC, "t", ("retention.ms", SET, "7")) == OK
    assert settings(image) == {"retention.ms": "7", "segment.ms": "6"}
    assert ask(image, TOPIC, "t", ("retention.ms", DELETE, None)) == OK
    assert settings(image) == {"segment.ms": "6"}


def test_a_change_without_effect_is_not_recorded() -> None:
    image = image_with("t")
    ask(image, TOPIC, "t", ("retention.ms", SET, "5"))
    resource = ResourceChanges(
        TOPIC, "t", [SettingChange("retention.ms", SET, "5"), SettingChange("segment.ms", DELETE, None)]
    )
    assert decided(alter_configs(image, config_with(), [resource], node_id=1, is_incremental=True)).records == ()


def test_a_list_is_extended_from_its_default() -> None:
    image = image_with("t")
    assert ask(image, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == OK
    assert settings(image) == {"cleanup.policy": "delete,compact"}
    assert ask(image, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == OK
    assert settings(image) == {"cleanup.policy": "delete,compact"}
    assert ask(image, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert settings(image) == {"cleanup.policy": "compact"}


def test_an_unknown_setting_can_be_removed() -> None:
    assert ask(image_with("t"), TOPIC, "t", ("foo", DELETE, None)) == OK


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("foo", SET, "1"), E.INVALID_CONFIG, "Unknown topic config name: foo"),
        (
            ("retention.ms", SET, "soon"),
            E.INVALID_CONFIG,
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        (("retention.ms", SET, None), E.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (("cleanup.policy", APPEND, None), E.INVALID_REQUEST, "Null value not supported for : cleanup.policy"),
        (
            ("retention.ms", APPEND, "1"),
            E.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (("foo", SUBTRACT, "1"), E.INVALID_CONFIG, "Can't SUBTRACT to key foo because its type is not LIST."),
        (
            ("cleanup.policy", APPEND, "burn"),
            E.INVALID_CONFIG,
            "Invalid value burn for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (("cleanup.policy", 7, "x"), E.UNKNOWN_SERVER_ERROR, None),
    ],
)
def test_an_invalid_change_of_a_topic_is_refused(change: ConfigChange, code: E, words: str | None) -> None:
    image = image_with("t")
    assert ask(image, TOPIC, "t", change) == (code, words)
    assert settings(image) == {}


def test_a_change_is_judged_with_what_is_set_already() -> None:
    image = image_with("t")
    ask(image, TOPIC, "t", ("min.compaction.lag.ms", SET, "100"))
    assert ask(image, TOPIC, "t", ("max.compaction.lag.ms", SET, "5"))[0] is E.INVALID_CONFIG


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        ("none", E.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
        ("", E.INVALID_REQUEST, "Default topic resources are not allowed."),
        (
            "bad name",
            E.INVALID_TOPIC_EXCEPTION,
            (
                "Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, "
                "'.', '_' and '-'"
            ),
        ),
    ],
)
def test_a_change_of_an_invalid_topic_is_refused(topic: str, code: E, words: str) -> None:
    assert ask(image_with("t"), TOPIC, topic, ("retention.ms", SET, "1")) == (code, words)


def test_a_request_that_names_a_setting_twice_is_refused() -> None:
    answer = ask(image_with("t"), TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert answer == (E.INVALID_REQUEST, "Error due to duplicate config keys")


def test_a_request_that_names_a_resource_twice_is_refused() -> None:
    resources = [ResourceChanges(TOPIC, "t", [SettingChange("retention.ms", SET, "1")])] * 2
    decision = decided(alter_configs(image_with("t"), config_with(), resources, node_id=1, is_incremental=True))
    assert [error and error.message for *_, error in decision.response] == [
        "Each resource must appear at most once."
    ] * 2
    assert decision.records == ()


@pytest.mark.parametrize("resource_type", [0, 3, 64])
def test_an_unknown_type_of_resource_is_refused(resource_type: int) -> None:
    answer = ask(image_with(), resource_type, "x", ("a", SET, "1"))
    assert answer == (E.INVALID_REQUEST, f"Unknown resource type {resource_type}")


# --- AlterConfigs, which replaces all settings.


def test_alter_configs_replaces_everything() -> None:
    image = image_with("t")
    ask(image, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))
    assert ask(image, TOPIC, "t", ("segment.bytes", SET, "2000000"), ("segment.ms", SET, "6"), incremental=False) == OK
    assert settings(image) == {"segment.bytes": "2000000", "segment.ms": "6"}
    assert ask(image, TOPIC, "t", incremental=False) == OK
    assert settings(image) == {}
    assert (ConfigResourceType.TOPIC, "t") not in image.configs


def test_alter_configs_refuses_loggers() -> None:
    answer = ask(image_with(), LOGGER, "1", ("root", SET, "INFO"), incremental=False)
    assert answer == (E.INVALID_REQUEST, "Unknown resource type 8")


# --- Settings of brokers.


def test_a_broker_setting_is_recorded_for_this_broker_or_for_all() -> None:
    image = image_with()
    assert ask(image, BROKER, "1", ("log.retention.ms", SET, "5")) == OK
    assert ask(image, BROKER, "", ("log.retention.ms", SET, "6"), ("foo", SET, "bar")) == OK
    assert image.configs[ConfigResourceType.BROKER, "1"] == {"log.retention.ms": "5"}
    assert image.configs[ConfigResourceType.BROKER, ""] == {"log.retention.ms": "6", "foo": "bar"}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("2", ("log.retention.ms", SET, "3"), "Unexpected broker id, expected 1, but received 2"),
        ("x", ("log.retention.ms", SET, "3"), "Node id must be an integer, but it is: x"),
        ("1", ("node.id", SET, "3"), "Cannot update these configs dynamically: [node.id]"),
        ("", ("node.id", SET, "3"), "Cannot update these configs dynamically: [node.id]"),
        (
            "",
            ("listeners", SET, "PLAINTEXT://:1"),
            "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
        ),
        (
            "1",
            ("ssl.keystore.password", SET, "x"),
            (
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                "[ssl.keystore.password]"
            ),
        ),
        (
            "1",
            ("log.retention.ms", SET, "x"),
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            "1",
            ("log.retention.ms", SET, "0"),
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ("1", ("log.roll.ms", SET, "0"), "requirement failed: log.roll.ms must be greater than or equal to 1"),
        (
            "1",
            ("num.io.threads", SET, "1"),
            (
                "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation "
                "failed for num.io.threads=1, value should be at least half the current value 8 for configuration "
                "Invalid dynamic configuration"
            ),
        ),
        (
            "1",
            ("follower.replication.throttled.rate", SET, "-5"),
            "Invalid value -5 for configuration follower.replication.throttled.rate: Value must be at least 0",
        ),
    ],
)
def test_an_invalid_change_of_a_broker_is_refused(name: str, change: ConfigChange, words: str) -> None:
    assert ask(image_with(), BROKER, name, change) == (E.INVALID_REQUEST, words)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("sasl.kerberos.min.time.before.relogin", "58000"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.login.refresh.window.factor", "0.5"),
        ("ssl.client.auth", "required"),
        ("ssl.protocol", "TLSv1.3"),
    ],
)
def test_security_settings_other_than_stores_are_changed_for_one_broker(setting: str, value: str) -> None:
    image = image_with()
    assert ask(image, BROKER, "1", (setting, SET, value), incremental=False) == OK
    assert image.configs[ConfigResourceType.BROKER, "1"] == {setting: value}
    words = f"Cannot update these configs at default cluster level, broker id must be specified: [{setting}]"
    assert ask(image, BROKER, "", (setting, SET, value)) == (E.INVALID_REQUEST, words)


@pytest.mark.parametrize(
    "setting",
    ["ssl.key.password", "ssl.keystore.key", "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.type"],
)
def test_stores_are_exchanged_for_a_listener_only(setting: str) -> None:
    image = image_with()
    words = (
        f"These security configs can be dynamically updated only per-listener using the listener prefix: [{setting}]"
    )
    assert ask(image, BROKER, "1", (setting, SET, "JKS")) == (E.INVALID_REQUEST, words)
    assert ask(image, BROKER, "1", (f"listener.name.ssl.{setting}", SET, "JKS")) == OK


def test_only_lists_of_a_broker_are_extended() -> None:
    image = image_with()
    answer = ask(image, BROKER, "1", ("log.retention.ms", APPEND, "1"))
    assert answer == (E.INVALID_CONFIG, "Config value append is not allowed for config key: log.retention.ms")
    assert ask(image, BROKER, "1", ("log.cleanup.policy", APPEND, "compact")) == OK
    assert image.configs[ConfigResourceType.BROKER, "1"] == {"log.cleanup.policy": "delete,compact"}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (
            "1",
            ("min.insync.replicas", SET, "1"),
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            "",
            ("min.insync.replicas", DELETE, None),
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
    ],
)
def test_with_eligible_leader_replicas_min_isr_is_one_for_the_cluster(
    name: str, change: ConfigChange, words: str
) -> None:
    image = image_with()
    assert ask(image, BROKER, name, change) == OK
    image.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    assert ask(image, BROKER, name, change) == (E.INVALID_CONFIG, words)


# --- Settings of groups and of client metrics.


@pytest.mark.parametrize(
    ("group", "change", "code", "words"),
    [
        (
            "",
            ("consumer.session.timeout.ms", SET, "50000"),
            E.INVALID_REQUEST,
            "Default group resources are not allowed.",
        ),
        ("g", ("foo", SET, "1"), E.INVALID_CONFIG, "Unknown group config name: foo"),
        (
            "g",
            ("consumer.session.timeout.ms", SET, "1"),
            E.INVALID_CONFIG,
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            "g",
            ("consumer.session.timeout.ms", SET, "60001"),
            E.INVALID_CONFIG,
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            "g",
            ("share.isolation.level", SET, "x"),
            E.INVALID_CONFIG,
            (
                "Invalid value x for configuration share.isolation.level: String must be one of: read_committed, "
                "read_uncommitted"
            ),
        ),
        (
            "g",
            ("share.auto.offset.reset", SET, "by_duration:soon"),
            E.INVALID_CONFIG,
            (
                "Invalid value by_duration:soon for configuration share.auto.offset.reset: Invalid value "
                "`by_duration:soon` for configuration share.auto.offset.reset. The value must be either 'earliest', "
                "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            ),
        ),
    ],
)
def test_an_invalid_change_of_a_group_is_refused(group: str, change: ConfigChange, code: E, words: str) -> None:
    assert ask(image_with(), GROUP, group, change) == (code, words)


@pytest.mark.parametrize(
    "value",
    ["earliest", "latest", "by_duration:P1D", "by_duration:PT1H30M", "by_duration:PT0.5S", "by_duration:P1DT-23H"],
)
def test_a_group_may_choose_where_its_share_partitions_begin(value: str) -> None:
    image = image_with()
    assert ask(image, GROUP, "g", ("share.auto.offset.reset", SET, value)) == OK
    assert image.configs[ConfigResourceType.GROUP, "g"] == {"share.auto.offset.reset": value}


@pytest.mark.parametrize("value", ["-PT1H", "PT-1H", "P1DT-25H", "PT-0.5S", "P", "PT", f"PT{1 << 63}S"])
def test_a_share_group_begins_in_the_past(value: str) -> None:
    image = image_with()
    assert ask(image, GROUP, "g", ("share.auto.offset.reset", SET, f"by_duration:{value}"))[0] is E.INVALID_CONFIG
    assert ask(image, GROUP, "g", ("share.auto.offset.reset", SET, "BY_DURATION:PT1H"))[0] is E.INVALID_CONFIG


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_lists_of_client_metrics_are_set_as_a_whole(operation: int) -> None:
    code, words = ask(image_with(), CLIENT_METRICS, "s", ("metrics", operation, "a"))
    assert (code, words) == (
        E.INVALID_CONFIG,
        f"Can't {ConfigOperation(operation).name} to key metrics because its type is not LIST.",
    )


@pytest.mark.parametrize(
    ("name", "change", "code", "words"),
    [
        ("", ("interval.ms", SET, "500"), E.INVALID_REQUEST, "Subscription name can't be empty"),
        ("s", ("foo", SET, "1"), E.INVALID_REQUEST, "Unknown client metrics configuration: foo"),
        (
            "s",
            ("interval.ms", SET, "99"),
            E.INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ("s", ("match", SET, "client_id=x,foo=y"), E.INVALID_CONFIG, "Illegal client matching pattern: foo=y"),
        ("s", ("match", SET, "client_id=["), E.INVALID_CONFIG, "Illegal client matching pattern: client_id=["),
    ],
)
def test_an_invalid_metrics_subscription_is_refused(name: str, change: ConfigChange, code: E, words: str) -> None:
    assert ask(image_with(), CLIENT_METRICS, name, change) == (code, words)


def test_a_change_is_recorded_by_type_and_name() -> None:
    resource = ResourceChanges(CLIENT_METRICS, "s", [SettingChange("metrics", SET, "a,b")])
    decision = decided(alter_configs(image_with(), config_with(), [resource], node_id=1, is_incremental=True))
    assert decision.records == (ConfigRecord(resource_type=16, resource_name="s", name="metrics", value="a,b"),)


def test_the_operations_have_the_numbers_of_the_request() -> None:
    assert [operation.value for operation in ConfigOperation] == [SET, DELETE, APPEND, SUBTRACT]


def test_a_request_that_makes_more_records_than_one_batch_may_have_changes_nothing() -> None:
    def decision(resources: int) -> Decision[list[Result]]:
        changes = [SettingChange("interval.ms", SET, "1000")]
        resource_changes = [ResourceChanges(CLIENT_METRICS, f"m{number}", changes) for number in range(resources)]
        return decided(alter_configs(image_with(), config_with(), resource_changes, node_id=1, is_incremental=True))

    assert len(decision(MAX_RECORDS).records) == MAX_RECORDS
    with pytest.raises(KafkaError) as refused:
        decision(MAX_RECORDS + 1)
    assert refused.value.code is E.POLICY_VIOLATION
    assert refused.value.message == "Unable to perform excessively large batch operation."
