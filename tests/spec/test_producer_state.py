"""Tests that a partition accepts each batch of an idempotent producer once, recognises duplicates, refuses invalid
batches, and lets unused producers expire.

Rules: docs/spec/transactions.md#s4-1 to #s4-5, #s4-11, #s4-12; scenarios: #s8-5, #s8-6.
"""

from dataclasses import replace

import pytest

from odradek.files.producer_snapshot import decode_snapshot
from odradek.protocol.errors import ErrorCode
from odradek.storage.log import AppendResult, Origin
from odradek.storage.log_config import LogConfig
from odradek.storage.producer_state import ProducerEntry, decrement_sequence, increment_sequence, is_next_sequence
from tests.support.log_builder import LogOnDisk, refused

INT_MAX = 2**31 - 1
DAY_MS = 24 * 60 * 60 * 1000
PID, OTHER = 7, 8

# --- Sequence arithmetic (#s4-1).


def newest(entry: ProducerEntry) -> ProducerEntry:
    """Returns the part of a producer's state that a snapshot keeps."""
    return replace(entry, batches=entry.batches[-1:])


@pytest.mark.parametrize(("sequence", "by", "result"), [(0, 1, 1), (INT_MAX, 1, 0), (INT_MAX - 1, 4, 2), (5, 0, 5)])
def test_sequences_count_on_from_the_largest_int32_to_zero(sequence: int, by: int, result: int) -> None:
    assert increment_sequence(sequence, by) == result
    assert decrement_sequence(result, by) == sequence


@pytest.mark.parametrize(
    ("last", "following", "is_next"),
    [(-1, 0, True), (0, 1, True), (INT_MAX, 0, True), (0, 0, False), (0, 2, False), (INT_MAX, 1, False)],
)
def test_a_sequence_is_followed_by_the_next_and_wraps(last: int, following: int, is_next: bool) -> None:
    assert is_next_sequence(last, following) == is_next


# --- Sequence rules (#s4-4).


def test_scenario_077_a_producer_without_state_may_begin_anywhere() -> None:
    assert LogOnDisk().append(PID, sequence=3) == AppendResult(0, 0)


def test_scenario_077_a_producer_whose_transactions_bump_its_epoch_must_begin_with_zero() -> None:
    given = LogOnDisk()
    guard = given.verify(PID, sequence=3)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=3, transactional=True, guard=guard)


def test_scenario_076_a_sequence_above_one_that_was_refused_before_has_to_wait_for_it() -> None:
    given = LogOnDisk()
    given.verify(PID, sequence=0, supports_epoch_bump=False)
    guard = given.verify(PID, sequence=5, supports_epoch_bump=False)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=5, transactional=True, guard=guard)
    given.append(PID, sequence=0, records=5, transactional=True, guard=guard)
    assert given.append(PID, sequence=5, transactional=True) == AppendResult(5, 5)


def test_within_an_epoch_each_batch_continues_the_last() -> None:
    given = LogOnDisk()
    given.append(PID, sequence=0, records=3)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=4)
    assert given.append(PID, sequence=3) == AppendResult(3, 3)


def test_scenario_081_a_new_epoch_begins_with_zero() -> None:
    given = LogOnDisk()
    given.append(PID, epoch=3, sequence=17)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, epoch=4, sequence=18)
    assert given.append(PID, epoch=4, sequence=0) == AppendResult(1, 1)


def test_an_older_epoch_is_fenced() -> None:
    given = LogOnDisk()
    given.append(PID, epoch=4)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        given.append(PID, epoch=3, sequence=0)


def test_after_a_bumping_marker_the_next_transaction_begins_with_zero() -> None:
    given = LogOnDisk()
    given.append(PID, epoch=1, sequence=0, records=3, transactional=True)
    given.end(PID, commit=True, epoch=2, transaction_version=2)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, epoch=2, sequence=3, transactional=True)
    assert given.append(PID, epoch=2, sequence=0, transactional=True) == AppendResult(4, 4)


def test_after_a_marker_of_the_same_epoch_sequences_go_on() -> None:
    given = LogOnDisk()
    given.append(PID, sequence=0, records=3, transactional=True)
    given.end(PID, commit=True)
    assert given.append(PID, sequence=3, transactional=True) == AppendResult(4, 4)


def test_scenario_080_sequences_wrap() -> None:
    given = LogOnDisk()
    given.append(PID, sequence=INT_MAX)
    assert given.append(PID, sequence=0) == AppendResult(1, 1)


def test_scenario_080_a_batch_may_wrap_in_its_middle() -> None:
    given = LogOnDisk()
    given.append(PID, sequence=INT_MAX - 1, records=4)
    producer = given.log.producer(PID)
    assert producer is not None
    assert producer.last_sequence == 1
    assert given.append(PID, sequence=2) == AppendResult(4, 4)
    assert given.append(PID, sequence=INT_MAX - 1, records=4) == AppendResult(
        0, 3, log_append_time_ms=given.now_ms, is_duplicate=True
    )


def test_batches_of_the_coordinator_have_no_sequence() -> None:
    given = LogOnDisk()
    for offset in range(3):
        appended = given.append(PID, sequence=0, transactional=True, origin=Origin.COORDINATOR)
        assert appended == AppendResult(offset, offset)


def test_batches_of_the_coordinator_are_fenced_by_epoch() -> None:
    given = LogOnDisk()
    given.append(PID, epoch=2, transactional=True, origin=Origin.COORDINATOR)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        given.append(PID, epoch=1, transactional=True, origin=Origin.COORDINATOR)


def test_records_without_a_producer_id_create_no_producer_state() -> None:
    given = LogOnDisk()
    given.append()
    given.append()
    assert given.log.producers() == []


# --- Duplicates (#s4-2).


def six_batches() -> LogOnDisk:
    given = LogOnDisk()
    for sequence in range(6):
        given.append(PID, sequence=sequence)
    return given


@pytest.mark.parametrize("sequence", [1, 2, 3, 4, 5])
def test_scenario_078_a_duplicate_of_the_last_five_batches_gets_its_original_offsets(sequence: int) -> None:
    given = six_batches()
    again = given.append(PID, sequence=sequence)
    assert (again.base_offset, again.last_offset, again.is_duplicate) == (sequence, sequence, True)
    assert given.log.log_end_offset == 6, "nothing is written again"


def test_scenario_078_an_older_batch_is_out_of_order() -> None:
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):  # Kafka once answered DUPLICATE_SEQUENCE_NUMBER.
        six_batches().append(PID, sequence=0)


@pytest.mark.parametrize(("sequence", "records"), [(0, 10), (3, 2), (5, 4), (4, 6)])
def test_scenario_079_a_batch_that_overlaps_without_being_equal_is_out_of_order(sequence: int, records: int) -> None:
    given = LogOnDisk()
    given.append(PID, sequence=0, records=5)
    given.append(PID, sequence=5, records=5)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=sequence, records=records)


def test_a_duplicate_of_an_older_epoch_is_fenced() -> None:
    given = LogOnDisk()
    given.append(PID, epoch=0, sequence=0)
    given.append(PID, epoch=1, sequence=0)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        given.append(PID, epoch=0, sequence=0)


def test_a_duplicate_carries_the_timestamp_of_the_original() -> None:
    given = LogOnDisk()
    given.append(PID, sequence=0, timestamp=123)
    given.now_ms += 500
    assert given.append(PID, sequence=0, timestamp=456).log_append_time_ms == 123


def test_a_batch_that_is_staged_but_not_written_is_known_already() -> None:
    given = LogOnDisk()
    given.stage(PID, sequence=0, records=2)
    assert given.stage(PID, sequence=0, records=2).is_duplicate
    assert given.stage(PID, sequence=2) == AppendResult(2, 2)
    given.log.write_staged()
    assert given.log.log_end_offset == 3


# --- Transactions (#s4-3, rows e and f).


def test_scenario_082_a_plain_batch_within_a_transaction_is_refused() -> None:
    given = LogOnDisk()
    given.append(PID, transactional=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        given.append(PID, sequence=1)


def test_the_first_transactional_batch_opens_the_transaction_and_further_ones_join_it() -> None:
    given = LogOnDisk()
    given.fill_to(4)
    given.append(PID, sequence=0, records=2, transactional=True)
    given.append(PID, sequence=2, transactional=True)
    producer = given.log.producer(PID)
    assert producer is not None
    assert producer.current_txn_first_offset == 4
    assert given.log.last_stable_offset == 4


def test_a_refused_batch_changes_nothing() -> None:
    given = LogOnDisk()
    given.append(PID, sequence=0)
    before = given.log.producers()
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=9, transactional=True)
    assert given.log.producers() == before
    assert given.log.last_stable_offset == given.log.log_end_offset == 1


# --- Snapshots and restarts (#s4-11).


def test_scenario_087_after_a_clean_restart_only_the_last_batch_is_known() -> None:
    given = six_batches().closed_and_opened()
    assert given.append(PID, sequence=5).base_offset == 5
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(PID, sequence=4)
    assert given.append(PID, sequence=6) == AppendResult(6, 6)


def test_scenario_087_after_a_kill_the_log_is_replayed_and_all_five_are_known() -> None:
    given = six_batches().killed_and_opened()
    assert given.append(PID, sequence=1).is_duplicate


def test_a_snapshot_is_written_for_each_segment_and_for_the_end() -> None:
    given = LogOnDisk(config=LogConfig(segment_bytes=200))
    for sequence in range(5):
        given.append(PID, sequence=sequence)
    given.directory.close()
    names = sorted(name for name in given.disk.list_directory("/data/t-0") if name.endswith(".snapshot"))
    bases = [segment.base_offset for segment in given.log.segments[1:]]
    assert names == [f"{offset:020d}.snapshot" for offset in [*bases, 5]]


def test_a_log_without_producers_has_snapshots_of_ten_bytes() -> None:
    given = LogOnDisk()
    given.append()
    given.directory.close()
    assert given.disk.size("/data/t-0/00000000000000000001.snapshot") == 10


def test_a_recovery_writes_none_for_the_beginning_of_the_log() -> None:
    given = six_batches().killed_and_opened()
    given.sync()
    names = [name for name in given.disk.list_directory("/data/t-0") if name.endswith(".snapshot")]
    assert names == ["00000000000000000006.snapshot"]


def test_no_snapshot_is_written_when_nothing_was_added_since_the_last() -> None:
    given = six_batches().closed_and_opened()
    given.disk.log.clear()
    given.directory.close()
    assert not [call for call in given.disk.log if "snapshot" in call]


def test_scenario_094_a_snapshot_with_a_flipped_bit_is_deleted_and_an_older_one_used() -> None:
    given = LogOnDisk(config=LogConfig(segment_bytes=200))
    for sequence in range(5):
        given.append(PID, sequence=sequence)
    expected = [newest(producer) for producer in given.log.producers()]
    given.directory.close()
    path = "/data/t-0/00000000000000000005.snapshot"
    data = bytearray(given.disk.read_bytes(path))
    data[20] ^= 1
    given.disk.write_bytes(path, data)
    opened = LogOnDisk(given.disk, given.config)
    assert [newest(producer) for producer in opened.log.producers()] == expected
    assert not given.disk.exists(path)


def test_scenario_095_an_open_transaction_survives_in_the_snapshot() -> None:
    given = LogOnDisk()
    given.fill_to(3)
    given.append(PID, transactional=True)
    given.append(PID + 1)
    opened = given.closed_and_opened()
    assert opened.log.last_stable_offset == 3
    opened.end(PID, commit=False)
    assert opened.log.last_stable_offset == opened.log.log_end_offset == 6
    assert opened.log.reader.aborted_transactions(0, 6) == [(PID, 3)]


def test_a_clean_log_that_lost_its_snapshots_is_read_for_its_producers() -> None:
    given = six_batches()
    given.directory.close()
    for name in given.disk.list_directory("/data/t-0"):
        if name.endswith(".snapshot"):
            given.disk.unlink(f"/data/t-0/{name}")
    (entry,) = LogOnDisk(given.disk).log.producers()
    assert (entry.producer_id, entry.last_sequence) == (PID, 5)


def test_stray_snapshots_are_removed_at_start() -> None:
    given = six_batches().closed_and_opened()
    for sequence in range(6, 9):
        given.append(PID, sequence=sequence)
    given = given.closed_and_opened()
    assert [name for name in given.disk.list_directory("/data/t-0") if name.endswith(".snapshot")] == [
        "00000000000000000009.snapshot"
    ]


def test_after_a_crash_the_producers_are_written_down_again_with_the_next_sync() -> None:
    given = six_batches().killed_and_opened()
    given.sync()
    entries = decode_snapshot(given.disk.read_bytes("/data/t-0/00000000000000000006.snapshot"))
    assert [entry.last_sequence for entry in entries] == [5]


# --- Expiry (#s4-12).


def test_scenario_097_an_idle_producer_is_forgotten_after_its_time_counted_in_record_time() -> None:
    given = LogOnDisk()
    given.append(PID, sequence=4, timestamp=1_000)
    assert given.log.expire_producers(1_000 + DAY_MS - 1) == []
    assert given.log.expire_producers(1_000 + DAY_MS) == [PID]
    assert given.append(PID, sequence=9) == AppendResult(1, 1), "any sequence will do then"


def test_scenario_097_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    given = LogOnDisk()
    given.append(PID, timestamp=1_000, transactional=True)
    assert given.log.expire_producers(1_000 + 100 * DAY_MS) == []


# In Kafka, only data kept a producer from expiring. A producer that had just received a marker was forgotten, along
# with the coordinator epoch that fences older coordinators.
@pytest.mark.known_bug(19, "KAFKA-9144")
def test_a_marker_keeps_a_producer_from_expiring() -> None:
    given = LogOnDisk()
    given.append(PID, timestamp=1_000, transactional=True)
    given.now_ms = 1_000 + DAY_MS
    given.end(PID, commit=True, coordinator_epoch=4)
    assert given.log.expire_producers(1_000 + DAY_MS + 1) == []
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        given.end(PID, commit=True, coordinator_epoch=3)


def test_expired_producers_are_left_out_when_a_snapshot_is_loaded() -> None:
    given = LogOnDisk()
    given.append(PID)
    opened = given.closed_and_opened(now_ms=given.now_ms + DAY_MS)
    assert opened.log.producers() == []


def test_deleting_records_forgets_no_producer() -> None:
    given = six_batches()
    given.log.delete_records_before(6)
    assert given.append(PID, sequence=3).is_duplicate


# If the log started within a segment, Kafka dropped the snapshot below the start and built the state only from the
# records above it.
@pytest.mark.known_bug(27, "KAFKA-5435")
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_log_start_within_a_segment_does_not_change_what_is_known_of_producers(how: str) -> None:
    given = LogOnDisk(config=LogConfig(segment_bytes=200))
    given.append(PID, epoch=3, sequence=5, transactional=True)
    given.end(PID, commit=True, epoch=4)
    for sequence in range(5):
        given.append(OTHER, sequence=sequence)
    given.log.delete_records_before(4)
    given.directory.write_checkpoints()
    opened = given.closed_and_opened() if how == "closed" else given.killed_and_opened()
    assert [newest(entry) for entry in opened.log.producers()] == [newest(entry) for entry in given.log.producers()]


# Redpanda answered a duplicate with OUT_OF_ORDER_SEQUENCE_NUMBER, or not at all once its offset was no longer in
# memory. Clients then increase their epoch and write the records twice.
@pytest.mark.known_bug(34, "redpanda 3039, 5355")
@pytest.mark.known_bug(35, "redpanda 3039, 5355")
@pytest.mark.parametrize("how", ["at once", "closed", "killed"])
def test_a_duplicate_is_answered_with_its_first_offset(how: str) -> None:
    given = LogOnDisk(config=LogConfig(segment_bytes=200))
    for sequence in range(0, 12, 2):
        given.append(PID, sequence=sequence, records=2)
    given.log.delete_records_before(12)  # The log may even have deleted the duplicate's records.
    given.log.retention(given.now_ms)
    if how == "closed":
        given = given.closed_and_opened()
    elif how == "killed":
        given = given.killed_and_opened()
    again = given.append(PID, sequence=10, records=2)
    assert (again.base_offset, again.last_offset, again.is_duplicate) == (10, 11, True)


# If the only producer snapshot was unreadable after a clean stop, an earlier Odradek started the log without producers.
# The open transaction disappeared without a marker, and a retry was appended a second time.
@pytest.mark.known_bug(61, "ours")
@pytest.mark.parametrize("size_bytes", [None, 0, 20])
def test_producers_are_replayed_where_no_snapshot_can_be_read(
    size_bytes: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    given = LogOnDisk()
    given.append(PID, sequence=0)
    given.append(OTHER, sequence=0, transactional=True)
    given.append(PID, sequence=1)
    given.directory.close()
    snapshot = "/data/t-0/00000000000000000003.snapshot"
    data = given.disk.read_bytes(snapshot)
    given.disk.write_bytes(snapshot, bytes([data[0] ^ 1]) + data[1:] if size_bytes is None else data[:size_bytes])
    opened = LogOnDisk(given.disk)
    assert opened.log.last_stable_offset == 1
    assert opened.append(PID, sequence=1).is_duplicate
    assert snapshot in caplog.text
