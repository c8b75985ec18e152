"""Tests that the broker acknowledges a record only after it has been written, and that a record whose append failed is
not in the log."""

import pytest

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.log import Origin
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk, Fault
from tests.support.group_commit_scene import GroupCommitScene as Scene
from tests.support.group_commit_scene import Outcomes, batch, failed, values_in


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_appends_of_one_tick_share_one_write(scene: Scene) -> None:
    scene.append(b"the first one, which also makes the file")
    scene.scene.settle()
    scene.partition.log.delete_records_before(1)
    calls = scene.disk.calls
    first, second = scene.append(b"a"), scene.append(b"b")
    assert first == second == []
    assert scene.values() == []
    scene.scene.tick.run()
    assert first == second == [None]
    assert scene.values() == [b"a", b"b"]
    assert scene.disk.calls - calls == 1


def test_a_partition_is_written_once_per_tick_and_again_in_the_next(scene: Scene) -> None:
    scene.append(b"a")
    scene.scene.tick.run()
    outcomes = scene.append(b"b")
    assert len(scene.scene.tick) == 1
    scene.scene.tick.run()
    assert outcomes == [None]
    assert scene.values() == [b"a", b"b"]


@pytest.mark.parametrize("fault", list(Fault))
def test_a_failed_write_fails_only_the_batches_in_it(scene: Scene, fault: Fault) -> None:
    before = scene.append(b"a")
    scene.scene.tick.run()
    scene.disk.fail(1, fault)
    lost = [scene.append(b"b"), scene.append(b"c")]
    scene.scene.tick.run()
    after = scene.append(b"d")
    scene.scene.tick.run()
    assert before == [None]
    assert all(failed(outcomes) for outcomes in lost)
    assert after == [None]
    assert scene.values() == [b"a", b"d"]
    assert scene.partition.log.high_watermark == 2


def test_a_producer_whose_batch_was_not_written_may_send_it_again(scene: Scene) -> None:
    scene.disk.fail(1, Fault.ENOSPC)
    lost = scene.append(b"a", producer=(7, 0))
    scene.scene.tick.run()
    again = scene.append(b"a", producer=(7, 0))
    scene.scene.tick.run()
    assert failed(lost)
    assert again == [None]
    assert scene.values() == [b"a"]


def test_a_duplicate_is_not_acknowledged_before_the_original_is_written(scene: Scene) -> None:
    original, duplicate = scene.append(b"a", producer=(7, 0)), scene.append(b"a", producer=(7, 0))
    assert duplicate == []
    scene.scene.tick.run()
    assert original == duplicate == [None]
    assert scene.values() == [b"a"]


def test_a_duplicate_fails_with_its_original(scene: Scene) -> None:
    scene.disk.fail(1, Fault.EIO)
    original, duplicate = scene.append(b"a", producer=(7, 0)), scene.append(b"a", producer=(7, 0))
    scene.scene.tick.run()
    assert failed(original)
    assert failed(duplicate)
    assert scene.values() == []


def test_records_that_a_coordinator_appends_follow_batches_that_were_staged_earlier(scene: Scene) -> None:
    staged = scene.append(b"a")
    appended = scene.partition.append_now(batch(b"b"), origin=Origin.COORDINATOR, now_ms=NOW_MS)
    assert appended.base_offset == 1
    assert staged == [None]
    assert scene.values() == [b"a", b"b"]
    later = scene.append(b"c")
    scene.scene.tick.run()
    assert later == [None]
    assert scene.values() == [b"a", b"b", b"c"]


def test_when_the_coordinators_write_fails_so_do_the_batches_that_were_staged_with_it(scene: Scene) -> None:
    staged = scene.append(b"a")
    scene.disk.fail(1, Fault.ENOSPC)
    with pytest.raises(KafkaError) as failure:
        scene.partition.append_now(batch(b"b"), origin=Origin.COORDINATOR, now_ms=NOW_MS)
    assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failed(staged)
    scene.scene.tick.run()
    assert scene.values() == []


def test_a_bug_in_one_answer_does_not_keep_other_partitions_from_being_written() -> None:
    scene = BrokerScene(FakeDisk(), "/data")
    scene.topic("t", 3)

    def bug(error: KafkaError | None) -> None:
        raise RuntimeError("a bug")

    outcomes: Outcomes = []
    for index, on_done in enumerate((outcomes.append, bug, outcomes.append)):
        scene.partition("t", index).append(batch(b"v"), origin=Origin.CLIENT, now_ms=NOW_MS, on_done=on_done)
    with pytest.raises(RuntimeError):
        scene.tick.run()
    scene.tick.run()
    assert outcomes == [None, None]
    for index in range(3):
        assert values_in(scene.partition("t", index)) == [b"v"]
