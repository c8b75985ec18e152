"""Parses the broker's settings, which come from a file, the environment, overrides and AlterConfigs.

`BrokerConfig` holds the settings that were given at startup and the changes that AlterConfigs has made since then. Only
`set_dynamic` changes a `BrokerConfig`. The first of these sources that contains a setting supplies its value: dynamic
(this broker), dynamic (cluster default), given at startup, the table of defaults. The settings given at startup come
from the properties file, `KAFKA_*` variables and overrides; later sources take precedence over earlier ones.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS, EFFECTIVE_SETTINGS, BrokerSettings
from odradek.broker.configuration.contradictions import contradictions
from odradek.broker.configuration.environment import settings_of_environment
from odradek.broker.configuration.listener_settings import ListenerSettings, readable_settings, setting_named
from odradek.broker.configuration.listeners import (
    Listener,
    PublishedAddress,
    advertise,
    check_advertised,
    check_bound_ports,
    check_inter_broker,
    parse_listeners,
    parse_protocol_map,
    parse_published,
)
from odradek.broker.configuration.settings import InvalidSetting, SettingValue, UpdateMode, unit_ms
from odradek.broker.configuration.topic_settings import TOPIC_SETTINGS
from odradek.broker.configuration.unused_settings import WITHOUT_EFFECT
from odradek.protocol.java_properties import parse_properties
from odradek.protocol.kafka_rules import NEWEST, KafkaRules

if TYPE_CHECKING:
    from odradek.storage.log_config import LogConfig

DEFAULT_NODE_ID = "1"


class ConfigError(Exception):
    """Raised if a setting prevents the broker from starting."""

    def __init__(self, name: str, value: object, why: str) -> None:
        super().__init__(f"{name}={value}: {why}")
        self.name = name
        self.value = value


class BrokerConfig(BrokerSettings):
    """The settings that this broker uses, as attributes with their current values. Read an attribute whenever its value
    is needed instead of keeping a copy, because AlterConfigs may change it."""

    def __init__(self, given: Mapping[str, str], brokers: int = 1) -> None:
        """Parses and checks the settings. Raises ConfigError.

        given: must not contain unknown names
        brokers: the number of brokers in the cluster
        """
        self.given_settings = dict(given)
        # node.id and broker.id are two names for the same setting. If both are given, the value of node.id applies to
        # both.
        self.given_settings["broker.id"] = (
            self.given_settings.get("node.id") or self.given_settings.get("broker.id") or DEFAULT_NODE_ID
        )
        if "broker.id" in given:
            self.given_settings["node.id"] = self.given_settings["broker.id"]
        self.recorded_defaults: Mapping[str, str] = {}  # all settings set by AlterConfigs, as the client sent them
        self.recorded_broker: Mapping[str, str] = {}
        self.dynamic_defaults: Mapping[str, str] = {}  # the recorded settings that take effect
        self.dynamic_broker: Mapping[str, str] = {}
        self._topic_defaults: dict[str, str] | None = None
        self._log_config: LogConfig | None = None
        for name, text in self.given_settings.items():
            setting = setting_named(name)
            assert setting is not None
            try:
                setting.parse(text)
            except InvalidSetting as error:
                raise ConfigError(name, text, f"{error} (allowed: {setting.describe_allowed()})") from None
        self._set_attributes()
        self.published: Mapping[str, PublishedAddress] | None = None  # addresses by listener; None if not configured
        self.serving, self._advertised = self._read_listeners()
        for contradiction in contradictions(self, self.current_text, self.topic_defaults(), brokers):
            raise ConfigError(*contradiction)

    def set_dynamic(
        self,
        dynamic_defaults: Mapping[str, str],
        dynamic_broker: Mapping[str, str],
        rules: KafkaRules = NEWEST,
    ) -> None:
        """Replaces the dynamic settings with those in the cluster metadata. Settings that the emulated release does not
        have, and values that cannot be parsed, are ignored."""
        self.recorded_defaults, self.recorded_broker = dict(dynamic_defaults), dict(dynamic_broker)
        self.dynamic_defaults = readable_settings(dynamic_defaults, rules, but_not=UpdateMode.PER_BROKER)
        self.dynamic_broker = readable_settings(dynamic_broker, rules)
        self._set_attributes()

    def of_node(self, node_id: int, recorded: Mapping[str, str], rules: KafkaRules = NEWEST) -> "BrokerConfig":
        """Returns, for DescribeConfigs, the settings of another node in the same process. They differ from this node's
        settings only in the node id and in `recorded`, the settings that AlterConfigs has set for the other node."""
        other = copy(self)
        other.given_settings = {**self.given_settings, "node.id": str(node_id), "broker.id": str(node_id)}
        other.set_dynamic(self.recorded_defaults, recorded, rules)
        return other

    @property
    def data_directory(self) -> Path:
        """The single log directory, as an absolute path. This path appears in the response to DescribeLogDirs and in
        the ready line."""
        return Path((self.log_dirs or self.log_dir)[0]).absolute()

    def listener_settings(self, listener: str) -> ListenerSettings:
        """Returns the settings of the listener with this name."""
        return ListenerSettings(listener, self.current_text)

    def advertise_listeners(self, bound_ports: Mapping[str, int], host_name: Callable[[], str]) -> tuple[Listener, ...]:
        """Returns the listeners with the addresses that clients receive, based on the port that each listener is bound
        to; see listeners.py."""
        return advertise(self.serving, self._advertised, bound_ports, host_name)

    @property
    def is_advertised_by_arrival(self) -> bool:
        return self.odradek_advertise == "arrival" and self._advertised is None

    def topic_defaults(self) -> dict[str, str]:
        """Returns, as text, the setting values that apply to a topic without overrides."""
        defaults = {name: setting.default for name, setting in TOPIC_SETTINGS.items() if setting.default is not None}
        for name, setting in TOPIC_SETTINGS.items():
            for synonym in setting.synonyms:
                text = self.current_text(synonym)
                if text is not None:
                    factor = unit_ms(synonym)
                    defaults[name] = text if factor == 1 else str(int(text) * factor)
                    break
        if int(defaults["retention.ms"]) < 0:
            defaults["retention.ms"] = "-1"
        return defaults

    def log_config(self, topic_overrides: Mapping[str, str], rules: KafkaRules = NEWEST) -> "LogConfig":
        """Returns a topic's log configuration. `topic_overrides` take precedence over the broker's settings. Overrides
        that cannot be parsed, or that the emulated release does not have, are ignored."""
        from odradek.broker.configuration.topic_log_config import known_overrides, log_config

        if self._topic_defaults is None:
            self._topic_defaults = self.topic_defaults()
            self._log_config = None
        topic_overrides = known_overrides(topic_overrides, rules)
        if topic_overrides:
            return log_config(self._topic_defaults, topic_overrides, self.producer_id_expiration_ms)
        if self._log_config is None:
            self._log_config = log_config(self._topic_defaults, {}, self.producer_id_expiration_ms)
        return self._log_config

    def current_text(self, name: str, changed: Mapping[str, str | None] | None = None) -> str | None:
        """Returns a setting's value as text, or None if it is unset and has no default.

        changed: changes to this broker's own settings that AlterConfigs is about to make; None removes a setting
        """
        changed = changed or {}
        text = changed.get(name)
        if text is not None:
            return text
        for source in (self.dynamic_broker, self.dynamic_defaults, self.given_settings):
            if name in source and not (name in changed and source is self.dynamic_broker):
                return source[name]
        return BROKER_SETTINGS[name].default if name in BROKER_SETTINGS else None

    def _set_attributes(self) -> None:
        self._topic_defaults = None
        vars(self).update(default_values())
        for name in EFFECTIVE_SETTINGS.keys() & {*self.given_settings, *self.dynamic_defaults, *self.dynamic_broker}:
            setattr(self, attribute_of(name), EFFECTIVE_SETTINGS[name].parse(self.current_text(name)))

    def _read_listeners(self) -> tuple[tuple[Listener, ...], tuple[Listener, ...] | None]:
        name, entries = "listener.security.protocol.map", tuple(self.listener_security_protocol_map.split(","))
        try:
            protocols = parse_protocol_map(entries)
            for controller_name in self.controller_listener_names:
                protocols.setdefault(controller_name.upper(), "PLAINTEXT")
            name, entries = "listeners", self.listeners
            parsed = parse_listeners(name, entries, protocols)
            check_bound_ports(parsed)
            serving = self._with_own_port(self._without_controllers(parsed))
            advertised = None
            if self.advertised_listeners is not None:
                name, entries = "advertised.listeners", self.advertised_listeners
                advertised = self._without_controllers(parse_listeners(name, entries, protocols))
                check_advertised(serving, advertised)
            for name in ("security.inter.broker.protocol", "inter.broker.listener.name"):
                entries = (self.given_settings.get(name, ""),)
                check_inter_broker(name, self.given_settings, serving if advertised is None else advertised)
            if self.odradek_advertise_published:
                name, entries = "odradek.advertise.published", self.odradek_advertise_published
                self.published = parse_published(entries, serving)
        except InvalidSetting as error:
            raise ConfigError(name, ",".join(entries), str(error)) from None
        if not serving:
            raise ConfigError(
                "listeners",
                ",".join(self.listeners),
                "there is no listener for clients, because controller.listener.names contains all listeners",
            )
        return serving, advertised

    def _without_controllers(self, listeners: Iterable[Listener]) -> tuple[Listener, ...]:
        controllers = {name.upper() for name in self.controller_listener_names}
        return tuple(listener for listener in listeners if listener.name not in controllers)

    def _with_own_port(self, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
        if self.odradek_port is None or not listeners:
            return listeners
        first, *others = listeners
        return (Listener(first.name, first.host, self.odradek_port, first.security_protocol), *others)


def attribute_of(name: str) -> str:
    return name.replace(".", "_")


@cache
def default_values() -> Mapping[str, SettingValue]:
    """Returns the parsed defaults by attribute name. The result is cached, because a process may run hundreds of
    brokers."""
    return {attribute_of(name): setting.parse(setting.default) for name, setting in EFFECTIVE_SETTINGS.items()}


def load_config(
    file: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str]
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """Returns the configuration, and warnings for the user. Raises ConfigError if a setting is invalid, or OSError if
    the file cannot be read."""
    from_file = parse_properties(file.read_text(encoding="utf-8")) if file is not None else {}
    return configure(from_file, environ, overrides)


def configure(
    from_file: Mapping[str, str], environ: Mapping[str, str], overrides: Mapping[str, str], brokers: int = 1
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """Like `load_config`, for a file whose settings have already been read. Later sources override earlier ones.

    brokers: the number of brokers in the cluster
    """
    given = {**from_file, **settings_of_environment(environ), **overrides}
    known = {name: text for name, text in given.items() if setting_named(name) is not None}
    unknown = sorted(given.keys() - known.keys())
    warnings = []
    if unknown:
        warnings.append(f"these settings are unknown, and are ignored: {', '.join(map(_with_similar, unknown))}")
    if idle := without_effect(given):
        warnings.append(f"these settings have no effect in this broker: {', '.join(idle)}")
    return BrokerConfig(known, brokers), tuple(warnings)


def _with_similar(name: str) -> str:
    """Returns an unknown setting's name, followed by the most similar known name if one is similar enough."""
    from difflib import get_close_matches  # imported here because only misspelt names need it

    similar = get_close_matches(name, BROKER_SETTINGS, n=1, cutoff=0.8)
    return f"{name} (did you mean {similar[0]}?)" if similar else name


def without_effect(given: Mapping[str, str]) -> list[str]:
    """Returns the given settings that have an effect in Kafka but not in this broker."""
    return sorted(name for name in given.keys() & WITHOUT_EFFECT.keys() if given[name] != WITHOUT_EFFECT[name].default)
