"""Tests Arrow columns that Odradek's producer sends, and fetched batches in the log format."""

from __future__ import annotations

import asyncio
import uuid

import pyarrow as pa
import pytest

from odradek.client import (
    AbortableError,
    ClientError,
    Consumer,
    Producer,
    RawBatches,
    RetriableError,
    TopicPartition,
)
from odradek.client.columns import read_records
from odradek.client.sync import Producer as BlockingProducer
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.conftest import SETTINGS, StartBroker
from tests.clients.own_producers import a_producer, a_transactional, committed, killed_and_started, written
from tests.support.broker_process import new_broker
from tests.support.flaky_proxy import FlakyProxy

ROWS = 5_000


def rows(count: int = ROWS, start: int = 0) -> tuple[pa.Array, pa.Array]:
    """Returns a key column and a value column, each with `count` rows."""
    numbers = range(start, start + count)
    return pa.array([b"k%d" % number for number in numbers]), pa.array([b"v%d" % number for number in numbers])


def values(count: int = ROWS, start: int = 0) -> list[bytes]:
    return [b"v%d" % number for number in range(start, start + count)]


async def read(bootstrap: str, topic: str, *, count: int, isolation_level: str = "read_committed") -> pa.Table:
    """Reads batches until they have at least `count` rows and returns the rows as one table."""
    partition = TopicPartition(topic, 0)
    found: list[pa.Table] = []
    async with Consumer(
        bootstrap_servers=bootstrap, isolation_level=isolation_level, max_partition_fetch_bytes=20_000
    ) as consumer:
        consumer.assign([partition])
        while sum(len(table) for table in found) < count:
            for raw in (await consumer.getbatches(timeout_ms=10_000)).values():
                found.append(opened(raw))
        assert await consumer.position(partition) >= count
    return pa.concat_tables(found)


def opened(raw: RawBatches) -> pa.Table:
    return read_records(raw.data, aborted=raw.aborted, start_offset=raw.start_offset)


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_columns_arrive_as_records_in_their_order(bootstrap: str, topic: str, compression: str | None) -> None:
    keys, content = rows()
    headers = pa.array([[{"key": "h", "value": b"%d" % number}] for number in range(ROWS)])
    times = pa.array(range(1_000, 1_000 + ROWS))
    async with a_producer(bootstrap, compression_type=compression) as producer:
        sent = await producer.send_batch(topic, 0, keys, content, times, headers, batch_bytes=10_000)
        places = await sent
    assert len(places) > 1
    assert [place.offset for place in places] == sorted(place.offset or 0 for place in places)
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = [await consumer.getone() for _ in range(ROWS)]
    assert [record.offset for record in records] == list(range(ROWS))
    assert [record.key for record in records] == keys.to_pylist()
    assert [record.value for record in records] == content.to_pylist()
    assert [record.timestamp_ms for record in records] == times.to_pylist()
    assert records[7].headers == (("h", b"7"),)


async def test_null_keys_and_empty_columns_are_sent(bootstrap: str, topic: str) -> None:
    async with a_producer(bootstrap) as producer:
        assert await (await producer.send_batch(topic, 0, None, pa.array([], pa.binary()))) == []
        await (await producer.send_batch(topic, 0, None, pa.array([None, "text"])))
    table = await read(bootstrap, topic, count=2)
    assert table["key"].to_pylist() == [None, None]
    assert table["value"].to_pylist() == [None, b"text"]


async def test_columns_and_single_records_keep_the_order_of_the_calls(bootstrap: str, topic: str) -> None:
    async with a_producer(bootstrap, linger_ms=1_000) as producer:
        for start in range(0, 600, 200):
            await producer.send_batch(topic, 0, *rows(100, start), batch_bytes=500)
            for number in range(start + 100, start + 200):
                await producer.send(topic, b"v%d" % number, partition=0)
        await producer.flush()
    assert await written(bootstrap, topic) == values(600)


async def test_columns_of_a_transaction_are_seen_when_it_is_committed(bootstrap: str, topic: str) -> None:
    async with a_transactional(bootstrap, uuid.uuid4().hex) as producer:
        for number, commit in enumerate((True, False, True)):
            await producer.begin_transaction()
            await producer.send_batch(topic, 0, *rows(100, 100 * number))
            await (producer.commit_transaction() if commit else producer.flush())
            if not commit:
                await producer.abort_transaction()
    assert await committed(bootstrap, topic) == values(100) + values(100, 200)
    committed_only = await read(bootstrap, topic, count=200)
    assert committed_only["value"].to_pylist() == values(100) + values(100, 200)
    everything = await read(bootstrap, topic, count=300, isolation_level="read_uncommitted")
    assert everything["value"].to_pylist() == values(300)


@pytest.mark.parametrize("fault", ["loses", "drops"])
async def test_a_lost_answer_or_request_loses_and_doubles_nothing(
    tmp_path_factory: pytest.TempPathFactory, fault: str
) -> None:
    with FlakyProxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS | advertised) as broker:
            proxy.target = (broker.host, broker.port)
            topic = create_topic(broker.bootstrap, "columns")
            setattr(proxy, fault, lambda key, _version, seen: key == ApiKey.PRODUCE.value and seen in (1, 4))
            async with a_producer(f"127.0.0.1:{proxy.port}") as producer:
                await (await producer.send_batch(topic, 0, *rows(), batch_bytes=5_000))
            assert await written(broker.bootstrap, topic) == values()


async def test_every_row_is_stored_once_although_the_broker_is_killed(start_broker: StartBroker) -> None:
    broker = start_broker({})
    topic = create_topic(broker.bootstrap, "columns")
    async with a_producer(broker.bootstrap) as producer:
        first = await producer.send_batch(topic, 0, *rows(ROWS), batch_bytes=2_000)
        await killed_and_started(broker)
        second = await producer.send_batch(topic, 0, *rows(ROWS, ROWS), batch_bytes=2_000)
        await first
        await second
    assert await written(broker.bootstrap, topic) == values(2 * ROWS)


async def test_a_row_that_is_too_large_is_refused_before_anything_is_sent(bootstrap: str, topic: str) -> None:
    large = pa.array([b"small", bytes(3_000)])
    async with a_producer(bootstrap, max_request_size=2_000) as producer:
        with pytest.raises(ClientError, match="max_request_size") as refused:
            await producer.send_batch(topic, 0, None, large)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await (await producer.send_batch(topic, 0, None, pa.array([b"next"])))
    assert await written(bootstrap, topic) == [b"next"]


async def test_a_batch_that_the_topic_refuses_fails_its_future(start_broker: StartBroker) -> None:
    broker = start_broker({"message.max.bytes": 5_000})
    topic = create_topic(broker.bootstrap, "columns")
    async with a_producer(broker.bootstrap) as producer:
        sent = await producer.send_batch(topic, 0, *rows())
        with pytest.raises(ClientError) as refused:
            await sent
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await (await producer.send_batch(topic, 0, *rows(), batch_bytes=4_000))
    assert await written(broker.bootstrap, topic) == values()


async def test_a_transaction_cannot_be_committed_without_rows_that_were_refused(bootstrap: str, topic: str) -> None:
    async with a_transactional(bootstrap, uuid.uuid4().hex, max_request_size=2_000) as producer:
        await producer.begin_transaction()
        await producer.send_batch(topic, 0, *rows(10))
        with pytest.raises(AbortableError):
            await producer.send_batch(topic, 0, None, pa.array([bytes(3_000)]))
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert await committed(bootstrap, topic) == []


async def test_a_partition_that_does_not_exist_is_refused(bootstrap: str, topic: str) -> None:
    async with a_producer(bootstrap) as producer:
        with pytest.raises(ClientError, match="no partition 7"):
            await producer.send_batch(topic, 7, *rows(1))


async def test_columns_wait_for_room_in_the_buffer(start_broker: StartBroker) -> None:
    broker = start_broker({})
    topic = create_topic(broker.bootstrap, "columns")
    async with a_producer(broker.bootstrap, buffer_memory=20_000, max_block_ms=300) as producer:
        await (await producer.send_batch(topic, 0, *rows(10)))
        await asyncio.to_thread(broker.stop)
        with pytest.raises(RetriableError, match="buffer"):
            await producer.send_batch(topic, 0, *rows(), batch_bytes=5_000)
        await asyncio.to_thread(broker.start)
        await producer.flush()
        found = await written(broker.bootstrap, topic)
    assert found[:10] == values(10)
    assert found[10:] == values(len(found) - 10), "what was taken before is sent"


def test_the_blocking_producer_accepts_columns_too(bootstrap: str, topic: str) -> None:
    with BlockingProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"first", partition=0)
        places = producer.send_batch(topic, 0, *rows(100)).result(10)
        assert places[0].offset == 1


async def test_getbatches_and_getmany_may_alternate(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await (await producer.send_batch(topic, 0, *rows(300), batch_bytes=1_000))
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([partition])
        found = [(await consumer.getone()).value for _ in range(5)]
        while len(found) < 300:
            for raw in (await consumer.getbatches(timeout_ms=10_000)).values():
                found += opened(raw)["value"].to_pylist()
        assert await consumer.position(partition) == 300
        assert await consumer.getbatches(timeout_ms=10) == {}
    assert found == values(300)
