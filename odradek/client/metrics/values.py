"""A metric and its value, as returned by a client's `metrics()` method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """The unit of a metric's value."""

    COUNT = "count"
    PER_SECOND = "1/s"
    PER_HOUR = "1/h"
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes/s"
    MILLISECONDS = "ms"
    NANOSECONDS = "ns"
    SECONDS = "s"
    RATIO = "ratio"


class MetricKind(Enum):
    """The kind of a metric. A GAUGE is a current value or a value for the last minute. A COUNTER starts at 0 when the
    client is created and never decreases."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a client, with its value at the time of reading.

    name    the name in Kafka, such as "record-send-rate"
    group   the group in Kafka, such as "producer-metrics"
    tags    "client-id"; for a part of the client also "topic", "partition" or "node-id"
    value   NaN for an average or a maximum if there were no measurements in the last minute
    """

    name: str
    group: str
    tags: Mapping[str, str]
    unit: Unit
    kind: MetricKind
    description: str
    value: float


class Metrics:
    """All metrics of a client, read at the same time."""

    __slots__ = ("_metrics",)

    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self._metrics = metrics

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    def value(self, name: str, *, group: str | None = None, **tags: str) -> float:
        """Returns the value of the metric that has this name and exactly these tags in addition to "client-id", such as
        `topic="orders"`. Write `_` in place of "-" in tag names.

        Raises KeyError if there is no such metric, or if several groups have it.
        """
        expected_tags = {tag.replace("_", "-"): value for tag, value in tags.items()}
        found = [
            each
            for each in self._metrics
            if each.name == name
            and group in (None, each.group)
            and {tag: value for tag, value in each.tags.items() if tag != "client-id"} == expected_tags
        ]
        if len(found) != 1:
            groups = (
                (f" exactly once, because it is in the groups {', '.join(each.group for each in found)}")
                if found
                else ""
            )
            raise KeyError(f"there is no metric {name!r} with the tags {expected_tags}{groups}")
        return found[0].value
