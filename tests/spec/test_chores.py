"""Tests that periodic chores run at their configured intervals and do not disturb clients."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.partitions.housekeeping import Housekeeping, chores
from odradek.protocol.records import NewRecord, build_batch
from odradek.storage.log import Origin
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk, Fault

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
NEVER = 2**63 - 1


class Scene(BrokerScene):
    """A broker with running chores. `live` advances the clock and runs everything that is due."""

    def __init__(self, **settings: Any) -> None:
        self.disk = FakeDisk()
        super().__init__(self.disk, "/data")
        intervals = {
            "log_retention_check_interval_ms": NEVER,
            "producer_id_expiration_check_interval_ms": NEVER,
            "log_flush_scheduler_interval_ms": NEVER,
            "log_flush_offset_checkpoint_interval_ms": NEVER,
            "log_cleaner_enable": False,
        }
        config: Any = SimpleNamespace(**{**intervals, **settings})
        duties = chores(config, self.log_directory, self.clock, self.timers, self.workers)
        self.housekeeping = Housekeeping(duties, lambda: self.partitions, self.clock, self.timers)
        self.housekeeping.start(MINUTE_MS)

    def live(self, ms: int) -> None:
        self.timers.advance(ms)
        self.settle()

    def write(self, *, timestamp: int = NOW_MS, **kind: Any) -> None:
        batch = build_batch([NewRecord(b"k", bytes(50), timestamp)], **kind)
        self.partition("t").append(batch, origin=Origin.CLIENT, now_ms=timestamp, on_done=lambda error: None)
        self.settle()

    def files(self, suffix: str) -> list[str]:
        return sorted(name for name in self.disk.list_directory("/data/t-0") if name.endswith(suffix))


def test_old_segments_go_and_their_files_a_delay_later() -> None:
    scene = Scene(log_retention_check_interval_ms=5 * MINUTE_MS)
    scene.topic("t", segment_bytes=200, retention_ms=DAY_MS, file_delete_delay_ms=10 * MINUTE_MS)
    scene.write()
    scene.write(timestamp=NOW_MS + DAY_MS)
    scene.live(DAY_MS - MINUTE_MS)
    assert scene.partition("t").log.log_start_offset == 0
    scene.live(6 * MINUTE_MS)
    assert scene.partition("t").log.log_start_offset == 1
    assert scene.files(".log") == ["00000000000000000001.log"]
    assert scene.files(".log.deleted") == ["00000000000000000000.log.deleted"]
    scene.live(10 * MINUTE_MS)
    assert scene.files(".deleted") == []


def test_segments_below_the_new_log_start_are_deleted_at_the_next_check() -> None:
    scene = Scene(log_retention_check_interval_ms=5 * MINUTE_MS)
    scene.topic("t", segment_bytes=200)
    scene.write()
    scene.write()
    scene.partition("t").log.delete_records_before(1)
    scene.live(5 * MINUTE_MS)
    assert scene.files(".log") == ["00000000000000000001.log"]


def test_records_staged_when_a_chore_comes_are_written_first() -> None:
    scene = Scene(log_retention_check_interval_ms=5 * MINUTE_MS)
    scene.topic("t", segment_bytes=200)
    outcomes: list[object] = []
    batch = build_batch([NewRecord(b"k", b"v", NOW_MS)])
    scene.partition("t").append(batch, origin=Origin.CLIENT, now_ms=NOW_MS, on_done=outcomes.append)
    scene.timers.advance(MINUTE_MS)
    assert outcomes == [None]


def test_a_removal_that_fails_leaves_the_log_as_it_should_be_and_the_rest_to_the_next_start() -> None:
    scene = Scene(log_retention_check_interval_ms=5 * MINUTE_MS)
    scene.topic("t", segment_bytes=200, retention_bytes=100)
    scene.write()
    scene.write()
    scene.disk.fail_from(1, Fault.EIO)
    scene.live(MINUTE_MS)
    scene.disk.heal()
    assert scene.partition("t").log.log_start_offset == 1
    scene.write()
    assert scene.partition("t").log.high_watermark == 3


def test_idle_producers_are_forgotten() -> None:
    scene = Scene(producer_id_expiration_check_interval_ms=10 * MINUTE_MS)
    scene.topic("t", producer_id_expiration_ms=DAY_MS)
    scene.write(producer_id=7, producer_epoch=0, base_sequence=0)
    scene.live(DAY_MS - MINUTE_MS)
    assert [entry.producer_id for entry in scene.partition("t").log.producers()] == [7]
    scene.live(11 * MINUTE_MS)
    assert scene.partition("t").log.producers() == []


def test_flush_ms_bounds_how_long_a_record_stays_unsynced() -> None:
    scene = Scene(log_flush_scheduler_interval_ms=1000)
    scene.topic("t", flush_ms=5000)
    scene.write()
    scene.live(4000)
    assert scene.partition("t").log.synced_offset == 0
    scene.live(2000)
    assert scene.partition("t").log.synced_offset == 1


def test_without_flush_ms_nothing_is_synced() -> None:
    scene = Scene(log_flush_scheduler_interval_ms=1000)
    scene.topic("t")
    scene.write()
    scene.live(DAY_MS // 24)
    assert scene.partition("t").log.synced_offset == 0


def test_checkpoints_are_written_at_their_interval() -> None:
    scene = Scene(log_flush_offset_checkpoint_interval_ms=MINUTE_MS)
    scene.topic("t")
    scene.write()
    assert not scene.disk.exists("/data/recovery-point-offset-checkpoint")
    scene.live(MINUTE_MS)
    assert b"t 0 0" in scene.disk.read_bytes("/data/recovery-point-offset-checkpoint")
    assert b"t 0 1" in scene.disk.read_bytes("/data/replication-offset-checkpoint")


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_checkpoint_that_fails_is_written_at_the_next_interval(fault: Fault) -> None:
    scene = Scene(log_flush_offset_checkpoint_interval_ms=MINUTE_MS)
    scene.topic("t")
    scene.disk.fail(1, fault)
    scene.live(MINUTE_MS)
    scene.live(MINUTE_MS)
    assert scene.disk.exists("/data/recovery-point-offset-checkpoint")
