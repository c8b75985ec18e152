"""The options of `format("odradek")` with `path`, and a query's filters. The source accepts the options of Spark's
Kafka source, plus options that apply only to files.

A filter is an object with an `attribute` (a column's path) and a `value`, and its class has the same name as one of the
filters in `pyspark.sql.datasource`. Spark applies every filter again, so this module can ignore filters that it does
not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar

from odradek.spark.options import (
    PATH,
    Bound,
    OptionError,
    TopicChoice,
    bounds,
    flag,
    isolation_level,
    number,
    require_known,
)

_OFFSETS = frozenset({"offset", "baseOffset"})
_EQUAL = frozenset({"EqualTo", "EqualNullSafe"})


@dataclass(frozen=True, slots=True)
class Pruning:
    """Limits on the records that the filters can select. Records outside these limits need not be read. None means no
    limit.

    not_before  lower bound of a record's timestamp in ms. There is no upper bound, because excluding a batch would
                require its smallest timestamp, which the header does not contain.
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
    """Combines filters into limits. A row is selected only if it satisfies every filter."""
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
    """Converts a date or time to milliseconds since the epoch, rounded down. A time without a time zone is treated as
    UTC."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000) // 1_000


E = TypeVar("E", bound=Enum)

MAX_BYTES_PER_PARTITION = 128 * 1024 * 1024  # the default of spark.sql.files.maxPartitionBytes
# Options that make sense only with a broker.
_OF_THE_NETWORK = ("kafka.bootstrap.servers",)
_KNOWN = (
    *("subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("minPartitions", "maxBytesPerPartition", "failOnDataLoss", "includeHeaders"),
    *("view", "transactions", "mode", "pushFilters"),
)
_KNOWN_KAFKA = ("kafka.isolation.level", "kafka.check.crcs")


class LogView(Enum):
    RECORDS = "records"
    BATCHES = "batches"
    TRANSACTIONS = "transactions"
    PRODUCERS = "producers"
    OFFSETS = "offsets"
    SEGMENTS = "segments"
    INTERNAL = "internal"


class DamageMode(Enum):
    """How a damaged batch is handled: the query fails, or the batch is left out and reported in the worker's log."""

    FAIL_FAST = "failfast"
    PERMISSIVE = "permissive"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options of a query that reads log files.

    choice    the topics to read; None means all topics except internal topics
    by_index  whether to trust the transaction indexes of finished segments (`transactions=index`)
    pruning   the records that the query's filters may select
    """

    path: str
    view: LogView
    choice: TopicChoice | None
    isolation_level: str
    starting: Bound
    ending: Bound
    min_partitions: int | None
    max_bytes_per_partition: int
    fail_on_data_loss: bool
    include_headers: bool
    check_crcs: bool
    by_index: bool
    on_damage: DamageMode
    pushes_filters: bool
    pruning: Pruning = EVERYTHING

    @classmethod
    def read(cls, options: Mapping[str, str]) -> FileOptions:
        """Parses options, whose names are case-insensitive. Raises OptionError."""
        given = {name.lower(): value for name, value in options.items()}
        for name in _OF_THE_NETWORK:
            if name in given:
                raise OptionError(
                    f"{name} and path cannot be combined: topics are read either from a broker or from files"
                )
        require_known(options, _KNOWN)
        unknown = [name for name in given if name.startswith("kafka.") and name not in _KNOWN_KAFKA]
        if unknown:
            raise OptionError(f"with path, no broker is used, so these options have no effect: {', '.join(unknown)}")
        starting, ending = bounds(given, is_stream=False)
        return cls(
            path=given[PATH],
            view=_one_of(LogView, given, "view", LogView.RECORDS),
            choice=TopicChoice.read(given),
            isolation_level=isolation_level(given),
            starting=starting,
            ending=ending,
            min_partitions=number(given, "minPartitions"),
            max_bytes_per_partition=number(given, "maxBytesPerPartition") or MAX_BYTES_PER_PARTITION,
            fail_on_data_loss=flag("failOnDataLoss", given.get("failondataloss", "true")),
            include_headers=flag("includeHeaders", given.get("includeheaders", "false")),
            check_crcs=flag("kafka.check.crcs", given.get("kafka.check.crcs", "true")),
            by_index=_by_index(given.get("transactions", "scan")),
            on_damage=_one_of(DamageMode, given, "mode", DamageMode.FAIL_FAST),
            pushes_filters=flag("pushFilters", given.get("pushfilters", "false")),
        )

    @property
    def is_committed(self) -> bool:
        return self.isolation_level == "read_committed"


def _one_of(kind: type[E], given: Mapping[str, str], name: str, default: E) -> E:
    text = given.get(name)
    if text is None:
        return default
    try:
        return kind(text.lower())
    except ValueError:
        raise OptionError(f"{name} must be one of {', '.join(each.value for each in kind)}, not {text!r}") from None


def _by_index(text: str) -> bool:
    if text.lower() not in ("scan", "index"):
        raise OptionError(f"transactions must be scan or index, not {text!r}")
    return text.lower() == "index"
