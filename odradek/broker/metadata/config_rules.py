"""Checks the settings of each type of resource. Refuses settings by raising KafkaError with Kafka's error codes and
messages."""

import re
from collections.abc import Iterable, Mapping

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.configuration.listener_settings import setting_named
from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.configuration.settings import InvalidSetting, Setting, UpdateMode
from odradek.broker.configuration.topic_settings import (
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    STREAMS_ASSIGNOR,
    STREAMS_RACK_TAGS,
    TOPIC_SETTINGS,
    is_known,
    limit,
    limit_name,
    validate_topic_settings,
)
from odradek.broker.configuration.unused_settings import DYNAMIC_ONLY
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.supported_features import ELIGIBLE_LEADER_REPLICAS
from odradek.broker.metadata.topic_names import check_topic_name
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.java_properties import InvalidJaas, parse_login_module
from odradek.protocol.kafka_rules import NEWEST, KafkaRules

LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\..+")
JAAS_CONFIG = "sasl.jaas.config"
# AlterConfigs may change the settings with these prefixes only for a single listener. In Kafka, all other TLS and SASL
# settings can also be changed without a listener prefix.
STORE_PREFIXES = ("ssl.engine.factory.class", "ssl.key.password", "ssl.keystore.", "ssl.truststore.")
THREAD_COUNTS = frozenset(
    {
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
MIN_ISR = "min.insync.replicas"
MATCHABLE = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
INTERVAL_MS = range(100, 3_600_001)


def settings_of(resource_type: ConfigResourceType) -> Mapping[str, Setting]:
    match resource_type:
        case ConfigResourceType.TOPIC:
            return TOPIC_SETTINGS
        case ConfigResourceType.BROKER:
            return BROKER_SETTINGS
        case ConfigResourceType.GROUP:
            return GROUP_SETTINGS
        case ConfigResourceType.CLIENT_METRICS:
            return CLIENT_METRICS_SETTINGS
        case ConfigResourceType.BROKER_LOGGER:
            return {}


def check_topic(image: MetadataImage, topic: str, settings: Mapping[str, str], rules: KafkaRules = NEWEST) -> None:
    """Checks a topic's settings. `settings` contains the complete settings after the change."""
    if not topic:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    try:
        check_topic_name(topic)
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    if topic not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    try:
        validate_topic_settings(settings, rules)
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_broker_change(config: BrokerConfig, changed: Mapping[str, str | None], *, is_default: bool) -> None:
    """Checks that the settings can be changed while the broker is running. Unknown names are permitted. If `is_default`
    is set, the changes apply to all brokers."""
    updates = {name: _update_of(name) for name in changed}
    _refuse(
        (name for name, update in updates.items() if update is UpdateMode.READ_ONLY),
        "Cannot update these configs dynamically",
    )
    _refuse(
        (name for name in changed if name.startswith(STORE_PREFIXES) and name in BROKER_SETTINGS),
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    for name, text in changed.items():
        _check_value(config, name, text)
    if is_default:
        _refuse(
            (name for name, update in updates.items() if update is UpdateMode.PER_BROKER),
            "Cannot update these configs at default cluster level, broker id must be specified",
        )


def check_min_isr_under_elr(image: MetadataImage, changed: Mapping[str, str | None], *, is_default: bool) -> None:
    """Checks a change to min.insync.replicas. If eligible leader replicas are enabled (KIP-966), the setting can only
    be set for the whole cluster, and cannot be removed."""
    if image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) == 0 or MIN_ISR not in changed:
        return
    if not is_default:
        what = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, what)
    if changed[MIN_ISR] is None:
        what = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, what)


def check_group(config: BrokerConfig, group: str, settings: Mapping[str, str], rules: KafkaRules = NEWEST) -> None:
    """Checks a group's settings. The values must be within the broker's limits for groups."""
    if not group:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    for name in settings:
        if not is_known(name, GROUP_SETTINGS, rules):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    try:
        values = {name: GROUP_SETTINGS[name].parse(text) for name, text in settings.items()}
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    for name, value in values.items():
        if isinstance(value, int):
            _check_limits(config, name, value, rules)
    _check_streams_assignment(config, settings)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in values or heartbeat in values) and (
            _effective_value(config, values, session) <= _effective_value(config, values, heartbeat)
        ):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")


def _check_limits(config: BrokerConfig, name: str, value: int, rules: KafkaRules) -> None:
    """Checks the value of a group setting against the broker's limits. Raises INVALID_CONFIG with the emulated
    release's message; see docs/spec/kafka-4.4.md#s4-2."""
    names = {bound: found for bound in ("min", "max") if (found := limit_name(name, bound)) is not None}
    limits = {bound: limit(found, config.current_text) for bound, found in names.items()}
    if value < limits.get("min", value):
        bound, words = "min", "greater than or equal to"
    elif value > limits.get("max", value):
        bound, words = "max", "less than or equal to"
    else:
        return
    if rules < KafkaRules.KAFKA_4_4:
        rule = f"{words} {names[bound]}"
    elif len(limits) == 1:
        rule = f"{words} {limits[bound]}"
    else:
        rule = f"in the range {limits['min']} to {limits['max']} inclusive."
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be {rule}")


def _check_streams_assignment(config: BrokerConfig, settings: Mapping[str, str]) -> None:
    assignors = [name.strip() for name in (config.current_text("group.streams.assignors") or "").split(",")]
    assignor = settings.get(STREAMS_ASSIGNOR)
    if assignor is not None and assignor not in assignors:
        what = f"{STREAMS_ASSIGNOR} '{assignor}' is not a registered task assignor."
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{what} Registered assignors are: [{', '.join(assignors)}].")
    tags = [tag.strip() for tag in settings.get(STREAMS_RACK_TAGS, "").split(",")]
    if len(set(tags)) < len(tags):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{STREAMS_RACK_TAGS} must not contain duplicate tag keys.")


def _effective_value(config: BrokerConfig, values: Mapping[str, object], name: str) -> int:
    """Returns the effective value of a group setting: the group's own value, or the broker's value if the group has
    none."""
    broker_name = f"group.{name}"
    value = values[name] if name in values else BROKER_SETTINGS[broker_name].parse(config.current_text(broker_name))
    assert isinstance(value, int)
    return value


def check_client_metrics(subscription: str, settings: Mapping[str, str]) -> None:
    """Checks a client metrics subscription's settings. Source: KIP-714."""
    if not subscription:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for name in settings:
        if name not in CLIENT_METRICS_SETTINGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    try:
        values = {name: CLIENT_METRICS_SETTINGS[name].parse(text) for name, text in settings.items()}
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    interval_ms = values.get("interval.ms")
    if interval_ms is not None and interval_ms not in INTERVAL_MS:
        what = f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    for pattern in settings.get("match", "").split(","):
        if pattern.strip() and not _is_matching_pattern(pattern.strip()):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern.strip()}")


def _is_matching_pattern(pattern: str) -> bool:
    name, separator, expression = pattern.partition("=")
    if not separator or name.strip() not in MATCHABLE:
        return False
    try:
        re.compile(expression.strip())  # only validates the expression; the broker never uses it
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _update_of(name: str) -> UpdateMode:
    if LISTENER_PREFIX.fullmatch(name):
        return UpdateMode.PER_BROKER
    setting = BROKER_SETTINGS.get(name)
    return UpdateMode.CLUSTER_WIDE if setting is None else setting.update


def _refuse(names: Iterable[str], why: str) -> None:
    refused = list(names)
    if refused:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(refused)}]")


def _check_login_module(name: str, text: str) -> None:
    """Checks a JAAS login module's text, because the broker cannot start if it cannot parse the text. The error message
    contains no password.

    Passwords for PLAIN are refused, because the metadata log and every copy of it would contain them unencrypted.
    """
    try:
        options = parse_login_module(text).options
    except InvalidJaas as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Invalid value [hidden] for configuration {name}: {error}"
        ) from None
    if any(option == "password" or option.startswith("user_") for option in options):
        way_out = "give it in the configuration with which the broker starts, or use SCRAM credentials"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value [hidden] for configuration {name}: its passwords would be stored in clear; {way_out}",
        )


def _check_value(config: BrokerConfig, name: str, text: str | None) -> None:
    setting = setting_named(name) or DYNAMIC_ONLY.get(name)
    if setting is None or text is None:
        return
    if setting.name == JAAS_CONFIG:
        _check_login_module(name, text)
    try:
        value = setting.parse(text)
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if name in DYNAMIC_ONLY and isinstance(value, int) and value < 0:
        what = f"Invalid value {value} for configuration {name}: Value must be at least 0"
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    if name == "log.retention.ms" and isinstance(value, int) and (value == 0 or value < -1):
        what = "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    if name == "log.roll.ms" and isinstance(value, int) and value < 1:
        what = "requirement failed: log.roll.ms must be greater than or equal to 1"
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    if name in THREAD_COUNTS and isinstance(value, int):
        _check_thread_count(config, name, value)


def _check_thread_count(config: BrokerConfig, name: str, value: int) -> None:
    current = int(config.current_text(name) or 0)
    if value < current // 2:
        limit = f"value should be at least half the current value {current}"
    elif value > current * 2:
        limit = f"value should not be greater than double the current value {current}"
    else:
        return
    why = f"Dynamic thread count update validation failed for {name}={value}, {limit}"
    what = (
        f"Invalid value org.apache.kafka.common.config.ConfigException: {why} "
        "for configuration Invalid dynamic configuration"
    )
    raise KafkaError(ErrorCode.INVALID_REQUEST, what)
