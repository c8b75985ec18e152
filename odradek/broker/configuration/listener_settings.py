"""Settings of one listener: `listener.name.<listener>.<setting>`, and `listener.name.<listener>.<mechanism>.<setting>`
for one SASL mechanism of it. Listener and mechanism are in lower case there.

Source: docs/spec/security.md#s1-1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.configuration.settings import InvalidSetting, Setting, SettingValue, UpdateMode

PREFIX = "listener.name."
SSL_PROTOCOLS = frozenset({"SSL", "SASL_SSL"})
HTTP_LISTENER = "HTTP"  # whose settings are those of the HTTP port, where it has TLS
SASL_PROTOCOLS = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})


def setting_named(name: str) -> Setting | None:
    """The row of the table that says what `name` may be, be it one with a prefix; None if there is none."""
    setting = BROKER_SETTINGS.get(name)
    if setting is None and name.startswith(PREFIX):
        _, _, rest = name.removeprefix(PREFIX).partition(".")
        setting = BROKER_SETTINGS.get(rest) or BROKER_SETTINGS.get(rest.partition(".")[2])
    return setting


def listener_of(name: str) -> str | None:
    """The listener, in lower case, that a prefixed name belongs to; None for a name without prefix."""
    return name.removeprefix(PREFIX).partition(".")[0] if name.startswith(PREFIX) else None


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The settings of the listener `listener`, in upper case as everywhere; values are current ones.

    current_text  the value of a setting by its whole name, None where it is unset and has no default
    """

    listener: str
    current_text: Callable[[str], str | None]

    def name(self, setting: str, mechanism: str | None = None) -> str:
        """Under which name `setting` is set: for the mechanism, for the listener, or for the broker."""
        for prefixed in self._prefixed(setting, mechanism):
            if self.current_text(prefixed) is not None:
                return prefixed
        return setting

    def text(self, setting: str, mechanism: str | None = None) -> str | None:
        """Returns the value as written; the default if it is set nowhere."""
        return self.current_text(self.name(setting, mechanism))

    def own_text(self, setting: str, mechanism: str | None = None) -> str | None:
        """Returns what is set for this listener, or this mechanism of it, only."""
        name = self.name(setting, mechanism)
        return None if name == setting else self.current_text(name)

    def value(self, setting: str, mechanism: str | None = None) -> SettingValue:
        return BROKER_SETTINGS[setting].parse(self.text(setting, mechanism))

    def prefixed(self, setting: str, mechanism: str | None = None) -> str:
        """The name to set it by for this listener alone, for messages."""
        return self._prefixed(setting, mechanism)[0]

    def _prefixed(self, setting: str, mechanism: str | None) -> tuple[str, ...]:
        listener = f"{PREFIX}{self.listener.lower()}."
        if mechanism is None:
            return (f"{listener}{setting}",)
        return f"{listener}{mechanism.lower()}.{setting}", f"{listener}{setting}"


def readable(values: Mapping[str, str], but_not: UpdateMode | None = None) -> dict[str, str]:
    """Picks those that may be altered and can be parsed; `but_not` are altered otherwise."""
    found = {}
    for name, text in values.items():
        setting = setting_named(name)
        if setting is None or (name in BROKER_SETTINGS and setting.update in (UpdateMode.READ_ONLY, but_not)):
            continue
        try:
            setting.parse(text)
        except InvalidSetting:
            continue
        found[name] = text
    return found
