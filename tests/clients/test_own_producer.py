"""Tests Odradek's producer with no faults injected."""

from __future__ import annotations

import asyncio
import random
import time

import kafka
import pytest

from odradek.client import ClientError, IllegalState, Producer, RetriableError
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.own_producers import a_producer, a_transactional, written
from tests.clients.speakers import SPEAKERS

READER = SPEAKERS["confluent-kafka"]
HEADERS = (("trace", b"\x00\x01"), ("empty", b""), ("null", None), ("trace", b"again"))


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_records_arrive_as_they_were_sent(bootstrap: str, topic: str, compression: str | None) -> None:
    records: list[tuple[bytes | None, bytes | None]] = [
        (b"key", b"value"),
        (None, b""),
        (b"", None),
        (b"k", b"v" * 5000),
    ]
    async with a_producer(bootstrap, compression_type=compression) as producer:
        sent = [
            await producer.send(topic, value, key=key, headers=HEADERS, timestamp_ms=1_700_000_000_000 + number)
            for number, (key, value) in enumerate(records)
        ]
        metadata = [await each for each in sent]
    assert [each.offset for each in metadata] == [0, 1, 2, 3]
    assert [each.timestamp_ms for each in metadata] == [1_700_000_000_000 + number for number in range(4)]
    found = await asyncio.to_thread(READER.read, bootstrap, topic, 4)
    assert [(each.key, each.value) for each in found] == records
    assert all(each.headers == HEADERS for each in found)
    assert [each.timestamp_ms for each in found] == [each.timestamp_ms for each in metadata]


async def test_many_records_arrive_in_order(bootstrap: str, topic: str) -> None:
    values = [b"%d" % number for number in range(20_000)]
    async with a_producer(bootstrap, linger_ms=5) as producer:
        sent = [await producer.send(topic, value) for value in values]
        await producer.flush()
        assert [each.result().offset for each in sent] == list(range(20_000))
    assert await written(bootstrap, topic) == values


async def test_keys_go_where_other_clients_send_them(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "keys", partitions=7)
    keys = [b"key-%d" % number for number in range(50)]
    other = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    theirs = [other.send(topic, b"v", key=key).get(20).partition for key in keys]
    other.close()
    async with a_producer(bootstrap) as producer:
        ours = [(await (await producer.send(topic, b"v", key=key))).partition for key in keys]
    assert ours == theirs


async def test_records_without_key_reach_all_partitions(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "no-keys", partitions=3)
    async with a_producer(bootstrap, batch_size=1_000) as producer:
        sent = [await producer.send(topic, b"v" * 100) for _ in range(600)]
        await producer.flush()
    assert {each.result().partition for each in sent} == {0, 1, 2}


async def test_a_custom_partitioner_chooses_the_partition(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "own-partitioner", partitions=3)
    async with a_producer(bootstrap, partitioner=lambda _topic, key, count: len(key or b"") % count) as producer:
        assert [(await (await producer.send(topic, key=b"k" * size))).partition for size in range(4)] == [0, 1, 2, 0]


async def test_sending_to_a_missing_topic_creates_it(bootstrap: str) -> None:
    async with a_producer(bootstrap) as producer:
        metadata = await (await producer.send(f"made-by-sending-{time.time_ns()}", b"v"))
    assert metadata.offset == 0


async def test_without_acknowledgement_there_is_no_offset(bootstrap: str, topic: str) -> None:
    async with a_producer(bootstrap, acks=0) as producer:
        assert (await (await producer.send(topic, b"v"))).offset is None
        await asyncio.to_thread(READER.read, bootstrap, topic, 1)


async def test_the_broker_may_set_the_time(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "append-time", config={"message.timestamp.type": "LogAppendTime"})
    async with a_producer(bootstrap) as producer:
        metadata = await (await producer.send(topic, b"v", timestamp_ms=1_000))
    assert metadata.timestamp_ms > 1_000
    (found,) = await asyncio.to_thread(READER.read, bootstrap, topic, 1)
    assert found.timestamp_ms == metadata.timestamp_ms


async def test_a_record_that_the_topic_refuses_fails_alone(bootstrap: str) -> None:
    """The refused record leaves a gap in the sequence numbers, so later batches have a new epoch."""
    topic = create_topic(bootstrap, "small", config={"max.message.bytes": 2_000})
    async with a_producer(bootstrap, batch_size=500) as producer:
        before = await producer.send(topic, b"before")
        await before
        sizes = [100, 5_000, *[100] * 30]
        sent = [await producer.send(topic, b"v" * size) for size in sizes]
        results = await asyncio.gather(*sent, return_exceptions=True)
    refused = [result for result in results if isinstance(result, BaseException)]
    (error,) = refused
    assert isinstance(error, ClientError)
    assert (error.code, error.is_fatal, error.is_retriable) == (ErrorCode.MESSAGE_TOO_LARGE, False, False)
    assert await written(bootstrap, topic) == [b"before", *[b"v" * 100] * 31]


@pytest.mark.parametrize("compression", [None, "lz4"])
async def test_batches_too_large_for_their_topic_are_sent_in_smaller_ones(
    bootstrap: str, compression: str | None
) -> None:
    """Each record is small enough on its own, and the records keep their order."""
    topic = create_topic(bootstrap, "small-batches", config={"max.message.bytes": 700})
    values = [random.Random(number).randbytes(80) for number in range(3_000)]
    async with a_producer(bootstrap, linger_ms=5, batch_size=20_000, compression_type=compression) as producer:
        sent = [await producer.send(topic, value, headers=HEADERS) for value in values]
        await producer.flush()
        assert [each.result().offset for each in sent] == list(range(len(values)))
    assert await written(bootstrap, topic) == values


async def test_only_the_record_that_is_too_large_on_its_own_fails_in_a_large_batch(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "one-too-large", config={"max.message.bytes": 700})
    values = [b"x" * (1_000 if number == 60 else 80) for number in range(100)]
    async with a_producer(bootstrap, linger_ms=5) as producer:
        sent = [await producer.send(topic, value) for value in values]
        await producer.flush()
        assert [number for number, each in enumerate(sent) if each.exception()] == [60]
        with pytest.raises(ClientError, match=r"a batch of 1 records for .*MESSAGE_TOO_LARGE"):
            sent[60].result()
    assert await written(bootstrap, topic) == values[:60] + values[61:]


async def test_a_record_larger_than_a_request_is_refused(bootstrap: str, topic: str) -> None:
    async with a_producer(bootstrap) as producer:
        with pytest.raises(ClientError, match="max_request_size") as refused:
            await producer.send(topic, b"v" * 2_000_000)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert (await (await producer.send(topic, b"v"))).offset == 0


async def test_a_value_that_is_not_bytes_raises_an_error_and_does_no_harm(bootstrap: str, topic: str) -> None:
    async with a_producer(bootstrap) as producer:
        for value in ("text", 7):
            with pytest.raises(TypeError):
                await producer.send(topic, value)  # type: ignore[arg-type]
        assert (await (await producer.send(topic, b"v"))).offset == 0


async def test_sending_to_a_missing_partition_fails_at_once(bootstrap: str, topic: str) -> None:
    async with a_producer(bootstrap) as producer:
        with pytest.raises(ClientError, match="no partition 9"):
            await producer.send(topic, b"v", partition=9)


async def test_sending_to_an_invalid_topic_fails_at_once(bootstrap: str) -> None:
    async with a_producer(bootstrap) as producer:
        with pytest.raises(ClientError) as refused:
            await producer.send("no topic/with such a name", b"v")
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_full_buffer_makes_send_wait(bootstrap: str, topic: str) -> None:
    async with a_producer(bootstrap, buffer_memory=50_000, batch_size=1_000) as producer:
        sent = [await producer.send(topic, b"v" * 500) for _ in range(2_000)]
        await producer.flush()
    assert [each.result().offset for each in sent] == list(range(2_000))


async def test_closing_sends_the_buffered_records(bootstrap: str, topic: str) -> None:
    async with a_producer(bootstrap, linger_ms=60_000) as producer:
        await producer.send(topic, b"v")
    assert await written(bootstrap, topic) == [b"v"]


async def test_nothing_is_sent_before_start_and_after_close(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap)
    with pytest.raises(IllegalState, match="not started"):
        await producer.send(topic, b"v")
    await producer.start()
    await producer.close()
    with pytest.raises(IllegalState, match="closed"):
        await producer.send(topic, b"v")
    await producer.close()


async def test_the_start_fails_at_once_if_the_broker_cannot_be_reached() -> None:
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:1"):
        async with Producer(bootstrap_servers="127.0.0.1:1"):
            pass


async def test_a_producer_with_a_transactional_id_sends_only_in_transactions(bootstrap: str, topic: str) -> None:
    async with a_transactional(bootstrap, "needs-begin") as producer:
        with pytest.raises(IllegalState, match="send is not allowed in state READY"):
            await producer.send(topic, b"v")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"acks": 2}, "acks"),
        ({"acks": 1, "enable_idempotence": True}, "acks='all'"),
        ({"max_in_flight": 6}, "max_in_flight"),
        ({"transactional_id": "id", "enable_idempotence": False}, "idempotence"),
        ({"two_phase_commit": True}, "transactional_id"),
        ({"transactional_id": "id", "two_phase_commit": True, "transaction_timeout_ms": 1}, "transaction_timeout_ms"),
        ({"compression_type": "rar"}, "compression_type"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Producer(bootstrap_servers="localhost", **settings)  # type: ignore[arg-type]
