"""Describes settings as DescribeConfigs and CreateTopics return them: the value, its source, and its synonyms.

This module has no side effects. It only reads a BrokerConfig and the settings that the metadata image holds for a
resource. The sources, their order and the choice of synonyms match Kafka 4.3.1's observed behaviour, including its
quirks (see `_visible_synonyms`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.configuration.listener_settings import setting_named
from odradek.broker.configuration.settings import (
    InvalidSetting,
    Setting,
    SettingValue,
    UpdateMode,
    ValueType,
    java_double,
)
from odradek.broker.configuration.topic_settings import (
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    STREAMS_ASSIGNOR,
    TOPIC_SETTINGS,
    broker_setting_of,
    is_known,
)
from odradek.protocol.kafka_rules import NEWEST, KafkaRules

T = TypeVar("T")


class ConfigSource(Enum):
    """The source of a setting's value. The numbers are those of the protocol."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    GIVEN = 4  # STATIC_BROKER_CONFIG in Kafka
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One setting of a resource. If its name is unknown, `kind` is None and the value is not shown."""

    name: str
    value: str | None
    source: ConfigSource
    kind: ValueType | None
    synonyms: tuple[Synonym, ...] = ()
    is_read_only: bool = False
    is_sensitive: bool = False


# Broker settings that configure the same thing in different units. The first setting with a value takes effect.
BROKER_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    name: setting.synonyms
    for setting in TOPIC_SETTINGS.values()
    for name in setting.synonyms
    if len(setting.synonyms) > 1 and name != "log.flush.scheduler.interval.ms"
}


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], rules: KafkaRules = NEWEST
) -> list[DescribedConfig]:
    """Returns every setting of a topic, sorted by name."""
    defaults = config.topic_defaults()
    return [_topic_setting(config, setting, overrides, defaults) for setting in _shown_of_topic(overrides, rules)]


def effective_topic_settings(
    config: BrokerConfig, overrides: Mapping[str, str], rules: KafkaRules = NEWEST
) -> list[DescribedConfig]:
    """Returns a topic's settings as CreateTopics describes them. Each setting includes the source of its value but no
    synonyms. The topic's own values are exactly as the client sent them."""
    defaults = config.topic_defaults()
    described = []
    for setting in _shown_of_topic(overrides, rules):
        if setting.name in overrides:
            source = ConfigSource.TOPIC
        else:
            source = next((one.source for one in _synonyms(config, setting.synonyms, False)), ConfigSource.DEFAULT)
        value = overrides.get(setting.name, kafka_text(setting, defaults.get(setting.name)))
        described.append(DescribedConfig(setting.name, value, source, setting.kind))
    return described


def describe_broker(config: BrokerConfig, rules: KafkaRules = NEWEST) -> list[DescribedConfig]:
    """Returns every setting of this broker, sorted by name. Settings with unknown names are included if AlterConfigs
    has set them."""
    names = {
        name
        for name, setting in BROKER_SETTINGS.items()
        if not setting.is_internal and is_known(name, BROKER_SETTINGS, rules)
    }
    names |= config.given_settings.keys() | config.dynamic_defaults.keys() | config.dynamic_broker.keys()
    names |= config.recorded_defaults.keys() | config.recorded_broker.keys()
    return [_broker_setting(config, name, all_sources=True, rules=rules) for name in sorted(names)]


def describe_broker_defaults(config: BrokerConfig, rules: KafkaRules = NEWEST) -> list[DescribedConfig]:
    """Returns the cluster-wide defaults that AlterConfigs has set."""
    return [_broker_setting(config, name, all_sources=False, rules=rules) for name in sorted(config.recorded_defaults)]


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], rules: KafkaRules = NEWEST
) -> list[DescribedConfig]:
    return [
        _group_setting(config, setting, overrides)
        for name, setting in GROUP_SETTINGS.items()
        if is_known(name, GROUP_SETTINGS, rules)
        and (not setting.is_internal or name in overrides or _is_set(config, broker_setting_of(setting)))
    ]


def _is_set(config: BrokerConfig, name: str) -> bool:
    return any(name in each for each in (config.given_settings, config.recorded_defaults, config.recorded_broker))


def describe_client_metrics(overrides: Mapping[str, str]) -> list[DescribedConfig]:
    described = []
    for setting in CLIENT_METRICS_SETTINGS.values():
        text = overrides.get(setting.name)
        source = ConfigSource.DEFAULT if text is None else ConfigSource.CLIENT_METRICS
        value = kafka_text(setting, setting.default if text is None else text)
        synonyms = () if text is None else (Synonym(setting.name, value, source),)
        described.append(DescribedConfig(setting.name, value, source, setting.kind, synonyms))
    return described


def select_settings(described: Iterable[DescribedConfig], keys: Iterable[str] | None) -> list[DescribedConfig]:
    """Returns the settings with the given names, or all settings if no names are given."""
    requested = set(keys or ())
    return [one for one in described if not requested or one.name in requested]


def kafka_text(setting: Setting, text: str | None) -> str | None:
    """Returns the value as Kafka formats it, or `text` itself if it is not a valid value."""
    try:
        return _printed_value(setting.parse(text) if text is not None else None)
    except InvalidSetting:
        return text


def _printed_value(value: SettingValue) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return java_double(value)
        case _:
            return str(value)


def _shown_of_topic(overrides: Mapping[str, str], rules: KafkaRules) -> list[Setting]:
    return [
        setting
        for name, setting in TOPIC_SETTINGS.items()
        if (not setting.is_internal or name in overrides) and is_known(name, TOPIC_SETTINGS, rules)
    ]


def _topic_setting(
    config: BrokerConfig, setting: Setting, overrides: Mapping[str, str], defaults: Mapping[str, str]
) -> DescribedConfig:
    value = kafka_text(setting, overrides.get(setting.name, defaults.get(setting.name)))
    synonyms: list[Synonym] = []
    if setting.name in overrides:
        synonyms.append(Synonym(setting.name, value, ConfigSource.TOPIC))
    if setting.synonyms:
        synonyms += _visible_synonyms(setting.synonyms[0], _synonyms(config, setting.synonyms, False))
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return DescribedConfig(setting.name, value, source, setting.kind, tuple(synonyms))


def _broker_setting(config: BrokerConfig, name: str, *, all_sources: bool, rules: KafkaRules) -> DescribedConfig:
    setting = setting_named(name)
    if setting is not None and not is_known(setting.name, BROKER_SETTINGS, rules):
        setting = None  # the emulated release does not have this setting
    is_sensitive = setting is None or setting.kind is ValueType.PASSWORD
    if all_sources:
        # The general setting is a synonym because the listener's own setting overrides it.
        of_all = () if setting is None or setting.name == name else (setting.name,)
        synonyms = _visible_synonyms(
            name, _synonyms(config, (*BROKER_SYNONYMS.get(name, (name,)), *of_all), is_sensitive)
        )
        text = _effective_value(config, name)
    else:
        text = config.recorded_defaults[name]
        synonyms = [Synonym(name, None if is_sensitive else text, ConfigSource.DYNAMIC_DEFAULT)]
    value = None if is_sensitive or setting is None else kafka_text(setting, text)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    is_read_only = all_sources and (setting is None or setting.name != name or setting.update is UpdateMode.READ_ONLY)
    kind = None if setting is None else setting.kind
    return DescribedConfig(name, value, source, kind, tuple(synonyms), is_read_only, is_sensitive)


def _group_setting(config: BrokerConfig, setting: Setting, overrides: Mapping[str, str]) -> DescribedConfig:
    broker_name = broker_setting_of(setting)
    text = config.current_text(broker_name) if broker_name in BROKER_SETTINGS else setting.default
    if setting.name == STREAMS_ASSIGNOR and text is not None:
        text = text.split(",")[0].strip()  # groups use the first of the broker's assignors by default
    value = kafka_text(setting, overrides.get(setting.name, text))
    synonyms: list[Synonym] = []
    if setting.name in overrides:
        synonyms.append(Synonym(setting.name, value, ConfigSource.GROUP))
    if broker_name in BROKER_SETTINGS:
        synonyms += _synonyms(config, [broker_name], False)
    else:
        synonyms.append(Synonym(setting.name, setting.default, ConfigSource.DEFAULT))
    return DescribedConfig(setting.name, value, synonyms[0].source, setting.kind, tuple(synonyms))


def _effective_value(config: BrokerConfig, name: str) -> str | None:
    for source in (config.recorded_broker, config.recorded_defaults):
        if name in source:
            return source[name]
    return config.current_text(name)


def _synonyms(config: BrokerConfig, names: Iterable[str], is_sensitive: bool) -> list[Synonym]:
    """Returns the values of these settings from all sources, ordered by source and then by position in `names`."""
    defaults: Callable[[str], str | None] = lambda name: (  # noqa: E731
        BROKER_SETTINGS[name].default if name in BROKER_SETTINGS else None
    )
    sources: tuple[tuple[ConfigSource, Callable[[str], str | None]], ...] = (
        (ConfigSource.DYNAMIC_BROKER, config.recorded_broker.get),
        (ConfigSource.DYNAMIC_DEFAULT, config.recorded_defaults.get),
        (ConfigSource.GIVEN, config.given_settings.get),
        (ConfigSource.DEFAULT, defaults),
    )
    names = list(names)
    found = []
    for source, value_of in sources:
        for name in names:
            text = value_of(name)
            if text is not None:
                found.append(Synonym(name, None if is_sensitive else text, source))
    return found


def _visible_synonyms(name: str, synonyms: list[Synonym]) -> list[Synonym]:
    """Drops the synonyms that precede the first synonym with the setting's own name, as Kafka does. Drops all synonyms
    if none has that name. As a result, `segment.ms` has neither synonyms nor a source if its value comes from
    `log.roll.hours`."""
    start = next((index for index, one in enumerate(synonyms) if one.name == name), len(synonyms))
    return synonyms[start:]
