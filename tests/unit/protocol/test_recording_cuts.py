"""Tests that a judge receives frames whose headers are unchanged and whose records are replaced with zeros, and that
unusual frames are not cut."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from odradek.protocol.batch_header import CONTROL, HEADER_BYTES, batches, set_log_append_time
from odradek.protocol.codec import decode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import Chunk, FileSlice
from odradek.protocol.frames import LENGTH_BYTES, read_request_header, request_bytes, response_writer
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.recording_cuts import (
    MAX_BATCHES,
    UncheckedCut,
    cut_answer,
    cut_request,
    restore_body,
    unchecked_cut,
)
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import Buffer
from tests.support.requests import produce_request

RECORDS = b"records" * 1000
VERSIONS = range(3, ProduceRequest.MAX_VERSION + 1)


def batch(value: bytes = RECORDS, producer_id: int = -1, base_sequence: int = -1) -> bytearray:
    return bytearray(build_batch([NewRecord(None, value, 1)], producer_id=producer_id, base_sequence=base_sequence))


def marker_batch() -> bytearray:
    marker = batch(b"m")
    marker[22] |= CONTROL
    return marker


def produce(version: int, *records: Buffer | None) -> memoryview:
    partitions = [PartitionProduceData(index=index, records=each) for index, each in enumerate(records)]
    topics = [
        TopicProduceData(name="orders", topic_id=bytes(16), partition_data=partitions[:1]),
        TopicProduceData(name="other", topic_id=bytes(16), partition_data=partitions[1:]),
    ]
    request = ProduceRequest(transactional_id="t", acks=-1, timeout_ms=1, topic_data=topics)
    return memoryview(request_bytes(request, version, 7, "a-client"))[LENGTH_BYTES:]


def produce_one(version: int, records: Buffer | None, transactional_id: str | None = None) -> memoryview:
    """Returns a typical Produce request with one batch for one partition."""
    request = produce_request("orders", records, topic_id=bytes(16), transactional_id=transactional_id)
    return memoryview(request_bytes(request, version, 7, "a-client"))[LENGTH_BYTES:]


def unchecked(frame: memoryview) -> UncheckedCut:
    found = unchecked_cut(frame)
    assert found is not None
    return found


def joined(parts: list[Buffer] | None) -> bytes:
    assert parts is not None
    return b"".join(parts)


@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_produce_request_the_headers_of_its_batches_are_kept(version: int) -> None:
    sent = [batch(base_sequence=3, producer_id=9), batch(), batch(b"small")]
    frame = produce(version, *sent)
    body = joined(cut_request(frame))
    assert b"records" not in body
    assert len(body) < 500
    whole = restore_body(body)
    assert len(whole) == len(frame)
    request = decode(ProduceRequest, version, whole, read_request_header(whole)[1])
    found = [each.records for topic in request.topic_data for each in topic.partition_data]
    assert [bytes(each or b"") for each in found] == [each[:HEADER_BYTES] + bytes(len(each) - 61) for each in sent]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_produce_request_with_anything_unusual_is_kept_whole(version: int) -> None:
    damaged, two, of_old = batch(), batch() + batch(), batch()
    damaged[-1] ^= 1
    of_old[16] = 1
    for each in (damaged, two, of_old, batch()[:-1], b"", None):
        assert cut_request(produce(version, batch(), each)) is None


def test_a_request_of_very_many_batches_is_kept_whole() -> None:
    small = batch(b"s")
    assert cut_request(produce(12, *[small] * MAX_BATCHES)) is not None
    assert cut_request(produce(12, *[small] * (MAX_BATCHES + 1))) is None


@pytest.mark.parametrize("version", range(9, ProduceRequest.MAX_VERSION + 1))
@pytest.mark.parametrize("transactional_id", [None, "", "t"])
def test_of_a_request_with_one_batch_its_crc_may_be_checked_later(version: int, transactional_id: str | None) -> None:
    frame = produce_one(version, batch(), transactional_id)
    cut = unchecked(frame)
    assert cut.is_sound()
    assert joined(cut.parts()) == joined(cut_request(frame))
    damaged = bytearray(frame)
    damaged[-4] ^= 1
    of_damaged = unchecked(memoryview(damaged))
    assert not of_damaged.is_sound()
    assert of_damaged.whole() == damaged


def test_changes_of_the_broker_to_a_batch_are_not_attributed_to_the_client() -> None:
    frame = memoryview(bytearray(produce_one(12, batch())))
    sent, cut = bytes(frame), unchecked(frame)
    set_log_append_time(frame[sent.index(RECORDS) - HEADER_BYTES - 6 : -3], 12345)
    assert bytes(frame) != sent
    assert cut.is_sound()
    assert cut.whole() == sent


@pytest.mark.parametrize("version", VERSIONS)
def test_the_crc_of_an_unusual_request_is_checked_at_once(version: int) -> None:
    of_old = batch()
    of_old[16] = 1
    unusual = [produce_one(version, each) for each in (batch() + batch(), of_old, batch()[:-1], b"", None)]
    unusual += [produce(version, batch(), batch()), memoryview(b""), produce_one(version, batch())[:-1]]
    if version < 9:
        unusual.append(produce_one(version, batch()))
    assert [unchecked_cut(frame) for frame in unusual] == [None] * len(unusual)


@pytest.mark.parametrize("version", [9, ProduceRequest.MAX_VERSION])
def test_a_damaged_request_of_one_batch_is_cut_only_where_it_would_be_with_its_crc(version: int) -> None:
    whole, chance, cuts = produce_one(version, batch()), random.Random(version), 0
    for _ in range(3000):
        frame = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            frame[chance.choice([*range(2, 120), *range(len(frame) - 5, len(frame))])] = chance.randrange(256)
        cut = unchecked_cut(memoryview(frame))
        if cut is not None and cut.is_sound():
            cuts += 1
            assert joined(cut.parts()) == joined(cut_request(memoryview(frame)))
    assert cuts > 100


def test_only_produce_requests_are_cut() -> None:
    frame = memoryview(request_bytes(MetadataRequest(topics=[]), 12, 7, "x" * 5000))[LENGTH_BYTES:]
    assert cut_request(frame) is None


@pytest.mark.parametrize("version", [3, 9, ProduceRequest.MAX_VERSION])
def test_damaged_frames_are_kept_whole_or_come_back_in_their_size(version: int) -> None:
    whole, chance = produce(version, batch(), batch(b"small")), random.Random(version)
    for _ in range(2000):
        frame = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            frame[chance.randrange(2, 80)] = chance.randrange(256)
        view = memoryview(frame)[: chance.randrange(len(frame) + 1)]
        parts = cut_request(view)
        assert parts is None or len(restore_body(joined(parts))) == len(view)


@dataclass
class Disk:
    """A file that counts how many of its bytes were read."""

    data: bytes
    read: int = 0

    def read_at(self, size_bytes: int, position: int) -> Buffer:
        self.read += size_bytes
        return self.data[position : position + size_bytes]

    def is_cached_at(self, size_bytes: int, position: int) -> bool:
        return True

    def send_to(self, descriptor: int, size_bytes: int, position: int) -> int:
        return 0


def fetched(*records: list[Chunk]) -> list[Chunk]:
    partitions = [
        PartitionData(partition_index=index, high_watermark=1, records=each)  # type: ignore[arg-type]
        for index, each in enumerate(records)
    ]
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])
    return response_writer(FetchResponse.API_KEY, FetchResponse, 12)(7, answer)


def records_of(body: bytes) -> list[bytes]:
    answer = decode(FetchResponse, 12, restore_body(body), 9)
    return [bytes(each.records or b"") for topic in answer.responses for each in topic.partitions]  # type: ignore[arg-type]


def test_of_a_fetch_answer_headers_are_kept_up_to_the_first_batch_with_records() -> None:
    marker, empty, data = marker_batch(), batch(b"e"), batch()
    empty[57:61] = bytes(4)
    disk = Disk(bytes(10) + empty + data * 100)
    in_file = FileSlice(disk, 10, len(disk.data) - 10)
    chunks = fetched([marker + data + data, data], [in_file], [batch(b"small")])
    size = sum(map(len, chunks))
    body = joined(cut_answer(chunks))
    assert len(restore_body(body)) == size
    assert len(body) < 1000
    assert disk.read < 500
    memory, file, small = records_of(body)
    kept = len(marker) + HEADER_BYTES
    assert memory[:kept] == marker + data[:HEADER_BYTES]
    assert memory[2 * len(data) + len(marker) :][:HEADER_BYTES] == data[:HEADER_BYTES]
    assert not any(memory[kept : len(marker) + len(data)])
    assert [header.record_count for _, header in batches(file[: len(empty) + len(data)])] == [0, 1]
    assert small == batch(b"small")


def test_markers_and_empty_batches_alone_are_kept_whole() -> None:
    markers = marker_batch() * 100
    assert records_of(joined(cut_answer(fetched([markers])))) == [markers]


def test_chunks_that_the_codec_did_not_produce_are_not_cut() -> None:
    assert cut_answer([FileSlice(Disk(b""), 0, 0)]) is None
    strange: list[Chunk] = [b"head", b"no batch" * 1000, b"tail"]
    assert len(restore_body(joined(cut_answer(strange)))) == 4 + 8000 + 4


def test_an_unreadable_file_does_not_fail_the_recording() -> None:
    class Broken(Disk):
        def read_at(self, size_bytes: int, position: int) -> Buffer:
            raise OSError("no such disk")

    body = joined(cut_answer(fetched([FileSlice(Broken(b""), 0, 5000)])))
    assert records_of(body) == [bytes(5000)]


def test_sizes_that_cannot_be_are_refused() -> None:
    for body in (b"", b"\0\0\0\1\0\0", b"\0\0\0\1" + b"\xff" * 8):
        with pytest.raises(MalformedMessage):
            restore_body(body)
