"""Tests the states of shared records, the members that hold them, and the duration of an acquisition
(docs/spec/share-groups.md#s3 and its scenarios)."""

import pytest

from odradek.broker.shares.core.in_flight import EVENTS, Acknowledgement, Limits
from odradek.broker.shares.core.state import PendingTransaction
from odradek.broker.shares.core.tables import GRID, TERMINAL, Event, RecordState
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.share_partition_scene import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    SharePartitionScene,
)

NONE, WRONG, INVALID = ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST


def scene(*batches: int, **limits: int | bool) -> SharePartitionScene:
    return SharePartitionScene(*batches, limits=Limits(**limits))  # type: ignore[arg-type]


# --- The table of states and events.


@pytest.mark.parametrize("state", RecordState)
def test_every_state_has_a_cell_for_each_event(state: RecordState) -> None:
    assert GRID[state].keys() == set(Event)


@pytest.mark.parametrize("state", sorted(TERMINAL, key=str))
def test_nothing_leads_out_of_a_terminal_state(state: RecordState) -> None:
    assert not any(isinstance(cell, RecordState) for cell in GRID[state].values())


def test_only_an_acquisition_leads_from_available_to_acquired() -> None:
    assert [event for event in Event if GRID[RecordState.AVAILABLE][event] is RecordState.ACQUIRED] == [Event.ACQUIRE]


@pytest.mark.parametrize("type_", EVENTS)
@pytest.mark.parametrize(
    ("how", "state"),
    [(RELEASE, RecordState.AVAILABLE), (ACCEPT, RecordState.ACKNOWLEDGED), (REJECT, RecordState.ARCHIVED)],
)
def test_a_refused_acknowledgement_gets_the_error_of_its_cell(how: int, state: RecordState, type_: int) -> None:
    s = scene(10, 10)
    s.fetch("A")
    assert s.ack("A", (10, 19, how)) is NONE
    assert [span.state for span in s.partition.flight.spans()] == [RecordState.ACQUIRED, state]
    with pytest.raises(KafkaError) as refusal:
        s.begin_ack("A", (10, 19, type_))
    assert (refusal.value.code, refusal.value.message) == GRID[state][EVENTS[type_]]


@pytest.mark.parametrize("type_", [ACCEPT, REJECT])
@pytest.mark.parametrize("how", [RELEASE, ACCEPT, REJECT])
def test_a_refused_acknowledgement_in_a_transaction_gets_the_error_of_its_cell(how: int, type_: int) -> None:
    s = scene(10, 10)
    s.fetch("A")
    assert s.ack("A", (10, 19, how)) is NONE
    _, second = s.partition.flight.spans()
    transaction = PendingTransaction("pay", 1, 0)
    with pytest.raises(KafkaError) as refusal:
        s.partition.pending.require_acquired("A", [Acknowledgement(10, 19, [type_])], transaction, s.now_ms)
    assert (refusal.value.code, refusal.value.message) == GRID[second.state][Event.TXN_ACKNOWLEDGE]


# --- Delivery and acknowledgement.


def test_scenario_037_a_fetch_acquires_a_whole_batch() -> None:
    assert scene(10).fetch("A") == [(0, 9, 1)]


def test_scenario_038_acquired_records_are_not_given_to_other_members() -> None:
    s = scene(10)
    s.fetch("A")
    assert s.fetch("B") == []


def test_scenario_039_accepted_records_are_done_with_and_the_start_offset_is_written_next_time() -> None:
    s = scene(10)
    s.fetch("A")
    assert s.ack("A", (0, 9, ACCEPT)) is NONE
    assert s.fetch("B") == []
    assert (s.stored[-1].start_offset, s.lag, s.last_stored) == (0, 0, [(0, 9, 2, 1)])
    assert s.partition.flight.start_offset == 10


def test_scenario_040_a_released_record_is_delivered_again() -> None:
    s = scene(10)
    s.fetch("A")
    s.ack("A", (3, 3, RELEASE))
    assert s.fetch("B") == [(3, 3, 2)]


def test_scenario_041_a_rejected_record_is_never_delivered_again() -> None:
    s = scene(10)
    s.fetch("A")
    s.ack("A", (0, 9, REJECT))
    assert s.fetch("B") == []
    assert s.last_stored == [(0, 9, 4, 1)]


def test_scenario_042_a_lock_that_runs_out_gives_the_records_to_others() -> None:
    s = scene(10, lock_duration_ms=1_000)
    s.fetch("A")
    s.wait(1_000)
    assert s.last_stored == [(0, 9, 0, 1)]
    assert s.fetch("B") == [(0, 9, 2)]
    assert s.ack("A", (0, 9, ACCEPT)) is WRONG


def test_scenario_043_the_last_delivery_is_followed_by_none() -> None:
    s = scene(10, delivery_count_limit=2)
    for _ in range(2):
        assert s.fetch("A") != []
        s.ack("A", (0, 9, RELEASE))
    assert s.fetch("A") == []
    assert (s.last_stored, s.lag) == ([(0, 9, 4, 2)], 0)


def test_scenario_044_types_per_offset_are_stored_as_runs() -> None:
    s = scene(10)
    s.fetch("A")
    assert s.ack("A", (0, 4, ACCEPT), (5, 9, [ACCEPT, RELEASE, REJECT, GAP, ACCEPT])) is NONE
    assert s.last_stored == [(0, 5, 2, 1), (6, 6, 0, 1), (7, 8, 4, 1), (9, 9, 2, 1)]
    assert s.fetch("B") == [(6, 6, 2)]


def test_scenario_045_one_batch_that_is_wrong_undoes_the_others() -> None:
    s = scene(10)
    s.fetch("A")
    assert s.ack("A", (0, 4, ACCEPT), (5, 20, ACCEPT)) is INVALID
    assert s.stored == []
    assert s.ack("A", (0, 9, ACCEPT)) is NONE


def test_scenario_046_only_the_owner_may_acknowledge() -> None:
    s = scene(10)
    s.fetch("A")
    assert s.ack("B", (0, 9, ACCEPT)) is WRONG


def test_scenario_047_below_the_start_offset_everything_succeeds() -> None:
    s = scene(10)
    s.fetch("A")
    s.ack("A", (0, 9, ACCEPT))
    assert s.ack("A", (0, 9, ACCEPT)) is NONE
    assert len(s.stored) == 1


def test_scenario_048_above_the_start_offset_finished_records_cannot_be_acknowledged_again() -> None:
    s = scene(10)
    s.fetch("A")
    s.ack("A", (5, 9, ACCEPT))
    assert s.ack("A", (5, 9, ACCEPT)) is WRONG


def test_scenario_049_a_renewed_lock_lasts_its_full_duration_and_counts_no_delivery() -> None:
    s = scene(10, lock_duration_ms=2_000)
    s.fetch("A")
    for _ in range(5):
        s.wait(1_000)
        assert s.ack("A", (0, 9, RENEW)) is NONE
        assert s.fetch("B") == []
    s.wait(1_999)
    assert s.stored == []
    s.wait(1)
    assert s.fetch("B") == [(0, 9, 2)]


def test_scenario_050_renewing_can_be_switched_off() -> None:
    s = scene(10, renew_enabled=False)
    s.fetch("A")
    assert s.ack("A", (0, 9, RENEW)) is WRONG


def test_locks_renewed_by_a_request_that_fails_stay_renewed() -> None:
    s = scene(10, lock_duration_ms=2_000)
    s.fetch("A")
    s.wait(1_500)
    assert s.ack("A", (0, 4, RENEW), (5, 20, ACCEPT)) is INVALID
    s.wait(1_000)
    assert s.fetch("B") == [(5, 9, 2)]


def test_a_renewal_beside_other_types_is_no_change_to_store() -> None:
    s = scene(10)
    s.fetch("A")
    assert s.ack("A", (0, 4, ACCEPT), (5, 9, RENEW)) is NONE
    assert s.last_stored == [(0, 4, 2, 1)]


# --- Records that the log has lost, and records that readers must not see.


def test_scenario_058_compaction_holes_are_acquired_and_acknowledged_as_gaps() -> None:
    s = scene(10)  # Compaction has left only records 0, 5 and 9 of the batch, which keeps its first and last offset.
    assert s.fetch("A") == [(0, 9, 1)]
    assert s.ack("A", (0, 9, [ACCEPT, GAP, GAP, GAP, GAP, ACCEPT, GAP, GAP, GAP, ACCEPT])) is NONE
    assert s.partition.flight.start_offset == 10


def test_scenario_059_compacted_records_are_archived_without_a_write() -> None:
    s = scene(10, 10)
    s.fetch("A", 10)
    s.ack("A", (0, 9, RELEASE))
    s.compact_away(0, 9)
    assert s.fetch("A") == [(10, 19, 1)]
    assert (len(s.stored), s.partition.flight.start_offset) == (1, 0)
    s.ack("A", (10, 19, ACCEPT))
    assert (s.stored[-1].start_offset, s.stored[-1].delivery_complete_count) == (0, 20)
    assert s.partition.flight.start_offset == 20


def test_scenario_060_retention_moves_the_start_offset_beyond_acquired_records() -> None:
    s = scene(10, 10, 40, 10)
    s.fetch("A", 10)
    s.ack("A", (0, 9, ACCEPT))
    s.fetch("A", 10)
    s.delete_records_before(50)
    assert s.fetch("B") == []
    assert s.partition.flight.start_offset == 50
    assert s.fetch("B") == [(50, 69, 1)]
    assert s.ack("A", (10, 19, ACCEPT)) is NONE
    assert len(s.stored) == 1


def test_records_below_the_start_offset_whose_lock_runs_out_are_archived() -> None:
    s = scene(10, 10, lock_duration_ms=1_000)
    s.fetch("A")
    s.delete_records_before(5)
    s.partition.log_start_moved(5)
    s.wait(1_000)
    assert s.last_stored == [(0, 4, 4, 1), (5, 19, 0, 1)]
    assert s.fetch("B") == [(5, 19, 2)]


def test_available_records_below_the_log_start_are_archived() -> None:
    s = scene(10, 10)
    s.fetch("A")
    s.ack("A", (0, 19, RELEASE))
    s.delete_records_before(10)
    assert s.fetch("A") == []
    assert s.fetch("A") == [(10, 19, 2)]


def test_scenario_061_read_uncommitted_gives_aborted_records_too() -> None:
    s = scene(5, 1)
    assert s.fetch("A") == [(0, 5, 1)]
    assert s.ack("A", (0, 4, ACCEPT), (5, 5, GAP)) is NONE


def test_scenario_062_read_committed_leaves_only_the_marker_of_an_aborted_transaction() -> None:
    s = scene(5, 1)
    assert s.fetch("A", aborted=[(0, 4)]) == [(5, 5, 1)]
    assert s.stored == []
    s.ack("A", (5, 5, GAP))
    assert s.partition.flight.start_offset == 6
    assert s.stored[-1].delivery_complete_count == 6


def test_aborted_records_are_taken_out_of_the_middle() -> None:
    s = scene(5, 5, 5)
    assert s.fetch("A", aborted=[(5, 9)]) == [(0, 4, 1), (10, 14, 1)]
    assert s.ack("A", (5, 9, ACCEPT)) is WRONG


def test_scenario_063_read_committed_ends_at_the_last_stable_offset() -> None:
    assert scene(3, 5).fetch("A", end_offset=3) == [(0, 2, 1)]


# --- Events while the state is being written.


def test_scenario_064_a_failed_write_leaves_the_record_with_its_owner() -> None:
    s = scene(10)
    s.fetch("A")
    s.fail(s.begin_ack("A", (0, 9, ACCEPT)))
    assert s.fetch("B") == []
    assert s.ack("A", (0, 9, ACCEPT)) is NONE
    assert s.stored[-1].delivery_complete_count == 10


def test_scenario_065_a_record_with_a_write_in_progress_cannot_be_acknowledged_again() -> None:
    s = scene(10)
    s.fetch("A")
    write = s.begin_ack("A", (0, 9, ACCEPT))
    with pytest.raises(KafkaError) as refusal:
        s.begin_ack("A", (5, 9, RELEASE))
    assert refusal.value.code is WRONG
    s.store(write)
    assert s.partition.flight.start_offset == 10


def test_scenario_066_a_lock_that_runs_out_during_a_write_that_fails_gives_the_record_back() -> None:
    s = scene(10, lock_duration_ms=1_000)
    s.fetch("A")
    write = s.begin_ack("A", (0, 9, ACCEPT))
    s.wait(2_000)
    assert s.fetch("B") == []
    s.fail(write)
    assert s.fetch("B") == [(0, 9, 2)]


# Neither the late result of the write nor a later timer may make the record available again.
@pytest.mark.known_bug(48, "another broker")
def test_a_lock_that_runs_out_during_a_write_that_succeeds_changes_nothing() -> None:
    s = scene(10, lock_duration_ms=1_000)
    s.fetch("A")
    write = s.begin_ack("A", (0, 9, ACCEPT))
    s.wait(2_000)
    s.store(write)
    s.wait(10_000)
    assert s.fetch("B") == []
    assert s.stored == [write]


@pytest.mark.known_bug(49, "another broker")
def test_a_record_that_is_being_released_is_not_acquired_before_it_is_stored() -> None:
    s = scene(10, lock_duration_ms=1_000)
    s.fetch("A")
    write = s.begin_ack("A", (0, 9, RELEASE))
    assert s.fetch("B") == []
    s.store(write)
    assert s.fetch("B") == [(0, 9, 2)]
    s.wait(1_000)
    assert s.fetch("A") == [(0, 9, 3)]


def test_writes_that_overlap_in_time_count_each_others_finished_records() -> None:
    s = scene(10, 10)
    s.fetch("A", batch_size=10)
    first = s.begin_ack("A", (0, 9, ACCEPT))
    second = s.begin_ack("A", (10, 19, ACCEPT))
    assert first is not None
    assert second is not None
    assert (first.delivery_complete_count, second.delivery_complete_count) == (10, 20)
    s.store(second)
    assert s.partition.flight.start_offset == 0
    s.store(first)
    assert s.partition.flight.start_offset == 20


# --- Sessions.


def test_a_session_that_ends_gives_back_what_its_member_holds() -> None:
    s = scene(10, 10)
    s.fetch("A", 10)
    s.fetch("B", 10)
    s.ack("A", (0, 4, ACCEPT))
    s.end_session("A")
    assert s.last_stored == [(5, 9, 0, 1)]
    assert s.fetch("C") == [(5, 9, 2)]


def test_a_release_that_cannot_be_stored_is_undone_and_left_to_the_lock() -> None:
    s = scene(10, lock_duration_ms=1_000)
    s.fetch("A")
    s.fail(s.partition.release("A", s.limits))
    assert s.fetch("B") == []
    s.wait(1_000)
    assert s.fetch("B") == [(0, 9, 2)]


def test_a_session_end_archives_records_at_the_delivery_limit() -> None:
    s = scene(10, delivery_count_limit=2)
    s.fetch("A")
    s.ack("A", (0, 9, RELEASE))
    s.fetch("A")
    s.end_session("A")
    assert s.last_stored == [(0, 9, 4, 2)]


# --- The offsets that an acknowledgement may cover.


def test_an_acknowledgement_without_acquired_records_is_refused() -> None:
    s = scene(10)
    assert s.ack("A", (0, 9, ACCEPT)) is WRONG


def test_an_acknowledgement_beyond_the_start_offset_is_refused_while_no_records_are_tracked() -> None:
    """Checks that only the acknowledgement of this partition is refused, whereas Kafka 4.3.1 fails the whole request
    (docs/spec/share-groups.md#s8, row 20)."""
    s = scene(10)
    s.fetch("A")
    s.ack("A", (0, 9, ACCEPT))
    assert s.ack("A", (5, 15, ACCEPT)) is INVALID


def test_an_acknowledgement_across_the_start_offset_counts_from_that_offset() -> None:
    s = scene(10, 10)
    s.fetch("A")
    s.ack("A", (0, 4, ACCEPT))
    assert s.ack("A", (0, 19, ACCEPT)) is NONE
    assert s.last_stored == [(5, 19, 2, 1)]


def test_an_acknowledgement_beyond_the_acquired_records_is_refused() -> None:
    s = scene(10, 10)
    s.fetch("A", 10)
    assert s.ack("A", (10, 12, ACCEPT)) is INVALID
    assert s.ack("A", (5, 12, ACCEPT)) is INVALID


def test_one_acknowledgement_covers_ranges_that_were_acquired_apart() -> None:
    s = scene(10, 10)
    s.fetch("A", batch_size=10)
    assert s.ack("A", (0, 19, ACCEPT)) is NONE
    assert s.last_stored == [(0, 19, 2, 1)]


# --- Memory.


def test_records_acquired_and_acknowledged_together_are_one_object() -> None:
    s = scene(*[1] * 500)
    assert s.fetch("A") == [(0, 499, 1)]
    assert len(list(s.partition.flight.spans())) == 1
    s.ack("A", (0, 249, ACCEPT))
    assert len(list(s.partition.flight.spans())) == 1
    s.ack("A", (250, 499, ACCEPT))
    assert len(list(s.partition.flight.spans())) == 0


def test_finished_records_are_forgotten_however_long_the_log_is() -> None:
    s = scene()
    for _ in range(100):
        s.produce(100)
        for first, last, _ in s.fetch("A"):
            s.ack("A", (first, last, ACCEPT))
        assert len(list(s.partition.flight.spans())) == 0
    assert s.partition.flight.start_offset == 10_000
