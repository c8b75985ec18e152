"""Tests Odradek's producer with two-phase commit (KIP-939). A prepared transaction survives every failure, and only the
application decides its outcome."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from odradek.client import (
    AbortableError,
    FatalError,
    IllegalState,
    PreparedTxnState,
    Producer,
    ProducerFenced,
    TopicPartition,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.conftest import StartBroker
from tests.clients.own_producers import (
    TWO_PHASE,
    a_producer,
    a_transactional,
    committed,
    killed_and_started,
    written,
)
from tests.clients.test_transactions import committed_offset, offset_becomes
from tests.support.broker_process import IS_KAFKA, Broker
from tests.support.flaky_proxy import FlakyProxy

needs_kip_939 = pytest.mark.skipif(IS_KAFKA, reason="no released Kafka keeps prepared transactions")
DECISIONS = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
OTHER = PreparedTxnState(2**40, 0)


def new_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def two_phase_broker(start_broker: StartBroker) -> Broker:
    return start_broker(TWO_PHASE)


@pytest.fixture
def orders(two_phase_broker: Broker) -> str:
    return create_topic(two_phase_broker.bootstrap, "orders")


async def prepared(bootstrap: str, transactional_id: str, topic: str, value: bytes = b"v") -> PreparedTxnState:
    """Prepares a transaction and closes its producer without a decision. Returns the prepared state."""
    async with a_transactional(bootstrap, transactional_id, two_phase_commit=True) as producer:
        await producer.begin_transaction()
        await producer.send(topic, value)
        return await producer.prepare_transaction()


def recovering(bootstrap: str, transactional_id: str) -> Producer:
    return Producer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, two_phase_commit=True, retry_backoff_ms=10
    )


@needs_kip_939
async def test_a_transaction_stays_prepared_when_its_producer_closes(two_phase_broker: Broker, orders: str) -> None:
    bootstrap, transactional_id = two_phase_broker.bootstrap, new_id()
    state = await prepared(bootstrap, transactional_id, orders)
    async with recovering(bootstrap, transactional_id) as producer:
        assert await producer.init_transactions(keep_prepared=True) == state
    async with recovering(bootstrap, transactional_id) as producer:
        assert await producer.init_transactions(keep_prepared=True) == state, "however often"
    assert await written(bootstrap, orders) == [b"v"]


@needs_kip_939
@DECISIONS
async def test_the_state_from_a_database_column_decides_after_a_crash(
    two_phase_broker: Broker, orders: str, commit: bool
) -> None:
    bootstrap, transactional_id = two_phase_broker.bootstrap, new_id()
    column = str(await prepared(bootstrap, transactional_id, orders)) if commit else "1:7"
    if not commit:
        await prepared(bootstrap, transactional_id, orders)
    async with recovering(bootstrap, transactional_id) as producer:
        await producer.init_transactions(keep_prepared=True)
        await producer.complete_transaction(PreparedTxnState.parse(column))
        await producer.begin_transaction()
        await producer.send(orders, b"next")
        await producer.commit_transaction()
    assert await committed(bootstrap, orders) == ([b"v"] if commit else []) + [b"next"]


@needs_kip_939
async def test_prepared_only_commit_abort_and_complete_are_allowed(two_phase_broker: Broker, orders: str) -> None:
    bootstrap, transactional_id = two_phase_broker.bootstrap, new_id()
    async with a_transactional(bootstrap, transactional_id, two_phase_commit=True) as producer:
        await producer.begin_transaction()
        await producer.send(orders, b"v")
        state = await producer.prepare_transaction()
        await nothing_else_is_allowed(producer, orders)
    async with recovering(bootstrap, transactional_id) as producer:
        await producer.init_transactions(keep_prepared=True)
        await nothing_else_is_allowed(producer, orders)
        await producer.complete_transaction(state)
    assert await committed(bootstrap, orders) == [b"v"]


async def nothing_else_is_allowed(producer: Producer, topic: str) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: producer.send(topic, b"more"),
        lambda: producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, "group"),
        producer.flush,
        producer.begin_transaction,
        producer.prepare_transaction,
        producer.init_transactions,
    ]
    for call in calls:
        with pytest.raises(IllegalState, match="PREPARED"):
            await call()


@needs_kip_939
async def test_transactions_one_after_the_other_have_different_names(two_phase_broker: Broker, orders: str) -> None:
    states = []
    async with a_transactional(two_phase_broker.bootstrap, new_id(), two_phase_commit=True) as producer:
        for number in range(4):
            await producer.begin_transaction()
            await producer.send(orders, b"%d" % number)
            states.append(await producer.prepare_transaction())
            await producer.complete_transaction(states[-1] if number % 2 else OTHER)
    assert len(set(states)) == 4
    assert await committed(two_phase_broker.bootstrap, orders) == [b"1", b"3"]


@needs_kip_939
async def test_a_transaction_in_which_nothing_was_sent_has_no_name(two_phase_broker: Broker, orders: str) -> None:
    """The prepared state is empty. The next transaction has the same producer epoch, so any other state would match
    that transaction too."""
    bootstrap, transactional_id = two_phase_broker.bootstrap, new_id()
    async with a_transactional(bootstrap, transactional_id, two_phase_commit=True) as producer:
        await producer.begin_transaction()
        state = await producer.prepare_transaction()
        assert str(state) == ""
        await producer.complete_transaction(state)
        await producer.begin_transaction()
        await producer.send(orders, b"next")
        assert str(await producer.prepare_transaction()) != ""
    async with recovering(bootstrap, transactional_id) as producer:
        await producer.init_transactions(keep_prepared=True)
        await producer.complete_transaction(state)
    assert await committed(bootstrap, orders) == []


@needs_kip_939
async def test_complete_does_nothing_without_a_prepared_transaction(two_phase_broker: Broker, orders: str) -> None:
    async with recovering(two_phase_broker.bootstrap, new_id()) as producer:
        assert await producer.init_transactions(keep_prepared=True) is None
        await producer.complete_transaction(PreparedTxnState(42, 1))
        await producer.begin_transaction()
        await producer.send(orders, b"v")
        await producer.commit_transaction()
    assert await committed(two_phase_broker.bootstrap, orders) == [b"v"]


@needs_kip_939
async def test_offsets_are_prepared_with_the_records(two_phase_broker: Broker, orders: str) -> None:
    bootstrap, transactional_id, group = two_phase_broker.bootstrap, new_id(), new_id()
    async with a_transactional(bootstrap, transactional_id, two_phase_commit=True) as producer:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({TopicPartition(orders, 0): 12}, group)
        state = await producer.prepare_transaction()
    assert await asyncio.to_thread(committed_offset, bootstrap, group, orders) is None
    async with recovering(bootstrap, transactional_id) as producer:
        await producer.init_transactions(keep_prepared=True)
        await producer.complete_transaction(state)
    await asyncio.to_thread(offset_becomes, bootstrap, group, orders, 12)


@needs_kip_939
async def test_the_later_of_two_recoveries_decides(two_phase_broker: Broker, orders: str) -> None:
    bootstrap, transactional_id = two_phase_broker.bootstrap, new_id()
    state = await prepared(bootstrap, transactional_id, orders)
    async with recovering(bootstrap, transactional_id) as first, recovering(bootstrap, transactional_id) as second:
        await first.init_transactions(keep_prepared=True)
        await second.init_transactions(keep_prepared=True)
        with pytest.raises(ProducerFenced):
            await first.abort_transaction()
        await second.complete_transaction(state)
    assert await committed(bootstrap, orders) == [b"v"]


@needs_kip_939
async def test_without_keeping_a_prepared_transaction_is_aborted(two_phase_broker: Broker, orders: str) -> None:
    bootstrap, transactional_id = two_phase_broker.bootstrap, new_id()
    await prepared(bootstrap, transactional_id, orders)
    async with a_transactional(bootstrap, transactional_id, two_phase_commit=True):
        assert await committed(bootstrap, orders) == []


@pytest.mark.slow  # runs in `make test-slow`
@needs_kip_939
@DECISIONS
@pytest.mark.parametrize("recovers", [False, True], ids=["same producer", "recovered"])
async def test_a_prepared_transaction_outlives_the_broker(
    two_phase_broker: Broker, orders: str, commit: bool, recovers: bool
) -> None:
    bootstrap, transactional_id = two_phase_broker.bootstrap, new_id()
    async with a_transactional(bootstrap, transactional_id, two_phase_commit=True) as producer:
        await producer.begin_transaction()
        await producer.send(orders, b"v")
        state = await producer.prepare_transaction()
        await killed_and_started(two_phase_broker)
        if not recovers:
            await producer.complete_transaction(state if commit else OTHER)
    if recovers:
        async with recovering(bootstrap, transactional_id) as successor:
            assert await successor.init_transactions(keep_prepared=True) == state
            await killed_and_started(two_phase_broker)
            await successor.complete_transaction(state if commit else OTHER)
    assert await committed(bootstrap, orders) == ([b"v"] if commit else [])


@pytest.mark.slow  # runs in `make test-slow`
@needs_kip_939
@DECISIONS
@pytest.mark.parametrize("fault", ["loses", "drops", "repeats"])
@pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN], ids=lambda api: api.name)
async def test_the_decision_holds_whatever_happens_to_its_requests(
    start_broker: StartBroker, api: ApiKey, fault: str, commit: bool
) -> None:
    with FlakyProxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        broker = start_broker({**TWO_PHASE, **advertised})
        proxy.target = (broker.host, broker.port)
        topic, transactional_id = create_topic(proxy.bootstrap, "orders"), new_id()
        state = await prepared(proxy.bootstrap, transactional_id, topic)
        proxy.forget()
        setattr(proxy, fault, lambda key, _version, seen: key == api.value and seen == 0)
        async with recovering(proxy.bootstrap, transactional_id) as producer:
            assert await producer.init_transactions(keep_prepared=True) == state
            await producer.complete_transaction(state if commit else OTHER)
            await producer.begin_transaction()
            await producer.send(topic, b"next")
            await producer.commit_transaction()
        assert [*proxy.lost, *proxy.dropped, *proxy.repeated] == [api.value]
        assert await committed(proxy.bootstrap, topic) == ([b"v"] if commit else []) + [b"next"]


@needs_kip_939
async def test_closing_aborts_a_transaction_that_is_not_prepared(two_phase_broker: Broker, orders: str) -> None:
    bootstrap, transactional_id = two_phase_broker.bootstrap, new_id()
    async with a_transactional(bootstrap, transactional_id, two_phase_commit=True) as producer:
        await producer.begin_transaction()
        await producer.send(orders, b"v")
        await producer.flush()
    async with recovering(bootstrap, transactional_id) as producer:
        assert await producer.init_transactions(keep_prepared=True) is None
    assert await committed(bootstrap, orders) == []


async def test_prepare_and_complete_require_two_phase_commit(bootstrap: str, topic: str) -> None:
    async with a_transactional(bootstrap, new_id()) as producer:
        await producer.begin_transaction()
        with pytest.raises(IllegalState) as refused:
            await producer.prepare_transaction()
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        with pytest.raises(IllegalState) as refused:
            await producer.complete_transaction(OTHER)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        await producer.send(topic, b"v")
        await producer.commit_transaction()
    assert await committed(bootstrap, topic) == [b"v"]


async def test_a_broker_without_two_phase_commit_refuses_the_producer(bootstrap: str) -> None:
    """Odradek refuses the producer with an error, whereas released Kafka versions do not support the request at all."""
    async with a_producer(bootstrap, transactional_id=new_id(), two_phase_commit=True) as producer:
        with pytest.raises(FatalError if IS_KAFKA else AbortableError) as refused:
            await producer.init_transactions()
    assert refused.value.code is (
        ErrorCode.UNSUPPORTED_VERSION if IS_KAFKA else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
