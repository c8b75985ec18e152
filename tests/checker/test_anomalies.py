"""Tests that the checker finds each kind of anomaly planted in a history and finds none in correct histories."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from tests.checker.anomalies import Kind, anomalies
from tests.checker.history import (
    Answer,
    CommitAnswered,
    CommitRequested,
    ConsumerPositioned,
    Event,
    ReachedEnd,
    RecordSent,
    RecordsPolled,
    TopicPartition,
)

P, Q = ("orders", 0), ("orders", 1)
SEEDS = range(60)


def sent(value: str, transaction: str | None = "t1", **changes: object) -> RecordSent:
    return replace(RecordSent("pay", P, value, transaction=transaction), **changes)  # type: ignore[arg-type]


def committed(transaction: str = "t1", answer: Answer = Answer.YES) -> list[Event]:
    return [CommitRequested(transaction), CommitAnswered(transaction, answer)]


def read(*records: tuple[int, str], partition: TopicPartition = P, consumer: str = "c", begins: int = 0) -> list[Event]:
    """Returns the events of a consumer that reads from `begins` to the end of the partition."""
    return [
        ConsumerPositioned(consumer, partition, begins),
        RecordsPolled(consumer, partition, records),
        ReachedEnd(consumer, partition),
    ]


def kinds(history: list[Event], *, once: bool = False) -> list[Kind]:
    return [each.kind for each in anomalies(history, once=once)]


# --- Correct histories.


def test_a_committed_transaction_that_is_read_completely_and_in_order_is_correct() -> None:
    assert kinds([sent("a"), sent("b"), *committed(), *read((0, "a"), (1, "b"))]) == []


def test_an_aborted_transaction_that_nobody_reads_is_correct() -> None:
    assert kinds([sent("a"), CommitAnswered("t1", Answer.NO), *read()]) == []


def test_a_transaction_without_a_commit_need_not_be_visible() -> None:
    assert kinds([sent("a"), *read()]) == []


@pytest.mark.parametrize("seen", [[], [(0, "a"), (1, "b")]], ids=["nothing", "everything"])
def test_after_a_commit_without_a_response_readers_may_see_all_or_none_of_its_records(
    seen: list[tuple[int, str]],
) -> None:
    assert kinds([sent("a"), sent("b"), *committed(answer=Answer.UNKNOWN), *read(*seen)]) == []


def test_a_record_whose_acknowledgement_was_lost_may_be_there_or_not() -> None:
    history: list[Event] = [sent("a"), sent("b", answer=Answer.UNKNOWN), *committed()]
    for seen in (read((0, "a")), read((0, "a"), (1, "b"))):
        assert kinds([*history, *seen]) == []


def test_a_value_that_is_sent_again_after_an_abort_is_one_record() -> None:
    history = [sent("a"), CommitAnswered("t1", Answer.NO), sent("a", "t2"), *committed("t2"), *read((3, "a"))]
    assert kinds(history, once=True) == []


def test_a_consumer_that_begins_again_may_see_records_again() -> None:
    assert kinds([sent("a"), *committed(), *read((0, "a")), *read((0, "a"))]) == []


def test_records_before_the_start_of_a_late_consumer_do_not_count_as_lost() -> None:
    history = [sent("a", offset=0), sent("b", offset=1), *committed(), *read((1, "b"), begins=1)]
    assert kinds(history) == []


# --- One anomaly each.


def test_a_missing_committed_record_is_lost() -> None:
    assert kinds([sent("a"), *committed(), *read()]) == [Kind.LOST]


def test_a_record_outside_of_transactions_can_be_lost_too() -> None:
    assert kinds([sent("a", None), *read()]) == [Kind.LOST]


def test_a_record_that_somebody_saw_is_there_for_everybody() -> None:
    history = [sent("a"), sent("b"), *committed(answer=Answer.UNKNOWN)]
    saw: list[Event] = [ConsumerPositioned("first", P, 0), RecordsPolled("first", P, [(0, "a"), (1, "b")])]
    assert kinds([*history, *saw, ConsumerPositioned("second", P, 0), RecordsPolled("second", P, [(1, "b")])]) == [
        Kind.LOST
    ]


def test_a_record_at_two_offsets_is_duplicated() -> None:
    assert kinds([sent("a"), *committed(), *read((0, "a"), (1, "a"))]) == [Kind.DUPLICATED]


def test_a_value_of_two_transactions_is_duplicated_where_it_may_be_there_once() -> None:
    history = [sent("a"), *committed(answer=Answer.UNKNOWN), sent("a", "t2"), *committed("t2")]
    assert kinds([*history, *read((0, "a"), (2, "a"))]) == []
    assert kinds([*history, *read((0, "a"), (2, "a"))], once=True) == [Kind.DUPLICATED]


def test_reading_a_record_of_an_aborted_transaction_is_a_fault() -> None:
    assert kinds([sent("a"), CommitAnswered("t1", Answer.NO), *read((0, "a"))]) == [Kind.ABORTED_READ]


def test_reading_a_record_of_a_transaction_that_is_never_committed_is_a_fault() -> None:
    assert kinds([sent("a"), *read((0, "a"))]) == [Kind.ABORTED_READ]


def test_reading_a_record_that_the_broker_refused_is_a_fault() -> None:
    assert kinds([sent("a", answer=Answer.NO), *committed(), *read((0, "a"))]) == [Kind.ABORTED_READ]


def test_a_record_that_is_read_before_its_commit_is_requested_is_read_early() -> None:
    assert kinds([sent("a"), *read((0, "a")), *committed(), *read((0, "a"))]) == [Kind.EARLY_READ]


def test_a_record_that_nobody_sent_is_invented() -> None:
    assert kinds([*read((0, "a"))]) == [Kind.INVENTED]


def test_a_record_in_another_partition_than_its_own_is_invented_there_and_lost_here() -> None:
    history = [sent("a"), *committed(), *read(), *read((0, "a"), partition=Q)]
    assert sorted(kinds(history), key=lambda kind: kind.value) == [Kind.INVENTED, Kind.LOST]


@pytest.mark.parametrize("answer", [Answer.YES, Answer.UNKNOWN])
def test_a_transaction_with_a_missing_part_is_torn(answer: Answer) -> None:
    history = [sent("a"), sent("b", partition=Q), *committed(answer=answer)]
    assert kinds([*history, *read((0, "a")), *read(partition=Q)]) == [Kind.TORN]


def test_two_records_in_the_log_in_another_order_than_sent_are_reordered() -> None:
    assert kinds([sent("a"), sent("b"), *committed(), *read((0, "b"), (1, "a"))]) == [Kind.REORDERED]


def test_records_of_two_producers_have_no_order() -> None:
    history = [sent("a"), sent("b", "t2", producer="ship"), *committed(), *committed("t2")]
    assert kinds([*history, *read((0, "b"), (1, "a"))]) == []


def test_two_different_records_at_one_offset_are_an_overwrite() -> None:
    history = [sent("a"), sent("b", "t2", producer="ship"), *committed(), *committed("t2")]
    saw: list[Event] = [ConsumerPositioned("first", P, 0), RecordsPolled("first", P, [(0, "a")])]
    assert Kind.REWRITTEN in kinds([*history, *saw, *read((0, "b"), (1, "a"))])


def test_a_consumer_that_gets_an_offset_twice_is_reported() -> None:
    polls: list[Event] = [RecordsPolled("c", P, [(0, "a"), (1, "b")]), RecordsPolled("c", P, [(1, "b")])]
    assert kinds([sent("a"), sent("b"), *committed(), ConsumerPositioned("c", P, 0), *polls]) == [Kind.NON_MONOTONIC]


# --- Random histories.


class Shop:
    """Correct producers and consumers, with one log per partition. The seed decides what they do."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.history: list[Event] = []
        # None represents a marker or an aborted record.
        self.logs: dict[TopicPartition, list[str | None]] = {P: [], Q: []}
        for transaction in range(8):
            self.run(f"t{transaction}")
        self.read_all("last")

    def run(self, transaction: str) -> None:
        rng = self.rng
        fate = rng.choice(["commit", "commit", "abort", "timeout", "lost commit", "lost abort"])
        is_committed = fate in ("commit", "lost commit")
        for number in range(rng.randint(1, 4)):
            partition, value = rng.choice([P, Q]), f"{transaction}/{number}"
            answer = rng.choice([Answer.YES, Answer.YES, Answer.UNKNOWN, Answer.NO])
            is_there = answer is Answer.YES or (answer is Answer.UNKNOWN and rng.random() < 0.5)
            offset = len(self.logs[partition]) if answer is Answer.YES and rng.random() < 0.5 else None
            self.history.append(RecordSent(rng.choice("xy"), partition, value, answer, transaction, offset))
            if is_there:
                self.logs[partition].append(value if is_committed else None)
        if fate != "timeout":
            self.history += committed(transaction, ANSWERS[fate])
        for log in self.logs.values():
            log.append(None)
        if rng.random() < 0.4:
            self.read_all(f"reader of {transaction}")

    def read_all(self, consumer: str) -> None:
        for partition, log in self.logs.items():
            begins = self.rng.choice([0, 0, len(log) // 2])
            records = [(offset, value) for offset, value in enumerate(log) if value is not None and offset >= begins]
            middle = self.rng.randint(0, len(records))
            self.history += [ConsumerPositioned(consumer, partition, begins)]
            self.history += [RecordsPolled(consumer, partition, part) for part in (records[:middle], records[middle:])]
            if consumer == "last":
                self.history.append(ReachedEnd(consumer, partition))


ANSWERS = {
    "commit": Answer.YES,
    "abort": Answer.NO,
    "lost commit": Answer.UNKNOWN,
    "lost abort": Answer.UNKNOWN,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_correct_history_has_no_anomalies(seed: int) -> None:
    assert anomalies(Shop(seed).history) == []


def drop(event: RecordsPolled, rng: Random) -> RecordsPolled:
    gone = rng.randrange(len(event.records))
    return replace(event, records=[*event.records[:gone], *event.records[gone + 1 :]])


def double(event: RecordsPolled, rng: Random) -> RecordsPolled:
    return replace(event, records=[*event.records, (event.records[-1][0] + 1000, rng.choice(event.records)[1])])


def repeat(event: RecordsPolled, rng: Random) -> RecordsPolled:
    return replace(event, records=[*event.records, rng.choice(event.records)])


def swap(event: RecordsPolled, rng: Random) -> RecordsPolled:
    (first, a), (second, b), *rest = event.records
    return replace(event, records=[(first, b), (second, a), *rest])


def invent(event: RecordsPolled, rng: Random) -> RecordsPolled:
    return replace(event, records=[*event.records, (event.records[-1][0] + 1000, "nobody's")])


@pytest.mark.parametrize(
    ("damage", "shortest", "found_as"),
    [
        (drop, 1, {Kind.LOST, Kind.TORN}),
        (double, 1, {Kind.DUPLICATED}),
        (repeat, 1, {Kind.NON_MONOTONIC}),
        (swap, 2, {Kind.REORDERED, Kind.REWRITTEN, Kind.DUPLICATED}),
        (invent, 1, {Kind.INVENTED}),
    ],
)
@pytest.mark.parametrize("seed", range(20))
def test_damage_to_the_records_of_the_last_consumer_is_found(
    damage: Callable[[RecordsPolled, Random], RecordsPolled], shortest: int, found_as: set[Kind], seed: int
) -> None:
    shop = Shop(seed)
    # The damage can remove a record whose acknowledgement was lost. The checker may report such a record as missing
    # only if another read has shown that it exists.
    shop.read_all("last")
    places = [
        at
        for at, event in enumerate(shop.history)
        if isinstance(event, RecordsPolled) and event.consumer == "last" and len(event.records) >= shortest
    ]
    if not places:
        pytest.skip("nothing was committed under this seed")
    at = shop.rng.choice(places)
    event = shop.history[at]
    assert isinstance(event, RecordsPolled)
    shop.history[at] = damage(event, shop.rng)
    assert {each.kind for each in anomalies(shop.history)} & found_as
