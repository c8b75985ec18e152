"""Tests the page's view of share partitions that are not in memory. The view combines the stored batches with pending
records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.control.http.state import share_partitions, share_record
from odradek.broker.facts.shares import stored_ranges
from odradek.broker.http.page.served import ViewedBroker
from odradek.broker.http.page.shares import shares
from odradek.broker.http.page.transactions import transactions
from odradek.broker.shares.core.state import PendingRange, StateBatch, StoredState
from odradek.protocol.errors import ErrorCode
from tests.support.share_broker import GROUP, STATE_PARTITIONS
from tests.support.turns import outcome
from tests.support.txn_share_broker import ACCEPT, RELEASE, TxnShareBroker

NONE = ErrorCode.NONE
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def pending(first: int, last: int) -> PendingRange:
    return PendingRange(first, last, 7, 0, ACCEPT, 1, "A", 1, 99, "pay")


@pytest.mark.parametrize(
    ("batches", "held", "expected"),
    [
        ([], [], []),
        ([(0, 9, ACKNOWLEDGED)], [], [(0, 9, "ACKNOWLEDGED")]),
        ([(0, 9, AVAILABLE)], [(0, 9)], [(0, 9, "TX_PENDING")]),
        ([(0, 9, AVAILABLE)], [(3, 4)], [(0, 2, "AVAILABLE"), (3, 4, "TX_PENDING"), (5, 9, "AVAILABLE")]),
        (
            [(0, 4, AVAILABLE), (5, 9, ARCHIVED), (10, 14, AVAILABLE)],
            [(2, 4), (10, 10), (12, 14)],
            [
                (0, 1, "AVAILABLE"),
                (2, 4, "TX_PENDING"),
                (5, 9, "ARCHIVED"),
                (10, 10, "TX_PENDING"),
                (11, 11, "AVAILABLE"),
                (12, 14, "TX_PENDING"),
            ],
        ),
        (
            [(0, 1, AVAILABLE), (2, 3, AVAILABLE)],
            [(1, 2)],
            [(0, 0, "AVAILABLE"), (1, 2, "TX_PENDING"), (3, 3, "AVAILABLE")],
        ),
        ([(5, 9, AVAILABLE)], [(0, 2)], [(0, 2, "TX_PENDING"), (5, 9, "AVAILABLE")]),
    ],
)
def test_a_pending_range_takes_the_place_of_what_is_stored_below_it(
    batches: list[tuple[int, int, int]], held: list[tuple[int, int]], expected: list[tuple[int, int, str]]
) -> None:
    stored = StoredState(1, 0, [StateBatch(*each, 1) for each in batches], [pending(*each) for each in held])
    assert [(each.first_offset, each.last_offset, each.state.name) for each in stored_ranges(stored)] == expected


@pytest.fixture
def scene() -> TxnShareBroker:
    return TxnShareBroker()


def served(scene: TxnShareBroker) -> ViewedBroker:
    return ViewedBroker(scene.broker, cast("Any", None), ())


def rows(scene: TxnShareBroker, **query: str) -> list[Any]:
    found: list[Any] = shown(scene, **query)["partitions"]
    return found


def shown(scene: TxnShareBroker, **query: str) -> Any:
    found = outcome(shares(served(scene), query))
    return found() if callable(found) else found


def test_a_share_partition_looks_the_same_when_nobody_fetches_from_it(scene: TxnShareBroker) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    assert member.ack_code(topic, (0, 1, ACCEPT), (2, 2, RELEASE)) is NONE
    assert producer.codes(member, {topic: [(4, 6, ACCEPT)]}) == [NONE]
    (live,) = rows(scene)
    assert (live["phase"], live["states"]) == ("active", {"AVAILABLE": 1, "ACQUIRED": 4, "TX_PENDING": 3})
    member.disconnect()
    held = [
        {"transactional_id": "pay", "producer_id": producer.pair[0], "producer_epoch": producer.pair[1], "records": 3}
    ]
    for _ in range(2):
        (stored,) = rows(scene)
        assert (stored["phase"], stored["start_offset"], stored["pending"]) == ("stored", 2, held)
        assert (stored["states"]["TX_PENDING"], stored["high_watermark"]) == (3, 10)
        (pending_range,) = [each for each in stored["ranges"] if each["state"] == "TX_PENDING"]
        assert (pending_range["first"], pending_range["last"], pending_range["member"]) == (4, 6, "A")
        scene.kill()


def test_share_partitions_with_pending_acknowledgements_come_first(scene: TxnShareBroker) -> None:
    for name in ("T", "U", "V"):
        scene.shared_topic(name, 4)
    member, producer = scene.joined("A", "T", "U", "V"), scene.producer()
    topics = {name: bytes(scene.image.topics[name].topic_id) for name in ("T", "U", "V")}
    member.acquire(*topics.values())
    assert producer.codes(member, {topics["V"]: [(0, 1, ACCEPT)]}) == [NONE]
    assert next(each["partition"] for each in rows(scene)) == "V-0"
    scene.kill()
    assert next(each["partition"] for each in rows(scene)) == "V-0"
    assert {each["partition"] for each in rows(scene)} == {"T-0", "U-0", "V-0"}
    assert rows(scene, find="another group") == []


def test_the_view_of_a_transaction_names_the_share_partitions_that_wait_for_it(scene: TxnShareBroker) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    assert producer.codes(member, {topic: [(4, 6, ACCEPT)]}) == [NONE]
    (row,) = listed(scene)
    assert (row["id"], row["pending_records"]) == ("pay", 3)
    assert producer.commit() is NONE
    (row,) = listed(scene)
    assert row["pending_records"] == 0


def test_while_the_state_of_share_groups_is_loaded_the_views_say_so(scene: TxnShareBroker) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    assert producer.codes(member, {topic: [(4, 6, ACCEPT)]}) == [NONE]
    for index in range(STATE_PARTITIONS):
        scene.share_coordinator.shard_of(index).unload(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    view = shown(scene)
    assert view["loading"]
    assert [each["phase"] for each in view["partitions"]] == ["active"]
    (row,) = listed(scene)
    assert row["pending_records"] is None


def test_tests_of_clients_see_records_of_a_share_partition_that_nobody_fetches_from(scene: TxnShareBroker) -> None:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    assert member.ack_code(topic, (0, 1, ACCEPT)) is NONE
    assert producer.codes(member, {topic: [(4, 6, ACCEPT)]}) == [NONE]
    member.disconnect()
    assert list(scene.shares.loaded_partitions) == []
    states = [share_record(scene.broker, GROUP, "T", 0, offset)["state"] for offset in (0, 4, 6, 7)]
    assert states == ["ENDED", "TX_PENDING", "TX_PENDING", "AVAILABLE"]
    assert share_record(scene.broker, "another", "T", 0, 4)["state"] is None
    cluster: Any = SimpleNamespace(running=SimpleNamespace(broker=scene.broker))
    (row,) = share_partitions(cluster)
    assert (row["share_group"], row["topic"], row["partition"], row["start_offset"]) == (GROUP, "T", 0, 2)
    states = [(each["first_offset"], each["last_offset"], each["state"]) for each in cast("Any", row["records"])]
    assert (4, 6, "TX_PENDING") in states


def listed(scene: TxnShareBroker) -> Any:
    view = outcome(transactions(served(scene), {}))
    return (view() if callable(view) else view)["transactions"]
