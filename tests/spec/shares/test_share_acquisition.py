"""Tests the number of records that one fetch acquires. The number depends on limits, log batches, and how many times
records have been released (docs/spec/share-groups.md#s3-6)."""

import pytest

from odradek.broker.shares.core.in_flight import Limits
from tests.support.share_partition_scene import ACCEPT, RECORD_LIMIT, RELEASE, SharePartitionScene


def scene(*batches: int, **limits: int | bool) -> SharePartitionScene:
    return SharePartitionScene(*batches, limits=Limits(**limits))  # type: ignore[arg-type]


def test_scenario_051_batch_optimised_takes_the_whole_log_batch() -> None:
    assert scene(10, 10, 10).fetch("A", 5) == [(0, 9, 1)]


def test_scenario_052_record_limit_leaves_the_rest_available() -> None:
    s = scene(10, 10, 10)
    assert s.fetch("A", 5, mode=RECORD_LIMIT) == [(0, 4, 1)]
    assert s.fetch("B") == [(5, 9, 1), (10, 29, 1)]


def test_scenario_053_ranges_are_cut_at_log_batches_of_the_requested_size() -> None:
    assert scene(10, 10, 10).fetch("A", batch_size=10) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]


@pytest.mark.parametrize("batch_size", [0, -1])
def test_an_invalid_batch_size_counts_as_one(batch_size: int) -> None:
    assert scene(10, 10).fetch("A", batch_size=batch_size) == [(0, 9, 1), (10, 19, 1)]


def test_scenario_054_the_number_of_locks_is_a_soft_limit() -> None:
    s = scene(60, 60, 60, max_record_locks=100)
    assert s.fetch("A") == [(0, 119, 1)]
    assert s.fetch("A") == []
    s.ack("A", (0, 59, ACCEPT))
    assert s.fetch("A") == [(120, 179, 1)]


def test_scenario_055_when_full_only_released_records_are_delivered() -> None:
    s = scene(60, 60, 60, max_record_locks=100)
    s.fetch("A")
    s.ack("A", (30, 39, RELEASE))
    assert s.fetch("B") == [(30, 39, 2)]
    assert s.fetch("B") == []


def test_scenario_056_finished_records_behind_an_unfinished_one_count() -> None:
    s = scene(100, 100, max_record_locks=100)
    s.fetch("A")
    s.ack("A", (1, 99, ACCEPT))
    assert s.fetch("B") == []
    assert s.partition.flight.start_offset == 0
    s.ack("A", (0, 0, ACCEPT))
    assert s.fetch("B") == [(100, 199, 1)]


def test_scenario_057_records_released_often_go_out_in_ever_smaller_numbers() -> None:
    s = scene(100)
    for count in (1, 2, 3):
        assert s.fetch("A") == [(0, 99, count)]
        s.ack("A", (0, 99, RELEASE))
    assert s.fetch("A") == [(0, 49, 4)]
    assert s.fetch("B") == [(50, 99, 4)]
    s.ack("A", (0, 49, RELEASE))
    s.ack("B", (50, 99, RELEASE))
    assert [s.fetch("A") for _ in range(4)] == [[(offset, offset, 5)] for offset in range(4)]


def test_a_record_released_often_is_not_delivered_behind_others() -> None:
    s = scene(10, 10)
    for _ in range(3):
        s.fetch("A", 10)
        s.ack("A", (0, 9, RELEASE))
    s.fetch("A", 1)  # Only half of the batch is delivered.
    s.ack("A", (0, 4, ACCEPT))
    s.fetch("B")
    s.fetch("B")
    s.ack("B", (10, 19, RELEASE))
    s.ack("B", (5, 9, RELEASE))
    assert s.fetch("C") == [(5, 5, 5)]


def test_with_a_limit_of_two_nothing_is_throttled() -> None:
    s = scene(10, delivery_count_limit=2)
    s.fetch("A")
    s.ack("A", (0, 9, RELEASE))
    assert s.fetch("A") == [(0, 9, 2)]


def test_record_limit_counts_released_and_new_records_together() -> None:
    s = scene(10, 10)
    s.fetch("A", 10)
    s.ack("A", (3, 5, RELEASE))
    assert s.fetch("B", 5, mode=RECORD_LIMIT) == [(3, 5, 2), (10, 11, 1)]
    assert s.fetch("B", 100, mode=RECORD_LIMIT) == [(12, 19, 1)]


def test_a_raised_or_lowered_limit_counts_from_the_next_decision() -> None:
    s = scene(10)
    for _ in range(2):
        s.fetch("A")
        s.ack("A", (0, 9, RELEASE))
    s.limits = Limits(delivery_count_limit=2)
    assert s.fetch("A") == [(0, 4, 3)]  # The record was already available when the limit was lowered.
    s.ack("A", (0, 4, RELEASE))
    assert s.last_stored == [(0, 4, 4, 3)]


def test_nothing_is_acquired_for_a_budget_of_nothing() -> None:
    assert scene(10).fetch("A", 0) == []
