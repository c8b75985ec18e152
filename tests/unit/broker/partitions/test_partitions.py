"""Tests the registry of partitions, which creates, opens, refuses and removes partitions as the metadata requires."""

from dataclasses import replace

import pytest

from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.registry import Partitions
from odradek.broker.runtime.slices import run_to_end
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.records import NewRecord, build_batch
from tests.support.broker_scene import NODE_ID, BrokerScene
from tests.support.fake_disk import FakeDisk, Fault

E = ErrorCode


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def scene(disk: FakeDisk) -> BrokerScene:
    return BrokerScene(disk, "/data")


def restarted(scene: BrokerScene, disk: FakeDisk) -> BrokerScene:
    after = BrokerScene(disk.after_kill(), "/data")
    after.image.topics.update(scene.image.topics)
    after.image.topics_by_id.update(scene.image.topics_by_id)
    after.partitions.open_all()
    return after


def write_record(partition: Partition) -> None:
    partition.log.append(build_batch([NewRecord(b"key", b"value", 0)]), now_ms=0)
    partition.log.write_staged()


def refusal(partitions: Partitions, topic: str, index: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        partitions.get(topic, index)
    return refused.value.code


def test_a_partition_is_found_by_name_and_by_id(scene: BrokerScene) -> None:
    topic = scene.topic("t", 2)
    partition = scene.partitions.get("t", 1)
    assert (partition.topic, partition.index, partition.topic_id) == ("t", 1, topic.topic_id)
    assert scene.partitions.get_by_id(topic.topic_id, 1) is partition


def test_a_missing_topic_or_partition_is_refused_with_its_own_error(scene: BrokerScene) -> None:
    topic = scene.topic("t")
    assert refusal(scene.partitions, "none") is E.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(scene.partitions, "t", 1) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(scene.partitions, "t", -1) is E.UNKNOWN_TOPIC_OR_PARTITION
    for topic_id, code in ((topic.topic_id, E.UNKNOWN_TOPIC_OR_PARTITION), (bytes(16), E.UNKNOWN_TOPIC_ID)):
        with pytest.raises(KafkaError) as refused:
            scene.partitions.get_by_id(topic_id, 9)
        assert refused.value.code is code


def test_a_partition_that_another_node_leads_is_not_served_here(scene: BrokerScene) -> None:
    scene.image.replay(TopicRecord(name="far", topic_id=b"the topic id of."))
    other = PartitionRecord(
        partition_id=0,
        topic_id=b"the topic id of.",
        replicas=[NODE_ID + 1],
        isr=[NODE_ID + 1],
        leader=NODE_ID + 1,
        leader_epoch=0,
    )
    scene.image.replay(other)
    run_to_end(scene.partitions.opening_topic(scene.image.topics["far"]))
    assert refusal(scene.partitions, "far") is E.NOT_LEADER_OR_FOLLOWER


def test_a_topic_that_grows_keeps_the_partitions_it_has(scene: BrokerScene) -> None:
    topic = scene.topic("t")
    first = scene.partitions.get("t", 0)
    scene.image.replay(
        PartitionRecord(
            partition_id=1, topic_id=topic.topic_id, replicas=[NODE_ID], isr=[NODE_ID], leader=NODE_ID, leader_epoch=0
        )
    )
    run_to_end(scene.partitions.opening_topic(topic))
    assert scene.partitions.get("t", 0) is first
    assert scene.partitions.get("t", 1).index == 1


def test_a_deleted_topic_is_gone_at_once_and_its_directories_later(scene: BrokerScene, disk: FakeDisk) -> None:
    scene.topic("t", 2, file_delete_delay_ms=1234)
    scene.delete_topic("t")
    assert refusal(scene.partitions, "t") is E.UNKNOWN_TOPIC_OR_PARTITION
    assert [delay_ms for _, delay_ms in scene.discarded] == [1234, 1234]
    assert all(disk.exists(path) and path.endswith("-delete") for path, _ in scene.discarded)
    assert not any(name in ("t-0", "t-1") for name in disk.list_directory("/data"))


def test_a_topic_made_anew_under_an_old_name_begins_empty(scene: BrokerScene) -> None:
    scene.topic("t")
    before = scene.partitions.get("t", 0)
    scene.delete_topic("t")
    scene.topic("t")
    after = scene.partitions.get("t", 0)
    assert after.topic_id != before.topic_id
    assert after.log.log_end_offset == 0


def test_a_topic_made_anew_waits_for_the_directory_of_the_old_one_to_be_renamed(
    scene: BrokerScene, disk: FakeDisk, caplog: pytest.LogCaptureFixture
) -> None:
    scene.topic("t")
    write_record(scene.partitions.get("t", 0))
    disk.fail_from(1, Fault.EIO)
    scene.delete_topic("t")
    scene.topic("t")
    assert refusal(scene.partitions, "t") is E.KAFKA_STORAGE_ERROR
    assert "t-0 cannot be removed" in caplog.text
    disk.heal()
    run_to_end(scene.partitions.opening_topic(scene.image.topics["t"]))
    assert scene.partitions.get("t", 0).log.log_end_offset == 0
    assert [name for name in disk.list_directory("/data") if name.endswith("-delete")]
    assert restarted(scene, disk).partitions.get("t", 0).log.log_end_offset == 0


def test_a_deleted_topic_whose_directory_cannot_be_renamed_leaves_nothing_to_its_namesake(
    scene: BrokerScene, disk: FakeDisk
) -> None:
    scene.topic("t")
    write_record(scene.partitions.get("t", 0))
    disk.fail(1, Fault.EIO)
    scene.delete_topic("t")
    scene.topic("t")
    assert scene.partitions.get("t", 0).log.log_end_offset == 0
    assert list(scene.partitions.get("t", 0).log.reader.scan(0)) == []


def test_a_restart_opens_what_metadata_names(scene: BrokerScene, disk: FakeDisk) -> None:
    scene.topic("t", 3)
    after = restarted(scene, disk)
    assert len(after.partitions) == 3


def test_a_log_that_cannot_be_opened_is_offline_and_the_others_are_served(scene: BrokerScene, disk: FakeDisk) -> None:
    scene.topic("bad")
    scene.topic("good")
    copy = disk.after_kill()
    copy.write_bytes("/data/bad-0/00000000000000000000.log", b"not a batch" * 100)
    copy.write_bytes("/data/recovery-point-offset-checkpoint", b"0\n1\nbad 0 50\n")
    after = BrokerScene(copy, "/data")
    after.image.topics.update(scene.image.topics)
    after.partitions.open_all()
    assert refusal(after.partitions, "bad") is E.KAFKA_STORAGE_ERROR
    assert after.partitions.get("good", 0).log.log_end_offset == 0


def test_a_log_that_cannot_be_made_is_offline(scene: BrokerScene, disk: FakeDisk) -> None:
    disk.fail(1, Fault.ENOSPC)
    scene.topic("t")
    assert refusal(scene.partitions, "t") is E.KAFKA_STORAGE_ERROR


def test_changed_settings_apply_to_the_log_and_to_the_rules_for_batches(scene: BrokerScene) -> None:
    scene.topic("t")
    partition = scene.partitions.get("t", 0)
    assert partition.rules.max_message_bytes == partition.log.config.max_message_bytes
    scene.log_configs["t"] = replace(scene.log_configs["t"], max_message_bytes=77)
    scene.partitions.topic_config_changed("t")
    assert partition.log.config.max_message_bytes == 77
    assert partition.rules.max_message_bytes == 77
