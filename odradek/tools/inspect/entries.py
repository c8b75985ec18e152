"""The types of entries that readers yield. Entries are in file order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A decoded part of a file.

    position  position of its first byte; for a record, position of its batch's first byte
    fields    values keyed by Kafka's field names in camelCase; the values are JSON values or bytes
    depth     1 if the entry belongs to the preceding entry of depth 0
    """

    kind: str
    position: int
    fields: Mapping[str, Any]
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged bytes, which begin at `position`."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about something that is not damage."""

    position: int
    text: str


Finding: TypeAlias = FileEntry | Damage | Note
