"""Tests the assignor for share groups (docs/spec/share-groups.md#s2-4)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.groups.share.assignor import assign, share_out

T, U = b"T" * 16, b"U" * 16


def test_one_partition_is_shared_by_everybody() -> None:
    assert share_out([0], {"a": [], "b": [], "c": []}) == {"a": [0], "b": [0], "c": [0]}


def test_four_partitions_are_divided_by_two() -> None:
    assert [len(each) for each in share_out([0, 1, 2, 3], {"a": [], "b": []}).values()] == [2, 2]


def test_the_first_members_get_the_remaining_partitions() -> None:
    assert [len(each) for each in share_out([0, 1, 2], {"a": [], "b": []}).values()] == [2, 1]


def test_members_keep_what_they_have() -> None:
    before = share_out(range(6), {"a": [], "b": []})
    after = share_out(range(6), {**before, "c": []})
    assert all(set(after[member]) <= set(before[member]) for member in before)


def test_each_topic_is_shared_by_its_subscribers() -> None:
    subscriptions = {"a": frozenset({T}), "b": frozenset({T, U})}
    both = {T: frozenset({0, 1}), U: frozenset({0})}
    assert assign(subscriptions, {}, both) == {"a": {T: frozenset({0})}, "b": {T: frozenset({1}), U: frozenset({0})}}


@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.lists(st.lists(st.integers(0, 14), unique=True), min_size=12, max_size=12),
)
def test_no_partition_is_left_out_and_none_has_too_many(members: int, partitions: int, held: list[list[int]]) -> None:
    got = share_out(range(partitions), {f"m{number}": held[number] for number in range(members)})
    counts = Counter(partition for mine in got.values() for partition in mine)
    assert set(counts) == set(range(partitions))
    assert max(counts.values()) <= -(-members // partitions)
    assert all(len(set(mine)) == len(mine) for mine in got.values())
    assert max(map(len, got.values())) - min(map(len, got.values())) <= 1 or members > partitions
