"""Partitions are distributed as by Kafka's assignors of the same names: clients of any kind can be in one group."""

import pytest

from odradek.client.consuming.assignors import (
    Assignor,
    assign_in_turn,
    assign_ranges,
    assigned_partitions,
    assignment_bytes,
    subscribed_topics,
    subscription_bytes,
)
from odradek.client.values import TopicPartition
from protocol.errors import MalformedMessage


def on(topic: str, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


BOTH = frozenset({"s", "t"})


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    found = assign_ranges({"a": frozenset("s"), "b": frozenset("s"), "c": frozenset("s")}, {"s": 7})
    assert found == {"a": on("s", 0, 1, 2), "b": on("s", 3, 4), "c": on("s", 5, 6)}


def test_range_shares_out_each_topic_for_itself() -> None:
    assert assign_ranges({"b": BOTH, "a": BOTH}, {"s": 3, "t": 3}) == {
        "a": on("s", 0, 1) + on("t", 0, 1),
        "b": on("s", 2) + on("t", 2),
    }


def test_roundrobin_goes_on_from_topic_to_topic() -> None:
    assert assign_in_turn({"a": BOTH, "b": BOTH}, {"s": 3, "t": 3}) == {
        "a": on("s", 0, 2) + on("t", 1),
        "b": on("s", 1) + on("t", 0, 2),
    }


@pytest.mark.parametrize("assign", [assign_ranges, assign_in_turn])
def test_a_member_gets_only_topics_that_it_wants(assign: Assignor) -> None:
    found = assign({"a": frozenset("s"), "b": BOTH}, {"s": 2, "t": 2})
    assert {partition.topic for partition in found["a"]} == {"s"}
    assert sorted(found["a"] + found["b"]) == on("s", 0, 1) + on("t", 0, 1)


@pytest.mark.parametrize("assign", [assign_ranges, assign_in_turn])
def test_a_topic_that_does_not_exist_has_no_partitions(assign: Assignor) -> None:
    assert assign({"a": BOTH}, {"s": 1}) == {"a": on("s", 0)}


@pytest.mark.parametrize("assign", [assign_ranges, assign_in_turn])
def test_more_members_than_partitions_leaves_some_with_nothing(assign: Assignor) -> None:
    assert assign({"a": frozenset("s"), "b": frozenset("s")}, {"s": 1}) == {"a": on("s", 0), "b": []}


def test_a_subscription_is_read_as_it_was_written() -> None:
    assert subscribed_topics(subscription_bytes({"t", "s"})) == BOTH


def test_a_subscription_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    newer = (99).to_bytes(2) + bytes.fromhex("00000001 0001 73 ffffffff 00000000 ffffffff ffff") + b"new"
    assert subscribed_topics(newer) == {"s"}


def test_an_assignment_is_read_as_it_was_written() -> None:
    assert assigned_partitions(assignment_bytes(on("s", 2, 0) + on("t", 1))) == on("s", 2, 0) + on("t", 1)


def test_an_empty_assignment_is_none_at_all() -> None:
    assert assigned_partitions(b"") == []


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1\0\0"])
def test_a_subscription_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        subscribed_topics(data)
