"""The compatibility levels. A level determines which earlier versions a new schema is compared with, and which schema
must be able to read the other's data.

BACKWARD: the new schema can read data written with the earlier schema. FORWARD: the earlier schema can read data
written with the new schema. FULL: both. A new schema is compared with the latest version or, if the level is
TRANSITIVE, with all versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CompatibilityLevel:
    new_reads_earlier: bool = False
    earlier_reads_new: bool = False
    is_transitive: bool = False


LEVELS: Final[dict[str, CompatibilityLevel]] = {
    "NONE": CompatibilityLevel(),
    "BACKWARD": CompatibilityLevel(new_reads_earlier=True),
    "FORWARD": CompatibilityLevel(earlier_reads_new=True),
    "FULL": CompatibilityLevel(new_reads_earlier=True, earlier_reads_new=True),
    "BACKWARD_TRANSITIVE": CompatibilityLevel(new_reads_earlier=True, is_transitive=True),
    "FORWARD_TRANSITIVE": CompatibilityLevel(earlier_reads_new=True, is_transitive=True),
    "FULL_TRANSITIVE": CompatibilityLevel(new_reads_earlier=True, earlier_reads_new=True, is_transitive=True),
}
DEFAULT_LEVEL: Final = "BACKWARD"


def incompatibilities(
    level: CompatibilityLevel, new: T, earlier: Sequence[T], differences: Callable[[T, T], list[str]]
) -> tuple[T, list[str]] | None:
    """Compares a new schema with earlier versions, latest first, and stops at the first incompatible version.

    earlier      the subject's versions, oldest first
    differences  called with a reader's and a writer's schema; returns the reasons that the reader cannot read the
                 writer's data

    Returns the earlier schema and the differences, or None if the new schema is compatible.
    """
    compared = reversed(earlier) if level.is_transitive else earlier[-1:]
    for each in compared:
        found = differences(new, each) if level.new_reads_earlier else []
        if not found and level.earlier_reads_new:
            found = differences(each, new)
        if found:
            return each, found
    return None
