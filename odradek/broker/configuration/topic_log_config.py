"""Converts a topic's settings into the configuration of its logs."""

from collections.abc import Mapping

from odradek.broker.configuration.settings import InvalidSetting, SettingValue
from odradek.broker.configuration.topic_settings import TOPIC_SETTINGS, is_known
from odradek.protocol.kafka_rules import KafkaRules
from odradek.storage.log_config import LogConfig

# Log settings for which -1 means "no limit".
WITHOUT_LIMIT = frozenset({"retention.ms", "retention.bytes"})
NAMES: tuple[tuple[str, str], ...] = tuple(
    (name, name.replace(".", "_"))
    for name in TOPIC_SETTINGS
    if name.replace(".", "_") in LogConfig.__dataclass_fields__
)


def log_config(defaults: Mapping[str, str], overrides: Mapping[str, str], producer_id_expiration_ms: int) -> LogConfig:
    """Returns a topic's log configuration. `overrides` take precedence over `defaults`, which contain every setting."""
    fields: dict[str, object] = {}
    for name, attribute in NAMES:
        value = _value(name, defaults[name], overrides.get(name))
        if name in WITHOUT_LIMIT:
            assert isinstance(value, int)
            fields[attribute] = None if value < 0 else value
        elif isinstance(value, tuple):
            fields[attribute] = frozenset(value)
        else:
            fields[attribute] = value
    internal = _value("internal.segment.bytes", None, overrides.get("internal.segment.bytes"))
    if isinstance(internal, int):
        fields["segment_bytes"] = internal
    return LogConfig(**fields, producer_id_expiration_ms=producer_id_expiration_ms)  # type: ignore[arg-type]


def known_overrides(overrides: Mapping[str, str], rules: KafkaRules) -> Mapping[str, str]:
    """Returns the topic settings that exist in the emulated release."""
    if all(is_known(name, TOPIC_SETTINGS, rules) for name in overrides):
        return overrides
    return {name: text for name, text in overrides.items() if is_known(name, TOPIC_SETTINGS, rules)}


def _value(name: str, default: str | None, override: str | None) -> SettingValue:
    setting = TOPIC_SETTINGS[name]
    if override is not None:
        try:
            return setting.parse(override)
        except InvalidSetting:
            pass  # the setting was recorded by a Kafka release with different rules
    return setting.parse(default)
