"""Formats records' values and places for reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAX_LENGTH = 120


@dataclass(frozen=True, slots=True, order=True)
class RecordPlace:
    partition: int
    offset: int

    @classmethod
    def of(cls, row: Any) -> RecordPlace | None:
        """Converts a Spark row with the fields `partition` and `offset`. Returns None for None."""
        return None if row is None else cls(row["partition"], row["offset"])

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


def shown(value: object) -> str | None:
    """Formats a value as text, shortened if necessary. Bytes that are not printable text are shown in hexadecimal.
    Returns None for None."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        try:
            text = bytes(value).decode()
            text = text if text.isprintable() else f"0x{bytes(value).hex()}"
        except UnicodeDecodeError:
            text = f"0x{bytes(value).hex()}"
    else:
        text = str(value)
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"


def size(count: float) -> str:
    """Formats a number of bytes in a suitable unit, such as `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
