"""Bugs of other brokers in the log of one partition; each comment names the cause."""

from dataclasses import replace

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import LogDirectory
from odradek.storage.producer_state import ProducerEntry
from tests.support.fake_disk import Crashed, FakeDisk
from tests.support.log_builder import NODE, LogOnDisk, offsets, refused

A, B = 1, 2
SMALL = LogConfig(segment_bytes=200)


# KAFKA-19446: the epoch of a marker was compared with "at least", so the repeat of the last transaction's marker, which
# carries the epoch that the new transaction runs under, ended the new one.
def test_known_bug_07_a_late_marker_of_the_previous_transaction_does_not_end_the_next() -> None:
    given = LogOnDisk()
    given.append(A, epoch=1, transactional=True)
    given.end(A, commit=True, epoch=2, transaction_version=2)
    given.append(A, epoch=2, transactional=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        given.end(A, commit=True, epoch=2, transaction_version=2)
    assert given.log.last_stable_offset == 2


# KAFKA-9144: expiry looked at data only; a producer that had just been sent a marker was forgotten, and with it the
# coordinator epoch that fences older coordinators.
def test_known_bug_19_a_marker_counts_as_a_sign_of_life() -> None:
    given = LogOnDisk()
    given.append(A, timestamp=0, transactional=True)
    given.end(A, commit=True, coordinator_epoch=4)
    given.log.expire_producers(given.now_ms + 1)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        given.end(A, commit=True, coordinator_epoch=3)


# KAFKA-10101: the recovery point moved to the end of the log when it was merely opened or truncated, not synced.
def test_known_bug_25_the_recovery_point_is_never_ahead_of_a_sync() -> None:
    given = LogOnDisk()
    given.append()
    opened = given.killed_and_opened()
    opened.directory.write_checkpoints()
    for state in opened.disk.after_power_failure(seed=25):
        LogOnDisk(state.disk)  # with a recovery point of 1, a lost record would now count as damage


# KAFKA-10471: the mark of a clean shutdown outlived the start, and vouched for a log that had crashed since.
def test_known_bug_25_a_mark_of_a_clean_shutdown_vouches_for_one_start_only() -> None:
    given = LogOnDisk()
    given.append()
    given.directory.close()
    call = 0
    while True:
        call += 1
        disk = given.disk.after_kill()
        disk.crash_before(call)
        try:
            opened = LogOnDisk(disk)
            opened.append()
        except Crashed:
            continue
        for state in disk.after_power_failure(seed=call):
            assert not LogDirectory.open(state.disk, "/data", NODE).was_clean, state.name
        return


# KAFKA-16541: the checkpoint was rewritten in the background and renamed before its bytes were synced.
def test_known_bug_26_no_crash_leaves_half_a_leader_epoch_checkpoint() -> None:
    call = 0
    crashed = True
    while crashed:
        call += 1
        given = LogOnDisk(FakeDisk())
        given.log.assign_leader_epoch(1)
        given.append()
        given.sync()
        given.directory.write_checkpoints()
        given.log.assign_leader_epoch(2)
        given.append()
        given.disk.crash_before(call)
        crashed = False
        try:
            given.sync()
        except Crashed:
            crashed = True
        for state in given.disk.after_power_failure(seed=call):
            opened = LogOnDisk(state.disk)
            assert opened.log.end_offset_for_epoch(1) == (1, 1), state.name
            if opened.log.log_end_offset == 2:
                assert opened.log.end_offset_for_epoch(2) == (2, 2), state.name


# KAFKA-5435: once the log started within a segment, the snapshot below it was dropped and the state was built from what
# lay above the start alone.
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_known_bug_27_a_log_start_within_a_segment_does_not_change_what_is_known_of_producers(how: str) -> None:
    given = LogOnDisk(config=SMALL)
    given.append(A, epoch=3, sequence=5, transactional=True)
    given.end(A, commit=True, epoch=4)
    for sequence in range(5):
        given.append(B, sequence=sequence)
    given.log.delete_records_before(4)
    given.directory.write_checkpoints()
    opened = given.closed_and_opened() if how == "closed" else given.killed_and_opened()
    assert [newest(entry) for entry in opened.log.producers()] == [newest(entry) for entry in given.log.producers()]


def newest(entry: ProducerEntry) -> ProducerEntry:
    """What a snapshot keeps of it."""
    return replace(entry, batches=entry.batches[-1:])


# KAFKA-5522: looking up an offset by time answered with one above the last stable offset.
def test_known_bug_28_an_offset_looked_up_by_time_lies_below_the_bound() -> None:
    given = LogOnDisk()
    given.append(timestamp=10)
    given.append(A, timestamp=20, transactional=True)
    bound = given.log.last_stable_offset
    found = given.log.reader.offset_for_timestamp(5, end_offset=bound)
    assert found is not None
    assert found.offset == 0
    assert given.log.reader.offset_for_timestamp(15, end_offset=bound) is None


# Caught in review of apache/kafka 2910: the transaction counted as decided once its marker was appended, though the
# marker was not below the high watermark.
def test_known_bug_29_a_transaction_is_open_until_its_marker_is_below_the_high_watermark() -> None:
    given = LogOnDisk()
    given.append(A, transactional=True)
    given.append()
    given.end(A, commit=True, write=False)
    assert (given.log.high_watermark, given.log.last_stable_offset) == (2, 0)
    given.log.write_staged()
    assert (given.log.high_watermark, given.log.last_stable_offset) == (3, 3)


# redpanda 3036: the supremum of what is stable was taken for its maximum, one record too far.
def test_known_bug_30_the_first_record_of_an_open_transaction_is_not_stable() -> None:
    given = LogOnDisk()
    given.append()
    given.append(A, transactional=True)
    given.append()
    assert offsets(given.log, 0, given.log.last_stable_offset) == [0]


# redpanda 3039, 5355: a duplicate was answered "out of order", or not at all once its offset had left memory; clients
# then bump their epoch and write twice.
@pytest.mark.parametrize("how", ["at once", "closed", "killed"])
def test_known_bug_34_and_35_a_duplicate_is_answered_with_its_first_offset(how: str) -> None:
    given = LogOnDisk(config=SMALL)
    for sequence in range(0, 12, 2):
        given.append(A, sequence=sequence, records=2)
    given.log.delete_records_before(12)  # its offset may even be gone from the log
    given.log.retention(given.now_ms)
    if how == "closed":
        given = given.closed_and_opened()
    elif how == "killed":
        given = given.killed_and_opened()
    again = given.append(A, sequence=10, records=2)
    assert (again.base_offset, again.last_offset, again.is_duplicate) == (10, 11, True)


# Ours: with its only producer snapshot unreadable after a clean stop, a log started without producers. Its open
# transaction was over without a marker, and a retry was written again.
@pytest.mark.parametrize("size_bytes", [None, 0, 20])
def test_known_bug_61_producers_are_replayed_where_no_snapshot_can_be_read(
    size_bytes: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    given = LogOnDisk()
    given.append(A, sequence=0)
    given.append(B, sequence=0, transactional=True)
    given.append(A, sequence=1)
    given.directory.close()
    snapshot = "/data/t-0/00000000000000000003.snapshot"
    data = given.disk.read_bytes(snapshot)
    given.disk.write_bytes(snapshot, bytes([data[0] ^ 1]) + data[1:] if size_bytes is None else data[:size_bytes])
    opened = LogOnDisk(given.disk)
    assert opened.log.last_stable_offset == 1
    assert opened.append(A, sequence=1).is_duplicate
    assert snapshot in caplog.text
