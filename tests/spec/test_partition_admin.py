"""Tests that DeleteRecords, OffsetForLeaderEpoch, DescribeProducers, DescribeLogDirs and InitProducerId give the same
answers as Kafka 4.3.1."""

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers.cluster.replicas import describe_log_dirs
from odradek.broker.handlers.records.administration import delete_records, describe_producers
from odradek.broker.handlers.records.offsets import offset_for_leader_epoch
from odradek.broker.handlers.transactions.transactions import init_producer_id
from odradek.broker.runtime.waiting import start_deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages import describe_producers_request, describe_producers_response
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.records import NewRecord, build_batch
from odradek.storage.log import Origin
from tests.support.broker_scene import NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk

E = ErrorCode
COMPACT, DELETE = "compact", "delete"


class Scene(BrokerScene):
    def __init__(self) -> None:
        super().__init__(FakeDisk(), "/data")
        self.topic("t", 2)
        self.write(3)
        self.write(3)

    def write(self, count: int, topic: str = "t", **kind: Any) -> None:
        batch = build_batch([NewRecord(b"k", b"v", NOW_MS) for _ in range(count)], **kind)
        origin = Origin.COORDINATOR if kind.get("is_transactional") else Origin.CLIENT
        self.partition(topic).append(batch, origin=origin, now_ms=NOW_MS, on_done=lambda error: None)
        self.settle()


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- DeleteRecords


def delete(scene: Scene, offset: int, topic: str = "t", index: int = 0) -> tuple[ErrorCode, int]:
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])
    response = delete_records(request, scene.context(ApiKey.DELETE_RECORDS, 2), scene.broker)
    (result,) = response.topics[0].partitions
    return E(result.error_code), result.low_watermark


def test_records_before_the_offset_are_gone_and_the_start_never_goes_back(scene: Scene) -> None:
    assert delete(scene, 2) == (E.NONE, 2)
    assert delete(scene, 1) == (E.NONE, 2)
    with pytest.raises(KafkaError):
        scene.partition("t").log.reader.read(1, max_bytes=1000)


def test_of_a_partition_named_twice_the_last_offset_counts_and_the_topic_is_answered_once(scene: Scene) -> None:
    def entry(*offsets: int) -> DeleteRecordsTopic:
        partitions = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in offsets]
        return DeleteRecordsTopic(name="t", partitions=partitions)

    request = DeleteRecordsRequest(topics=[entry(5, 4), entry(2)])
    (topic,) = delete_records(request, scene.context(ApiKey.DELETE_RECORDS, 2), scene.broker).topics
    assert [(each.error_code, each.low_watermark) for each in topic.partitions] == [(0, 2)]
    assert scene.partition("t").log.log_start_offset == 2


def test_minus_one_stands_for_the_high_watermark(scene: Scene) -> None:
    assert delete(scene, -1) == (E.NONE, 6)


@pytest.mark.parametrize("offset", [7, 99, -2, -5])
def test_an_offset_that_cannot_be_is_out_of_range(scene: Scene, offset: int) -> None:
    assert delete(scene, offset) == (E.OFFSET_OUT_OF_RANGE, -1)


@pytest.mark.parametrize(
    ("policy", "code"),
    [({DELETE}, E.NONE), ({COMPACT, DELETE}, E.NONE), ({COMPACT}, E.POLICY_VIOLATION)],
)
def test_records_of_compacted_topics_cannot_be_deleted(scene: Scene, policy: set[str], code: ErrorCode) -> None:
    scene.topic("other", cleanup_policy=frozenset(policy))
    assert delete(scene, 0, "other")[0] is code


def test_records_of_internal_and_unknown_partitions_cannot_be_deleted(scene: Scene) -> None:
    scene.topic("__consumer_offsets")
    assert delete(scene, 0, "__consumer_offsets") == (E.INVALID_TOPIC_EXCEPTION, -1)
    assert delete(scene, 0, "none") == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(scene, 0, index=9) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


# --- OffsetForLeaderEpoch


def epoch_end(scene: Scene, epoch: int, *, known_epoch: int = -1, topic: str = "t") -> tuple[ErrorCode, int, int]:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=known_epoch, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])])
    context = scene.context(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4)
    (answer,) = offset_for_leader_epoch(request, context, scene.broker).topics[0].partitions
    return E(answer.error_code), answer.leader_epoch, answer.end_offset


def test_an_epoch_ends_where_the_next_begins_and_the_last_at_the_log_end(scene: Scene) -> None:
    scene.partition("t").log.assign_leader_epoch(2)
    scene.write(1)
    assert epoch_end(scene, 0) == (E.NONE, 0, 6)
    assert epoch_end(scene, 1) == (E.NONE, 0, 6)
    assert epoch_end(scene, 2) == (E.NONE, 2, 7)


@pytest.mark.parametrize("epoch", [-1, 1, 99])
def test_an_unknown_epoch_has_no_end(scene: Scene, epoch: int) -> None:
    assert epoch_end(scene, epoch) == (E.NONE, -1, -1)


def test_an_epoch_before_all_known_ones_ends_where_the_first_begins(scene: Scene) -> None:
    """Checks that epoch -2 ends at offset 0, because every negative epoch except -1 is treated as an epoch before the
    first one. Epoch -1 means that there is no epoch."""
    assert epoch_end(scene, -2) == (E.NONE, -2, 0)


def test_the_known_epoch_and_the_partition_are_checked(scene: Scene) -> None:
    assert epoch_end(scene, 0, known_epoch=1) == (E.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert epoch_end(scene, 0, known_epoch=-2) == (E.FENCED_LEADER_EPOCH, -1, -1)
    assert epoch_end(scene, 0, topic="none") == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


# --- DescribeProducers


def producers(scene: Scene, topic: str = "t", index: int = 0) -> describe_producers_response.PartitionResponse:
    request = describe_producers_request.DescribeProducersRequest(
        topics=[describe_producers_request.TopicRequest(name=topic, partition_indexes=[index])]
    )
    response = describe_producers(request, scene.context(ApiKey.DESCRIBE_PRODUCERS, 0), scene.broker)
    assert isinstance(response, describe_producers_response.DescribeProducersResponse)
    return response.topics[0].partitions[0]


def test_idempotent_and_transactional_producers_are_described_with_their_state(scene: Scene) -> None:
    scene.write(2, producer_id=7, producer_epoch=3, base_sequence=0)
    scene.write(1, producer_id=8, producer_epoch=0, base_sequence=4, is_transactional=True)
    described = {
        entry.producer_id: (
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_start_offset,
        )
        for entry in producers(scene).active_producers
    }
    assert described == {7: (3, 1, NOW_MS, -1, -1), 8: (0, 4, NOW_MS, -1, 8)}


@pytest.mark.parametrize(
    ("topic", "code"), [("none", E.UNKNOWN_TOPIC_OR_PARTITION), ("bad name!", E.INVALID_TOPIC_EXCEPTION)]
)
def test_describing_producers_of_a_missing_topic_returns_an_error_with_a_message(
    scene: Scene, topic: str, code: ErrorCode
) -> None:
    answer = producers(scene, topic)
    assert answer.error_code == code.value
    assert answer.error_message


def test_describing_producers_of_a_missing_partition_returns_an_error_without_a_message(scene: Scene) -> None:
    answer = producers(scene, index=9)
    assert (answer.error_code, answer.error_message) == (E.UNKNOWN_TOPIC_OR_PARTITION.value, None)


# --- DescribeLogDirs


@pytest.mark.parametrize("version", range(1, 6))
def test_partitions_are_returned_with_their_size_and_unknown_ones_are_skipped(scene: Scene, version: int) -> None:
    topics = [
        DescribableLogDirTopic(topic="t", partitions=[0, 7]),
        DescribableLogDirTopic(topic="none", partitions=[0]),
    ]
    context = scene.context(ApiKey.DESCRIBE_LOG_DIRS, version)
    response = describe_log_dirs(DescribeLogDirsRequest(topics=topics), context, scene.broker)
    (directory,) = decode(DescribeLogDirsResponse, version, encode(response, version)).results
    sizes = [(topic.name, p.partition_index, p.partition_size) for topic in directory.topics for p in topic.partitions]
    assert sizes == [("t", 0, scene.partition("t").log.size_bytes)]
    assert directory.log_dir == "/data"
    if version >= 4:
        assert directory.total_bytes >= directory.usable_bytes > 0


def test_null_asks_for_every_partition_and_an_empty_list_for_none(scene: Scene) -> None:
    context = scene.context(ApiKey.DESCRIBE_LOG_DIRS, 5)
    every, none = (
        describe_log_dirs(DescribeLogDirsRequest(topics=topics), context, scene.broker).results[0]
        for topics in (None, list[DescribableLogDirTopic]())
    )
    assert [(topic.name, len(topic.partitions)) for topic in every.topics] == [("t", 2)]
    assert none.topics == []


# --- InitProducerId


def init(scene: Scene, **fields: Any) -> InitProducerIdResponse:
    given = iter(range(1000, 2000))
    scene.broker.producer_ids = SimpleNamespace(allocate=lambda then: then(next(given)))
    request = InitProducerIdRequest(transaction_timeout_ms=1000, **fields)
    return start_deferred(init_producer_id(request, scene.context(ApiKey.INIT_PRODUCER_ID, 4), scene.broker)).outcome()


def test_an_idempotent_producer_gets_an_id_and_epoch_0_whatever_it_had_before(scene: Scene) -> None:
    for before in ({}, {"producer_id": 5, "producer_epoch": 1}):
        answer = init(scene, transactional_id=None, **before)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1000, 0)


@pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 1}])
def test_an_id_without_an_epoch_is_refused_and_the_other_way_round(scene: Scene, fields: dict[str, Any]) -> None:
    with pytest.raises(KafkaError) as refusal:
        init(scene, transactional_id=None, **fields)
    assert refusal.value.code is E.INVALID_REQUEST


def test_a_failure_of_the_metadata_log_fails_init_producer_id(scene: Scene) -> None:
    failure = KafkaError(E.KAFKA_STORAGE_ERROR)
    scene.broker.producer_ids = SimpleNamespace(allocate=lambda then: then(failure))
    request = InitProducerIdRequest(transactional_id=None)
    reply = start_deferred(init_producer_id(request, scene.context(ApiKey.INIT_PRODUCER_ID, 4), scene.broker))
    with pytest.raises(KafkaError):
        reply.outcome()
