"""Tests that a log whose files are a copy of a known log is opened without being read, in the state that recovery would
find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.storage.log import Origin
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_state import CopiedLogs, CopiedLogState
from tests.support.fake_disk import FakeDisk
from tests.support.log_builder import NODE, NOW_MS, TOPIC_ID, LogOnDisk, offsets

LOG = "/data/t-0/00000000000000000000.log"
INDEXED = LogConfig(index_interval_bytes=100)


def copied_states(given: LogOnDisk) -> dict[tuple[str, int], CopiedLogState]:
    logs = CopiedLogs(given.directory.logs)
    assert list(logs.examining()) == [None]
    return logs.states


def with_transactions() -> LogOnDisk:
    """Returns a log with an aborted, a committed and an open transaction."""
    given = LogOnDisk(config=INDEXED)
    given.log.assign_leader_epoch(3)
    for sequence in range(4):
        given.append(7, sequence=sequence)
    for producer_id in (8, 9):
        given.append(producer_id, transactional=True, origin=Origin.COORDINATOR)
        given.end(producer_id, commit=producer_id == 9)
    given.log.assign_leader_epoch(5)
    given.append(10, transactional=True, origin=Origin.COORDINATOR)
    given.append()
    return given


def stopped_and_gone_on() -> LogOnDisk:
    """Returns a log that has grown after a clean restart. The clean stop left its index files and a snapshot."""
    given = with_transactions().closed_and_opened()
    given.log.assign_leader_epoch(6)
    given.append(7, sequence=4)
    assert given.log.segments[0].offset_index  # the index was read from its file
    assert given.log.segments[0].time_index
    return given


def with_deleted_records() -> LogOnDisk:
    given = with_transactions()
    given.log.delete_records_before(4)
    given.sync()
    given.directory.write_checkpoints()
    return given


def opened(disk: FakeDisk, known: dict[tuple[str, int], CopiedLogState]) -> LogOnDisk:
    directory = LogDirectory.open(disk, "/data", NODE)
    directory.register_copied_states(known)
    log = directory.open_log("t", 0, TOPIC_ID, INDEXED, now_ms=NOW_MS)
    copied = LogOnDisk.__new__(LogOnDisk)
    copied.disk, copied.config, copied.now_ms, copied.directory, copied.log = disk, INDEXED, NOW_MS, directory, log
    return copied


def log_facts(given: LogOnDisk) -> dict[str, object]:
    log = given.log
    return {
        "offsets": (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset),
        "recovery point": log.recovery_point,
        "records": offsets(log),
        "producers": log.producers(),
        "epochs": log.leader_epochs.entries(),
        "positions": log.segments[0].offset_index.entries(),
        "aborted": log.segments[0].txn_index.entries(),
        "topic id": (log.topic_id, given.directory.topic_id_of("t", 0)),
    }


@pytest.mark.parametrize("make", [with_transactions, stopped_and_gone_on, with_deleted_records])
def test_a_copy_continues_like_its_original_log(make: Callable[[], LogOnDisk]) -> None:
    given = make()
    known = copied_states(given)
    copy = opened(given.disk.after_kill(), known)
    assert log_facts(copy) == log_facts(given)
    for each in (copy, given):
        each.append(7, sequence=each.log.producer(7).batches[-1].last_sequence + 1)  # type: ignore[union-attr]
        each.end(10, commit=False)
        each.sync()
    assert log_facts(copy) == log_facts(given)
    assert log_facts(copy.killed_and_opened()) == log_facts(given.killed_and_opened())
    assert log_facts(copy.closed_and_opened()) == log_facts(given.closed_and_opened())


@pytest.mark.parametrize("make", [with_transactions, with_deleted_records])
def test_a_copy_is_the_same_as_a_recovered_log(make: Callable[[], LogOnDisk]) -> None:
    given = make()
    known = copied_states(given)
    copy, recovered = opened(given.disk.after_kill(), known), opened(given.disk.after_kill(), {})
    assert log_facts(copy) == log_facts(recovered)
    for each in (copy, recovered):
        each.append(7, sequence=each.log.producer(7).batches[-1].last_sequence + 1)  # type: ignore[union-attr]
        each.end(10, commit=False)
        each.sync()
    assert log_facts(copy) == log_facts(recovered)
    assert log_facts(copy.killed_and_opened()) == log_facts(recovered.killed_and_opened())
    assert log_facts(copy.closed_and_opened()) == log_facts(recovered.closed_and_opened())


def test_no_record_is_read() -> None:
    given = with_transactions()
    known = copied_states(given)
    disk = given.disk.after_kill()
    data = disk.read_bytes(LOG)
    disk.write_bytes(LOG, bytes(len(data)))
    assert opened(disk, known).log.log_end_offset == given.log.log_end_offset


def test_one_known_state_serves_many_copies_and_does_not_change() -> None:
    given = with_transactions()
    known = copied_states(given)
    first = opened(given.disk.after_kill(), known)
    before = log_facts(first)
    disk = given.disk.after_kill()
    first.append(7, sequence=4)
    given.end(10, commit=True)
    assert log_facts(opened(disk, known)) == before


def test_a_copy_of_another_size_is_read() -> None:
    given = with_transactions()
    known = copied_states(given)
    given.append()
    assert opened(given.disk.after_kill(), known).log.log_end_offset == given.log.log_end_offset


def test_files_that_recovery_has_to_deal_with_are_left_to_it() -> None:
    given = with_transactions()
    known = copied_states(given)
    disk = given.disk.after_kill()
    disk.write_bytes(f"{LOG}.deleted", b"left")
    opened(disk, known)
    assert not disk.exists(f"{LOG}.deleted")


def test_nothing_is_known_of_logs_that_are_empty_or_have_several_segments_or_a_write_under_way() -> None:
    several = LogOnDisk(config=LogConfig(segment_bytes=200))
    for _ in range(5):
        several.append()
    staged = with_transactions()
    staged.stage()
    for given in (LogOnDisk(), several, staged):
        assert copied_states(given) == {}


def test_a_log_that_has_changed_meanwhile_is_looked_at_again() -> None:
    given = with_transactions()
    logs = CopiedLogs(given.directory.logs)
    assert list(logs.examining()) == [None]
    assert logs.look_again() == []
    given.append()
    assert logs.look_again() == [LOG]
    copy = opened(given.disk.after_kill(), logs.states)
    assert log_facts(copy) == log_facts(given)
    given.stage()
    given.log.write_staged()
    given.directory.delete_log("t", 0, "0" * 32)
    assert logs.look_again() == []
    assert logs.states == {}


def test_both_segments_of_a_log_that_was_rolled_meanwhile_have_changed() -> None:
    given = LogOnDisk(config=LogConfig(segment_bytes=200))
    given.append()
    logs = CopiedLogs(given.directory.logs)
    assert list(logs.examining()) == [None]
    for _ in range(3):
        given.append()
    paths = [segment.path() for segment in given.log.segments]
    assert len(paths) > 1
    assert logs.look_again() == paths
    assert logs.states == {}
