"""Tests Odradek's producer with faults in connections, responses, brokers and other producers, as they occur in
production.

In every case no record is lost, duplicated or out of order, and a transaction is either complete or absent.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import pytest

from odradek.client import (
    AbortableError,
    ClientError,
    ConsumerGroupMetadata,
    FatalError,
    ProducerFenced,
    RetriableError,
    TopicPartition,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.testing.sync import Cluster
from tests.clients.admin import create_topic
from tests.clients.conftest import SETTINGS, StartBroker
from tests.clients.own_producers import (
    a_producer,
    a_transactional,
    again_and_again,
    committed,
    killed_and_started,
    two_transactions_with_a_fault,
    written,
)
from tests.clients.test_transactions import committed_offset, offset_becomes
from tests.support.broker_process import Broker, new_broker
from tests.support.flaky_proxy import FlakyProxy

QUICK_TIMEOUTS: dict[str, object] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
COUNT = 2_000
OF_A_TRANSACTION = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.PRODUCE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
]


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FlakyProxy, Broker]]:
    """Yields a broker that advertises the proxy's address, so all clients go through the proxy."""
    with FlakyProxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS | advertised) as broker:
            proxy.target = (broker.host, broker.port)
            yield proxy, broker


@pytest.fixture
def proxy(behind_proxy: tuple[FlakyProxy, Broker]) -> Iterator[FlakyProxy]:
    proxy, _ = behind_proxy
    yield proxy
    proxy.forget()


def new_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# --- Without transactions.


@pytest.mark.parametrize("fault", ["loses", "drops"])
async def test_records_are_stored_once_despite_lost_connections(proxy: FlakyProxy, fault: str) -> None:
    topic = create_topic(proxy.bootstrap, fault)
    setattr(proxy, fault, lambda key, _version, seen: key == ApiKey.PRODUCE.value and seen % 7 == 3)
    async with a_producer(proxy.bootstrap, batch_size=500) as producer:
        sent = [await producer.send(topic, value) for value in numbers(COUNT)]
        await producer.flush()
    assert len(proxy.lost) + len(proxy.dropped) > 5
    proxy.forget()
    assert await written(proxy.bootstrap, topic) == numbers(COUNT)
    offsets = [each.result().offset for each in sent]
    assert [offset for offset in offsets if offset is not None] == [n for n in range(COUNT) if offsets[n] is not None]


async def test_no_partition_is_asked_again_before_its_leader_is_known(kafka: Cluster) -> None:
    def request_names() -> list[str]:
        return [each["api"] for each in kafka.requests() if each["api"] in ("Produce", "Metadata")]

    create_topic(kafka.bootstrap, "orders")
    async with a_producer(kafka.bootstrap, retry_backoff_ms=1) as producer:
        await (await producer.send("orders", b"a", partition=0))
        before = len(request_names())
        kafka.fault({"match": {"api": "Produce"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 1})
        kafka.fault({"match": {"api": "Metadata"}, "do": {"hold": "metadata"}, "times": 1})
        sent = await producer.send("orders", b"b", partition=0)
        await asyncio.to_thread(kafka.wait, hold="metadata")
        for _ in range(10):  # longer than the back-off
            assert request_names()[before:] == ["Produce", "Metadata"]
        kafka.release("metadata")
        await sent
    assert request_names()[before:] == ["Produce", "Metadata", "Produce"]


async def test_a_request_that_arrives_twice_counts_once(proxy: FlakyProxy) -> None:
    topic = create_topic(proxy.bootstrap, "repeats")
    proxy.repeats = lambda key, _version, seen: key == ApiKey.PRODUCE.value and seen % 3 == 0
    async with a_producer(proxy.bootstrap, batch_size=500) as producer:
        for value in numbers(COUNT):
            await producer.send(topic, value)
    assert len(proxy.repeated) > 5
    proxy.forget()
    assert await written(proxy.bootstrap, topic) == numbers(COUNT)


async def test_an_answer_that_arrives_twice_costs_the_connection_and_no_record(proxy: FlakyProxy) -> None:
    topic = create_topic(proxy.bootstrap, "doubles")
    proxy.doubles = lambda key, _version, seen: key == ApiKey.PRODUCE.value and seen % 7 == 3
    async with a_producer(proxy.bootstrap, batch_size=500) as producer:
        for value in numbers(COUNT):
            await producer.send(topic, value)
    assert len(proxy.doubled) > 2
    proxy.forget()
    assert await written(proxy.bootstrap, topic) == numbers(COUNT)


@pytest.mark.slow  # runs in `make test-slow`
async def test_records_survive_the_death_of_the_broker(start_broker: StartBroker) -> None:
    broker = start_broker({})
    topic = create_topic(broker.bootstrap, "killed")
    async with a_producer(broker.bootstrap, batch_size=500) as producer:
        sent = [await producer.send(topic, value) for value in numbers(COUNT // 2)]
        killing = asyncio.create_task(killed_and_started(broker))
        for value in numbers(COUNT)[COUNT // 2 :]:
            sent.append(await producer.send(topic, value))
        await killing
        await asyncio.gather(*sent)
    assert await written(broker.bootstrap, topic) == numbers(COUNT)


@pytest.mark.slow  # runs in `make test-slow`
async def test_a_record_that_is_not_delivered_in_time_fails_and_the_producer_continues(
    start_broker: StartBroker,
) -> None:
    broker = start_broker({})
    topic = create_topic(broker.bootstrap, "late")
    async with a_producer(broker.bootstrap, delivery_timeout_ms=2_000) as producer:
        await (await producer.send(topic, b"before"))
        await asyncio.to_thread(broker.kill9)
        with pytest.raises(RetriableError) as late:
            await (await producer.send(topic, b"late"))
        assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
        await asyncio.to_thread(broker.start)
        for number in count():  # The first connection may take longer than the timeout.
            with suppress(RetriableError):
                await (await producer.send(topic, b"after-%d" % number))
                break
    found = await written(broker.bootstrap, topic)
    assert found[0] == b"before"
    assert found[-1] == b"after-%d" % number
    assert len(found) == len(set(found)), "what failed may be there, but once"


# --- In transactions.


@pytest.mark.parametrize("api", OF_A_TRANSACTION, ids=lambda api: api.name)
@pytest.mark.parametrize("fault", ["loses", "drops"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_each_request_of_a_transaction_is_asked_again(
    proxy: FlakyProxy, api: ApiKey, fault: str, commit: bool
) -> None:
    await two_transactions_with_a_fault(proxy, api, fault, commit=commit)


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN], ids=lambda api: api.name)
@pytest.mark.parametrize("commit_first", [True, False], ids=["commit", "abort"])
async def test_a_request_that_arrives_long_after_it_was_given_up_touches_no_later_transaction(
    proxy: FlakyProxy, api: ApiKey, commit_first: bool
) -> None:
    topic, group, kept = create_topic(proxy.bootstrap, f"late-{api.name}"), new_id(), 0
    proxy.holds = lambda key, _version, seen: key == api.value and seen == 0
    async with a_transactional(proxy.bootstrap, new_id(), request_timeout_ms=300) as producer:
        for number in count(1):
            was_late = bool(proxy.delivered_late)
            await producer.begin_transaction()
            await producer.send(topic, b"%d" % number)
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): number}, group)
            await producer.flush()
            if (number % 2 == 1) == commit_first:
                await producer.commit_transaction()
                kept = number
            else:
                await producer.abort_transaction()
            if was_late:
                break
    first = 1 if commit_first else 2
    assert await committed(proxy.bootstrap, topic) == [b"%d" % each for each in range(first, kept + 1, 2)]
    await asyncio.to_thread(offset_becomes, proxy.bootstrap, group, topic, kept)


async def test_end_txn_that_arrives_twice_does_not_touch_the_next_transaction(proxy: FlakyProxy) -> None:
    topic = create_topic(proxy.bootstrap, "end-twice")
    async with a_transactional(proxy.bootstrap, new_id()) as producer:
        proxy.repeats = lambda key, _version, _seen: key == ApiKey.END_TXN.value
        for number in range(6):
            await producer.begin_transaction()
            await producer.send(topic, b"%d" % number)
            if number % 2:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
    assert proxy.repeated
    proxy.forget()
    assert await committed(proxy.bootstrap, topic) == [b"1", b"3", b"5"]


async def test_connections_cut_at_any_moment_leave_whole_transactions(proxy: FlakyProxy) -> None:
    topic = create_topic(proxy.bootstrap, "cut")
    async with a_transactional(proxy.bootstrap, new_id()) as producer:
        cutting = asyncio.create_task(cut_now_and_then(proxy))
        for number in range(30):
            await producer.begin_transaction()
            for record in range(5):
                await producer.send(topic, b"%d-%d" % (number, record))
            if number % 3:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        cutting.cancel()
    assert proxy.cuts > 0
    expected = [b"%d-%d" % (number, record) for number in range(30) if number % 3 for record in range(5)]
    assert await committed(proxy.bootstrap, topic) == expected


async def cut_now_and_then(proxy: FlakyProxy) -> None:
    """Cuts all connections at increasing intervals. With constant intervals, no connection might last long enough on a
    slow machine."""
    for cut in range(30):
        await asyncio.sleep(0.01 * 1.2**cut)
        proxy.cut_all()


@pytest.mark.slow  # runs in `make test-slow`
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_a_transaction_ends_although_the_broker_dies_while_it_is_ended(
    start_broker: StartBroker, commit: bool
) -> None:
    with FlakyProxy() as proxy:
        broker = start_broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"})
        proxy.target = (broker.host, broker.port)
        topic = create_topic(proxy.bootstrap, "dies-at-the-end")
        async with a_transactional(proxy.bootstrap, new_id()) as producer:
            await producer.begin_transaction()
            await producer.send(topic, b"v")
            await producer.flush()
            proxy.loses = lambda key, _version, seen: key == ApiKey.END_TXN.value and seen == 0
            ending = asyncio.create_task(producer.commit_transaction() if commit else producer.abort_transaction())
            while ApiKey.END_TXN.value not in proxy.lost:
                await asyncio.sleep(0.001)
            await killed_and_started(broker)
            await ending
            await producer.begin_transaction()
            await producer.send(topic, b"next")
            await producer.commit_transaction()
        assert await committed(proxy.bootstrap, topic) == ([b"v"] if commit else []) + [b"next"]


@pytest.mark.slow  # runs in `make test-slow`
async def test_a_commit_that_takes_too_long_can_be_called_again(start_broker: StartBroker) -> None:
    broker = start_broker({})
    topic = create_topic(broker.bootstrap, "again")
    async with a_producer(broker.bootstrap, transactional_id=new_id(), max_block_ms=1_000) as producer:
        await again_and_again(producer.init_transactions)
        await producer.begin_transaction()
        await producer.send(topic, b"v")
        await producer.flush()
        await asyncio.to_thread(broker.kill9)
        with pytest.raises(RetriableError):
            await producer.commit_transaction()
        with pytest.raises(ClientError, match="abort_transaction is not allowed in state COMMITTING"):
            await producer.abort_transaction()
        await asyncio.to_thread(broker.start)
        await again_and_again(producer.commit_transaction)
    assert await committed(broker.bootstrap, topic) == [b"v"]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_an_end_that_was_cancelled_can_be_called_again(bootstrap: str, topic: str, commit: bool) -> None:
    async with a_transactional(bootstrap, new_id()) as producer:
        for turns in range(12):  # number of event loop turns after which the call is cancelled
            await producer.begin_transaction()
            await producer.send(topic, b"%d" % turns)
            end = producer.commit_transaction if commit else producer.abort_transaction
            ending = asyncio.create_task(end())
            for _ in range(turns):
                await asyncio.sleep(0)
            ending.cancel()
            with suppress(asyncio.CancelledError):
                await ending
                continue
            await end()
    assert await committed(bootstrap, topic) == ([b"%d" % turns for turns in range(12)] if commit else [])


async def test_offsets_whose_sending_was_cancelled_abort_the_transaction(bootstrap: str, topic: str) -> None:
    group = new_id()
    async with a_transactional(bootstrap, new_id()) as producer:
        await producer.begin_transaction()
        sending = asyncio.create_task(producer.send_offsets_to_transaction({TopicPartition(topic, 0): 3}, group))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(AbortableError, match="cancelled"):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert await asyncio.to_thread(committed_offset, bootstrap, group, topic) is None


async def test_offsets_of_one_task_are_there_before_another_ends_the_transaction(bootstrap: str, topic: str) -> None:
    group = new_id()
    async with a_transactional(bootstrap, new_id()) as producer:
        await producer.begin_transaction()
        sending = asyncio.create_task(producer.send_offsets_to_transaction({TopicPartition(topic, 0): 3}, group))
        await asyncio.sleep(0)
        await producer.commit_transaction()
        assert sending.done()
        await sending
    await asyncio.to_thread(offset_becomes, bootstrap, group, topic, 3)


async def test_a_value_that_is_not_bytes_does_not_affect_the_transaction(bootstrap: str, topic: str) -> None:
    async with a_transactional(bootstrap, new_id()) as producer:
        await producer.begin_transaction()
        with pytest.raises(TypeError):
            await producer.send(topic, "text")  # type: ignore[arg-type]
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"v")
        await producer.commit_transaction()
    assert await committed(bootstrap, topic) == [b"v"]


async def test_a_refused_record_makes_the_transaction_abortable(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "refused", config={"max.message.bytes": 1_000})
    async with a_transactional(bootstrap, new_id()) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"fine")
        await producer.flush()
        await producer.send(topic, b"v" * 5_000)
        await producer.flush()
        with pytest.raises(AbortableError) as refused:
            await producer.commit_transaction()
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(AbortableError):
            await producer.send(topic, b"more")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"next")
        await producer.commit_transaction()
    assert await committed(bootstrap, topic) == [b"next"]


async def test_a_record_that_send_refuses_makes_the_transaction_abortable(bootstrap: str, topic: str) -> None:
    async with a_transactional(bootstrap, new_id()) as producer:
        await producer.begin_transaction()
        with pytest.raises(AbortableError):
            await producer.send(topic, b"v" * 2_000_000)
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"next")
        await producer.commit_transaction()
    assert await committed(bootstrap, topic) == [b"next"]


@pytest.mark.slow  # runs in `make test-slow`
async def test_records_that_are_late_abort_their_transaction(start_broker: StartBroker) -> None:
    broker = start_broker({})
    topic = create_topic(broker.bootstrap, "late")
    async with a_transactional(broker.bootstrap, new_id(), delivery_timeout_ms=2_000) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"in time")
        await producer.flush()
        await asyncio.to_thread(broker.kill9)
        late = await producer.send(topic, b"late")
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        with pytest.raises(ClientError):
            await late
        await asyncio.to_thread(broker.start)
        await producer.abort_transaction()
    assert await committed(broker.bootstrap, topic) == []


async def test_a_second_producer_fences_the_first(bootstrap: str, topic: str) -> None:
    transactional_id = new_id()
    async with a_transactional(bootstrap, transactional_id) as first:
        await first.begin_transaction()
        await first.send(topic, b"of the first")
        await first.flush()
        async with a_transactional(bootstrap, transactional_id) as second:
            with pytest.raises(ProducerFenced) as fenced:
                await first.commit_transaction()
            assert fenced.value.is_fatal
            for call in (first.begin_transaction, first.abort_transaction, first.commit_transaction):
                with pytest.raises(FatalError):
                    await call()
            await second.begin_transaction()
            await second.send(topic, b"of the second")
            await second.commit_transaction()
    assert await committed(bootstrap, topic) == [b"of the second"]


async def test_a_producer_that_was_fenced_during_a_send_gets_the_error_from_its_abort(
    bootstrap: str, topic: str
) -> None:
    """A response to Produce reports only that the epoch is old, which can also result from a transaction timeout. After
    a timeout the producer could continue, so the send does not report the fencing."""
    transactional_id = new_id()
    async with a_transactional(bootstrap, transactional_id) as first:
        await first.begin_transaction()
        await first.send(topic, b"of the first")
        await first.flush()
        async with a_transactional(bootstrap, transactional_id):
            late = await first.send(topic, b"too late")
            with pytest.raises(AbortableError) as refused:
                await late
            assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
            with pytest.raises(ProducerFenced):
                await first.abort_transaction()
    assert await committed(bootstrap, topic) == []


@pytest.mark.slow  # runs in `make test-slow`
async def test_a_transaction_that_took_too_long_is_aborted_and_the_producer_goes_on(start_broker: StartBroker) -> None:
    broker = start_broker(QUICK_TIMEOUTS)
    topic = create_topic(broker.bootstrap, "too-long")
    async with a_transactional(broker.bootstrap, new_id(), transaction_timeout_ms=200) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"too long")
        await producer.flush()
        assert await committed(broker.bootstrap, topic) == []
        with pytest.raises(AbortableError) as late:
            await (await producer.send(topic, b"more"))
        assert late.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"next")
        await producer.commit_transaction()
    assert await committed(broker.bootstrap, topic) == [b"next"]


async def test_closing_aborts_an_open_transaction(bootstrap: str, topic: str) -> None:
    async with a_transactional(bootstrap, new_id()) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"v")
        await producer.flush()
    assert await committed(bootstrap, topic) == []
    assert await written(bootstrap, topic) == [b"v"]


async def test_a_transaction_without_records_costs_no_request(proxy: FlakyProxy) -> None:
    async with a_transactional(proxy.bootstrap, new_id()) as producer:
        for end in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            await end()
    assert proxy.request_count(ApiKey.END_TXN.value) == 0


@pytest.mark.slow  # runs in `make test-slow`
async def test_offsets_of_a_member_that_was_expelled_abort_the_transaction(bootstrap: str, topic: str) -> None:
    group = new_id()
    async with a_transactional(bootstrap, new_id()) as producer:
        await producer.begin_transaction()
        with pytest.raises(AbortableError) as expelled:
            await producer.send_offsets_to_transaction(
                {TopicPartition(topic, 0): 3}, ConsumerGroupMetadata(group, generation_id=4, member_id="gone")
            )
        assert expelled.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        await producer.abort_transaction()
    assert await asyncio.to_thread(committed_offset, bootstrap, group, topic) is None
