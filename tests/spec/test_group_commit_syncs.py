"""Tests that the broker neither acknowledges nor serves records before their fsync finishes, if settings or a two-phase
commit require the fsync."""

from collections.abc import Callable

import pytest

from odradek.broker.partitions.group_commit import PARALLEL_SYNCS
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import read_batch_header
from odradek.storage.log import Origin
from tests.support.batches import batch_by
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk, Fault
from tests.support.group_commit_scene import GroupCommitScene as Scene
from tests.support.group_commit_scene import Outcomes, batch, failed, values_in


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_with_flush_messages_1_nothing_is_acknowledged_before_its_fsync() -> None:
    scene = Scene(flush_messages=1)
    outcomes = scene.append(b"a")
    scene.scene.tick.run()
    assert outcomes == []
    scene.scene.workers.finish_all()
    assert outcomes == [None]


def test_appends_during_an_fsync_share_the_next_one() -> None:
    scene = Scene(flush_messages=1)
    first = scene.append(b"a")
    scene.scene.tick.run()
    second, third = scene.append(b"b"), scene.append(b"c")
    scene.scene.tick.run()
    assert len(scene.scene.workers.jobs) == 1
    scene.scene.workers.finish_one()
    assert (first, second, third) == ([None], [], [])
    assert len(scene.scene.workers.jobs) == 1
    scene.scene.workers.finish_one()
    assert second == third == [None]
    assert len(scene.scene.workers.jobs) == 0


def test_with_flush_messages_1_nothing_is_read_before_its_fsync() -> None:
    scene = Scene(flush_messages=1)
    log = scene.partition.log
    scene.append(b"a")
    scene.scene.tick.run()
    assert scene.values() == []
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (0, 0, 1)
    scene.append(b"b")
    scene.scene.tick.run()
    scene.scene.workers.finish_one()
    assert scene.values() == [b"a"]
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (1, 1, 2)
    scene.scene.settle()
    assert scene.values() == [b"a", b"b"]


def test_records_that_were_read_with_flush_messages_1_survive_a_power_failure() -> None:
    scene = Scene(flush_messages=1)
    scene.disk.sync_directory("/")
    for value in (b"a", b"b", b"c"):
        scene.append(value)
        scene.scene.tick.run()
        if scene.scene.workers.jobs:
            scene.scene.workers.finish_one()
        read = scene.values()
        for state in scene.disk.after_power_failure(1):
            after = BrokerScene(state.disk, "/data")
            after.image.topics.update(scene.scene.image.topics)
            after.partitions.open_all()
            assert values_in(after.partition("t"))[: len(read)] == read, state.name


class Parked:
    """A fetch that found too little data and is waiting for more."""

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.woken = 0

    def count_appended(self, size_bytes: int) -> bool:
        self.counted.append(size_bytes)
        return True

    def wake(self) -> None:
        self.woken += 1


def test_a_parked_fetch_is_woken_when_the_fsync_has_ended() -> None:
    scene = Scene(flush_messages=1)
    parked = Parked()
    scene.partition.park(parked)
    scene.append(b"a")
    scene.scene.tick.run()
    assert sum(parked.counted) == 0
    # The second batch is not readable after the first sync, but it must not delay the first batch.
    scene.append(b"b")
    scene.scene.tick.run()
    scene.scene.workers.finish_one()
    scene.scene.tick.run()
    assert sum(parked.counted) >= len(batch(b"a"))
    assert parked.woken
    parked.counted.clear()
    scene.scene.settle()
    assert scene.values() == [b"a", b"b"]
    assert parked.counted


def test_a_fetch_that_parks_after_the_write_is_woken_too() -> None:
    scene = Scene(flush_messages=1)
    scene.partition.append_now(batch(b"a"), origin=Origin.COORDINATOR, now_ms=NOW_MS)
    parked = Parked()
    scene.partition.park(parked)
    scene.scene.settle()
    assert sum(parked.counted) >= len(batch(b"a"))


def test_with_flush_messages_1_a_marker_decides_nothing_before_its_fsync() -> None:
    scene = Scene(flush_messages=1)
    log = scene.partition.log
    in_transaction(scene, ORDINARY)
    scene.scene.settle()
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    marker = marker_batch(
        producer_id=ORDINARY, producer_epoch=0, is_commit=True, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    scene.partition.append_now(marker, origin=Origin.COORDINATOR, now_ms=NOW_MS)
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    scene.append(b"behind it")
    scene.scene.tick.run()
    scene.scene.workers.finish_one()
    assert (log.last_stable_offset, log.high_watermark, log.log_end_offset) == (2, 2, 3)
    scene.scene.settle()
    assert (log.last_stable_offset, log.high_watermark) == (3, 3)


def test_with_flush_messages_3_records_that_need_no_fsync_are_read_at_once() -> None:
    scene = Scene(flush_messages=3)
    for value in (b"a", b"b", b"c"):
        scene.append(value)
        scene.scene.tick.run()
    assert scene.values() == [b"a", b"b"]
    assert scene.partition.log.last_stable_offset == 2
    scene.scene.settle()
    assert scene.values() == [b"a", b"b", b"c"]


def several(partitions: int) -> tuple[BrokerScene, Callable[[int], Outcomes]]:
    scene = BrokerScene(FakeDisk(), "/data")
    scene.topic("t", partitions, flush_messages=1)

    def append(index: int) -> Outcomes:
        outcomes: Outcomes = []
        scene.partition("t", index).append(batch(b"v"), origin=Origin.CLIENT, now_ms=NOW_MS, on_done=outcomes.append)
        return outcomes

    return scene, append


def test_logs_are_synced_beside_one_another_and_the_next_group_of_one_waits_for_no_other() -> None:
    scene, append = several(2)
    outcomes = [append(0), append(1)]
    scene.tick.run()
    assert len(scene.workers.jobs) == 2
    outcomes += [append(0), append(1)]
    scene.tick.run()
    scene.workers.finish_one()
    assert sorted(map(len, outcomes)) == [0, 0, 0, 1]
    assert len(scene.workers.jobs) == 2  # the other log's current sync, and this log's next sync
    scene.workers.jobs.rotate(1)
    scene.workers.finish_one()
    assert sorted(map(len, outcomes)) == [0, 0, 1, 1]
    scene.settle()
    assert outcomes == [[None]] * 4


def test_batches_written_while_a_sync_waits_for_a_thread_are_part_of_the_sync() -> None:
    scene, append = several(PARALLEL_SYNCS + 1)
    outcomes = [append(index) for index in range(PARALLEL_SYNCS + 1)]
    scene.tick.run()
    assert len(scene.workers.jobs) == PARALLEL_SYNCS
    outcomes += [append(index) for index in range(PARALLEL_SYNCS + 1)]
    scene.tick.run()
    for _ in range(PARALLEL_SYNCS + 1):
        scene.workers.finish_one()
    assert outcomes.count([None]) == PARALLEL_SYNCS + 2  # One log was synced once for its two batches.
    scene.settle()
    assert all(each == [None] for each in outcomes)


def test_a_topic_that_is_deleted_while_its_logs_wait_for_a_thread_is_not_synced() -> None:
    scene, append = several(PARALLEL_SYNCS + 2)
    for _ in range(2):
        for index in range(PARALLEL_SYNCS + 2):
            append(index)
        scene.tick.run()
    scene.delete_topic("t")
    scene.settle()
    assert not scene.workers.jobs


def test_acknowledged_with_flush_messages_1_means_that_a_power_failure_takes_nothing() -> None:
    scene = Scene(flush_messages=1)
    scene.disk.sync_directory("/")  # The root directory existed before the broker was started.
    scene.append(b"a")
    scene.scene.settle()
    unacknowledged = scene.append(b"b")
    scene.scene.tick.run()
    assert unacknowledged == []
    for seed in range(10):
        for state in scene.disk.after_power_failure(seed):
            after = BrokerScene(state.disk, "/data")
            after.image.topics.update(scene.scene.image.topics)
            after.partitions.open_all()
            assert values_in(after.partition("t"))[:1] == [b"a"], state.name


def test_flush_messages_3_syncs_every_third_record() -> None:
    scene = Scene(flush_messages=3)
    first, second = scene.append(b"a"), scene.append(b"b")
    scene.scene.tick.run()
    assert first == second == [None]
    third = scene.append(b"c")
    scene.scene.tick.run()
    assert third == []
    scene.scene.workers.finish_all()
    assert third == [None]


def test_a_failed_fsync_fails_all_waiting_appends_and_the_log_permanently() -> None:
    scene = Scene(flush_messages=1)
    first = scene.append(b"a")
    scene.scene.tick.run()
    second = scene.append(b"b")
    scene.scene.tick.run()
    scene.disk.fail(1, Fault.EIO)
    scene.scene.workers.finish_all()
    assert failed(first)
    assert failed(second)
    with pytest.raises(KafkaError) as refusal:
        scene.append(b"c")
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_records_that_were_readable_before_a_failed_fsync_stay_readable() -> None:
    scene = Scene(flush_messages=1)
    scene.append(b"a")
    scene.scene.settle()
    scene.append(b"b")
    scene.scene.tick.run()
    scene.disk.fail(1, Fault.EIO)
    scene.scene.workers.finish_all()
    assert scene.values()[:1] == [b"a"]


@pytest.mark.parametrize("partitions", [2, PARALLEL_SYNCS + 5])
def test_one_partition_whose_fsync_fails_does_not_fail_the_others(partitions: int) -> None:
    disk = FakeDisk()
    scene = BrokerScene(disk, "/data")
    scene.topic("t", partitions, flush_messages=1)
    outcomes: list[Outcomes] = [[] for _ in range(partitions)]
    for index in range(partitions):
        scene.partition("t", index).append(
            batch(b"v"), origin=Origin.CLIENT, now_ms=NOW_MS, on_done=outcomes[index].append
        )
    scene.tick.run()
    disk.fail(1, Fault.EIO)
    scene.settle()
    failures = [failed(each) for each in outcomes]
    assert failures.count(True) == 1
    assert all(each == [None] for each, has_failed in zip(outcomes, failures, strict=True) if not has_failed)


def test_when_durable_answers_at_once_if_no_fsync_is_required(scene: Scene) -> None:
    appended = scene.partition.append_now(batch(b"a"), origin=Origin.COORDINATOR, now_ms=NOW_MS)
    outcomes: Outcomes = []
    scene.partition.when_durable(appended.last_offset + 1, outcomes.append)
    assert outcomes == [None]


def test_when_durable_waits_for_a_required_fsync() -> None:
    scene = Scene(flush_messages=1)
    appended = scene.partition.append_now(batch(b"a"), origin=Origin.COORDINATOR, now_ms=NOW_MS)
    outcomes: Outcomes = []
    scene.partition.when_durable(appended.last_offset + 1, outcomes.append)
    assert outcomes == []
    scene.scene.settle()
    assert outcomes == [None]


def test_an_external_coordinator_may_request_an_fsync_whatever_the_settings(scene: Scene) -> None:
    appended = scene.partition.append_now(batch(b"a"), origin=Origin.COORDINATOR, now_ms=NOW_MS)
    outcomes: Outcomes = []
    scene.partition.when_durable(appended.last_offset + 1, outcomes.append, must_sync=True)
    assert outcomes == []
    scene.scene.workers.finish_all()
    assert outcomes == [None]
    scene.partition.when_durable(appended.last_offset + 1, outcomes.append, must_sync=True)
    assert outcomes == [None, None]


def test_a_request_for_an_fsync_that_is_running_causes_no_second_one(scene: Scene) -> None:
    appended = scene.partition.append_now(batch(b"a"), origin=Origin.COORDINATOR, now_ms=NOW_MS)
    outcomes: Outcomes = []
    for _ in range(3):
        scene.partition.when_durable(appended.last_offset + 1, outcomes.append, must_sync=True)
    assert len(scene.scene.workers.jobs) == 1
    scene.scene.workers.finish_one()
    assert outcomes == [None, None, None]
    assert not scene.scene.workers.jobs


TWO_PHASE, ORDINARY = 50, 51


def in_transaction(scene: Scene, producer_id: int) -> Outcomes:
    outcomes: Outcomes = []
    records = batch_by((producer_id, 0), 0, b"v", key=None, at_ms=NOW_MS)
    header = read_batch_header(records)
    scene.partition.append(records, origin=Origin.CLIENT, now_ms=NOW_MS, on_done=outcomes.append, header=header)
    return outcomes


def test_a_batch_of_a_two_phase_commit_waits_for_the_fsync_and_the_one_beside_it_does_not(scene: Scene) -> None:
    scene.scene.two_phase.ids.add(TWO_PHASE)
    waiting, beside = in_transaction(scene, TWO_PHASE), in_transaction(scene, ORDINARY)
    plain = scene.append(b"plain")
    scene.scene.tick.run()
    assert (waiting, beside, plain) == ([], [None], [None])
    scene.scene.workers.finish_all()
    assert waiting == [None]


def test_a_repeated_batch_is_not_acknowledged_before_the_original_is_synced(scene: Scene) -> None:
    scene.scene.two_phase.ids.add(TWO_PHASE)
    first = in_transaction(scene, TWO_PHASE)
    scene.scene.tick.run()
    again = in_transaction(scene, TWO_PHASE)
    scene.scene.tick.run()
    assert (first, again) == ([], [])
    scene.scene.workers.finish_all()
    assert (first, again) == ([None], [None])


def test_while_transactional_ids_are_loaded_every_transaction_waits_for_the_fsync(scene: Scene) -> None:
    scene.scene.two_phase.are_all_known = False
    outcomes = in_transaction(scene, ORDINARY)
    scene.scene.tick.run()
    assert outcomes == []
    scene.scene.workers.finish_all()
    assert outcomes == [None]


def test_a_failed_fsync_of_a_two_phase_commit_is_reported_to_the_producer(scene: Scene) -> None:
    scene.scene.two_phase.ids.add(TWO_PHASE)
    outcomes = in_transaction(scene, TWO_PHASE)
    scene.scene.tick.run()
    scene.disk.fail(1, Fault.EIO)
    scene.scene.workers.finish_all()
    assert failed(outcomes)


def test_waiting_appends_fail_when_their_partition_is_deleted() -> None:
    scene = Scene(flush_messages=1)
    unsynced = scene.append(b"a")
    scene.scene.tick.run()
    unwritten = scene.append(b"b")
    scene.scene.delete_topic("t")
    for outcomes in (unsynced, unwritten):
        assert [error.code if error else None for error in outcomes] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    scene.scene.settle()


def test_a_finished_segment_is_synced_though_nobody_waits_for_it() -> None:
    scene = Scene(segment_bytes=150)
    for value in (b"a", b"b", b"c"):
        scene.append(value)
        scene.scene.tick.run()
    assert len(scene.scene.workers.jobs) == 1
    scene.scene.settle()
    assert not scene.partition.log.has_rolled
