"""Tests that readers get the same records even if compaction crashes at any disk call."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.compaction_scene import COMPACT, CompactedLog
from tests.support.fake_disk import FakeDisk, ProcessCrashed

SEED = int(os.environ.get("SEED", "1"))

TABLE = {"a": "2", "b": "2", "c": "2", "only-0": "x", "only-1": "x", "only-2": "x"}


def dirty_log() -> CompactedLog:
    """Returns a log with several groups of segments, transactions that span them, and tombstones, all synced."""
    log = CompactedLog(replace(COMPACT, segment_bytes=450))
    for turn in range(3):
        log.append(("a", f"{turn}"), ("b", f"{turn}"), producer_id=1, sequence=2 * turn, transactional=True)
        log.append((f"only-{turn}", "x"))
        log.roll()
        log.end_txn(1, commit=turn != 1)
        log.append(("c", f"{turn}"), ("gone", None))
        log.roll()
    log.sync()
    assert log.committed_values() == TABLE
    return log


def crashes(*, half_write: bool = False) -> Iterator[tuple[int, FakeDisk]]:
    """Yields the number of each disk call in a cleaning pass, and the disk after a crash before or halfway through that
    call."""
    call = 0
    while True:
        call += 1
        log = dirty_log()
        log.disk.crash_before(call, half_write=half_write)
        try:
            log.clean()
        except ProcessCrashed:
            yield call, log.disk
        else:
            assert call > 30, "a pass takes more calls than that"
            return


def check(disk: FakeDisk, where: str) -> None:
    """Checks that the last values and the end offset are unchanged, and that the log can be cleaned and opened
    again."""
    log = CompactedLog(replace(COMPACT, segment_bytes=450), disk)
    try:
        assert log.committed_values() == TABLE
        assert log.log.log_end_offset == 18
        entry = log.log.producer(1)
        assert entry is not None
        assert entry.last_sequence == 5
        log.clean()
        assert log.committed_values() == TABLE
        assert log.reopen().committed_values() == TABLE
    except Exception as error:
        raise AssertionError(where) from error


@pytest.mark.parametrize("half_write", [False, True])
def test_a_killed_process_leaves_the_table_as_it_was(half_write: bool) -> None:
    for call, disk in crashes(half_write=half_write):
        check(disk.after_kill(), f"killed at call {call}, after {disk.log[-3:]}")


def test_a_power_failure_leaves_the_table_as_it_was() -> None:
    for call, disk in crashes():
        for state in disk.after_power_failure(SEED * 1_000 + call):
            check(state.disk, f"power failed at call {call}, {state.name}, after {disk.log[-3:]}")


def test_a_crash_while_the_replacement_is_finished_at_the_next_start_costs_nothing() -> None:
    for call, disk in crashes():
        if call % 3:
            continue
        call_in_recovery = 0
        while True:
            call_in_recovery += 1
            second = disk.after_kill()
            second.crash_before(call_in_recovery)
            try:
                CompactedLog(replace(COMPACT, segment_bytes=450), second)
                break
            except ProcessCrashed:
                where = f"killed at call {call}, then at call {call_in_recovery} of the start"
                check(second.after_kill(), f"{where}, after {second.log[-3:]}")
                for state in second.after_power_failure(SEED, random_states=1):
                    check(state.disk, f"{where}, {state.name}, after {second.log[-3:]}")
