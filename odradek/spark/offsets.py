"""Resolves a query's options to the offsets that it reads, with requests to the cluster. Independent of Spark."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from odradek.client.common.values import TopicPartition
from odradek.client.sync import Admin, Consumer
from odradek.spark.options import EARLIEST, LATEST, STRATEGY, Bound, OptionError, SourceOptions

Offsets = dict[TopicPartition, int]
TopicIds = dict[str, str]  # topic ids in hexadecimal, keyed by topic name

# The key under which a checkpoint stores the topic ids. No topic can have this name. Checkpoints of earlier releases,
# and of Spark's own source, lack this key.
TOPIC_IDS = "#topicIds"

# Number of bytes to fetch from a partition at a time. It is large, because each Fetch costs a round trip between the
# reader and the broker.
FETCH_BYTES = 8 * 1024 * 1024
_FEW_FETCH_BYTES = 1024 * 1024  # used instead if the range contains only a few records
_LARGE_RECORD_BYTES = 1024

_log = logging.getLogger(__name__)


class DataLost(Exception):
    """Records in the requested range are no longer in the log."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The range of a partition's offsets that one task reads: start_offset <= offset < end_offset."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset


class RangeOptions(Protocol):
    @property
    def min_partitions(self) -> int | None: ...

    @property
    def fail_on_data_loss(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A stream's position, with its topics' ids. If a topic was deleted and created again, its id has changed."""

    offsets: Offsets
    topic_ids: TopicIds

    @classmethod
    def read(cls, checkpoint: Mapping[str, Any] | str) -> StreamPosition:
        found: Mapping[str, Any] = json.loads(checkpoint) if isinstance(checkpoint, str) else checkpoint
        topics = {topic: of for topic, of in found.items() if topic != TOPIC_IDS}
        return cls(from_json(topics), dict(found.get(TOPIC_IDS, {})))

    def json(self) -> dict[str, Any]:
        topics = {each.topic for each in self.offsets}
        ids = {topic: topic_id for topic, topic_id in sorted(self.topic_ids.items()) if topic in topics}
        return {**to_json(self.offsets), TOPIC_IDS: ids} if ids else to_json(self.offsets)

    def retained(self, topic_ids: TopicIds) -> Offsets:
        """Returns the offsets, without those of topics that have been deleted and created again."""
        anew = self.recreated_topics(topic_ids)
        return {each: offset for each, offset in self.offsets.items() if each.topic not in anew}

    def recreated_topics(self, topic_ids: TopicIds) -> set[str]:
        return {topic for topic, topic_id in self.topic_ids.items() if topic_ids.get(topic, topic_id) != topic_id}


class OffsetReader:
    """Requests offsets from the cluster. It connects on first use, and its owner must close it.

    topic_ids  ids of the topics found by `partitions`
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer: Consumer | None = None
        self.topic_ids: TopicIds = {}

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions that the options select at present. Raises ClientError if a topic does not exist."""
        options = self._options
        brokers = options.brokers
        with Admin(
            bootstrap_servers=brokers.bootstrap_servers,
            bootstrap_timeout_ms=brokers.bootstrap_timeout_ms,
            **brokers.security,
        ) as admin:
            topics = options.topics or tuple(dict.fromkeys(each.topic for each in options.partitions))
            if options.pattern is not None:
                topics = tuple(each for each in admin.list_topics() if re.fullmatch(options.pattern, each))
            described = admin.describe_topics(topics)
        self.topic_ids = {topic: description.topic_id.hex() for topic, description in described.items()}
        return list(options.partitions) or [
            TopicPartition(topic, each.partition)
            for topic, description in described.items()
            for each in description.partitions
        ]

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._opened().beginning_offsets(list(partitions))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Returns the last stable offsets, or the log end offsets if the isolation level is read_uncommitted."""
        return self._opened().end_offsets(list(partitions))

    def log_ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Returns the log end offsets, which are also past the records of open transactions."""
        reader = consumer(replace(self._options, isolation_level="read_uncommitted"))
        try:
            return reader.end_offsets(list(partitions))
        finally:
            reader.close()

    def resolve(self, bound: Bound, partitions: list[TopicPartition]) -> Offsets:
        """Resolves a bound to offsets.

        If a partition has no record with at least the bound's timestamp, its offset is the end of the partition, or
        OptionError is raised if the bound requires a record. As in Spark, OptionError is also raised if the bound names
        only some of the partitions.
        """
        if missing := set(partitions) - bound.named(partitions):
            raise OptionError(
                "if offsets or timestamps are given for some partitions, they must be given for all that are read"
                f" (-1 is latest, -2 is earliest); missing: {sorted(missing)}"
            )
        times, requested = requested_offsets(bound, partitions)
        found = {each: offset for each, offset in requested.items() if offset >= 0}
        if early := [each for each, offset in requested.items() if offset == EARLIEST]:
            found |= self.earliest(early)
        if late := [each for each, offset in requested.items() if offset == LATEST]:
            found |= self.latest(late)
        if times:
            by_time = self._opened().offsets_for_times(times)
            require_records(bound, times, [each for each, place in by_time.items() if place is None])
            ends = self.latest(each for each, place in by_time.items() if place is None)
            found |= {each: ends[each] if place is None else place.offset for each, place in by_time.items()}
        return found

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = consumer(self._options)
        return self._consumer


def requested_offsets(bound: Bound, partitions: list[TopicPartition]) -> tuple[Offsets, Offsets]:
    """Splits a bound into timestamps in milliseconds, and offsets for the partitions that have no timestamp. An offset
    can be EARLIEST or LATEST. Raises OptionError if the bound names a partition that is not among `partitions`."""
    times = dict(bound.timestamps_ms)
    if bound.timestamp_ms is not None:
        times = dict.fromkeys(partitions, bound.timestamp_ms)
    unknown = (set(bound.offsets) | set(times)) - set(partitions)
    if unknown:
        raise OptionError(f"offsets are given for partitions that are not read: {sorted(unknown)}")
    return times, {each: bound.offsets.get(each, bound.everywhere) for each in partitions if each not in times}


def require_records(bound: Bound, times: Offsets, without: list[TopicPartition]) -> None:
    """Raises OptionError if the partitions in `without` have no matching record and the bound requires one, as it does
    by default in Spark."""
    if bound.needs_record and without:
        named = ", ".join(f"{each.topic}-{each.partition} ({times[each]})" for each in sorted(without))
        raise OptionError(
            f"no record has the starting timestamp or a later one: {named}; set {STRATEGY} to latest to start at"
            " the end"
        )


def consumer(options: SourceOptions, record_count: int = 0) -> Consumer:
    """Starts a consumer that fetches about `record_count` records from a partition at a time. The consumer raises an
    error for an offset that is no longer in the log."""
    fetch_bytes = min(max(record_count * _LARGE_RECORD_BYTES, _FEW_FETCH_BYTES), FETCH_BYTES)
    made = Consumer(
        bootstrap_servers=options.brokers.bootstrap_servers,
        bootstrap_timeout_ms=options.brokers.bootstrap_timeout_ms,
        isolation_level=options.isolation_level,
        auto_offset_reset="none",
        allow_auto_create_topics=False,
        **options.brokers.security,
        **({"max_partition_fetch_bytes": fetch_bytes} | dict(options.consumer)),
    )
    made.start()
    return made


def losses(
    position: StreamPosition, latest: Offsets, topic_ids: TopicIds, earliest: Offsets, log_ends: Offsets
) -> list[str]:
    """Returns a sentence for each topic or partition that has lost records since the checkpoint.

    latest    the latest offsets of all existing partitions
    earliest  the earliest offsets of the partitions that are not in the checkpoint
    log_ends  the log end offsets of the partitions whose latest offset is before the checkpoint
    """
    anew = position.recreated_topics(topic_ids)
    found = [f"{topic} was deleted and created again" for topic in sorted(anew)]
    for each, offset in sorted(position.offsets.items()):
        name = f"{each.topic}-{each.partition}"
        if each not in latest:
            found.append(f"{name} no longer exists; the checkpoint has its offset {offset}")
        elif each.topic not in anew and log_ends.get(each, offset) < offset:
            found.append(f"{name} ends at {log_ends[each]}, before the offset {offset} of the checkpoint")
    for each, offset in sorted(earliest.items()):
        if offset > 0:
            found.append(f"{each.topic}-{each.partition} is new and begins at {offset} instead of 0")
    return found


def log_losses(lost: Iterable[str], *, fails: bool) -> None:
    """Raises DataLost with all sentences in `lost`. If `fails` is False (`failOnDataLoss=false`), logs a warning for
    each sentence instead."""
    found = list(lost)
    if found and fails:
        raise DataLost(f"{'; '.join(found)}; set failOnDataLoss to false to continue without the lost records")
    for each in found:
        _log.warning("records were lost: %s", each)


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """Limits a batch to `most` records in total. As in Spark, the share of each partition is proportional to its
    backlog."""
    sizes = {each: max(0, offset - start[each]) for each, offset in end.items()}
    total = sum(sizes.values())
    if total <= most:
        return end
    return {each: start[each] + min(size, -(-size * most // total)) for each, size in sizes.items()}


@dataclass(slots=True)
class Threshold:
    """The rule for `minOffsetsPerTrigger`: a batch waits until there are enough new offsets or `maxTriggerDelay` has
    passed since the last batch."""

    min_offsets: int
    max_delay_s: float
    _admitted_s: float | None = None

    def holds_back(self, start: Offsets, end: Offsets, now_s: float) -> bool:
        """Returns whether the batch has to wait. As in Spark, the first batch after a start never waits, because it is
        unknown how long it has already waited."""
        count = sum(max(0, offset - start[each]) for each, offset in end.items())
        is_due = self._admitted_s is None or now_s - self._admitted_s >= self.max_delay_s
        if count < self.min_offsets and not is_due:
            return True
        self._admitted_s = now_s
        return False


def limit_offsets(parts: Iterable[OffsetRange], most: int | None) -> list[OffsetRange]:
    """Cuts each range of more than `most` records into equal parts (`maxRecordsPerPartition`)."""
    if most is None:
        return list(parts)
    return [part for each in parts for part in _split(each, -(-each.size // most))]


def ranges(start: Offsets, end: Offsets, earliest: Offsets, options: RangeOptions) -> list[OffsetRange]:
    """Returns the ranges that the tasks read. There is one range per partition, or more if `minPartitions` requires
    them. Reports lost records as `log_losses` does."""
    found, lost = [], []
    for each in sorted(end):
        first, last = start[each], end[each]
        name = f"{each.topic}-{each.partition}"
        if last < first:
            lost.append(f"{name} ends at {last}, before the offset {first}")
        elif first < earliest.get(each, first):
            lost.append(f"the offsets {first} to {earliest[each]} of {name} are no longer in the log")
            first = earliest[each]
        if first < last:
            found.append(OffsetRange(*each, first, last))
    log_losses(lost, fails=options.fail_on_data_loss)
    total = sum(each.size for each in found)
    if options.min_partitions is None or len(found) >= options.min_partitions:
        return found
    return [part for each in found for part in _split(each, max(1, round(options.min_partitions * each.size / total)))]


def _split(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, whole.size)
    cuts = [whole.start_offset + whole.size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.topic, whole.partition, cuts[index], cuts[index + 1]) for index in range(count)]


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Formats offsets as Spark's Kafka source does in its checkpoints: {"topic": {"0": 23}}."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]] | str) -> Offsets:
    read = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {TopicPartition(topic, int(each)): offset for topic, part in read.items() for each, offset in part.items()}
