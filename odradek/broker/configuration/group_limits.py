"""The least and the most that a broker allows the settings of its groups: `group.<type>.min.<rest>`, `….max.<rest>`.

A value outside is refused when it is set. One that was recorded before the broker's limits were narrowed is kept, and
counts as the nearest value that is allowed, as in Kafka from 4.3 on.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.configuration.broker_settings import BROKER_SETTINGS

BrokerSetting = Callable[[str], str | None]  # the current value of a broker's setting, as it would stand in a file


def limit_name(name: str, bound: str) -> str | None:
    """Names the limit of a group's setting; `bound` is min or max. None where there is no such limit."""
    kind, _, rest = name.partition(".")
    found = f"group.{kind}.{bound}.{rest}"
    return found if found in BROKER_SETTINGS else None


def limit(name: str, broker_setting: BrokerSetting) -> int:
    """`name`: as `limit_name` returns it."""
    value = BROKER_SETTINGS[name].parse(broker_setting(name))
    assert isinstance(value, int)
    return value


def clamped(name: str, value: int, broker_setting: BrokerSetting) -> int:
    """The nearest allowed value."""
    least, most = limit_name(name, "min"), limit_name(name, "max")
    if least is not None:
        value = max(value, limit(least, broker_setting))
    if most is not None:
        value = min(value, limit(most, broker_setting))
    return value
