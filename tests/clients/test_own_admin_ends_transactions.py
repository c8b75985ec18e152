"""Tests that `Admin.end_transaction` ends a transaction that another process has prepared, if the prepared state
matches (KIP-939)."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import pytest

from odradek.client import Admin, ClientError, PreparedTxnState, ProducerFenced
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.conftest import StartBroker
from tests.clients.own_producers import TWO_PHASE, a_producer, a_transactional, committed, set_transaction_version
from tests.support.broker_process import IS_KAFKA, Broker
from tests.support.flaky_proxy import FlakyProxy

pytestmark = [
    pytest.mark.skipif(IS_KAFKA, reason="no released Kafka advertises InitProducerId v6"),
    pytest.mark.slow,  # runs in `make test-slow`
]


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    return start_broker(TWO_PHASE)


@pytest.fixture
def orders(broker: Broker) -> str:
    return create_topic(broker.bootstrap, "orders")


async def prepared(broker: Broker, topic: str, value: bytes = b"v") -> tuple[str, PreparedTxnState]:
    """Prepares a transaction and closes its producer without a decision. Returns the transactional id and the prepared
    state."""
    transactional_id = f"id-{uuid.uuid4().hex[:8]}"
    async with a_transactional(broker.bootstrap, transactional_id, two_phase_commit=True) as producer:
        await producer.begin_transaction()
        await producer.send(topic, value)
        return transactional_id, await producer.prepare_transaction()


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_the_end_of_a_transaction_can_be_repeated_but_not_reversed(
    broker: Broker, orders: str, commit: bool
) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        transactional_id, state = await prepared(broker, orders)
        for _ in range(3):
            await admin.end_transaction(transactional_id, state, committed=commit)
        with pytest.raises(ProducerFenced, match=str(state)):
            await admin.end_transaction(transactional_id, state, committed=not commit)
        await admin.end_transaction(transactional_id, state, committed=commit)
    assert await committed(broker.bootstrap, orders) == ([b"v"] if commit else [])


async def terminated(broker: Broker, transactional_id: str) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.force_terminate_transaction(transactional_id)


async def recovered(broker: Broker, transactional_id: str) -> None:
    async with a_producer(broker.bootstrap, transactional_id=transactional_id, two_phase_commit=True) as producer:
        await producer.init_transactions(keep_prepared=True)


async def gone_on(broker: Broker, transactional_id: str) -> None:
    async with a_producer(broker.bootstrap, transactional_id=transactional_id, two_phase_commit=True) as producer:
        state = await producer.init_transactions(keep_prepared=True)
        assert state is not None
        await producer.complete_transaction(state)
        await producer.begin_transaction()


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("happened", [terminated, recovered, gone_on], ids=lambda each: each.__name__)
async def test_a_transaction_with_another_owner_is_not_reported_as_ended(
    broker: Broker, orders: str, happened: Callable[[Broker, str], Awaitable[None]], commit: bool
) -> None:
    transactional_id, state = await prepared(broker, orders)
    await happened(broker, transactional_id)
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        with pytest.raises(ProducerFenced) as refused:
            await admin.end_transaction(transactional_id, state, committed=commit)
    assert refused.value.code is ErrorCode.PRODUCER_FENCED


async def test_a_new_owner_ends_a_recovered_transaction_with_its_own_id_and_epoch(broker: Broker, orders: str) -> None:
    transactional_id, state = await prepared(broker, orders)
    await recovered(broker, transactional_id)
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        owner = PreparedTxnState(state.producer_id, state.producer_epoch + 1)
        await admin.end_transaction(transactional_id, owner, committed=True)
    assert await committed(broker.bootstrap, orders) == [b"v"]


async def test_ending_a_transaction_of_an_unknown_id_raises_an_error(broker: Broker) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        with pytest.raises(ProducerFenced) as refused:
            await admin.end_transaction("nobody", PreparedTxnState(1, 2), committed=True)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_the_empty_state_names_no_transaction(broker: Broker) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.end_transaction("nobody", PreparedTxnState(), committed=True)


async def test_many_are_ended_at_once_and_each_has_its_own_outcome(broker: Broker, orders: str) -> None:
    there = [await prepared(broker, orders, b"%d" % number) for number in range(5)]
    ends = [(transactional_id, state, number % 2 == 0) for number, (transactional_id, state) in enumerate(there)]
    unknown = ("nobody", PreparedTxnState(1, 2), True)
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        outcomes = await admin.end_transactions([*ends[:3], unknown, *ends[3:]])
    assert [type(each) for each in outcomes] == [type(None)] * 3 + [ProducerFenced] + [type(None)] * 2
    assert sorted(await committed(broker.bootstrap, orders)) == [b"0", b"2", b"4"]


@pytest.mark.parametrize("fault", ["loses", "drops"])
async def test_an_answer_that_is_lost_is_asked_for_again(start_broker: StartBroker, fault: str) -> None:
    with FlakyProxy() as proxy:
        broker = start_broker({**TWO_PHASE, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"})
        proxy.target = (broker.host, broker.port)
        orders = create_topic(proxy.bootstrap, "orders")
        transactional_id = "behind-the-proxy"
        async with a_transactional(proxy.bootstrap, transactional_id, two_phase_commit=True) as producer:
            await producer.begin_transaction()
            await producer.send(orders, b"v")
            state = await producer.prepare_transaction()
        async with Admin(bootstrap_servers=proxy.bootstrap, retry_backoff_ms=10, request_timeout_ms=2_000) as admin:
            setattr(proxy, fault, lambda key, _, seen: key == ApiKey.END_TXN.value and seen == 0)
            await admin.end_transaction(transactional_id, state, committed=True)
        assert proxy.request_count(ApiKey.END_TXN.value) == 2
        assert await committed(proxy.bootstrap, orders) == [b"v"]


async def test_below_version_2_an_id_and_epoch_do_not_identify_one_transaction(broker: Broker, orders: str) -> None:
    transactional_id, state = await prepared(broker, orders)
    await set_transaction_version(broker.bootstrap, 0)
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        with pytest.raises(ClientError) as refused:
            await admin.end_transaction(transactional_id, state, committed=True)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        await set_transaction_version(broker.bootstrap, 2)
        await admin.end_transaction(transactional_id, state, committed=True)
