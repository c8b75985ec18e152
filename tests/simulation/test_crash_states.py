"""Tests that no acknowledged record is lost and no torn record is served, no matter when a crash happens and what it
leaves on the disk.

If only the process dies, a record counts as acknowledged once it has been written. If the power fails, it counts as
acknowledged once it has been synced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.simulation.storage_session import CONFIG, Promises, Session, check_promises
from tests.support.fake_disk import FakeDisk, ProcessCrashed

SEED = int(os.environ.get("SEED", "1"))

Workload = Callable[[Session], None]


def appending(session: Session) -> None:
    session.create("t")
    for at in range(6):
        session.append("t", b"a%d" % at, records=2)
    session.stage("t", b"b")
    session.stage("t", b"c" * 300)  # This write also starts another segment.
    session.write("t")


def appending_with_syncs(session: Session) -> None:
    session.create("t")
    for at in range(8):
        session.append("t", b"a%d" % at)
        session.sync("t")
        if at % 3 == 2:
            session.checkpoint()
    session.append("t", b"unsynced")


def appending_during_syncs(session: Session) -> None:
    session.create("t")
    for at in range(8):
        session.append("t", b"a%d" % at)
        session.sync("t", meanwhile=lambda: session.append("t", b"meanwhile"))
    session.checkpoint()


def deleting_records(session: Session) -> None:
    session.create("t")
    for at in range(10):
        session.append("t", b"a%d" % at)
    session.sync("t")
    session.checkpoint()
    session.delete_records("t", 5)
    session.retention("t", CONFIG)
    session.append("t", b"more")
    session.delete_records("t", 11)


def retaining(session: Session) -> None:
    session.create("t")
    for at in range(12):
        session.append("t", b"a%d" % at)
        if at == 7:
            session.sync("t")
            session.checkpoint()
    session.retention("t", replace(CONFIG, retention_bytes=500))
    session.append("t", b"more")
    session.sync("t")
    session.now_ms += 10_000
    # This deletes everything, including the active segment.
    session.retention("t", replace(CONFIG, retention_ms=5_000))
    session.append("t", b"and more")
    session.sync("t")


def creating_and_deleting_topics(session: Session) -> None:
    session.create("t")
    for at in range(5):
        session.append("t", b"a%d" % at)
    session.sync("t")
    session.delete_records("t", 2)
    session.create("other", b"o" * 16)
    session.append("other", b"stays")
    session.sync("other")
    session.delete("t")
    session.checkpoint()
    session.create("t", b"u" * 16)
    session.append("t", b"new")
    session.sync("t")


def closing(session: Session) -> None:
    session.create("t")
    for at in range(5):
        session.append("t", b"a%d" % at)
    session.close()


def closing_and_going_on(session: Session) -> None:
    closing(session)
    again = Session(session.disk, session.promises)
    again.open_all()
    again.append("t", b"second life")
    again.sync("t")
    again.append("t", b"unsynced")
    again.close()


WORKLOADS: list[Workload] = [
    appending,
    appending_with_syncs,
    appending_during_syncs,
    deleting_records,
    retaining,
    creating_and_deleting_topics,
    closing,
    closing_and_going_on,
]


def crashes(workload: Workload, *, half_write: bool = False) -> Iterator[tuple[int, FakeDisk, Promises]]:
    """Yields the disk and the promises after the workload has crashed before each disk call, and finally after it has
    run without a crash."""
    call = 0
    while True:
        call += 1
        disk, promises = FakeDisk(), Promises()
        disk.crash_before(call, half_write=half_write)
        try:
            workload(Session(disk, promises))
        except ProcessCrashed:
            yield call, disk, promises
        else:
            yield call, disk, promises
            return


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_killed_process_loses_nothing_that_it_has_written(workload: Workload) -> None:
    for half_write in (False, True):
        for call, disk, promises in crashes(workload, half_write=half_write):
            try:
                check_promises(disk.after_kill(), promises, killed=True)
            except Exception as error:
                raise AssertionError(f"killed at call {call} ({half_write=}), after {disk.log[-3:]}") from error


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_power_failure_loses_nothing_that_was_synced(workload: Workload) -> None:
    for call, disk, promises in crashes(workload):
        for state in disk.after_power_failure(SEED * 1_000 + call):
            try:
                check_promises(state.disk, promises, killed=False)
            except Exception as error:
                raise AssertionError(f"power failed at call {call}, {state.name}, after {disk.log[-3:]}") from error


@pytest.mark.parametrize("workload", [appending_with_syncs, retaining, creating_and_deleting_topics])
def test_a_crash_during_recovery_loses_nothing_either(workload: Workload) -> None:
    for call, disk, promises in crashes(workload):
        if call % 5:
            continue
        for state in disk.after_power_failure(SEED * 1_000 + call, random_states=1):
            call_in_recovery = 0
            while True:
                call_in_recovery += 1
                second = state.disk.after_kill()
                second.crash_before(call_in_recovery)
                try:
                    Session(second, Promises(topic_ids=dict(promises.topic_ids))).open_all()
                    break
                except ProcessCrashed:
                    for after in second.after_power_failure(SEED, random_states=1):
                        try:
                            check_promises(after.disk, promises, killed=False)
                        except Exception as error:
                            raise AssertionError(
                                f"power failed at call {call}, {state.name}, then at call {call_in_recovery} of the "
                                f"recovery, {after.name}, after {second.log[-3:]}"
                            ) from error
