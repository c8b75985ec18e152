"""Tests how the page and the commands compute a group's lag."""

import pytest

from odradek.protocol.lag import GroupLag, group_lag, partition_lag


@pytest.mark.parametrize(
    ("committed", "end", "lag"), [(3, 10, 7), (10, 10, 0), (12, 10, 0), (None, 10, None), (3, None, None)]
)
def test_the_lag_of_a_partition_reaches_from_the_committed_offset_to_the_end(
    committed: int | None, end: int | None, lag: int | None
) -> None:
    assert partition_lag(committed, end) == lag


def test_partitions_without_a_committed_offset_are_counted_apart() -> None:
    assert group_lag([(3, 10), (None, 90), (9, 10), (None, None)]) == GroupLag(records=8, uncommitted=2)


def test_a_group_without_known_offsets_has_an_unknown_lag() -> None:
    assert group_lag([(5, None)]) == GroupLag(records=None, uncommitted=0)
    assert group_lag([]) == GroupLag(records=None, uncommitted=0)
