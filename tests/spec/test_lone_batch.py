"""A batch that comes alone takes a short way: it must end in the same log, with the same answer, as the general one."""

from typing import Any

import pytest

from broker.handlers.produce import produce
from broker.lone_batch import LoneBatch
from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.frames import response_chunks, response_writer
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from protocol.records import Compression, NewRecord, build_batch
from tests.support.broker_scene import NOW_MS, BrokerScene, answer_of
from tests.support.fake_disk import FakeDisk, Fault

VERSIONS = range(5, 14)
TOPICS = ("t", "a topic whose name is so long that its length takes two bytes on the wire" * 3)
CORRELATION_ID = 77_000_001


def records(**kind: Any) -> bytearray:
    return build_batch([NewRecord(b"k", b"value", NOW_MS), NewRecord(None, None, NOW_MS + 1)], **kind)


class Scene(BrokerScene):
    def __init__(self) -> None:
        self.disk = FakeDisk()
        super().__init__(self.disk, "/data")
        for name in TOPICS:
            self.topic(name, 3)

    def send(self, *batches: tuple[int, bytearray], topic: str = "t", version: int = 9, acks: int = -1) -> Any:
        """Partition and batch, of each."""
        data = [PartitionProduceData(index=index, records=batch) for index, batch in batches]
        named = TopicProduceData(partition_data=data)
        if version >= 13:
            named.topic_id = self.image.topics[topic].topic_id
        else:
            named.name = topic
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named])
        sent = decode(ProduceRequest, version, bytearray(encode(request, version)))
        return produce(sent, self.context(ApiKey.PRODUCE, version), self.broker)

    def bytes_of(self, reply: Any, version: int) -> bytes:
        self.settle()
        encode_answer = response_writer(ApiKey.PRODUCE.value, ProduceResponse, version)
        return b"".join(reply.encoded(encode_answer, CORRELATION_ID))

    def answer(self, *batches: tuple[int, bytearray]) -> PartitionProduceResponse:
        """That of the last partition."""
        reply = self.send(*batches)
        self.settle()
        response: ProduceResponse = answer_of(reply)
        return response.responses[0].partition_responses[-1]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("version", VERSIONS)
def test_its_answer_has_the_bytes_that_the_codec_writes(scene: Scene, version: int, topic: str) -> None:
    for _ in range(2):  # the second has other numbers
        reply = scene.send((2, records()), topic=topic, version=version)
        assert isinstance(reply, LoneBatch)
        told = scene.bytes_of(reply, version)
        assert told == b"".join(response_chunks(ApiKey.PRODUCE.value, version, CORRELATION_ID, reply.outcome()))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_write_that_fails_is_answered_in_its_version(scene: Scene, version: int) -> None:
    scene.answer((0, records()))
    scene.disk.fail(1, Fault.ENOSPC)
    reply = scene.send((0, records()), version=version)
    told = scene.bytes_of(reply, version)
    assert reply.outcome().responses[0].partition_responses[0] == PartitionProduceResponse(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR.value, base_offset=-1
    )
    assert told == b"".join(response_chunks(ApiKey.PRODUCE.value, version, CORRELATION_ID, reply.outcome()))


def idempotent(sequence: int) -> bytearray:
    return records(producer_id=7, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize(
    "batches",
    [
        [records(), records()],
        [idempotent(0), idempotent(2)],
        [idempotent(0), idempotent(0)],  # a repetition
        [idempotent(0), idempotent(5)],  # out of order
        [records(compression=Compression.LZ4)],
        [records()[:-1]],  # cut short: the CRC is wrong
    ],
)
def test_it_is_answered_as_in_company(batches: list[bytearray]) -> None:
    """In company: with a batch for another partition before it."""
    alone, accompanied = Scene(), Scene()
    for batch in batches:
        mine = alone.answer((1, bytearray(batch)))
        assert mine == accompanied.answer((0, records()), (1, bytearray(batch)))
    assert alone.partition("t", 1).log.log_end_offset == accompanied.partition("t", 1).log.log_end_offset


def test_what_it_cannot_do_is_left_to_the_general_way(scene: Scene) -> None:
    assert not isinstance(scene.send((0, records()), acks=0), LoneBatch)
    assert not isinstance(scene.send((0, records(compression=Compression.ZSTD))), LoneBatch)
    assert not isinstance(scene.send((9, records())), LoneBatch)
    assert scene.answer((9, records())).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
