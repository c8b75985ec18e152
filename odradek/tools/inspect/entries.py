"""The entries that readers yield, in the order of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A part of a file that was understood.

    position  the byte at which it begins; for a record, the byte at which its batch begins
    fields    by Kafka's names in camelCase; values are those of JSON, and bytes
    depth     1 if it is part of the preceding entry of depth 0
    """

    kind: str
    position: int
    fields: Mapping[str, Any]
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not as they should be, from `position` on."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about something that is not damage."""

    position: int
    text: str


Finding: TypeAlias = FileEntry | Damage | Note
