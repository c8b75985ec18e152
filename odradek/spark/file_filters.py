"""What filters of a query say about the files that need not be read. Knows nothing of Spark.

A filter is anything with an `attribute` (the path of a column) and a `value`, known by the name of its class as in
`pyspark.sql.datasource`. Spark applies every filter again, so what is not understood does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

_OFFSETS = frozenset({"offset", "baseOffset"})
_EQUAL = frozenset({"EqualTo", "EqualNullSafe"})


@dataclass(frozen=True, slots=True)
class Pruning:
    """Nothing outside of it is asked for. None: no bound.

    not_before   ms; of a record. An upper bound is of no use: a batch does not tell its smallest timestamp
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start_offset: int = 0
    end_offset: int | None = None
    not_before: int | None = None

    def has(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


EVERYTHING = Pruning()


def pruned(filters: Iterable[Any]) -> Pruning:
    """All of the filters hold for each row that is wanted."""
    found = EVERYTHING
    for each in filters:
        kind = type(each).__name__
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        value = getattr(each, "value", None)
        if len(attribute) != 1 or value is None:
            continue
        match attribute[0]:
            case "topic" if kind in _EQUAL:
                found = replace(found, topics=_both(found.topics, frozenset((value,))))
            case "topic" if kind == "In":
                found = replace(found, topics=_both(found.topics, frozenset(value)))
            case "partition" if kind in _EQUAL:
                found = replace(found, partitions=_both(found.partitions, frozenset((value,))))
            case "partition" if kind == "In":
                found = replace(found, partitions=_both(found.partitions, frozenset(value)))
            case name if name in _OFFSETS and isinstance(value, int):
                found = _by_offset(found, kind, value)
            case "timestamp" if kind in _EQUAL or kind in ("GreaterThan", "GreaterThanOrEqual"):
                if isinstance(value, datetime):
                    found = replace(found, not_before=max(_ms(value), found.not_before or 0))
    return found


def _by_offset(found: Pruning, kind: str, value: int) -> Pruning:
    start, end = 0, None
    match kind:
        case "GreaterThan":
            start = value + 1
        case "GreaterThanOrEqual":
            start = value
        case "LessThan":
            end = value
        case "LessThanOrEqual":
            end = value + 1
        case "EqualTo" | "EqualNullSafe":
            start, end = value, value + 1
    ends = [each for each in (end, found.end_offset) if each is not None]
    return replace(found, start_offset=max(start, found.start_offset), end_offset=min(ends, default=None))


def _both(first: frozenset[Any] | None, second: frozenset[Any]) -> frozenset[Any]:
    return second if first is None else first & second


def _ms(value: datetime) -> int:
    """Rounded down, and UTC where it names no zone."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000) // 1_000
