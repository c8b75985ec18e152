"""Tests that a broker manages its metadata log correctly, from the first records to restarts and disk errors. Changes
are made one at a time, and take effect only after they have been synced."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.metadata.files import bootstrap_snapshot, records_in
from odradek.broker.metadata.image import DEFAULT_BROKER, MetadataImage
from odradek.broker.metadata.node_partitions import is_stray
from odradek.broker.metadata.records import Decision
from odradek.broker.metadata.replaying import CorruptMetadata
from odradek.broker.metadata.topics import delete_topics
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.runtime.workers import JobResult
from odradek.files.releases import Releases, with_releases
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.storage.disk import Disk
from tests.support.fake_disk import FakeDisk, Fault
from tests.support.metadata import (
    DATA,
    DIRECTORY_ID,
    FEATURES,
    NODE,
    Running,
    alter,
    image_with,
    restarted,
    topic_records,
)

# The log starts with the two transaction markers, the feature levels, and the minimum number of in-sync replicas.
LEADER_CHANGE, BOOTSTRAP = 1, 3 + len(FEATURES)
METADATA = f"{DATA}/__cluster_metadata-0"
FORMATTED = "00000000000000000000-0000000000.checkpoint"


# --- New directories.


def test_a_new_directory_gets_a_metadata_log_with_the_features_that_are_kept() -> None:
    """P1, P2, P4 and F2: a new directory has a metadata log, a snapshot with the feature levels, and no
    bootstrap.checkpoint (docs/spec/kafka-4.4.md#s6-1, #s2)."""
    disk = FakeDisk()
    running = Running(disk)
    assert running.metadata.image.features == FEATURES
    assert {"quorum-state", "partition.metadata", "00000000000000000000.log"} <= set(disk.list_directory(METADATA))
    assert "bootstrap.checkpoint" not in disk.list_directory(DATA)
    formatted = disk.read_bytes(f"{METADATA}/{FORMATTED}")
    levels = [(each.name, each.feature_level) for each in records_in(formatted) if isinstance(each, FeatureLevelRecord)]
    assert levels == list(FEATURES.items())
    assert b'"leaderEpoch":1' in disk.read_bytes(f"{METADATA}/quorum-state")
    assert disk.read_bytes(f"{METADATA}/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_the_broker_is_registered_and_its_epoch_is_the_offset_of_the_registration() -> None:
    running = Running(FakeDisk())
    broker = running.metadata.image.brokers[1]
    assert (broker.is_fenced, broker.endpoints) == (False, {"PLAINTEXT": ("localhost", 9092)})
    assert broker.broker_epoch == running.metadata.broker_epoch == LEADER_CHANGE + BOOTSTRAP
    assert running.metadata.node.node_id == 1


def test_a_directory_that_was_formatted_keeps_the_features_that_it_was_formatted_with() -> None:
    disk = FakeDisk()
    disk.make_directory(DATA)
    features = [
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        FeatureLevelRecord(name="group.version", feature_level=1),
    ]
    disk.write_bytes(f"{DATA}/bootstrap.checkpoint", bootstrap_snapshot(features, 29, 5))
    image = Running(disk).metadata.image
    assert image.features == {"metadata.version": 29, "group.version": 1}
    assert DEFAULT_BROKER not in image.configs


def test_a_directory_that_kafka_4_4_formatted_begins_with_the_levels_of_its_snapshot() -> None:
    """P1, P4, P5 and P6: the snapshot takes precedence over bootstrap.checkpoint, which is not deleted
    (docs/spec/kafka-4.4.md#s6-1)."""
    disk = FakeDisk()
    disk.make_directory(DATA)
    disk.make_directory(METADATA)
    chosen = [FeatureLevelRecord(name="metadata.version", feature_level=29)]
    passed = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
    disk.write_bytes(f"{METADATA}/{FORMATTED}", bootstrap_snapshot(chosen, 29, 5))
    disk.write_bytes(f"{DATA}/bootstrap.checkpoint", bootstrap_snapshot(passed, 30, 5))
    running = Running(disk)
    assert running.metadata.image.features == {"metadata.version": 29}
    running.stop()
    assert restarted_on(disk).metadata.image.features == {"metadata.version": 29}
    assert FORMATTED in disk.list_directory(METADATA)


def test_an_emulated_release_before_4_4_keeps_its_first_levels_in_the_root() -> None:
    """A release before Kafka 4.4 writes bootstrap.checkpoint instead of a snapshot (docs/spec/kafka-4.4.md#s6-3)."""
    disk = FakeDisk()
    assert Running(disk, rules=KafkaRules.KAFKA_4_3).metadata.image.features == FEATURES
    assert "bootstrap.checkpoint" in disk.list_directory(DATA)
    assert FORMATTED not in disk.list_directory(METADATA)


@pytest.mark.parametrize(
    ("feature", "level", "message"),
    [
        (
            "unknown.version",
            1,
            "the feature unknown.version is finalised at level 1, and this release does not know it",
        ),
        ("metadata.version", 34, "metadata.version is finalised at level 34, and this release knows levels up to 33"),
        ("group.version", 2, "group.version is finalised at level 2, and this release knows levels up to 1"),
    ],
)
def test_a_directory_with_levels_that_nobody_knows_here_is_not_started_on(
    feature: str, level: int, message: str
) -> None:
    """The broker refuses to start and names the feature and its level (docs/spec/kafka-4.4.md#s6-2)."""
    running = Running(FakeDisk())
    running.metadata.commit([FeatureLevelRecord(name=feature, feature_level=level)])
    running.stop()
    with pytest.raises(CannotStart, match=message):
        restarted_on(running.disk)


def test_the_refusal_of_a_level_names_the_later_release_that_used_the_directory() -> None:
    stopped = FakeDisk()
    running = Running(stopped)
    running.metadata.commit([FeatureLevelRecord(name="metadata.version", feature_level=34)])
    running.stop()
    file = f"{DATA}/meta.properties"
    disk = stopped.after_kill()
    disk.unlink(f"{DATA}/.odradek_manifest")
    disk.replace(file, with_releases(disk.read_bytes(file), Releases("9.8.7", "0.1.0")))
    with pytest.raises(CannotStart, match=r"up to 33\. Odradek 9\.8\.7 wrote the directory: start that release"):
        Running(disk)


def test_a_log_that_ends_before_its_snapshot_is_not_started_on() -> None:
    running = Running(FakeDisk())
    running.stop()
    disk = running.disk
    snapshot = bootstrap_snapshot([FeatureLevelRecord(name="metadata.version", feature_level=30)], 30, 5)
    disk.write_bytes(f"{METADATA}/00000000000000009999-0000000001.checkpoint", snapshot)
    with pytest.raises(CorruptMetadata, match="records at the end of the log are lost"):
        restarted_on(disk)


def restarted_on(disk: Disk) -> Running:
    assert isinstance(disk, FakeDisk)
    return Running(disk.after_kill())


def test_a_snapshot_that_was_never_finished_does_not_count() -> None:
    running = Running(FakeDisk())
    running.create("t")
    running.stop()
    running.disk.write_bytes(f"{METADATA}/00000000000000000005-0000000001.checkpoint", b"half")
    assert list(restarted_on(running.disk).metadata.image.topics) == ["t"]


# --- Restarts.


def test_topics_settings_and_producer_ids_are_there_after_a_restart() -> None:
    running = Running(FakeDisk())
    running.create("a", "b")
    running.metadata.submit(lambda image: delete_topics(image, [("a", bytes(16))]))
    alter(running, "b", "retention.ms", "5")
    running.metadata.allocate_producer_ids(1000, lambda first: None)
    before = running.metadata.image
    for after in (restarted(running), restarted(restarted(running, killed=True), killed=True)):
        image = after.metadata.image
        assert image.topics.keys() == {"b"}
        assert image.topic_configs("b") == {"retention.ms": "5"}
        assert image.next_producer_id == before.next_producer_id == 1000


def test_every_start_is_a_new_epoch_of_the_metadata_log_and_a_new_registration() -> None:
    running = Running(FakeDisk())
    first = running.metadata.image.brokers[1]
    again = restarted(running)
    assert again.metadata.leader_epoch == 2
    second = again.metadata.image.brokers[1]
    assert second.broker_epoch > first.broker_epoch
    assert second.broker_epoch == again.metadata.broker_epoch


def test_an_epoch_that_appears_only_in_the_quorum_state_is_not_reused() -> None:
    running = Running(FakeDisk())
    running.stop()
    disk = running.disk
    assert isinstance(disk, FakeDisk)
    text = disk.read_bytes(f"{METADATA}/quorum-state").replace(b'"leaderEpoch":1', b'"leaderEpoch":7')
    disk.write_bytes(f"{METADATA}/quorum-state", text)
    assert Running(disk.after_kill()).metadata.leader_epoch == 8


def test_a_broker_that_stops_fences_itself() -> None:
    running = Running(FakeDisk())
    running.metadata.close()
    assert running.metadata.image.brokers[1].is_fenced


def test_a_clean_restart_keeps_leader_epochs_and_one_after_a_crash_raises_them() -> None:
    running = Running(FakeDisk())
    running.create("t")
    clean = restarted(running)
    assert clean.metadata.image.topics["t"].partitions[0].leader_epoch == 0
    crashed = restarted(clean, killed=True)
    partition = crashed.metadata.image.topics["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 1)


def test_a_partition_that_kafka_left_without_a_leader_is_led_again() -> None:
    running = Running(FakeDisk())
    running.create("t")
    topic_id = running.metadata.image.topics["t"].topic_id
    left = PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[], leader=-1)
    running.metadata.commit([left]).outcome()
    assert running.metadata.image.topics["t"].partitions[0].leader is None
    partition = restarted(running).metadata.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, [1], 2)


def test_a_partition_of_other_nodes_stays_theirs() -> None:
    running = Running(FakeDisk())
    running.metadata.commit(
        [
            TopicRecord(name="elsewhere", topic_id=b"e" * 16),
            PartitionRecord(partition_id=0, topic_id=b"e" * 16, replicas=[2], isr=[2], leader=2, leader_epoch=3),
        ]
    ).outcome()
    partition = restarted(running, killed=True).metadata.image.topics["elsewhere"].partitions[0]
    assert (partition.leader, partition.leader_epoch) == (2, 3)


# --- Directories without an owner.


def test_directories_of_an_interrupted_deletion_are_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    running = Running(FakeDisk())
    running.create("gone", "kept")
    for name in ("gone", "kept"):
        topic_id = running.metadata.image.topics[name].topic_id
        running.directory.create_log(name, 0, topic_id, running.config.log_config({}), now_ms=1)
    running.metadata.submit(lambda image: delete_topics(image, [("gone", bytes(16))])).outcome()
    with caplog.at_level(logging.WARNING):
        again = restarted(running)
    assert again.directory.partitions() == [("__cluster_metadata", 0), ("kept", 0)]
    (aside,) = [name for name in again.disk.list_directory(DATA) if name.endswith("-stray")]
    assert aside.startswith("gone-0.")
    assert aside in caplog.text


def test_a_directory_of_an_older_topic_of_the_same_name_is_set_aside() -> None:
    running = Running(FakeDisk())
    running.create("t")
    running.directory.create_log("t", 0, b"another topic id", running.config.log_config({}), now_ms=1)
    again = restarted(running)
    assert ("t", 0) not in again.directory.partitions()


def test_a_partition_beyond_those_of_its_topic_is_a_stray() -> None:
    image = image_with("t", partitions=2)
    topic_id = image.topics["t"].topic_id
    found = [("t", 0), ("t", 1), ("t", 2), ("__cluster_metadata", 0)]
    assert [each for each in found if is_stray(image, NODE.node_id, each, topic_id)] == [("t", 2)]
    assert is_stray(image, 9, ("t", 0), topic_id)
    assert not is_stray(image, NODE.node_id, ("t", 0), None)


# --- Turns: the next decision is made after the previous one has taken effect.


class Parked:
    """Collects jobs instead of running them in threads. The test runs each job with `finish_one`."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[JobResult[Any]], None]]] = []

    def run(self, job: Callable[[], Any], then: Callable[[JobResult[Any]], None]) -> None:
        self.jobs.append((job, then))

    def finish_one(self) -> None:
        job, then = self.jobs.pop(0)
        then(JobResult(job(), None))


def with_parked_syncs() -> tuple[Running, Parked]:
    workers = Parked()
    return Running(FakeDisk(), workers=workers), workers


def test_nothing_is_visible_or_answered_before_it_is_synced() -> None:
    running, workers = with_parked_syncs()
    answer = running.metadata.commit(topic_records("t"))
    assert (answer.is_done, list(running.metadata.image.topics)) == (False, [])
    workers.finish_one()
    assert (answer.is_done, list(running.metadata.image.topics)) == (True, ["t"])


def test_a_turn_is_decided_after_the_one_before_it_took_effect() -> None:
    running, workers = with_parked_syncs()
    seen: list[list[str]] = []

    def look(image: MetadataImage) -> Decision[None]:
        seen.append(list(image.topics))
        return Decision(None, tuple(topic_records(f"t{len(seen)}")))

    answers = [running.metadata.submit(look) for _ in range(3)]
    assert seen == [[]]
    for _ in answers:
        workers.finish_one()
    assert seen == [[], ["t1"], ["t1", "t2"]]
    assert all(answer.is_done for answer in answers)


def test_a_turn_that_records_nothing_waits_its_turn_and_then_for_no_disk() -> None:
    running, workers = with_parked_syncs()
    running.metadata.commit(topic_records("t"))
    answer = running.metadata.submit(lambda image: Decision(list(image.topics)))
    assert not answer.is_done
    workers.finish_one()
    assert answer.outcome() == ["t"]
    assert workers.jobs == []


def test_a_decision_that_refuses_does_not_hinder_the_next() -> None:
    running = Running(FakeDisk())

    def refuse(image: MetadataImage) -> Decision[None]:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    refused = running.metadata.submit(refuse)
    with pytest.raises(KafkaError):
        refused.outcome()
    assert running.create("t")[0].error is None


def test_blocks_of_producer_ids_are_never_assigned_twice() -> None:
    running = Running(FakeDisk())
    blocks: list[int | KafkaError] = []
    for _ in range(2):
        running.metadata.allocate_producer_ids(1000, blocks.append)
    restarted(running).metadata.allocate_producer_ids(1000, blocks.append)
    assert blocks == [0, 1000, 2000]


# --- Disk failures.


def test_a_write_that_fails_changes_nothing_and_the_next_one_may_succeed() -> None:
    disk = FakeDisk()
    running = Running(disk)
    disk.fail(1, Fault.ENOSPC)
    answer = running.metadata.commit(topic_records("lost"))
    with pytest.raises(KafkaError) as failed:
        answer.outcome()
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "lost" not in running.metadata.image.topics
    disk.heal()
    running.metadata.commit(topic_records("kept")).outcome()
    assert list(restarted(running).metadata.image.topics) == ["kept"]


def test_a_failed_sync_ends_all_changes_and_reads_go_on(caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeDisk()
    running = Running(disk)
    running.create("t")
    disk.fail(2, Fault.EIO)  # The write succeeds, but its sync fails.
    with caplog.at_level(logging.CRITICAL), pytest.raises(KafkaError):
        running.metadata.commit(topic_records("doubtful")).outcome()
    assert "the metadata log failed" in caplog.text
    disk.heal()
    with pytest.raises(KafkaError):
        running.metadata.commit(topic_records("later")).outcome()
    assert list(running.metadata.image.topics) == ["t"]


def test_the_ids_of_node_and_directory_come_from_the_data_directory() -> None:
    running = Running(FakeDisk())
    assert running.directory.meta.directory_id == DIRECTORY_ID
    running.create("t")
    (directory,) = running.metadata.image.topics["t"].partitions[0].directories
    assert directory == running.metadata.node.directory_id
