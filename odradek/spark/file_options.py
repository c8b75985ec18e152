"""The options of `format("odradek")` with `path`: those of Spark's Kafka source, and what only files have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from odradek.spark.file_filters import EVERYTHING, Pruning
from odradek.spark.options import PATH, Bound, Choice, OptionError, bounds, flag, isolation_level, number, require_known

E = TypeVar("E", bound=Enum)

MAX_BYTES_PER_PARTITION = 128 * 1024 * 1024  # as spark.sql.files.maxPartitionBytes
# What only a broker can be told.
_OF_THE_NETWORK = ("kafka.bootstrap.servers",)
_KNOWN = (
    *("subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("minPartitions", "maxBytesPerPartition", "failOnDataLoss", "includeHeaders"),
    *("view", "transactions", "mode", "pushFilters"),
)
_KNOWN_KAFKA = ("kafka.isolation.level", "kafka.check.crcs")


class View(Enum):
    RECORDS = "records"
    BATCHES = "batches"
    TRANSACTIONS = "transactions"
    PRODUCERS = "producers"
    OFFSETS = "offsets"
    SEGMENTS = "segments"
    INTERNAL = "internal"


class OnDamage(Enum):
    """What a damaged batch does: fail the query, or be left out (and be told in the log of the worker)."""

    FAIL_FAST = "failfast"
    PERMISSIVE = "permissive"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """
    choice     None: all topics but internal ones
    by_index   `transactions=index`: believe the transaction indexes of finished segments
    pruning    what the filters of the query leave
    """

    path: str
    view: View
    choice: Choice | None
    isolation_level: str
    starting: Bound
    ending: Bound
    min_partitions: int | None
    max_bytes_per_partition: int
    fail_on_data_loss: bool
    include_headers: bool
    check_crcs: bool
    by_index: bool
    on_damage: OnDamage
    pushes_filters: bool
    pruning: Pruning = EVERYTHING

    @classmethod
    def read(cls, options: Mapping[str, str]) -> FileOptions:
        """Raises OptionError. `options` by their names in any case."""
        given = {name.lower(): value for name, value in options.items()}
        for name in _OF_THE_NETWORK:
            if name in given:
                raise OptionError(f"{name} and path exclude one another: topics are read from a broker, or from files")
        require_known(options, _KNOWN)
        unknown = [name for name in given if name.startswith("kafka.") and name not in _KNOWN_KAFKA]
        if unknown:
            raise OptionError(f"with path there is no broker to tell {', '.join(unknown)}")
        starting, ending = bounds(given, is_stream=False)
        return cls(
            path=given[PATH],
            view=_one_of(View, given, "view", View.RECORDS),
            choice=Choice.read(given),
            isolation_level=isolation_level(given),
            starting=starting,
            ending=ending,
            min_partitions=number(given, "minPartitions"),
            max_bytes_per_partition=number(given, "maxBytesPerPartition") or MAX_BYTES_PER_PARTITION,
            fail_on_data_loss=flag("failOnDataLoss", given.get("failondataloss", "true")),
            include_headers=flag("includeHeaders", given.get("includeheaders", "false")),
            check_crcs=flag("kafka.check.crcs", given.get("kafka.check.crcs", "true")),
            by_index=_by_index(given.get("transactions", "scan")),
            on_damage=_one_of(OnDamage, given, "mode", OnDamage.FAIL_FAST),
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
        raise OptionError(f"{name} is one of {', '.join(each.value for each in kind)}, not {text!r}") from None


def _by_index(text: str) -> bool:
    if text.lower() not in ("scan", "index"):
        raise OptionError(f"transactions is scan or index, not {text!r}")
    return text.lower() == "index"
