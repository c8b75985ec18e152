"""Tests that a share partition has no acquired records after a failover (docs/spec/share-groups.md#s3-7)."""

import pytest

from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.share_partition_scene import ACCEPT, SharePartitionScene

AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4


def test_scenario_067_records_acquired_before_a_reload_are_delivered_as_new() -> None:
    s = SharePartitionScene(10, 10, 10)
    s.reload(0, (10, 19, ACKNOWLEDGED, 1))
    assert s.fetch("B", 10) == [(0, 9, 1)]
    s.ack("B", (0, 9, ACCEPT))
    assert s.partition.flight.start_offset == 10
    assert s.stored[-1].delivery_complete_count == 20
    assert s.fetch("B", 10) == [(20, 29, 1)]
    s.ack("B", (20, 29, ACCEPT))
    assert s.partition.flight.start_offset == 30


def test_scenario_068_the_stored_delivery_count_goes_on() -> None:
    s = SharePartitionScene(10)
    s.reload(0, (0, 9, AVAILABLE, 1))
    assert s.fetch("B") == [(0, 9, 2)]


def test_finished_records_at_the_front_move_the_start_offset_at_once() -> None:
    s = SharePartitionScene(10, 10)
    s.reload(0, (0, 4, ACKNOWLEDGED, 1), (5, 9, ARCHIVED, 5), (10, 19, AVAILABLE, 1))
    assert s.partition.flight.start_offset == 10
    assert s.partition.flight.complete_count == 0


def test_nothing_is_left_when_all_that_was_stored_is_finished() -> None:
    s = SharePartitionScene(10, 10)
    s.reload(0, (0, 9, ACKNOWLEDGED, 1))
    assert (s.partition.flight.start_offset, s.partition.flight.size) == (10, 0)
    assert s.fetch("A") == [(10, 19, 1)]


def test_the_start_offset_waits_for_records_on_their_way_to_a_dead_letter_queue() -> None:
    """S12: a new leader archives records in state ARCHIVING only after they have been copied
    (docs/spec/kafka-4.4.md#s5-3)."""
    s = SharePartitionScene(10, 10)
    s.reload(0, (0, 9, ARCHIVING, 1), (10, 14, ACKNOWLEDGED, 1))
    assert s.partition.flight.start_offset == 0
    assert s.fetch("A") == [(15, 19, 1)]


def test_holes_are_filled_from_one_read_of_the_log_together_with_what_follows() -> None:
    s = SharePartitionScene(10, 10, 10, 10)
    s.reload(0, (10, 19, AVAILABLE, 2), (25, 29, ACKNOWLEDGED, 1))
    assert s.fetch("A") == [(0, 9, 1), (10, 19, 3), (20, 24, 1), (30, 39, 1)]
    assert s.ack("A", (0, 24, ACCEPT), (30, 39, ACCEPT)) is ErrorCode.NONE
    assert s.partition.flight.start_offset == 40


def test_a_hole_is_read_once_even_when_it_takes_several_reads() -> None:
    s = SharePartitionScene(10, 10, 10)
    s.reload(0, (20, 29, ACKNOWLEDGED, 1))
    assert s.fetch("A", 10, batches_read=1) == [(0, 9, 1)]
    assert s.fetch("B", 10, batches_read=1) == [(10, 19, 1)]
    assert s.fetch("B", 10) == []
    s.ack("A", (0, 9, ACCEPT))
    assert s.partition.flight.start_offset == 10
    s.ack("B", (10, 19, ACCEPT))
    assert s.partition.flight.start_offset == 20


def test_holes_without_data_no_longer_block_once_the_log_was_read_beyond() -> None:
    s = SharePartitionScene(10, 10, 10, 10)
    s.reload(0, (0, 9, AVAILABLE, 1), (20, 29, AVAILABLE, 1))
    s.compact_away(10, 19)
    assert s.fetch("A") == [(0, 9, 2), (20, 29, 2), (30, 39, 1)]
    s.ack("A", (0, 9, ACCEPT))
    assert s.partition.flight.start_offset == 20


def test_a_hole_at_the_front_without_data_is_skipped() -> None:
    s = SharePartitionScene(5, 5, 10)
    s.reload(0, (10, 19, AVAILABLE, 1))
    s.compact_away(0, 4)
    assert s.fetch("A") == [(5, 9, 1), (10, 19, 2)]
    assert s.partition.flight.start_offset == 5


@pytest.mark.parametrize("batch", [(0, 4, AVAILABLE, 1), (15, 14, AVAILABLE, 1), (10, 19, 5, 1), (10, 19, 1, 1)])
def test_stored_state_that_no_leader_writes_is_not_served(batch: tuple[int, int, int, int]) -> None:
    s = SharePartitionScene(20)
    with pytest.raises(KafkaError) as refusal:
        s.reload(5, batch)
    assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_loaded_range_that_begins_within_a_log_batch_leaves_no_empty_hole_before_it() -> None:
    s = SharePartitionScene(10)
    s.reload(0, (0, 4, AVAILABLE, 1), (5, 9, AVAILABLE, 2), (12, 14, AVAILABLE, 1))
    s.produce(10)
    assert s.fetch("A") == [(0, 4, 2), (5, 9, 3), (10, 11, 1), (12, 14, 2), (15, 19, 1)]
