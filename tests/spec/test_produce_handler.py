"""Tests that Produce responds to all kinds of records as Kafka 4.3.1 does. The expected responses were observed on
Kafka."""

from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.handlers.records.produce import produce
from odradek.broker.produce.request import ADMIN_CLIENT_ID
from odradek.broker.runtime.replies import NO_RESPONSE, CloseConnection
from odradek.broker.runtime.workers import DecompressionWorkers
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.protocol.records import Compression, NewRecord, build_batch
from odradek.storage.log import Origin
from odradek.storage.validation import CHEAP_COMPRESSED_BYTES, CHEAP_OPENED_BYTES, CHEAP_RECORDS
from tests.support.broker_scene import NOW_MS, BrokerScene, answer_of
from tests.support.fake_disk import FakeDisk, Fault

E = ErrorCode


def records(count: int = 1, *, key: bytes | None = b"k", timestamp: int = NOW_MS, **kind: Any) -> bytearray:
    return build_batch([NewRecord(key, b"value", timestamp + index) for index in range(count)], **kind)


def idempotent(sequence: int, count: int = 1, epoch: int = 0) -> bytearray:
    return records(count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


class Scene(BrokerScene):
    def __init__(self) -> None:
        self.disk = FakeDisk()
        super().__init__(self.disk, "/data")
        self.topic("t", 2)

    def send(
        self,
        *batches: bytes | bytearray | None,
        topic: str = "t",
        topic_id: bytes | None = None,
        version: int = 9,
        acks: int = -1,
        transactional_id: str | None = None,
        client_id: str = "a-client",
    ) -> Any:
        """Sends a Produce request at `version`. The batches go to partitions 0, 1 and so on. None means that the
        request contains no records."""
        data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
        if version >= 13:
            named = TopicProduceData(topic_id=topic_id or self.image.topics[topic].topic_id, partition_data=data)
        else:
            named = TopicProduceData(name=topic, partition_data=data)
        request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[named])
        sent = decode(ProduceRequest, version, bytearray(encode(request, version)))
        return produce(sent, self.context(ApiKey.PRODUCE, version, client_id), self.broker)

    def answer(self, *batches: bytes | bytearray | None, **how: Any) -> PartitionProduceResponse:
        """Sends a Produce request. Returns the decoded response for the last partition."""
        reply = self.send(*batches, **how)
        self.settle()
        version = how.get("version", 9)
        response = decode(ProduceResponse, version, encode(answer_of(reply), version))
        return response.responses[0].partition_responses[-1]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def fields_of(answer: PartitionProduceResponse) -> tuple[ErrorCode, int, int, int]:
    return ErrorCode(answer.error_code), answer.base_offset, answer.log_append_time_ms, answer.log_start_offset


@pytest.mark.parametrize("version", range(3, 14))
def test_records_get_the_next_offsets(scene: Scene, version: int) -> None:
    scene.answer(records(3), version=version)
    answer = scene.answer(records(2), version=version)
    assert (answer.error_code, answer.base_offset) == (0, 3)
    assert scene.partition("t").log.high_watermark == 5


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acks_decide_whether_there_is_an_answer_but_not_whether_it_is_written(scene: Scene, acks: int) -> None:
    reply = scene.send(records(), acks=acks)
    assert not reply.is_done
    scene.settle()
    answer = reply.outcome()
    assert (answer is NO_RESPONSE) == (acks == 0)
    assert scene.partition("t").log.high_watermark == 1


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused_for_each_partition(scene: Scene, acks: int) -> None:
    assert fields_of(scene.answer(records(), acks=acks)) == (E.INVALID_REQUIRED_ACKS, -1, -1, -1)
    assert scene.partition("t").log.high_watermark == 0


def control_records() -> bytearray:
    return records(is_control=True, producer_id=7, producer_epoch=0, base_sequence=0)


def damaged_records() -> bytearray:
    batch = records()
    batch[-2] ^= 1
    return batch


@pytest.mark.parametrize("batch", [damaged_records(), control_records()], ids=["corrupt", "control"])
@pytest.mark.parametrize(
    ("acks", "topic", "code"),
    [
        (5, "t", E.INVALID_REQUIRED_ACKS),
        (5, "__consumer_offsets", E.INVALID_REQUIRED_ACKS),
        (-1, "__consumer_offsets", E.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_acks_are_judged_before_the_topic_and_the_topic_before_the_records(
    scene: Scene, batch: bytearray, acks: int, topic: str, code: ErrorCode
) -> None:
    scene.topic("__consumer_offsets", cleanup_policy=frozenset({"compact"}))
    assert fields_of(scene.answer(batch, acks=acks, topic=topic)) == (code, -1, -1, -1)


@pytest.mark.parametrize("topic", ["t", "__consumer_offsets"])
def test_anything_but_one_batch_is_refused_before_acks_and_topic_are_judged(scene: Scene, topic: str) -> None:
    scene.topic("__consumer_offsets", cleanup_policy=frozenset({"compact"}))
    assert fields_of(scene.answer(records() + records(), acks=5, topic=topic))[0] is E.INVALID_RECORD
    assert fields_of(scene.answer(records(compression=Compression.ZSTD), acks=5, topic=topic, version=6))[0] is (
        E.UNSUPPORTED_COMPRESSION_TYPE
    )


def test_min_insync_replicas_beyond_the_replica_count_does_not_keep_records_out(scene: Scene) -> None:
    """Checks that records are accepted. Kafka uses min.insync.replicas or the number of replicas, whichever is smaller.
    This was observed in Kafka 4.3.1 with min.insync.replicas=2 and one replica."""
    scene.topic("isr", min_insync_replicas=2)
    assert fields_of(scene.answer(records(), topic="isr"))[0] is E.NONE


def test_each_partition_of_a_request_has_an_answer_of_its_own(scene: Scene) -> None:
    reply = scene.send(records(1), idempotent(9), records(1))
    scene.settle()
    answers = answer_of(reply).responses[0].partition_responses
    assert [fields_of(answer)[0] for answer in answers] == [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_only_topics_with_log_append_time_return_a_timestamp(scene: Scene) -> None:
    scene.topic("lat", message_timestamp_type="LogAppendTime")
    assert fields_of(scene.answer(records(), topic="lat")) == (E.NONE, 0, NOW_MS, 0)
    assert fields_of(scene.answer(records())) == (E.NONE, 0, -1, 0)


def test_a_duplicate_is_answered_with_its_first_offset_and_timestamp(scene: Scene) -> None:
    """Checks that the response to a duplicate has a timestamp even on CreateTime topics, where the first response has
    none."""
    assert fields_of(scene.answer(idempotent(0, 2))) == (E.NONE, 0, -1, 0)
    scene.answer(idempotent(2))
    assert fields_of(scene.answer(idempotent(0, 2))) == (E.NONE, 0, NOW_MS + 1, 0)
    assert scene.partition("t").log.high_watermark == 3


def test_a_gap_in_the_sequence_is_refused_with_the_log_start_offset(scene: Scene) -> None:
    scene.answer(idempotent(0))
    assert fields_of(scene.answer(idempotent(5))) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1, 0)


def test_an_older_producer_epoch_is_fenced(scene: Scene) -> None:
    scene.answer(idempotent(0, epoch=3))
    assert fields_of(scene.answer(idempotent(1, epoch=2)))[0] is E.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("version", "code"), [(9, E.UNKNOWN_TOPIC_OR_PARTITION), (13, E.UNKNOWN_TOPIC_ID)])
def test_an_unknown_topic_is_not_created(scene: Scene, version: int, code: ErrorCode) -> None:
    gone = scene.topic("gone")
    scene.delete_topic("gone")
    answer = scene.answer(records(), topic="gone", topic_id=gone.topic_id, version=version)
    assert fields_of(answer) == (code, -1, -1, -1)
    assert scene.created == []


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", E.INVALID_RECORD),
        (None, E.INVALID_RECORD),
        (b"123456", E.INVALID_RECORD),
        (records() + records(), E.INVALID_RECORD),
    ],
    ids=["empty", "null", "garbage", "two batches"],
)
def test_anything_but_one_batch_is_refused_before_the_log_is_asked(
    scene: Scene, batch: bytes | None, code: ErrorCode
) -> None:
    answer = scene.answer(batch)
    assert fields_of(answer) == (code, -1, -1, -1)
    assert (answer.record_errors, answer.error_message) == ([], None)


def test_a_damaged_batch_is_corrupt(scene: Scene) -> None:
    damaged = records()
    damaged[-2] ^= 1
    assert fields_of(scene.answer(damaged)) == (E.CORRUPT_MESSAGE, -1, -1, -1)


def test_a_batch_larger_than_max_message_bytes_is_refused(scene: Scene) -> None:
    scene.topic("small", max_message_bytes=100)
    assert fields_of(scene.answer(records(10), topic="small")) == (E.MESSAGE_TOO_LARGE, -1, -1, -1)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_records_without_key_are_named_one_by_one_in_a_compacted_topic(scene: Scene, version: int) -> None:
    scene.topic("compacted", cleanup_policy=frozenset({"compact"}))
    answer = scene.answer(records(2, key=None), topic="compacted", version=version)
    assert fields_of(answer) == (E.INVALID_RECORD, -1, -1, 0)
    if version >= 8:
        assert [error.batch_index for error in answer.record_errors] == [0, 1]
        assert answer.error_message is not None
    else:
        assert answer.record_errors == []


def test_zstd_needs_version_7(scene: Scene) -> None:
    batch = records(3, compression=Compression.ZSTD)
    assert fields_of(scene.answer(batch, version=6)) == (E.UNSUPPORTED_COMPRESSION_TYPE, -1, -1, -1)
    assert fields_of(scene.answer(batch, version=7))[0] is E.NONE


def test_internal_topics_take_records_of_the_admin_client_only(scene: Scene) -> None:
    scene.topic("__consumer_offsets", cleanup_policy=frozenset({"compact"}))
    refused = scene.answer(records(), topic="__consumer_offsets")
    assert fields_of(refused) == (E.INVALID_TOPIC_EXCEPTION, -1, -1, -1)
    assert fields_of(scene.answer(records(), topic="__consumer_offsets", client_id=ADMIN_CLIENT_ID))[0] is E.NONE


def test_a_failed_write_is_a_storage_error_and_the_next_request_gets_its_offset(scene: Scene) -> None:
    scene.disk.fail(1, Fault.ENOSPC)
    assert fields_of(scene.answer(records())) == (E.KAFKA_STORAGE_ERROR, -1, -1, -1)
    assert fields_of(scene.answer(records())) == (E.NONE, 0, -1, 0)


@pytest.mark.parametrize(
    "how",
    [
        {"batch": b"garbage"},
        {"batch": None},
        {"batch": idempotent(5), "before": idempotent(0)},
        {"fault": Fault.EIO},
        {"topic": "__consumer_offsets"},
    ],
    ids=["no batch", "null", "sequence", "disk", "internal topic"],
)
def test_an_error_with_acks_0_closes_the_connection(scene: Scene, how: dict[str, Any]) -> None:
    scene.topic("__consumer_offsets")
    topic = how.get("topic", "t")
    if "before" in how:
        scene.answer(how["before"])
    if "fault" in how:
        scene.disk.fail(1, how["fault"])
    reply = scene.send(how.get("batch", records()), topic=topic, acks=0)
    scene.settle()
    with pytest.raises(CloseConnection):
        answer_of(reply)


def test_a_large_batch_is_checked_in_a_thread_and_then_keeps_later_requests_waiting(scene: Scene) -> None:
    """Checks that later requests wait until a large batch has been validated, so that a connection's records keep their
    order."""
    large = scene.send(records(CHEAP_RECORDS + 1))
    assert len(scene.workers.jobs) == 1
    assert not large.overlaps
    small = scene.send(records())
    assert small.overlaps
    scene.settle()
    assert answer_of(large).responses[0].partition_responses[0].error_code == 0


def test_a_small_batch_that_opens_to_much_is_opened_in_a_thread(scene: Scene) -> None:
    batch = build_batch([NewRecord(b"k", bytes(CHEAP_OPENED_BYTES), NOW_MS)], compression=Compression.GZIP)
    assert len(batch) < CHEAP_COMPRESSED_BYTES
    reply = scene.send(batch)
    assert len(scene.workers.jobs) == 1
    scene.settle()
    assert answer_of(reply).responses[0].partition_responses[0].error_code == 0


def test_a_batch_that_would_wait_behind_too_much_to_be_opened_is_refused_and_may_be_sent_again(scene: Scene) -> None:
    batch = build_batch([NewRecord(b"k", bytes(CHEAP_OPENED_BYTES), NOW_MS)], compression=Compression.GZIP)
    scene.broker.decompression_workers = DecompressionWorkers(scene.workers, max_bytes=len(batch))
    first, second = scene.send(batch), scene.send(batch)
    assert answer_of(second).responses[0].partition_responses[0].error_code == E.REQUEST_TIMED_OUT.value
    first.abandon()  # The client disconnects, but its records are written anyway.
    scene.settle()
    assert scene.partition("t").log.high_watermark == 1
    assert fields_of(scene.answer(batch))[:2] == (E.NONE, 1)


def test_a_large_batch_that_is_refused_in_the_thread_is_answered(scene: Scene) -> None:
    damaged = records(CHEAP_RECORDS + 1)
    damaged[-2] ^= 1
    assert fields_of(scene.answer(damaged)) == (E.CORRUPT_MESSAGE, -1, -1, -1)


def test_a_topic_deleted_while_its_batch_is_in_the_thread_is_unknown(scene: Scene) -> None:
    reply = scene.send(records(CHEAP_RECORDS + 1))
    scene.delete_topic("t")
    scene.settle()
    assert answer_of(reply).responses[0].partition_responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION.value


def test_a_batch_is_checked_again_where_the_topic_was_configured_while_it_was_in_the_thread(scene: Scene) -> None:
    reply = scene.send(records(CHEAP_RECORDS + 1, key=None))
    partition = scene.partition("t")
    partition.configure(replace(partition.log.config, cleanup_policy=frozenset({"compact"})))
    scene.settle()
    assert answer_of(reply).responses[0].partition_responses[0].error_code == E.INVALID_RECORD.value
    assert partition.log.high_watermark == 0


def test_transactional_records_need_a_transactional_id(scene: Scene) -> None:
    batch = records(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    with pytest.raises(KafkaError) as refusal:
        scene.send(records(), batch)
    assert refusal.value.code is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert scene.partition("t").log.high_watermark == 0


def test_without_a_coordinator_transactional_records_are_refused_with_a_retriable_code(scene: Scene) -> None:
    batch = records(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    answer = scene.answer(batch, transactional_id="tx")
    assert fields_of(answer) == (E.NOT_ENOUGH_REPLICAS, -1, -1, -1)
    assert answer.error_message is not None
    assert "COORDINATOR_NOT_AVAILABLE" in answer.error_message


def test_a_transaction_that_is_open_in_the_log_continues_without_the_coordinator(scene: Scene) -> None:
    first = records(producer_id=7, producer_epoch=2, base_sequence=0, is_transactional=True)
    scene.partition("t").append_now(first, origin=Origin.COORDINATOR, now_ms=NOW_MS)
    batch = records(producer_id=7, producer_epoch=2, base_sequence=1, is_transactional=True)
    assert fields_of(scene.answer(batch, transactional_id="tx"))[:2] == (E.NONE, 1)
    older = records(producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True)
    assert fields_of(scene.answer(older, transactional_id="tx"))[0] is E.INVALID_PRODUCER_EPOCH
