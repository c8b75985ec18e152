"""What a view is made of."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
View: TypeAlias = "Mapping[str, JsonValue]"
