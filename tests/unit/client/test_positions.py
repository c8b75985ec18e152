"""Tests that a consumer's position is looked up, stored and validated under a new leader, and never lost silently."""

import pytest

from odradek.client.common.errors import ClientError, IllegalState
from odradek.client.common.values import OffsetAndMetadata, TopicPartition
from odradek.client.consuming.fetched import FetchedRecords
from odradek.client.consuming.positions import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetOutOfRange,
    OffsetReset,
    Positions,
    Stage,
)
from odradek.protocol.records import NewRecord, build_batch

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
PLENTY = 1 << 20


def positions(*partitions: TopicPartition, reset: str = "earliest", has_group: bool = False) -> Positions:
    made = Positions(OffsetReset(reset))
    made.assign(partitions, has_group=has_group)
    return made


def reading(*partitions: TopicPartition, at: int = 0) -> Positions:
    made = positions(*partitions)
    for partition in partitions:
        made.get(partition).seek(at)
    return made


def bring(to: Positions, partition: TopicPartition, count: int) -> None:
    """Adds fetched records: one batch of epoch 4 that starts at the partition's fetch offset."""
    offset = to.get(partition).fetch_offset
    batch = build_batch([NewRecord(None, b"v", 0)] * count, base_offset=offset, leader_epoch=4)
    to.get(partition).fetched.append(FetchedRecords(partition, batch, offset, aborted=[]))


def records_of(from_: Positions, at_most: int = 100) -> list[tuple[int, int]]:
    """Takes all available records and returns the partition and the offset of each."""
    found = []
    while (records := from_.take(at_most)) is not None:
        found += [(record.partition, record.offset) for record in records[1]]
    return found


# Looking up positions


def test_without_a_group_reading_begins_as_the_policy_says() -> None:
    assert positions(A).get(A).reset_to == EARLIEST_TIMESTAMP
    assert positions(A, reset="latest").get(A).reset_to == LATEST_TIMESTAMP


def test_with_a_group_the_committed_offset_is_asked_for_first() -> None:
    made = positions(A, has_group=True)
    assert [each.topic_partition for each in made.in_stage(Stage.NEEDS_COMMITTED_OFFSET)] == [A]
    made.committed(A, OffsetAndMetadata(7, "", 2))
    assert (made.get(A).stage, made.get(A).offset, made.get(A).leader_epoch) == (Stage.READY, 7, 2)


def test_where_nothing_was_committed_the_policy_decides() -> None:
    made = positions(A, has_group=True)
    made.committed(A, None)
    assert (made.get(A).stage, made.get(A).reset_to) == (Stage.NEEDS_RESET, EARLIEST_TIMESTAMP)


def test_without_a_reset_policy_each_attempt_raises_one_error() -> None:
    made = positions(A, reset="none", has_group=True)
    made.committed(A, None)
    error = made.error()
    assert isinstance(error, OffsetOutOfRange)
    assert (error.topic_partition, error.offset) == (A, None)
    assert made.error() is None


def test_an_answer_that_comes_after_a_seek_changes_nothing() -> None:
    made = positions(A, has_group=True)
    made.get(A).seek(50)
    made.committed(A, OffsetAndMetadata(7))
    assert made.get(A).offset == 50


def test_a_partition_that_is_not_assigned_cannot_be_sought() -> None:
    with pytest.raises(IllegalState, match="orders-1 is not assigned"):
        positions(A).get(B)


def test_partitions_that_stay_keep_their_positions_in_a_new_assignment() -> None:
    made = reading(A, at=9)
    made.assign([A, B], has_group=False)
    assert (made.get(A).offset, made.get(B).stage) == (9, Stage.NEEDS_RESET)
    made.assign([B], has_group=False)
    assert made.partitions == {B}


# Fetching ahead


def test_the_next_fetch_begins_behind_what_is_fetched_and_the_position_behind_what_was_taken() -> None:
    made = reading(A, at=10)
    bring(made, A, 5)
    assert (made.get(A).fetch_offset, made.get(A).offset) == (15, 10)
    made.take(2)
    assert (made.get(A).fetch_offset, made.get(A).offset) == (15, 12)


def test_a_partition_is_hungry_until_enough_is_in_hand() -> None:
    made = reading(A)
    assert [each.topic_partition for each in made.fetchable(PLENTY, PLENTY)] == [A]
    bring(made, A, 5)
    assert made.fetchable(made.get(A).fetched_bytes, PLENTY) == []
    assert made.has_enough_buffered(made.get(A).fetched_bytes)
    assert made.fetchable(PLENTY, made.get(A).fetched_bytes) == []  # the limit applies to all partitions together


def test_a_partition_that_is_paused_being_fetched_or_in_error_is_not_fetched() -> None:
    made = reading(A, B)
    made.get(A).is_paused = True
    made.get(B).is_fetching = True
    assert made.fetchable(PLENTY, PLENTY) == []
    made.get(B).is_fetching = False
    made.get(B).error = ClientError("not allowed")
    assert made.fetchable(PLENTY, PLENTY) == []
    made.error()
    assert [each.topic_partition for each in made.fetchable(PLENTY, PLENTY)] == [B]


def test_a_seek_forgets_what_was_fetched() -> None:
    made = reading(A)
    bring(made, A, 5)
    made.get(A).seek(3)
    assert (made.get(A).fetch_offset, records_of(made)) == (3, [])


# Taking records


def test_all_records_of_one_fetch_are_returned_before_those_of_another_partition() -> None:
    made = reading(A, B)
    for partition in (A, A, B):
        bring(made, partition, 2)
    assert records_of(made) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]


def test_a_paused_partition_is_passed_over_and_keeps_its_records() -> None:
    made = reading(A, B)
    bring(made, A, 1)
    bring(made, B, 1)
    made.get(A).is_paused = True
    assert records_of(made) == [(1, 0)]
    made.get(A).is_paused = False
    assert records_of(made) == [(0, 0)]


def test_the_committed_offset_is_the_next_position() -> None:
    made = reading(A)
    made.assign([A, B], has_group=False)  # B has no position yet
    bring(made, A, 3)
    made.take(2)
    assert made.to_commit() == {A: OffsetAndMetadata(2, "", 4)}


def test_an_exhausted_fetch_is_counted() -> None:
    made = reading(A)
    bring(made, A, 3)
    made.take(2)
    assert made.exhausted_fetches == 0
    made.take(2)
    assert made.exhausted_fetches == 1


# KIP-320: leader changes


def of_epoch(epoch: int | None, *, at: int = 10, reset: str = "earliest") -> Positions:
    made = positions(A, reset=reset)
    made.get(A).seek(at, epoch)
    return made


def test_a_position_is_validated_when_a_newer_leader_has_taken_over() -> None:
    made = of_epoch(4)
    made.get(A).apply_leader_epoch(5)
    assert made.get(A).stage is Stage.NEEDS_VALIDATION
    made.apply_validation(made.get(A), 5, 4, 10)
    assert (made.get(A).stage, made.get(A).offset) == (Stage.READY, 10)
    made.get(A).apply_leader_epoch(5)
    assert made.get(A).stage is Stage.READY


@pytest.mark.parametrize(("position_epoch", "leader_epoch"), [(None, 5), (5, 5), (4, None)])
def test_there_is_nothing_to_validate_without_two_different_epochs(
    position_epoch: int | None, leader_epoch: int | None
) -> None:
    made = of_epoch(position_epoch)
    made.get(A).apply_leader_epoch(leader_epoch)
    assert made.get(A).stage is Stage.READY


def test_a_position_behind_the_end_of_its_epoch_goes_back_to_that_end() -> None:
    """Checks that a position beyond the end of its epoch moves back to that end without the reset policy. The consumer
    has read the records before the end, and the new leader's log has them."""
    made = of_epoch(4)
    made.get(A).apply_leader_epoch(6)
    made.apply_validation(made.get(A), 6, 3, 9)
    assert (made.get(A).stage, made.get(A).offset, made.get(A).leader_epoch) == (Stage.READY, 9, 3)


def test_without_a_reset_policy_truncated_records_raise_offset_out_of_range() -> None:
    made = of_epoch(4, reset="none")
    made.get(A).apply_leader_epoch(6)
    made.apply_validation(made.get(A), 6, 3, 9)
    assert isinstance(made.error(), OffsetOutOfRange)


def test_a_leader_that_has_no_such_epoch_leaves_it_to_the_policy() -> None:
    made = of_epoch(4)
    made.get(A).apply_leader_epoch(5)
    made.apply_validation(made.get(A), 5, None, None)
    assert made.get(A).stage is Stage.NEEDS_RESET


def test_a_late_answer_to_a_validation_changes_nothing() -> None:
    made = of_epoch(4)
    made.get(A).apply_leader_epoch(5)
    made.get(A).seek(77)
    made.apply_validation(made.get(A), 5, 4, 9)
    assert (made.get(A).stage, made.get(A).offset) == (Stage.READY, 77)


def test_a_partition_that_brought_records_is_asked_for_behind_the_others() -> None:
    here = reading(A, B)
    here.move_to_end(here.get(A))
    assert [each.topic_partition for each in here.fetchable(PLENTY, PLENTY)] == [B, A]
