"""Tests that Fetch requests are answered immediately, wait, or are refused in the same cases as in Kafka 4.3.1."""

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import pytest

from odradek.broker.handlers.records.fetch import fetch
from odradek.broker.metadata.image import TopicImage
from odradek.broker.runtime.slices import ENTRIES_PER_SLICE, MAX_LONG_REQUESTS
from odradek.broker.runtime.waiting import Deferred
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from odradek.protocol.messages.fetch_response import AbortedTransaction, FetchResponse, PartitionData
from odradek.protocol.records import NewRecord, batches, build_batch
from odradek.storage.log import Origin
from tests.support.broker_scene import NOW_MS, BrokerScene, answer_of
from tests.support.fake_disk import FakeDisk

E = ErrorCode
NO_TOPICS: Mapping[str, TopicImage] = MappingProxyType({})


class Scene(BrokerScene):
    def __init__(
        self, disk: FakeDisk | None = None, *, topics: Mapping[str, TopicImage] = NO_TOPICS, **settings: Any
    ) -> None:
        self.disk = disk or FakeDisk()
        super().__init__(self.disk, "/data", **settings)
        self.image.topics.update(topics)
        self.partitions.open_all()
        if not topics:
            self.topic("t", 3)

    def write(self, count: int = 1, *, index: int = 0, size: int = 5, topic: str = "t", **kind: Any) -> int:
        """Appends a batch, which is written at the end of the tick. Returns its size in bytes."""
        batch = build_batch([NewRecord(b"k", bytes(size), NOW_MS) for _ in range(count)], **kind)
        origin = Origin.COORDINATOR if kind.get("is_transactional") else Origin.CLIENT
        partition = self.partition(topic, index)
        partition.append(batch, origin=origin, now_ms=NOW_MS, on_done=lambda error: None)
        self.tick.run()
        return len(batch)

    def write_marker(self, producer_id: int, *, committed: bool) -> None:
        batch = marker_batch(
            producer_id=producer_id, producer_epoch=0, is_commit=committed, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        self.partition("t").append(batch, origin=Origin.COORDINATOR, now_ms=NOW_MS, on_done=lambda error: None)
        self.tick.run()

    def fetch(
        self,
        *partitions: FetchPartition,
        topic: str = "t",
        topic_id: bytes | None = None,
        version: int = 12,
        min_bytes: int = 1,
        max_bytes: int = 1 << 30,
        max_wait_ms: int = 500,
        read_committed: bool = False,
        session: tuple[int, int] = (0, -1),
        forgotten: tuple[int, ...] = (),
        replica_id: int = -1,
    ) -> Any:
        topics = []
        if partitions:
            named = FetchTopic(partitions=list(partitions))
            if version < 13:
                named.topic = topic
            else:
                named.topic_id = topic_id or self.image.topics[topic].topic_id
            topics = [named]
        request = FetchRequest(
            replica_id=replica_id if version < 15 else -1,
            replica_state=ReplicaState(replica_id=replica_id) if version >= 15 else None,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            topics=topics,
            session_id=session[0],
            session_epoch=session[1],
            forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=list(forgotten))] if forgotten else [],
        )
        return fetch(request, self.context(ApiKey.FETCH, version), self.broker)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def want(index: int = 0, offset: int = 0, *, max_bytes: int = 1 << 20, **more: Any) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **more)


def on_the_wire(reply: Any, version: int = 12) -> FetchResponse:
    return decode(FetchResponse, version, encode(answer_of(reply), version))


def only(reply: Any, version: int = 12) -> PartitionData:
    (topic,) = on_the_wire(reply, version).responses
    (partition,) = topic.partitions
    return partition


def data(partition: PartitionData) -> bytes:
    assert isinstance(partition.records, bytes | bytearray | memoryview)
    return bytes(partition.records)


def offsets(partition: PartitionData) -> list[int]:
    """Returns the base offset of every complete batch."""
    return [header.base_offset for _, header in batches(data(partition))]


@pytest.mark.parametrize("version", range(4, 19))
def test_records_that_are_there_are_answered_at_once(scene: Scene, version: int) -> None:
    scene.write(2)
    scene.write(1)
    answer = only(scene.fetch(want(), version=version), version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
    assert offsets(answer) == [0, 2]


def test_reading_begins_with_the_batch_that_holds_the_offset(scene: Scene) -> None:
    scene.write(3)
    scene.write(3)
    assert offsets(only(scene.fetch(want(offset=4)))) == [3]


def test_read_uncommitted_has_null_for_aborted_transactions_and_read_committed_a_list(scene: Scene) -> None:
    scene.write()
    assert only(scene.fetch(want())).aborted_transactions is None
    assert only(scene.fetch(want(), read_committed=True)).aborted_transactions == []


def test_a_partition_without_news_sends_empty_records_not_null(scene: Scene) -> None:
    answer = only(scene.fetch(want(), max_wait_ms=0))
    assert answer.records is not None
    assert data(answer) == b""


# --- The amount of data in a response.


def test_an_isolation_level_that_does_not_exist_is_an_error_of_the_whole_request(scene: Scene) -> None:
    request = FetchRequest(isolation_level=2, topics=[FetchTopic(topic="t", partitions=[want()])])
    with pytest.raises(KafkaError) as refusal:
        fetch(request, scene.context(ApiKey.FETCH, 12), scene.broker)
    assert refusal.value.code is E.UNKNOWN_SERVER_ERROR


def test_the_first_batch_comes_whole_however_small_the_limits(scene: Scene) -> None:
    size = scene.write(size=1000)
    assert len(data(only(scene.fetch(want(max_bytes=1))))) == size
    assert len(data(only(scene.fetch(want(), max_bytes=1)))) == size


def test_partition_max_bytes_cuts_the_last_batch_off_as_kafka_does(scene: Scene) -> None:
    size = scene.write()
    scene.write()
    assert len(data(only(scene.fetch(want(max_bytes=size + 10))))) == size + 10


def test_max_bytes_counts_over_all_partitions(scene: Scene) -> None:
    size = scene.write(index=0)
    scene.write(index=1)
    reply = scene.fetch(want(0), want(1), want(2), max_bytes=size)
    sizes = [len(data(partition)) for partition in on_the_wire(reply).responses[0].partitions]
    assert sizes == [size, 0, 0]


def test_only_the_first_partition_with_records_may_exceed_the_limit(scene: Scene) -> None:
    large = scene.write(index=1, size=1000)
    scene.write(index=2, size=1000)
    reply = scene.fetch(want(0), want(1, max_bytes=10), want(2, max_bytes=10))
    sizes = [len(data(partition)) for partition in on_the_wire(reply).responses[0].partitions]
    assert sizes == [0, large, 0]


def test_the_broker_has_a_limit_of_its_own() -> None:
    scene = Scene(fetch_max_bytes=100)
    size = scene.write(size=60)
    scene.write(size=60)
    assert len(data(only(scene.fetch(want())))) == size


# --- Fetches that wait for data.


def test_a_fetch_waits_until_its_time_is_over(scene: Scene) -> None:
    reply = scene.fetch(want(), max_wait_ms=500)
    scene.timers.advance(499)
    assert not reply.is_done
    scene.timers.advance(1)
    assert data(only(reply)) == b""


def test_an_append_wakes_a_waiting_fetch(scene: Scene) -> None:
    reply = scene.fetch(want())
    scene.write(index=1)
    assert not reply.is_done
    scene.write(index=0)
    assert offsets(only(reply)) == [0]
    assert scene.timers.armed() == []


def test_a_fetch_waits_for_min_bytes_over_all_partitions(scene: Scene) -> None:
    size = scene.write(index=0)
    reply = scene.fetch(want(0), want(1), min_bytes=2 * size)
    assert not reply.is_done
    scene.write(index=1)
    assert [offsets(partition) for partition in on_the_wire(reply).responses[0].partitions] == [[0], [0]]


def test_appends_of_one_tick_to_several_partitions_are_answered_together(scene: Scene) -> None:
    reply = scene.fetch(want(0), want(1))
    for index in (0, 1):
        batch = build_batch([NewRecord(b"k", b"v", NOW_MS)])
        scene.partition("t", index).append(batch, origin=Origin.CLIENT, now_ms=NOW_MS, on_done=lambda error: None)
    scene.tick.run()
    assert [offsets(partition) for partition in on_the_wire(reply).responses[0].partitions] == [[0], [0]]


def test_min_bytes_0_does_not_wait(scene: Scene) -> None:
    assert data(only(scene.fetch(want(), min_bytes=0))) == b""


def test_a_fetch_of_nothing_does_not_wait(scene: Scene) -> None:
    assert answer_of(scene.fetch()).responses == []


def test_a_fetch_of_only_unknown_partitions_does_not_wait(scene: Scene) -> None:
    alone = only(scene.fetch(want(99)))
    assert alone.error_code == E.UNKNOWN_TOPIC_OR_PARTITION.value
    assert alone.aborted_transactions == []
    assert not scene.fetch(want(99), want(0)).is_done


def test_an_error_of_a_partition_ends_the_waiting(scene: Scene) -> None:
    reply = scene.fetch(want(0), want(1, offset=5))
    codes = [partition.error_code for partition in on_the_wire(reply).responses[0].partitions]
    assert codes == [0, E.OFFSET_OUT_OF_RANGE.value]


def test_a_deleted_topic_ends_the_waiting(scene: Scene) -> None:
    reply = scene.fetch(want())
    scene.delete_topic("t")
    assert only(reply).error_code == E.UNKNOWN_TOPIC_OR_PARTITION.value


def test_a_client_that_leaves_leaves_nothing_behind(scene: Scene) -> None:
    reply = scene.fetch(want())
    assert isinstance(reply, Deferred)
    reply.abandon()
    assert scene.timers.armed() == []
    scene.write()
    assert not reply.is_done


# --- Refusals.


def test_an_offset_beyond_the_end_or_before_the_start_is_out_of_range(scene: Scene) -> None:
    scene.write(5)
    scene.partition("t").log.delete_records_before(2)
    for offset, code in ((1, E.OFFSET_OUT_OF_RANGE), (2, E.NONE), (5, E.NONE), (6, E.OFFSET_OUT_OF_RANGE)):
        answer = only(scene.fetch(want(offset=offset), max_wait_ms=0))
        assert answer.error_code == code.value
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)
    assert answer.aborted_transactions is None


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, E.NONE), (3, E.NONE), (2, E.FENCED_LEADER_EPOCH), (4, E.UNKNOWN_LEADER_EPOCH)]
)
def test_the_leader_epoch_that_the_client_knows_must_be_ours(scene: Scene, epoch: int, code: ErrorCode) -> None:
    scene.partition("t").log.assign_leader_epoch(3)
    answer = only(scene.fetch(want(current_leader_epoch=epoch), max_wait_ms=0))
    assert answer.error_code == code.value


@pytest.mark.parametrize(("version", "is_told"), [(15, False), (16, True)])
def test_the_response_to_a_fenced_epoch_names_the_current_leader(scene: Scene, version: int, is_told: bool) -> None:
    scene.partition("t").log.assign_leader_epoch(3)
    reply = scene.fetch(want(current_leader_epoch=2), version=version)
    response = on_the_wire(reply, version)
    leader = response.responses[0].partitions[0].current_leader
    assert (leader is not None and leader.leader_id == 1) == is_told
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == (
        [(1, "localhost", 9092)] if is_told else []
    )


@pytest.mark.parametrize(
    ("last_fetched", "offset", "parted_at"),
    [(2, 6, None), (1, 3, None), (1, 4, (1, 3)), (0, 1, (0, 0))],
)
def test_a_reader_with_a_diverging_log_gets_the_diverging_epoch(
    scene: Scene, last_fetched: int, offset: int, parted_at: tuple[int, int] | None
) -> None:
    """Checks that the response contains the diverging epoch, if any. In the log, epoch 0 has no records, epoch 1 covers
    offsets 0 to 2, and epoch 2 starts at offset 3."""
    log = scene.partition("t").log
    log.assign_leader_epoch(1)
    scene.write(3)
    log.assign_leader_epoch(2)
    scene.write(3)
    answer = only(scene.fetch(want(offset=offset, last_fetched_epoch=last_fetched), max_wait_ms=0))
    diverging = answer.diverging_epoch
    assert answer.error_code == 0
    assert (None if diverging is None else (diverging.epoch, diverging.end_offset)) == parted_at
    if parted_at is not None:
        assert data(answer) == b""


def test_a_diverging_log_has_null_for_aborted_transactions_even_in_read_committed(scene: Scene) -> None:
    answer = only(scene.fetch(want(offset=1, last_fetched_epoch=0), read_committed=True, max_wait_ms=0))
    assert answer.diverging_epoch is not None
    assert answer.aborted_transactions is None


def test_an_epoch_later_than_ours_is_out_of_range(scene: Scene) -> None:
    scene.write()
    answer = only(scene.fetch(want(last_fetched_epoch=5)))
    assert answer.error_code == E.OFFSET_OUT_OF_RANGE.value


def test_an_unknown_topic_id_is_refused(scene: Scene) -> None:
    gone = scene.topic("gone")
    scene.delete_topic("gone")
    answer = only(scene.fetch(want(), topic_id=gone.topic_id, version=13), 13)
    assert answer.error_code == E.UNKNOWN_TOPIC_ID.value


def in_session(scene: Scene, topic_id: bytes) -> FetchResponse:
    """Opens a session with a full fetch at version 13 and returns the response."""
    begun = on_the_wire(scene.fetch(want(), topic_id=topic_id, version=13, max_wait_ms=0, session=(0, 0)), 13)
    assert begun.session_id > 0
    return begun


def next_of(scene: Scene, begun: FetchResponse, epoch: int = 1) -> ErrorCode:
    reply = scene.fetch(version=13, max_wait_ms=0, session=(begun.session_id, epoch))
    return ErrorCode(only(reply, 13).error_code)


@pytest.mark.known_bug(82, "Odradek 198d3dd")
def test_a_session_gets_inconsistent_topic_id_after_its_topic_was_recreated(scene: Scene) -> None:
    """Checks that the session receives an error. Otherwise, the client would wait for a topic id that will never exist
    again."""
    old = scene.topic("again").topic_id
    begun = in_session(scene, old)
    scene.delete_topic("again")
    assert next_of(scene, begun) is E.UNKNOWN_TOPIC_OR_PARTITION
    new = scene.topic("again").topic_id
    assert new != old
    assert next_of(scene, begun, 2) is E.INCONSISTENT_TOPIC_ID
    assert next_of(scene, begun, 3) is E.INCONSISTENT_TOPIC_ID
    answer = only(scene.fetch(want(), topic_id=old, version=13, max_wait_ms=0), 13)
    assert answer.error_code == E.UNKNOWN_TOPIC_ID.value  # A full fetch ignores the session's topic ids.


def test_a_session_that_names_its_partition_again_gets_inconsistent_topic_id_too(scene: Scene) -> None:
    old = scene.topic("again").topic_id
    begun = in_session(scene, old)
    scene.delete_topic("again")
    scene.topic("again")
    reply = scene.fetch(want(offset=7), topic_id=old, version=13, max_wait_ms=0, session=(begun.session_id, 1))
    assert only(reply, 13).error_code == E.INCONSISTENT_TOPIC_ID.value


def test_a_session_gets_unknown_partition_if_the_topic_no_longer_has_it(scene: Scene) -> None:
    old = scene.topic("again", 2).topic_id
    begun = on_the_wire(scene.fetch(want(1), topic_id=old, version=13, max_wait_ms=0, session=(0, 0)), 13)
    scene.delete_topic("again")
    scene.topic("again", 1)
    assert next_of(scene, begun) is E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_session_of_an_unknown_topic_gets_unknown_topic_id(scene: Scene) -> None:
    begun = on_the_wire(scene.fetch(want(), topic_id=bytes(range(16)), version=13, max_wait_ms=0, session=(0, 0)), 13)
    assert begun.session_id > 0
    assert next_of(scene, begun) is E.UNKNOWN_TOPIC_ID


def test_a_waiting_fetch_gets_an_error_when_its_topic_is_deleted(scene: Scene) -> None:
    gone = scene.topic("gone")
    reply = scene.fetch(want(), topic_id=gone.topic_id, version=13)
    scene.delete_topic("gone")
    assert only(reply, 13).error_code == E.UNKNOWN_TOPIC_OR_PARTITION.value


# --- Transactions.


def test_read_committed_stops_at_the_last_stable_offset(scene: Scene) -> None:
    scene.write()
    scene.write(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    scene.write()
    committed, uncommitted = only(scene.fetch(want(), read_committed=True)), only(scene.fetch(want()))
    assert (offsets(committed), committed.last_stable_offset, committed.high_watermark) == ([0], 1, 3)
    assert offsets(uncommitted) == [0, 1, 2]


def test_read_committed_waits_for_the_marker_however_much_is_appended(scene: Scene) -> None:
    scene.write(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    reply = scene.fetch(want(), read_committed=True)
    scene.write()
    assert not reply.is_done
    scene.write_marker(7, committed=True)
    assert offsets(only(reply)) == [0, 1, 2]


def test_aborted_transactions_are_listed_with_their_first_offset(scene: Scene) -> None:
    scene.write()
    scene.write(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    scene.write_marker(7, committed=False)
    answer = only(scene.fetch(want(), read_committed=True))
    assert answer.aborted_transactions == [AbortedTransaction(producer_id=7, first_offset=1)]


# --- Sessions.


def test_a_session_names_only_what_is_new(scene: Scene) -> None:
    scene.write()
    full = on_the_wire(scene.fetch(want(0), want(1), session=(0, 0)))
    assert (full.session_id, len(full.responses[0].partitions)) == (1, 2)
    moved = scene.fetch(want(0, offset=1), session=(1, 1), max_wait_ms=0)
    assert on_the_wire(moved).responses == []
    scene.write(index=1)
    news = on_the_wire(scene.fetch(session=(1, 2)))
    assert [partition.partition_index for partition in news.responses[0].partitions] == [1]


def test_a_session_forgets_partitions(scene: Scene) -> None:
    on_the_wire(scene.fetch(want(0), want(1), session=(0, 0), max_wait_ms=0))
    scene.write(index=1)
    assert not scene.fetch(session=(1, 1), forgotten=(1,)).is_done


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_an_unknown_session_is_an_error_without_partitions(scene: Scene, version: int) -> None:
    response = on_the_wire(scene.fetch(want(), session=(123, 5), version=version), version)
    assert response.error_code == E.FETCH_SESSION_ID_NOT_FOUND.value
    assert (response.session_id, response.responses) == (0, [])


# --- Reads from the disk.


def test_records_that_are_not_in_memory_are_read_in_a_thread() -> None:
    scene = Scene()
    size = scene.write(size=2000)
    scene.settle()
    disk = scene.disk.after_kill()
    restarted = Scene(disk, topics=scene.image.topics)
    disk.evict()
    reply = restarted.fetch(want())
    assert not reply.is_done
    assert len(restarted.workers.jobs) == 1
    restarted.settle()
    assert len(data(only(reply))) == size


def test_a_fetch_with_an_unknown_replica_id_is_refused(scene: Scene) -> None:
    """Checks that a follower is refused, because each partition has only one replica. A Kafka cluster with one broker
    gives the same answer for every replica id."""
    scene.write()
    for version in (12, 18):
        answer = only(scene.fetch(want(), version=version, replica_id=2), version)
        assert answer.error_code == E.NOT_LEADER_OR_FOLLOWER.value


def test_a_follower_gets_unknown_topic_id_for_an_unknown_topic(scene: Scene) -> None:
    scene.write()
    unknown = bytes(range(16))
    answer = only(scene.fetch(want(), topic_id=unknown, version=18, replica_id=2), 18)
    assert answer.error_code == E.UNKNOWN_TOPIC_ID.value


@pytest.mark.parametrize("limits", [(-1, 1 << 20), (1 << 20, -1)])
def test_a_negative_limit_is_an_error(scene: Scene, limits: tuple[int, int]) -> None:
    scene.write()
    partition_max_bytes, max_bytes = limits
    answer = only(scene.fetch(want(max_bytes=partition_max_bytes), max_bytes=max_bytes))
    assert answer.error_code == E.UNKNOWN_SERVER_ERROR.value


def test_a_negative_limit_is_no_error_where_there_is_nothing_to_read(scene: Scene) -> None:
    scene.write()
    codes = [only(scene.fetch(want(offset=at, max_bytes=-1), max_wait_ms=0)).error_code for at in (1, 2)]
    assert codes == [0, E.OFFSET_OUT_OF_RANGE.value]


async def test_a_fetch_of_very_many_partitions_lets_others_have_their_turn_in_between(scene: Scene) -> None:
    reply = scene.fetch(*(want(index) for index in range(2 * ENTRIES_PER_SLICE + 1)), min_bytes=0)
    assert isinstance(reply, Deferred)
    turns = 0
    while not reply.is_done:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 2
    (topic,) = on_the_wire(reply).responses
    assert [partition.partition_index for partition in topic.partitions] == list(range(2 * ENTRIES_PER_SLICE + 1))


async def test_many_long_fetches_at_a_time_have_one_slice_in_each_turn(scene: Scene) -> None:
    partitions = [want(index) for index in range(2 * ENTRIES_PER_SLICE)]
    replies = [scene.fetch(*partitions, min_bytes=0) for _ in range(MAX_LONG_REQUESTS)]
    done = []
    for _ in range(2 * MAX_LONG_REQUESTS):
        await asyncio.sleep(0)
        done.append(sum(isinstance(reply, Deferred) and reply.is_done for reply in replies))
    assert done[-1] == MAX_LONG_REQUESTS
    assert all(after - before <= 1 for before, after in pairwise(done))


async def test_a_client_that_leaves_between_two_turns_leaves_nothing_behind(scene: Scene) -> None:
    reply = scene.fetch(want(0), *(want(99 + index) for index in range(ENTRIES_PER_SLICE)), max_wait_ms=2**31 - 1)
    assert isinstance(reply, Deferred)
    reply.abandon()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert scene.timers.armed() == []
