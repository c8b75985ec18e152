"""Tests the merge of overlapping batches of stored state (docs/spec/share-groups.md#s4-3)."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.shares.core.entry import merge, merged
from odradek.broker.shares.core.state import StateBatch

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def after(*writes: tuple[int, int, int, int], start_offset: int = 0) -> list[tuple[int, ...]]:
    return [tuple(each) for each in merged([StateBatch(*write) for write in writes], start_offset)]


def test_scenario_073_an_older_write_does_not_undo_finished_records() -> None:
    assert after((0, 9, ACKNOWLEDGED, 1), (0, 9, AVAILABLE, 1)) == [(0, 9, ACKNOWLEDGED, 1)]


def test_scenario_074_a_part_that_was_finished_leaves_the_rest() -> None:
    expected = [(0, 2, AVAILABLE, 1), (3, 5, ACKNOWLEDGED, 1), (6, 9, AVAILABLE, 1)]
    assert after((0, 9, AVAILABLE, 1), (3, 5, ACKNOWLEDGED, 1)) == expected


def test_a_larger_delivery_count_wins_over_any_state() -> None:
    assert after((0, 9, ARCHIVED, 1), (0, 9, AVAILABLE, 2)) == [(0, 9, AVAILABLE, 2)]


def test_of_overlapping_batches_the_larger_count_and_then_the_larger_state_wins_at_each_offset() -> None:
    """S11: the result does not depend on the order of the batches (docs/spec/kafka-4.4.md#s5-3)."""
    assert after((10, 20, AVAILABLE, 1), (12, 14, ACKNOWLEDGED, 1), (13, 25, AVAILABLE, 2)) == [
        (10, 11, AVAILABLE, 1),
        (12, 12, ACKNOWLEDGED, 1),
        (13, 25, AVAILABLE, 2),
    ]


def test_neighbours_that_are_alike_are_joined() -> None:
    assert after((0, 4, ACKNOWLEDGED, 1), (5, 9, ACKNOWLEDGED, 1)) == [(0, 9, ACKNOWLEDGED, 1)]


def test_state_below_the_start_offset_is_cut_off() -> None:
    assert after((0, 9, ACKNOWLEDGED, 1), (10, 19, AVAILABLE, 1), start_offset=5) == [
        (5, 9, ACKNOWLEDGED, 1),
        (10, 19, AVAILABLE, 1),
    ]


def test_a_batch_that_ends_before_it_begins_is_ignored() -> None:
    assert after((5, 4, ACKNOWLEDGED, 1)) == []


batches = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    st.integers(0, 30),
    st.integers(0, 12),
    st.sampled_from([0, 2, 4]),
    st.integers(0, 3),
)


@given(st.lists(st.lists(batches, max_size=3), max_size=6), st.integers(0, 20))
def test_every_offset_keeps_its_largest_entry_whatever_the_order(
    writes: list[list[StateBatch]], start_offset: int
) -> None:
    stored: list[StateBatch] = []
    for write in writes:
        merge(stored, write, start_offset)
    best: dict[int, tuple[int, int]] = {}
    for batch in (each for write in writes for each in write):
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            rank = (batch.delivery_count, batch.delivery_state)
            best[offset] = max(best.get(offset, rank), rank)
    merged = {
        offset: (each.delivery_count, each.delivery_state)
        for each in stored
        for offset in range(each.first_offset, each.last_offset + 1)
    }
    assert merged == best
    for before, behind in pairwise(stored):
        assert before.last_offset < behind.first_offset
        assert before.last_offset + 1 < behind.first_offset or before[2:] != behind[2:]
