"""Settings that apply to a single listener or to one SASL mechanism of a listener.

Their names are `listener.name.<listener>.<setting>` and `listener.name.<listener>.<mechanism>.<setting>`, with the
listener and the mechanism in lower case.

Source: docs/spec/security.md#s1-1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.configuration.settings import InvalidSetting, Setting, SettingValue, UpdateMode
from odradek.broker.configuration.topic_settings import is_known
from odradek.protocol.kafka_rules import KafkaRules

PREFIX = "listener.name."
SSL_PROTOCOLS = frozenset({"SSL", "SASL_SSL"})
HTTP_LISTENER = "HTTP"  # pseudo-listener whose settings configure TLS for the HTTP port
SASL_PROTOCOLS = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})


def setting_named(name: str) -> Setting | None:
    """Returns a setting's definition, or None if the setting is unknown. The name may have a listener's prefix."""
    setting = BROKER_SETTINGS.get(name)
    if setting is None and name.startswith(PREFIX):
        _, _, rest = name.removeprefix(PREFIX).partition(".")
        setting = BROKER_SETTINGS.get(rest) or BROKER_SETTINGS.get(rest.partition(".")[2])
    return setting


def listener_of(name: str) -> str | None:
    """Returns the listener in the prefix of a name, in lower case, or None if the name has no prefix."""
    return name.removeprefix(PREFIX).partition(".")[0] if name.startswith(PREFIX) else None


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The current settings of one listener. The listener's name is in upper case.

    current_text  returns the value of a setting by its full name, or None if it is unset and has no default
    """

    listener: str
    current_text: Callable[[str], str | None]

    def name(self, setting: str, mechanism: str | None = None) -> str:
        """Returns the most specific name under which the setting has a value: with the mechanism's prefix, with the
        listener's prefix, or without a prefix."""
        for prefixed in self._prefixed(setting, mechanism):
            if self.current_text(prefixed) is not None:
                return prefixed
        return setting

    def text(self, setting: str, mechanism: str | None = None) -> str | None:
        """Returns the value as text, or the default if it is not set."""
        return self.current_text(self.name(setting, mechanism))

    def own_text(self, setting: str, mechanism: str | None = None) -> str | None:
        """Returns the value if it is set specifically for this listener or mechanism, otherwise None."""
        name = self.name(setting, mechanism)
        return None if name == setting else self.current_text(name)

    def value(self, setting: str, mechanism: str | None = None) -> SettingValue:
        return BROKER_SETTINGS[setting].parse(self.text(setting, mechanism))

    def prefixed(self, setting: str, mechanism: str | None = None) -> str:
        """Returns the most specific name under which the value can be set, with the listener's prefix. Used in
        messages."""
        return self._prefixed(setting, mechanism)[0]

    def _prefixed(self, setting: str, mechanism: str | None) -> tuple[str, ...]:
        listener = f"{PREFIX}{self.listener.lower()}."
        if mechanism is None:
            return (f"{listener}{setting}",)
        return f"{listener}{mechanism.lower()}.{setting}", f"{listener}{setting}"


def readable_settings(
    values: Mapping[str, str], rules: KafkaRules, but_not: UpdateMode | None = None
) -> dict[str, str]:
    """Returns the settings that AlterConfigs may change, that the emulated release has, and whose values can be parsed.
    Settings with update mode `but_not` are excluded. The update mode is ignored if the name has a listener's prefix."""
    found = {}
    for name, text in values.items():
        setting = setting_named(name)
        if setting is None or not is_known(setting.name, BROKER_SETTINGS, rules):
            continue
        if name in BROKER_SETTINGS and setting.update in (UpdateMode.READ_ONLY, but_not):
            continue
        try:
            setting.parse(text)
        except InvalidSetting:
            continue
        found[name] = text
    return found
