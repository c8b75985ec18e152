"""Tests that the assignors distribute partitions like Kafka's assignors of the same names, so that different clients
can belong to the same group."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.common.values import TopicPartition
from odradek.client.consuming.assignors import (
    Assign,
    MemberSubscription,
    assign_in_turn,
    assign_ranges,
    assign_sticky,
    assigned_partitions,
    assignment_bytes,
    subscription_bytes,
    subscription_of,
)
from odradek.protocol.errors import MalformedMessage
from tests.support.examples import examples


def on(topic: str, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


BOTH = MemberSubscription(frozenset({"s", "t"}))
S = MemberSubscription(frozenset({"s"}))


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    found = assign_ranges({"a": S, "b": S, "c": S}, {"s": 7})
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


@pytest.mark.parametrize("assign", [assign_ranges, assign_in_turn, assign_sticky])
def test_a_member_gets_only_topics_that_it_wants(assign: Assign) -> None:
    found = assign({"a": S, "b": BOTH}, {"s": 2, "t": 2})
    assert {partition.topic for partition in found["a"]} == {"s"}
    assert sorted(found["a"] + found["b"]) == on("s", 0, 1) + on("t", 0, 1)


@pytest.mark.parametrize("assign", [assign_ranges, assign_in_turn, assign_sticky])
def test_a_topic_that_does_not_exist_has_no_partitions(assign: Assign) -> None:
    assert assign({"a": BOTH}, {"s": 1}) == {"a": on("s", 0)}


@pytest.mark.parametrize("assign", [assign_ranges, assign_in_turn, assign_sticky])
def test_more_members_than_partitions_leaves_some_with_nothing(assign: Assign) -> None:
    assert assign({"a": S, "b": S}, {"s": 1}) == {"a": on("s", 0), "b": []}


def having(*owned: TopicPartition, generation_id: int = 1) -> MemberSubscription:
    return MemberSubscription(frozenset({"s", "t"}), frozenset(owned), generation_id)


def test_sticky_leaves_everything_where_it_is_when_that_is_even() -> None:
    members = {"a": having(*on("s", 2, 3)), "b": having(*on("s", 0, 1))}
    assert assign_sticky(members, {"s": 4}) == {"a": on("s", 2, 3), "b": on("s", 0, 1)}


def test_sticky_takes_away_what_a_new_member_is_to_have_and_gives_it_in_the_next_round() -> None:
    members = {"a": having(*on("s", 0, 1, 2, 3)), "b": having()}
    assert assign_sticky(members, {"s": 4}) == {"a": on("s", 0, 1), "b": []}
    members["a"] = having(*on("s", 0, 1), generation_id=2)
    assert assign_sticky(members, {"s": 4}) == {"a": on("s", 0, 1), "b": on("s", 2, 3)}


def test_sticky_gives_the_partitions_of_a_member_that_left_to_those_with_the_fewest() -> None:
    members = {"a": having(*on("s", 0, 1)), "b": having(*on("s", 2)), "c": having()}
    assert assign_sticky(members, {"s": 6}) == {"a": on("s", 0, 1), "b": on("s", 2, 4), "c": on("s", 3, 5)}


def test_sticky_believes_the_later_generation() -> None:
    members = {"a": having(*on("s", 0, 1), generation_id=4), "b": having(*on("s", 0, 1), generation_id=5)}
    found = assign_sticky(members, {"s": 2})
    assert (len(found["b"]), found["a"]) == (1, [])


def test_sticky_gives_what_two_members_claim_alike_to_either() -> None:
    members = {"a": having(*on("s", 0)), "b": having(*on("s", 0))}
    assert assign_sticky(members, {"s": 1}) == {"a": on("s", 0), "b": []}


def test_sticky_takes_back_partitions_of_topics_that_a_member_wants_no_more() -> None:
    members = {"a": MemberSubscription(frozenset("t"), frozenset(on("s", 0)), 1), "b": S}
    assert assign_sticky(members, {"s": 1, "t": 1}) == {"a": on("t", 0), "b": []}


MEMBERS = st.dictionaries(
    st.sampled_from("abcde"),
    st.builds(
        MemberSubscription,
        st.frozensets(st.sampled_from("stu"), min_size=1),
        st.frozensets(st.builds(TopicPartition, st.sampled_from("stu"), st.integers(0, 6))),
        st.integers(0, 2),
    ),
    min_size=1,
)


@settings(max_examples=examples(150))
@given(MEMBERS, st.dictionaries(st.sampled_from("stu"), st.integers(1, 7)))
def test_sticky_ends_with_each_partition_owned_once_and_shares_that_are_even(
    members: dict[str, MemberSubscription], counts: dict[str, int]
) -> None:
    for generation in range(3, 6):
        found = assign_sticky(members, counts)
        members = {
            member: MemberSubscription(each.topics, frozenset(found[member]), generation)
            for member, each in members.items()
        }
    topics = frozenset().union(*(each.topics for each in members.values()))
    everything = [TopicPartition(topic, index) for topic in topics for index in range(counts.get(topic, 0))]
    assert sorted(partition for mine in found.values() for partition in mine) == sorted(everything)
    for giver, mine in found.items():
        for taker in found:
            if any(partition.topic in members[taker].topics for partition in mine):
                assert len(mine) <= len(found[taker]) + 1, (giver, taker)


def test_a_subscription_is_read_as_it_was_written() -> None:
    mine = having(*on("s", 1, 0), *on("t", 2), generation_id=7)
    assert subscription_of(subscription_bytes(mine)) == mine


def test_a_subscription_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    newer = (99).to_bytes(2) + bytes.fromhex("00000001 0001 73 ffffffff 00000000 ffffffff ffff") + b"new"
    assert subscription_of(newer) == S


def test_the_generation_is_found_where_older_clients_put_it() -> None:
    older = (1).to_bytes(2) + bytes.fromhex("00000001 0001 73 00000004 00000009 00000001 0001 73 00000001 00000002")
    assert subscription_of(older) == MemberSubscription(frozenset("s"), frozenset(on("s", 2)), 9)


def test_an_assignment_is_read_as_it_was_written() -> None:
    assert assigned_partitions(assignment_bytes(on("s", 2, 0) + on("t", 1))) == on("s", 2, 0) + on("t", 1)


def test_empty_bytes_mean_no_assigned_partitions() -> None:
    assert assigned_partitions(b"") == []


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1\0\0"])
def test_a_malformed_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        subscription_of(data)
