"""Tests Odradek's producer while the cluster's transaction.version changes, and after the producer's recovery."""

from __future__ import annotations

import uuid

import pytest

from odradek.client import Admin, FatalError, Producer
from tests.clients.admin import create_topic
from tests.clients.conftest import StartBroker
from tests.clients.own_producers import TWO_PHASE, a_transactional, committed, set_transaction_version
from tests.support.broker_process import IS_KAFKA, Broker

pytestmark = pytest.mark.slow  # runs in `make test-slow`

TIMEOUT_MS = 50_000
# Kafka 4.3.1 refuses EndTxn v5 at version 0, after which the transactional id is stuck.
of_odradek = pytest.mark.skipif(IS_KAFKA, reason="a released Kafka does not survive this itself")


def new_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    return start_broker(TWO_PHASE)


@pytest.fixture
def orders(broker: Broker) -> str:
    return create_topic(broker.bootstrap, "orders")


async def transaction(producer: Producer, topic: str, value: bytes, *, commit: bool = True) -> None:
    await producer.begin_transaction()
    for _ in range(2):
        await (await producer.send(topic, value))
    if commit:
        await producer.commit_transaction()
    else:
        await producer.abort_transaction()


@of_odradek
@pytest.mark.parametrize("levels", [(0,), (1,), (0, 2), (1, 2), (0, 1, 2, 0)])
@pytest.mark.parametrize("is_open", [True, False], ids=["in a transaction", "between two"])
async def test_a_producer_survives_every_change_of_the_version(
    broker: Broker, orders: str, levels: tuple[int, ...], is_open: bool
) -> None:
    async with a_transactional(broker.bootstrap, new_id()) as producer:
        await transaction(producer, orders, b"first")
        for level in levels:
            value = f"at {level}".encode()
            if is_open:
                await producer.begin_transaction()
                await (await producer.send(orders, value))
            await set_transaction_version(broker.bootstrap, level)
            if is_open:
                await producer.commit_transaction()
            await transaction(producer, orders, b"dropped", commit=False)
            await transaction(producer, orders, value)
    expected = [b"first"] * 2 + [f"at {level}".encode() for level in levels for _ in range(2 + is_open)]
    assert await committed(broker.bootstrap, orders) == expected


@of_odradek
async def test_below_version_2_a_two_phase_commit_can_be_ended_but_none_can_begin(broker: Broker, orders: str) -> None:
    async with a_transactional(broker.bootstrap, new_id(), two_phase_commit=True) as producer:
        await producer.begin_transaction()
        await producer.send(orders, b"prepared")
        state = await producer.prepare_transaction()
        await set_transaction_version(broker.bootstrap, 0)
        await producer.complete_transaction(state)
        with pytest.raises(FatalError, match=r"transaction\.version 2"):
            await producer.begin_transaction()
    assert await committed(broker.bootstrap, orders) == [b"prepared"]


async def timeout_of(bootstrap: str, transactional_id: str) -> int | None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        described = (await admin.describe_transactions([transactional_id]))[transactional_id]
    assert described.state == "Ongoing"
    return described.timeout_ms


@of_odradek
async def test_neither_the_recovered_nor_the_next_transaction_of_a_two_phase_producer_has_a_timeout(
    broker: Broker, orders: str
) -> None:
    bootstrap, transactional_id = broker.bootstrap, new_id()
    async with a_transactional(bootstrap, transactional_id, transaction_timeout_ms=TIMEOUT_MS) as ordinary:
        await ordinary.begin_transaction()
        await (await ordinary.send(orders, b"left"))
        assert await timeout_of(bootstrap, transactional_id) == TIMEOUT_MS
        async with Producer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, two_phase_commit=True
        ) as producer:
            state = await producer.init_transactions(keep_prepared=True)
            assert state is not None
            assert await timeout_of(bootstrap, transactional_id) is None
            await producer.complete_transaction(state)
            await producer.begin_transaction()
            await (await producer.send(orders, b"next"))
            assert await timeout_of(bootstrap, transactional_id) is None
            await producer.complete_transaction(await producer.prepare_transaction())
    assert await committed(bootstrap, orders) == [b"left", b"next"]


@of_odradek
async def test_after_an_ordinary_producer_recovers_a_two_phase_commit_its_transactions_have_a_timeout(
    broker: Broker, orders: str
) -> None:
    bootstrap, transactional_id = broker.bootstrap, new_id()
    async with a_transactional(bootstrap, transactional_id, two_phase_commit=True) as producer:
        await producer.begin_transaction()
        await producer.send(orders, b"left")
        await producer.prepare_transaction()
    async with Producer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
    ) as producer:
        await producer.init_transactions(keep_prepared=True)
        assert await timeout_of(bootstrap, transactional_id) is None
        await producer.commit_transaction()
        await producer.begin_transaction()
        await (await producer.send(orders, b"next"))
        assert await timeout_of(bootstrap, transactional_id) == TIMEOUT_MS
