"""Finds anomalies in a history. An anomaly is something that a reader of committed records must never see.

    lost           a record that was acknowledged, or seen by a reader, was not returned to a reader that has passed its
                   offset
    duplicated     a record appears more often than it can have been committed
    aborted read   a record belongs to an aborted transaction, or its send was refused
    early read     a record appears before anybody has requested the commit of its transaction
    invented       no producer sent the record, or it was sent to another partition
    torn           a transaction is only partly visible
    reordered      two records of a producer in one partition are not in the order in which they were sent
    rewritten      two records have the same offset
    non-monotonic  a consumer receives an offset that it has already received or passed

For every history that a correct broker can produce, `anomalies(history)` is empty. Each anomaly is reported once, as
the most specific kind that fits.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from tests.checker.history import (
    Answer,
    CommitAnswered,
    CommitRequested,
    ConsumerPositioned,
    History,
    ReachedEnd,
    RecordSent,
    RecordsPolled,
    TopicPartition,
    Transaction,
    Value,
)


class Kind(Enum):
    LOST = "lost"
    DUPLICATED = "duplicated"
    ABORTED_READ = "aborted read"
    EARLY_READ = "early read"
    INVENTED = "invented"
    TORN = "torn"
    REORDERED = "reordered"
    REWRITTEN = "rewritten"
    NON_MONOTONIC = "non-monotonic"


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    partition: TopicPartition
    value: Value
    why: str

    def __str__(self) -> str:
        topic, index = self.partition
        return f"{self.kind.value}: {self.value!r} of {topic}-{index}: {self.why}"


Place = tuple[TopicPartition, Value]


@dataclass(slots=True)
class Fate:
    """The outcome of a transaction as its producer knows it. `asked_at` is the position of the first commit request in
    the history."""

    asked_at: int | None = None
    is_committed: bool = False
    is_aborted: bool = False


@dataclass(slots=True)
class Reading:
    """A consumer's progress in one partition since the consumer was last positioned there."""

    begins: int
    position: int
    seen: set[Value] = field(default_factory=set)
    reached_end: bool = False


def anomalies(history: History, *, once: bool = False) -> list[Anomaly]:
    """Returns the anomalies of a history.

    once  True if each value may appear only once, even if it was sent in several transactions whose outcome is unknown
    """
    return list(Judge(history, once).verdicts())


class Judge:
    def __init__(self, history: History, once: bool) -> None:
        self._history = history
        self._once = once
        self._fates: defaultdict[Transaction, Fate] = defaultdict(Fate)
        self._sends: defaultdict[Place, list[RecordSent]] = defaultdict(list)
        self._by_transaction: defaultdict[Transaction, list[RecordSent]] = defaultdict(list)
        self._readings: list[tuple[TopicPartition, Reading]] = []
        self._offsets: defaultdict[Place, set[int]] = defaultdict(set)
        self._first_seen_at: dict[Place, int] = {}
        self._non_monotonic: list[Anomaly] = []
        self._collect()

    def _collect(self) -> None:
        current: dict[tuple[str, TopicPartition], Reading] = {}
        for at, event in enumerate(self._history):
            match event:
                case RecordSent():
                    self._sends[event.partition, event.value].append(event)
                    if event.transaction is not None:
                        self._by_transaction[event.transaction].append(event)
                        self._fates[event.transaction]  # adds the transaction if it is new
                case CommitRequested():
                    fate = self._fates[event.transaction]
                    fate.asked_at = at if fate.asked_at is None else fate.asked_at
                case CommitAnswered():
                    fate = self._fates[event.transaction]
                    fate.is_committed |= event.answer is Answer.YES
                    fate.is_aborted |= event.answer is Answer.NO
                case ConsumerPositioned():
                    reading = Reading(event.offset, event.offset)
                    current[event.consumer, event.partition] = reading
                    self._readings.append((event.partition, reading))
                case RecordsPolled():
                    self._poll(at, event, current[event.consumer, event.partition])
                case ReachedEnd():
                    current[event.consumer, event.partition].reached_end = True

    def _poll(self, at: int, event: RecordsPolled, reading: Reading) -> None:
        for offset, value in event.records:
            if offset < reading.position:
                why = f"{event.consumer} was at offset {reading.position} and got {offset}"
                self._non_monotonic.append(Anomaly(Kind.NON_MONOTONIC, event.partition, value, why))
            reading.position = max(reading.position, offset + 1)
            reading.seen.add(value)
            self._offsets[event.partition, value].add(offset)
            self._first_seen_at.setdefault((event.partition, value), at)

    def verdicts(self) -> Iterator[Anomaly]:
        yield from self._non_monotonic
        yield from self._rewritten()
        for place in self._first_seen_at:
            yield from self._wrongly_there(place)
        torn = list(self._torn())
        yield from torn
        reported = {(each.partition, each.value) for each in torn}
        for partition, reading in self._readings:
            for anomaly in self._lost(partition, reading):
                if (partition, anomaly.value) not in reported:
                    reported.add((partition, anomaly.value))
                    yield anomaly
        yield from self._reordered()

    # Records that must not exist.

    def _rewritten(self) -> Iterator[Anomaly]:
        at: dict[tuple[TopicPartition, int], Value] = {}
        for (partition, value), offsets in self._offsets.items():
            for offset in offsets:
                other = at.setdefault((partition, offset), value)
                if other != value:
                    yield Anomaly(Kind.REWRITTEN, partition, value, f"{other!r} was at offset {offset} too")

    def _wrongly_there(self, place: Place) -> Iterator[Anomaly]:
        partition, value = place
        sends = self._sends.get(place, [])
        seen_at = self._first_seen_at[place]
        if not sends:
            yield Anomaly(Kind.INVENTED, partition, value, "nobody sent it")
            return
        possible = [sent for sent in sends if self._may_be_committed(sent)]
        if not possible:
            yield Anomaly(Kind.ABORTED_READ, partition, value, self._why_not(sends[-1]))
            return
        if all(self._was_not_asked_by(sent, seen_at) for sent in possible):
            yield Anomaly(Kind.EARLY_READ, partition, value, "its commit had not been asked for")
        offsets = self._offsets[place]
        allowed = 1 if self._once else len(possible)
        if len(offsets) > allowed:
            yield Anomaly(Kind.DUPLICATED, partition, value, f"at offsets {sorted(offsets)}")

    def _may_be_committed(self, sent: RecordSent) -> bool:
        if sent.answer is Answer.NO:
            return False
        if sent.transaction is None:
            return True
        fate = self._fates[sent.transaction]
        return fate.asked_at is not None and not fate.is_aborted

    def _was_not_asked_by(self, sent: RecordSent, at: int) -> bool:
        if sent.transaction is None:
            return False
        asked_at = self._fates[sent.transaction].asked_at
        return asked_at is not None and asked_at > at

    def _why_not(self, sent: RecordSent) -> str:
        if sent.answer is Answer.NO:
            return "it was refused"
        assert sent.transaction is not None
        is_aborted = self._fates[sent.transaction].is_aborted
        return f"transaction {sent.transaction!r} was {'aborted' if is_aborted else 'never to be committed'}"

    # Records that must exist and are missing.

    def _torn(self) -> Iterator[Anomaly]:
        for transaction, sends in self._by_transaction.items():
            # If several sends may have written a value, the value proves nothing about this transaction.
            own = [sent for sent in sends if len(self._sends[sent.partition, sent.value]) == 1]
            if not any((sent.partition, sent.value) in self._first_seen_at for sent in own):
                continue
            for sent in own:
                if sent.answer is Answer.YES and self._was_missed(sent):
                    why = f"other records of transaction {transaction!r} are there"
                    yield Anomaly(Kind.TORN, sent.partition, sent.value, why)

    def _was_missed(self, sent: RecordSent) -> bool:
        return any(
            partition == sent.partition
            and reading.reached_end
            and sent.value not in reading.seen
            and (reading.begins == 0 or (sent.offset is not None and sent.offset >= reading.begins))
            for partition, reading in self._readings
        )

    def _lost(self, partition: TopicPartition, reading: Reading) -> Iterator[Anomaly]:
        for (sent_to, value), sends in self._sends.items():
            if sent_to != partition or value in reading.seen:
                continue
            if any(self._must_be_seen(sent, reading) for sent in sends):
                yield Anomaly(
                    Kind.LOST, partition, value, "it is committed, and was missing for a reader that read past it"
                )
                continue
            # A record that one consumer has seen must exist for all consumers.
            offsets = self._offsets.get((partition, value), ())
            end = float("inf") if reading.reached_end else reading.position
            if any(reading.begins <= offset < end for offset in offsets):
                yield Anomaly(Kind.LOST, partition, value, f"somebody saw it at offset {min(offsets)}")

    def _must_be_seen(self, sent: RecordSent, reading: Reading) -> bool:
        if sent.answer is not Answer.YES or not reading.reached_end:
            return False
        if reading.begins > 0 and (sent.offset is None or sent.offset < reading.begins):
            return False
        return sent.transaction is None or self._fates[sent.transaction].is_committed

    def _reordered(self) -> Iterator[Anomaly]:
        last: dict[tuple[str, TopicPartition], tuple[int, Value]] = {}
        for (partition, value), sends in self._sends.items():  # in the order of their first attempts
            offsets = self._offsets.get((partition, value), set())
            if len(sends) != 1 or len(offsets) != 1:
                continue  # The history does not show which send wrote this record.
            sent, (offset,) = sends[0], tuple(offsets)
            before = last.get((sent.producer, partition))
            if before is not None and offset < before[0]:
                yield Anomaly(Kind.REORDERED, partition, value, f"sent after {before[1]!r}, and lies before it")
                continue
            last[sent.producer, partition] = offset, value
