"""Tests that ListOffsets finds the same offsets for timestamps, including special timestamps, as Kafka 4.3.1."""

from typing import Any

import pytest

from odradek.broker.handlers.records.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    list_offsets,
)
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.records import Compression, NewRecord, build_batch
from odradek.storage.log import Origin
from odradek.storage.log_config import LogConfig
from tests.support.broker_scene import NOW_MS, BrokerScene, answer_of
from tests.support.fake_disk import FakeDisk

E = ErrorCode
NOTHING = (E.NONE, -1, -1, -1)
NO_EPOCH = -1

ListedOffset = tuple[ErrorCode, int, int, int]  # error code, timestamp relative to NOW_MS (or -1), offset, leader epoch


class Scene(BrokerScene):
    """A broker whose topic `t` has three batches with the timestamps 0, 1, 2 | 100, 101 | 50, in ms after NOW_MS."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        super().__init__(self.disk, "/data")
        self.topic("empty")
        self.topic("t")
        for timestamps in ((0, 1, 2), (100, 101), (50,)):
            self.write(timestamps)

    def write(self, timestamps: tuple[int, ...], topic: str = "t", **kind: Any) -> None:
        batch = build_batch([NewRecord(b"k", b"v", NOW_MS + timestamp) for timestamp in timestamps], **kind)
        origin = Origin.COORDINATOR if kind.get("is_transactional") else Origin.CLIENT
        self.partition(topic).append(batch, origin=origin, now_ms=NOW_MS, on_done=lambda error: None)
        self.settle()

    def ask(
        self,
        timestamp: int,
        *,
        version: int = 11,
        topic: str = "t",
        index: int = 0,
        known_epoch: int = NO_EPOCH,
        read_committed: bool = False,
        times: int = 1,
    ) -> ListedOffset:
        partition = ListOffsetsPartition(partition_index=index, current_leader_epoch=known_epoch, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=[ListOffsetsTopic(name=topic, partitions=[partition] * times)],
        )
        reply = list_offsets(request, self.context(ApiKey.LIST_OFFSETS, version), self.broker)
        self.settle()
        response = decode(ListOffsetsResponse, version, encode(answer_of(reply), version))
        (answer,) = response.topics[0].partitions
        at = answer.timestamp - NOW_MS if answer.timestamp >= 0 else -1
        return ErrorCode(answer.error_code), at, answer.offset, answer.leader_epoch


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    ("since_now", "found"),
    [
        (-1000, (0, 0)),
        (0, (0, 0)),
        (1, (1, 1)),
        (3, (100, 3)),
        (50, (100, 3)),
        (101, (101, 4)),
        (102, None),
    ],
)
def test_a_timestamp_finds_the_first_record_in_offset_order_that_is_not_older(
    scene: Scene, since_now: int, found: tuple[int, int] | None
) -> None:
    answer = scene.ask(NOW_MS + since_now)
    assert answer == (NOTHING if found is None else (E.NONE, *found, 0))


def test_a_record_within_a_compressed_batch_is_found(scene: Scene) -> None:
    scene.topic("lz4")
    scene.write((10, 20, 30), "lz4", compression=Compression.LZ4)
    assert scene.ask(NOW_MS + 15, topic="lz4") == (E.NONE, 20, 1, 0)


def test_a_stored_record_that_is_too_large_now_ends_the_search_at_it(scene: Scene) -> None:
    """M4: an administrator lowers the limit after the record has been written (docs/spec/kafka-4.4.md#s4-3)."""
    scene.topic("gzip")
    scene.write((10,), "gzip", compression=Compression.GZIP)
    records = [NewRecord(b"k", b"v", NOW_MS + 20), NewRecord(b"k", bytes(2_000), NOW_MS + 30)]
    for batch in (build_batch(records, compression=Compression.GZIP), build_batch([records[0]])):
        scene.partition("gzip").append(batch, origin=Origin.CLIENT, now_ms=NOW_MS, on_done=lambda error: None)
    scene.settle()
    assert scene.ask(NOW_MS + 30, topic="gzip") == (E.NONE, 30, 2, 0)
    scene.partition("gzip").configure(LogConfig(max_decompressed_message_bytes=1_000))
    assert scene.ask(NOW_MS + 10, topic="gzip") == (E.NONE, 10, 0, 0)
    assert scene.ask(NOW_MS + 20, topic="gzip") == (E.NONE, 20, 1, 0)
    assert scene.ask(NOW_MS + 30, topic="gzip") == (E.INVALID_RECORD, -1, -1, -1)
    assert scene.ask(MAX_TIMESTAMP, topic="gzip") == (E.INVALID_RECORD, -1, -1, -1)
    assert scene.ask(NOW_MS + 31, topic="gzip") == NOTHING


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (LATEST, (E.NONE, -1, 6, 0)),
        (EARLIEST, (E.NONE, -1, 0, 0)),
        (EARLIEST_LOCAL, (E.NONE, -1, 0, 0)),
        (MAX_TIMESTAMP, (E.NONE, 101, 4, 0)),
        (LATEST_TIERED, NOTHING),
        (EARLIEST_PENDING_UPLOAD, NOTHING),
        (-7, (E.UNSUPPORTED_VERSION, -1, -1, -1)),
    ],
)
def test_special_timestamps_find_the_ends_and_the_largest_timestamp(
    scene: Scene, timestamp: int, answer: ListedOffset
) -> None:
    assert scene.ask(timestamp) == answer


def test_an_empty_partition_has_an_end_and_nothing_else(scene: Scene) -> None:
    assert scene.ask(LATEST, topic="empty") == (E.NONE, -1, 0, 0)
    assert scene.ask(EARLIEST, topic="empty") == (E.NONE, -1, 0, 0)
    assert scene.ask(MAX_TIMESTAMP, topic="empty") == NOTHING
    assert scene.ask(NOW_MS, topic="empty") == NOTHING


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11)],
)
def test_a_special_timestamp_is_unknown_to_versions_before_it(scene: Scene, timestamp: int, since: int) -> None:
    for version in range(1, 12):
        code = scene.ask(timestamp, version=version)[0]
        assert code is (E.NONE if version >= since else E.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_answers_timestamp_and_offset_and_from_4_on_the_epoch(scene: Scene, version: int) -> None:
    epoch = 0 if version >= 4 else NO_EPOCH
    assert scene.ask(NOW_MS + 1, version=version) == (E.NONE, 1, 1, epoch)
    assert scene.ask(LATEST, version=version) == (E.NONE, -1, 6, epoch)


def test_the_earliest_offset_moves_with_the_log_start_and_keeps_its_epoch(scene: Scene) -> None:
    scene.partition("t").log.assign_leader_epoch(3)
    scene.write((200,))
    scene.partition("t").log.delete_records_before(2)
    assert scene.ask(EARLIEST) == (E.NONE, -1, 2, 0)
    assert scene.ask(LATEST) == (E.NONE, -1, 7, 3)
    assert scene.ask(NOW_MS) == (E.NONE, 2, 2, 0)
    assert scene.ask(NOW_MS + 200) == (E.NONE, 200, 6, 3)


# Kafka once returned the offsets of records in open transactions when searching by timestamp.
@pytest.mark.known_bug(28, "KAFKA-5522")
def test_read_committed_finds_nothing_beyond_the_last_stable_offset(scene: Scene) -> None:
    scene.write((300,), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert scene.ask(NOW_MS + 300) == (E.NONE, 300, 6, 0)
    assert scene.ask(NOW_MS + 300, read_committed=True) == NOTHING
    assert scene.ask(MAX_TIMESTAMP, read_committed=True) == NOTHING
    assert scene.ask(LATEST) == (E.NONE, -1, 7, 0)
    assert scene.ask(LATEST, read_committed=True) == (E.NONE, -1, 6, 0)


@pytest.mark.parametrize(("epoch", "code"), [(0, E.NONE), (1, E.UNKNOWN_LEADER_EPOCH), (-2, E.FENCED_LEADER_EPOCH)])
def test_the_leader_epoch_that_the_client_knows_is_checked(scene: Scene, epoch: int, code: ErrorCode) -> None:
    assert scene.ask(LATEST, known_epoch=epoch)[0] is code


def test_unknown_partitions_are_refused(scene: Scene) -> None:
    assert scene.ask(LATEST, topic="none") == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    assert scene.ask(LATEST, index=9) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


def test_a_partition_that_is_named_twice_is_refused_once(scene: Scene) -> None:
    assert scene.ask(LATEST, times=2) == (E.INVALID_REQUEST, -1, -1, -1)


def test_a_topic_in_two_entries_is_answered_in_one(scene: Scene) -> None:
    entries = [
        ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST)])
        for index in (0, 9, 0)
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=entries)
    answer = answer_of(list_offsets(request, scene.context(ApiKey.LIST_OFFSETS, 11), scene.broker))
    (topic,) = answer.topics
    assert [(each.partition_index, E(each.error_code)) for each in topic.partitions] == [
        (0, E.INVALID_REQUEST),
        (9, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def searching(scene: Scene) -> Deferred[ListOffsetsResponse]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition]) for name in ("t", "empty")]
    )
    reply = list_offsets(request, scene.context(ApiKey.LIST_OFFSETS, 11), scene.broker)
    assert isinstance(reply, Deferred)
    return reply


def test_a_request_searches_one_partition_after_the_other(scene: Scene) -> None:
    reply = searching(scene)
    waiting = []
    while scene.workers.jobs:
        waiting.append(len(scene.workers.jobs))
        scene.workers.finish_one()
    assert waiting == [1, 1]
    assert [topic.partitions[0].offset for topic in reply.outcome().topics] == [0, -1]


def test_remaining_partitions_of_a_disconnected_client_are_not_searched(scene: Scene) -> None:
    searching(scene).abandon()
    scene.workers.finish_one()
    assert not scene.workers.jobs
