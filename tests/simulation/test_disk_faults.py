"""Tests that the storage package loses nothing, and acknowledges nothing wrongly, if the disk returns errors. Each
error is reported with the right code, and reads still work.

A workload runs once for each fault and each of its disk calls. Only that call fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import NewRecord, build_batch
from odradek.storage.log import Log, LogFailed
from tests.simulation.storage_session import CONFIG, Promises, Session, check_promises, contents
from tests.support.fake_disk import FakeDisk, Fault

T = TypeVar("T")
FAULTS = list(Fault)
ENDURING = 200  # more disk calls than any workload makes


class CarefulSession(Session):
    """A session that continues after a refusal, as a broker does. Every refusal must be KAFKA_STORAGE_ERROR or an
    OSError."""

    def __init__(self, disk: FakeDisk, promises: Promises) -> None:
        super().__init__(disk, promises)
        self.refusals: list[Exception] = []

    def step(self, action: Callable[..., object], *arguments: object) -> bool:
        try:
            action(*arguments)
        except (LogFailed, OSError) as error:
            self.refusals.append(error)
            return False
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            self.refusals.append(error)
            return False
        return True


def work(session: CarefulSession) -> None:
    """Appends records to several segments, with syncs, checkpoints and retention in between."""
    for at in range(8):
        if session.step(session.stage, "t", b"a%d" % at):
            before = session.log("t").high_watermark
            if not session.step(session.write, "t"):
                assert session.log("t").high_watermark == before, "a failed write is not readable"
        if at % 3 == 2:
            session.step(session.sync, "t")
            session.step(session.checkpoint)
        assert_reads_go_on(session, "t")
    session.step(session.retention, "t", replace(CONFIG, retention_bytes=300))
    session.step(session.append, "t", b"last")
    assert_reads_go_on(session, "t")


def assert_reads_go_on(session: Session, topic: str) -> None:
    log = session.log(topic)
    found = contents(log, log.log_start_offset)
    expected = {o: v for o, v in session.promises.written[topic, 0].items() if o >= log.log_start_offset}
    assert found == expected


def runs_with_one_fault(fault: Fault) -> Iterator[tuple[int, CarefulSession]]:
    call = 0
    while True:
        call += 1
        disk = FakeDisk()
        session = CarefulSession(disk, Promises())
        session.create("t")
        disk.fail(call, fault)
        calls_before = disk.calls
        work(session)
        if disk.calls - calls_before < call:
            return
        yield call, session


@pytest.mark.parametrize("fault", FAULTS)
def test_one_failing_call_loses_nothing_and_acknowledges_nothing_falsely(fault: Fault) -> None:
    for call, session in runs_with_one_fault(fault):
        assert session.refusals, f"call {call} failed and nobody was told"
        check_promises(session.disk.after_kill(), session.promises, killed=True)
        for state in session.disk.after_power_failure(call):
            try:
                check_promises(state.disk, session.promises, killed=False)
            except Exception as error:
                raise AssertionError(f"call {call} failed with {fault}, then {state.name}") from error


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_permanent_disk_failure_writes_are_refused_and_stored_records_are_served(fault: Fault) -> None:
    for call in range(1, 60, 3):
        disk = FakeDisk()
        session = CarefulSession(disk, Promises())
        session.create("t")
        disk.fail_from(call, fault, ENDURING)
        work(session)
        check_promises(disk.after_kill(), session.promises, killed=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_when_there_is_room_again_a_log_that_could_take_back_a_failed_write_goes_on(fault: Fault) -> None:
    session = CarefulSession(FakeDisk(), Promises())
    log = session.create("t")
    session.append("t", b"before")
    session.stage("t", b"fails")
    session.disk.fail(1, fault)
    with pytest.raises(LogFailed):
        session.write("t")
    assert log.offline_reason is None
    session.append("t", b"after")
    assert [*contents(log, 0).values()] == [b"before.0", b"after.0"]


def test_a_failed_write_leaves_offsets_sequences_and_segments_as_they_were() -> None:
    session = CarefulSession(FakeDisk(), Promises())
    log = session.create("t")
    session.append("t", b"before")
    before = (log.log_end_offset, log.producers(), log.last_stable_offset, log.size_bytes, len(log.segments))
    session.stage("t", b"fails")
    session.stage("t", b"fails too" * 30)  # This record starts a new segment.
    session.disk.fail(3, Fault.ENOSPC)  # The calls are write, create and write, and the last one fails.
    with pytest.raises(LogFailed):
        session.write("t")
    assert (log.log_end_offset, log.producers(), log.last_stable_offset, log.size_bytes, len(log.segments)) == before
    assert session.disk.list_directory(log.directory) == ["partition.metadata", "00000000000000000000.log"]


def test_a_failed_write_that_cannot_be_taken_back_either_takes_the_log_offline() -> None:
    session = CarefulSession(FakeDisk(), Promises())
    log = session.create("t")
    session.append("t", b"before")
    session.stage("t", b"fails")
    session.disk.fail_from(1, Fault.EIO, 2)  # The write fails, and so does the truncation after it.
    with pytest.raises(LogFailed):
        session.write("t")
    assert_refuses_appends(log)
    assert [*contents(log, 0).values()] == [b"before.0"]


def test_a_failed_fsync_is_final() -> None:
    session = CarefulSession(FakeDisk(), Promises())
    log = session.create("t")
    session.append("t", b"written")
    synced_offset = log.synced_offset
    session.disk.fail(1, Fault.EIO)
    with pytest.raises(LogFailed):
        session.sync("t")
    assert log.synced_offset == synced_offset
    assert_refuses_appends(log)
    with pytest.raises(LogFailed):
        session.sync("t")  # The disk works again, but there is no way to know what has been lost.
    assert log.synced_offset == synced_offset
    assert [*contents(log, 0).values()] == [b"written.0"]


def test_a_directory_with_an_offline_log_is_not_marked_as_cleanly_shut_down() -> None:
    session = CarefulSession(FakeDisk(), Promises())
    session.create("t")
    session.append("t", b"written")
    session.disk.fail(1, Fault.EIO)
    with pytest.raises(LogFailed):
        session.sync("t")
    with pytest.raises(LogFailed):
        session.close()
    assert not session.disk.exists("/data/.kafka_cleanshutdown")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_failed_once_while_a_directory_is_opened_and_filled_can_be_repeated(fault: Fault) -> None:
    for call in range(1, 100):
        disk, promises = FakeDisk(), Promises()
        disk.fail(call, fault)
        session = again_if_refused(lambda: Session(disk, promises))  # noqa: B023  # called at once
        again_if_refused(lambda: session.create("t"))  # noqa: B023
        again_if_refused(lambda: session.append("t", b"value"))  # noqa: B023
        if disk.calls < call:
            break
        check_promises(disk.after_kill(), promises, killed=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_shutdown_is_not_clean(fault: Fault) -> None:
    call = 0
    while True:
        call += 1
        disk, promises = FakeDisk(), Promises()
        session = Session(disk, promises)
        session.create("t")
        session.append("t", b"value")
        disk.fail(call, fault)
        try:
            session.close()
        except (OSError, LogFailed):
            for state in disk.after_power_failure(call):
                check_promises(state.disk, promises, killed=False)
            check_promises(disk.after_kill(), promises, killed=True)
        else:
            break


def again_if_refused(step: Callable[[], T]) -> T:
    try:
        return step()
    except (OSError, KafkaError):
        return step()


def assert_refuses_appends(log: Log) -> None:
    with pytest.raises(KafkaError) as refused:
        log.append(build_batch([NewRecord(None, b"refused", 0)]), now_ms=0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
