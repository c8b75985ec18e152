"""A preset's parameters. Their names and types are checked against the defaults in the table of presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from odradek.broker.control.problems import check_known_fields, text, unknown_field, whole_number

Facts: TypeAlias = Mapping[str, object]
MAX_PARAMETER = 10_000
MAX_WITH_UNIT = 2**31 - 1
UNITS = ("_ms", "_bytes")


class Parameters:
    def __init__(self, values: Mapping[str, object], defaults: Mapping[str, str | int]) -> None:
        """Raises Problem if a parameter is unknown or does not have the same type as its default."""
        check_known_fields(values, defaults)
        for name, value in values.items():
            if isinstance(defaults[name], str):
                text(value, name)
            else:
                whole_number(value, name, 0, MAX_WITH_UNIT if name.endswith(UNITS) else MAX_PARAMETER)
        self._values = {**defaults, **values}

    def text(self, name: str) -> str:
        return text(self._values[name], name)

    def number(self, name: str, least: int = 0, most: int = MAX_WITH_UNIT) -> int:
        return whole_number(self._values[name], name, least, most)

    def word(self, name: str, allowed: Sequence[str]) -> str:
        value = self.text(name)
        if value not in allowed:
            raise unknown_field(name, value, allowed)
        return value
