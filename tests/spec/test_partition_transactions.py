"""Tests the markers, the last stable offset and the transaction index of one partition.

Rules: docs/spec/transactions.md#s4-8 to #s4-10; scenarios: #s8-5, #s8-6.
"""

import pytest

from odradek.files.indexes import AbortedTxn
from odradek.protocol.errors import ErrorCode
from odradek.storage.log_config import LogConfig
from odradek.storage.log_reader import ReadResult
from odradek.storage.producer_state import MAX_PRODUCER_EPOCH
from tests.support.fake_disk import Fault
from tests.support.log_builder import LogOnDisk, offsets, refused

A, B, C = 1, 2, 3
SMALL = LogConfig(segment_bytes=200)


def index_entries(given: LogOnDisk) -> list[AbortedTxn]:
    return [entry for segment in given.log.segments for entry in segment.txn_index.entries()]


# --- The markers that are written (#s4-8).


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    given = LogOnDisk()
    given.append(A, epoch=3, transactional=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        given.end(A, commit=True, epoch=2)


def test_scenario_060_with_version_2_a_marker_of_the_open_transactions_own_epoch_is_late_and_refused() -> None:
    given = LogOnDisk()
    given.append(A, epoch=3, transactional=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        given.end(A, commit=True, epoch=3, transaction_version=2)
    given.end(A, commit=True, epoch=4, transaction_version=2)
    assert given.log.last_stable_offset == 2


def test_scenario_059_with_version_2_a_repeated_marker_is_written_again_when_nothing_is_open() -> None:
    given = LogOnDisk()
    given.append(A, epoch=3, transactional=True)
    given.end(A, commit=True, epoch=4, transaction_version=2)
    assert given.end(A, commit=True, epoch=4, transaction_version=2).base_offset == 2


def test_with_version_2_the_largest_epoch_may_end_its_own_transaction() -> None:
    given = LogOnDisk()
    given.append(A, epoch=MAX_PRODUCER_EPOCH, transactional=True)
    given.end(A, commit=False, epoch=MAX_PRODUCER_EPOCH, transaction_version=2)
    assert given.log.last_stable_offset == given.log.log_end_offset


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_scenario_061_before_version_2_a_marker_ends_the_transaction_of_its_own_epoch(transaction_version: int) -> None:
    given = LogOnDisk()
    given.append(A, epoch=3, transactional=True)
    given.end(A, commit=True, epoch=3, transaction_version=transaction_version)
    assert given.log.last_stable_offset == 2


def test_scenario_058_a_marker_of_an_older_coordinator_is_fenced() -> None:
    given = LogOnDisk()
    given.append(A, transactional=True)
    given.end(A, commit=True, coordinator_epoch=5)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        given.end(A, commit=True, coordinator_epoch=4)


def test_scenario_069_a_marker_alone_fences_older_epochs_and_asks_for_sequence_zero() -> None:
    given = LogOnDisk()
    given.end(A, commit=True, epoch=5)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        given.append(A, epoch=4)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        given.append(A, epoch=5, sequence=1)
    given.append(A, epoch=5, sequence=0)


def test_scenario_071_a_zombie_of_a_committed_transaction_is_fenced() -> None:
    given = LogOnDisk()
    given.append(A, epoch=1, transactional=True)
    given.end(A, commit=True, epoch=2, transaction_version=2)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        given.append(A, epoch=1, sequence=1, transactional=True)


def test_scenario_072_a_zombie_of_a_fenced_transaction_is_fenced() -> None:
    given = LogOnDisk()
    given.append(A, epoch=5, transactional=True)
    given.end(A, commit=False, epoch=6)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        given.append(A, epoch=5, sequence=1, transactional=True)


def test_the_same_marker_delivered_twice_is_written_twice() -> None:
    given = LogOnDisk()
    given.append(A, transactional=True)
    assert given.end(A, commit=True).base_offset == 1
    assert given.end(A, commit=False).base_offset == 2
    assert index_entries(given) == [], "the second one ends nothing"


# --- The last stable offset (#s4-9).


# In Kafka, a transaction counted as completed as soon as its marker was appended, although the high watermark had not
# passed the marker yet.
@pytest.mark.known_bug(29, "apache/kafka 2910")
def test_scenario_089_the_last_stable_offset_is_the_start_of_the_oldest_open_transaction() -> None:
    given = LogOnDisk()
    given.fill_to(10)
    given.append(A, records=10, transactional=True)
    given.append(B, records=10, transactional=True)
    given.end(B, commit=True)
    assert given.log.last_stable_offset == 10
    given.fill_to(40)
    given.end(A, commit=False, write=False)
    assert given.log.last_stable_offset == 10, "the marker is not below the high watermark yet"
    given.log.write_staged()
    assert given.log.last_stable_offset == 41
    assert index_entries(given) == [AbortedTxn(A, 10, 40, 41)]


def test_scenario_090_an_index_entry_remembers_what_was_stable_when_its_marker_was_written() -> None:
    given = LogOnDisk()
    given.fill_to(10)
    given.append(A, records=10, transactional=True)
    given.append(B, records=10, transactional=True)
    given.end(A, commit=False)
    assert index_entries(given) == [AbortedTxn(A, 10, 30, 20)]
    assert offsets(given.log, 0, given.log.last_stable_offset) == list(range(20))
    assert given.log.reader.aborted_transactions(0, 20) == [(A, 10)]


def test_staged_transactions_do_not_hold_back_what_was_stable() -> None:
    given = LogOnDisk()
    given.fill_to(3)
    given.stage(A, transactional=True)
    assert given.log.last_stable_offset == 3


def test_scenario_098_deleting_the_start_of_an_open_transaction_moves_the_last_stable_offset_along() -> None:
    given = LogOnDisk()
    given.fill_to(2)
    given.append(A, transactional=True)
    given.fill_to(8)
    given.log.delete_records_before(5)
    assert given.log.last_stable_offset == 5
    given.end(A, commit=False)
    assert given.log.last_stable_offset == 9


def test_a_failed_write_reopens_the_transaction_that_its_marker_would_have_ended() -> None:
    given = LogOnDisk()
    given.append(A, transactional=True)
    given.append(B, transactional=True)
    given.end(A, commit=False, write=False)
    given.stage(C, transactional=True)
    given.disk.fail(1, Fault.EIO)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        given.log.write_staged()
    assert given.log.last_stable_offset == 0
    assert index_entries(given) == []
    assert given.log.producer(C) is None
    given.end(A, commit=True)
    assert given.log.last_stable_offset == 1


def test_read_committed_is_given_nothing_of_an_open_transaction() -> None:
    given = LogOnDisk()
    given.append(A, transactional=True)
    bound = given.log.last_stable_offset
    assert given.log.reader.read(0, max_bytes=1000, end_offset=bound) == ReadResult([], 0, 0)


# --- The transaction index (#s4-10).


def test_scenario_092_commits_and_markers_without_data_leave_no_entry() -> None:
    given = LogOnDisk()
    given.append(A, transactional=True)
    given.end(A, commit=True)
    given.end(B, commit=False)
    assert index_entries(given) == []


def test_scenario_091_an_aborted_transaction_is_found_from_the_segment_that_holds_its_data() -> None:
    given = LogOnDisk(config=SMALL)
    given.append(A, transactional=True)
    for _ in range(6):
        given.append()
    given.end(A, commit=False)
    assert len(given.log.segments) > 3
    first = given.log.segments[1].base_offset
    assert given.log.reader.aborted_transactions(0, first) == [(A, 0)]
    assert index_entries(given) == given.log.segments[-1].txn_index.entries()


def test_an_aborted_transaction_outside_of_the_range_is_not_listed() -> None:
    given = LogOnDisk()
    given.append(A, transactional=True)  # offset 0
    given.end(A, commit=False)  # offset 1
    given.append()  # offset 2
    given.append(B, transactional=True)  # offset 3
    given.end(B, commit=False)  # offset 4
    assert given.log.reader.aborted_transactions(2, 3) == []
    assert given.log.reader.aborted_transactions(1, 3) == [(A, 0)]
    assert given.log.reader.aborted_transactions(2, 4) == [(B, 3)]


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_the_index_is_the_same_after_a_restart(how: str) -> None:
    given = LogOnDisk(config=SMALL)
    for producer_id in (A, B, C):
        given.append(producer_id, transactional=True)
    given.end(B, commit=False)
    given.end(A, commit=True)
    given.append()
    given.end(C, commit=False)
    entries = index_entries(given)
    assert len(entries) == 2
    opened = given.closed_and_opened() if how == "closed" else given.killed_and_opened()
    assert index_entries(opened) == entries
    assert opened.log.last_stable_offset == given.log.log_end_offset


def test_a_damaged_index_is_built_anew_from_the_log() -> None:
    given = LogOnDisk(config=SMALL)
    given.append(A, transactional=True)
    given.end(A, commit=False)
    entries = index_entries(given)
    for _ in range(4):
        given.append()
    given.directory.close()
    path = "/data/t-0/00000000000000000000.txnindex"
    given.disk.write_bytes(path, given.disk.read_bytes(path)[:-1])
    assert index_entries(LogOnDisk(given.disk, SMALL)) == entries


def test_an_open_transaction_survives_a_kill() -> None:
    given = LogOnDisk(config=SMALL)
    given.fill_to(2)
    given.append(A, transactional=True)
    for _ in range(4):
        given.append()
    opened = given.killed_and_opened()
    assert opened.log.last_stable_offset == 2
    opened.end(A, commit=False)
    assert opened.log.reader.aborted_transactions(0, 10) == [(A, 2)]


def test_scenario_093_a_marker_that_is_cut_off_leaves_its_transaction_open() -> None:
    given = LogOnDisk()
    given.fill_to(10)
    given.append(A, transactional=True)
    given.append(B, transactional=True)
    given.end(A, commit=False)
    given.end(B, commit=False)
    assert index_entries(given) == [AbortedTxn(A, 10, 12, 11), AbortedTxn(B, 11, 13, 14)]
    disk = given.disk.after_kill()
    path = "/data/t-0/00000000000000000000.log"
    disk.write_bytes(path, disk.read_bytes(path)[:-1])
    opened = LogOnDisk(disk)
    assert index_entries(opened) == [AbortedTxn(A, 10, 12, 11)]
    assert (opened.log.last_stable_offset, opened.log.log_end_offset) == (11, 13)
    opened.end(B, commit=True)
    assert opened.log.last_stable_offset == 14


# Redpanda treated the first unstable offset as the last stable one, so readers received one record too many.
@pytest.mark.known_bug(30, "redpanda 3036")
def test_the_first_record_of_an_open_transaction_is_not_stable() -> None:
    given = LogOnDisk()
    given.append()
    given.append(A, transactional=True)
    given.append()
    assert offsets(given.log, 0, given.log.last_stable_offset) == [0]
