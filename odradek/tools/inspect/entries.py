"""The entries that readers find in a file, in the order of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Part of a file that was understood.

    position  byte in the file at which it begins; of a record, at which its batch begins
    fields    by Kafka's names in camelCase; values are those of JSON, and bytes
    depth     1 for what is part of the entry of depth 0 before it
    """

    kind: str
    position: int
    fields: Mapping[str, Any]
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not what they should be, from `position` on."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Remark that is no damage."""

    position: int
    text: str


Finding: TypeAlias = FileEntry | Damage | Note
