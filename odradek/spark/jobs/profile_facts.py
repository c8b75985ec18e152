"""The facts in a profile, as plain values. `profile.py` measures them and `profile_page.py` displays them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor, log2
from typing import NamedTuple

from odradek.spark.jobs.shown import size

STEPS = 8  # number of histogram buckets per doubling of the value
_SKEWED = 2.0  # skew, as a multiple of the mean, from which it is reported
_HOT_KEY = 0.1  # minimum share of all records at which a key is reported as hot
_SMALL_BATCH = 10  # a batch with fewer records is reported as small
_MANY_ABORTED = 0.05


class Bucket(NamedTuple):
    """A bucket of a histogram. It counts the values with start <= value < end."""

    start: float
    end: float
    values: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram. Each bucket ends about 9 % above its start, which limits the error of quantiles."""

    counts: Mapping[int, int] = field(default_factory=dict)  # number of values, keyed by bucket number

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def quantile(self, share: float) -> float:
        """Returns the upper bound of the bucket that contains this quantile, or 0 if there are no values."""
        target, seen = share * self.total, 0
        for number in sorted(self.counts):
            seen += self.counts[number]
            if seen >= target:
                return bucket_bounds(number)[1]
        return 0

    def by_doubling(self) -> list[Bucket]:
        """Merges the buckets into wider buckets for charts. There is one wide bucket per doubling of the value, with no
        gaps."""
        doublings: dict[int, int] = {}
        for number, count in self.counts.items():
            place = -1 if number < 0 else number // STEPS
            doublings[place] = doublings.get(place, 0) + count
        if not doublings:
            return []
        return [
            Bucket(0 if place < 0 else 2.0**place, 2.0 ** (place + 1), doublings.get(place, 0))
            for place in range(min(doublings), max(doublings) + 1)
        ]


def bucket_of(value: float) -> int:
    """Returns the number of the bucket for the value, or -1 if the value is below 1."""
    return -1 if value < 1 else floor(log2(value) * STEPS)


def bucket_bounds(number: int) -> tuple[float, float]:
    return (0, 1) if number < 0 else (2 ** (number / STEPS), 2 ** ((number + 1) / STEPS))


class PartitionFacts(NamedTuple):
    partition: int
    records: int
    payload_bytes: int  # keys and values
    log_bytes: int | None = None
    batches: int | None = None


class KeyFacts(NamedTuple):
    key: str | None
    records: int


class TimeFacts(NamedTuple):
    start_ms: int
    records: int
    log_bytes: int


@dataclass(slots=True)
class LogFacts:
    """Facts from batch headers and markers. Times are in milliseconds.

    span      time from the first to the last record of a batch, during which the producer collects records
    open_for  time from a transaction's first record to its marker, during which read_committed consumers wait
    """

    batches: int = 0
    size_bytes: int = 0
    producers: int = 0
    codecs: dict[str, int] = field(default_factory=dict)  # number of bytes in the log, keyed by codec
    batch_records: Distribution = field(default_factory=Distribution)
    batch_bytes: Distribution = field(default_factory=Distribution)
    span: Distribution = field(default_factory=Distribution)
    committed: int = 0
    aborted: int = 0
    still_open: int = 0
    open_for: Distribution = field(default_factory=Distribution)


@dataclass(slots=True)
class Profile:
    """The facts about a topic. `log` is None if the topic was read over the network, because a broker does not return
    the batch headers as stored."""

    source: str
    topic: str
    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    null_keys: int = 0
    null_values: int = 0
    distinct_keys: int = 0  # an estimate
    first_ms: int | None = None
    last_ms: int | None = None
    record_bytes: Distribution = field(default_factory=Distribution)
    partitions: list[PartitionFacts] = field(default_factory=list)
    top_keys: list[KeyFacts] = field(default_factory=list)
    over_time: list[TimeFacts] = field(default_factory=list)
    log: LogFacts | None = None

    @property
    def payload_bytes(self) -> int:
        return self.key_bytes + self.value_bytes

    @property
    def skew(self) -> float:
        """The largest partition's size as a multiple of the mean."""
        largest = max((each.records for each in self.partitions), default=0)
        return largest * len(self.partitions) / self.records if self.records else 1.0

    @property
    def compression_ratio(self) -> float | None:
        """The bytes of keys and values, divided by the bytes in the log, which include headers and markers. The ratio
        is below 1 if headers and markers take up more space than compression saves."""
        if self.log is None or not self.log.size_bytes:
            return None
        return self.payload_bytes / self.log.size_bytes

    def findings(self) -> list[str]:
        """Returns sentences about noteworthy facts, most striking first."""
        return list(_findings(self))


def _findings(profile: Profile) -> Iterable[str]:
    if not profile.records:
        yield "There are no records."
        return
    if profile.skew >= _SKEWED:
        largest = max(profile.partitions, key=lambda each: each.records)
        yield (
            f"Partition {largest.partition} has {profile.skew:.1f} times as many records as the average partition,"
            " so the consumer of this partition determines when a group is done."
        )
    hot = next((each for each in profile.top_keys if each.key is not None), None)
    if hot is not None and hot.records >= _HOT_KEY * profile.records:
        yield f"The key {hot.key!r} has {hot.records / profile.records:.0%} of all records, all in one partition."
    if profile.null_keys == profile.records:
        yield "No record has a key: order is guaranteed only within a batch, and the topic cannot be compacted."
    log = profile.log
    if log is None:
        return
    if set(log.codecs) <= {"none"}:
        yield (
            f"Nothing is compressed: {size(log.size_bytes)} in the log. Set compression.type=zstd in the producers"
            " to save space."
        )
    elif log.codecs.get("none", 0) > log.size_bytes / 10:
        yield (
            f"{size(log.codecs['none'])} of the log is uncompressed, because at least one producer does not set"
            " compression.type."
        )
    if log.batch_records.quantile(0.5) < _SMALL_BATCH and profile.records > 1_000:
        yield (
            f"Half of the batches contain at most {log.batch_records.quantile(0.5):.0f} records. Raising linger.ms"
            " on the producers would make batches larger and reduce the cost per record."
        )
    ended = log.committed + log.aborted
    if log.aborted > _MANY_ABORTED * ended:
        yield f"{log.aborted / ended:.0%} of the transactions were aborted."
    if log.still_open:
        yield (
            f"{log.still_open} transactions are open: readers of committed records wait for them"
            " (odradek transactions find-hanging)."
        )
