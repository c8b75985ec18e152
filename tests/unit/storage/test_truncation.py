"""Tests that a log truncated at an offset, as in an unclean election, is the same as if it had never had the later
records."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.storage.log import Log
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import LogDirectory
from tests.support.log_builder import NODE, NOW_MS, LogOnDisk, offsets, refused

SMALL_SEGMENTS = LogConfig(segment_bytes=200)


def truncated(given: LogOnDisk, offset: int) -> Log:
    return given.directory.truncate_log("t", 0, offset, now_ms=NOW_MS)


@pytest.mark.parametrize("config", [LogConfig(), SMALL_SEGMENTS], ids=["one segment", "many"])
@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.parametrize("offset", range(9))
def test_batches_that_are_not_wholly_below_the_offset_go(config: LogConfig, is_synced: bool, offset: int) -> None:
    given = LogOnDisk(config=config)
    for _ in range(4):
        given.append(records=2)
    if is_synced:
        given.sync()
    log = truncated(given, offset)
    end = offset - offset % 2
    assert log.log_end_offset == log.high_watermark == log.last_stable_offset == end
    assert offsets(log) == [*range(end)]
    assert log.recovery_point <= end


def test_the_log_goes_on_and_survives_a_kill_and_a_clean_stop() -> None:
    given = LogOnDisk(config=SMALL_SEGMENTS)
    for _ in range(6):
        given.append()
    given.sync()
    given.directory.write_checkpoints()
    given.log = truncated(given, 3)
    killed = LogOnDisk(given.disk.after_kill())
    assert offsets(killed.log) == [0, 1, 2]
    killed.log.assign_leader_epoch(5)
    killed.append()
    killed.sync()
    again = killed.closed_and_opened()
    assert offsets(again.log) == [0, 1, 2, 3]
    assert again.log.leader_epoch_at(3) == 5


def test_a_power_failure_right_after_it_leaves_a_log_that_opens() -> None:
    given = LogOnDisk(config=SMALL_SEGMENTS)
    for _ in range(6):
        given.append()
    given.sync()
    given.directory.write_checkpoints()
    truncated(given, 2)
    for state in given.disk.after_power_failure(0):
        assert offsets(LogOnDisk(state.disk).log) == [0, 1]


def test_leader_epochs_above_the_end_are_forgotten_and_a_later_one_shows_the_divergence() -> None:
    given = LogOnDisk()
    for epoch in (1, 2, 3):
        given.log.assign_leader_epoch(epoch)
        given.append(records=2)
        given.sync()
    log = truncated(given, 3)
    assert log.log_end_offset == 2
    assert log.end_offset_for_epoch(3) is None
    log.assign_leader_epoch(4)
    assert log.end_offset_for_epoch(3) == (1, 2)
    assert log.end_offset_for_epoch(4) == (4, 2)


@pytest.mark.parametrize("config", [LogConfig(), SMALL_SEGMENTS], ids=["one segment", "many"])
def test_producers_and_transactions_are_those_of_what_is_left(config: LogConfig) -> None:
    given = LogOnDisk(config=config)
    given.append(7, transactional=True)
    given.end(7, commit=False)
    given.append(7, sequence=1, transactional=True)
    given.append(8)
    given.end(7, commit=True)
    given.sync()
    log = truncated(given, 3)
    entry = log.producer(7)
    assert entry is not None
    assert (entry.last_sequence, entry.current_txn_first_offset) == (1, 2)
    assert log.producer(8) is None
    assert (log.last_stable_offset, log.log_end_offset) == (2, 3)
    assert log.reader.aborted_transactions(0, 3) == [(7, 0)]
    given.log = log
    assert truncated(given, 1).reader.aborted_transactions(0, 1) == []


def test_a_truncation_outside_of_the_log_changes_nothing() -> None:
    given = LogOnDisk()
    given.append(records=4)
    given.log.delete_records_before(2)
    for offset in (1, 5):
        with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
            truncated(given, offset)
    assert given.log.offline_reason is None
    # The offset is within the only batch, so the truncated log is empty and starts at this offset.
    assert truncated(given, 2).log_end_offset == 2


def test_the_replaced_log_refuses_appends() -> None:
    given = LogOnDisk()
    given.append()
    truncated(given, 0)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        given.append()
    given.directory.close()
    assert LogDirectory.open(given.disk, "/data", NODE).was_clean
