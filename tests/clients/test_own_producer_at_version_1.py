"""Tests Odradek's producer in a cluster with transaction.version 1. The producer adds partitions itself, and its epoch
does not change."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from odradek.client import AbortableError, FatalError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.conftest import SETTINGS
from tests.clients.own_producers import (
    TWO_PHASE,
    a_producer,
    a_transactional,
    committed,
    set_transaction_version,
    two_transactions_with_a_fault,
)
from tests.support.broker_process import new_broker
from tests.support.flaky_proxy import FlakyProxy

OF_A_TRANSACTION = [
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
]


@pytest.fixture(scope="module")
def at_version_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlakyProxy]:
    """Yields a proxy in front of a broker that advertises the proxy's address."""
    with FlakyProxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with new_broker(tmp_path_factory.mktemp("broker") / "data", {**SETTINGS, **TWO_PHASE, **advertised}) as broker:
            proxy.target = (broker.host, broker.port)
            asyncio.run(set_transaction_version(proxy.bootstrap, 1))
            yield proxy


@pytest.fixture
def proxy(at_version_1: FlakyProxy) -> Iterator[FlakyProxy]:
    at_version_1.forget()
    yield at_version_1
    at_version_1.forget()


def new_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


async def test_partitions_are_added_before_records_go_there(proxy: FlakyProxy) -> None:
    topic = create_topic(proxy.bootstrap, "added", partitions=3)
    async with a_transactional(proxy.bootstrap, new_id()) as producer:
        for commit in (True, False, True):
            await producer.begin_transaction()
            for partition in range(3):
                await producer.send(topic, b"kept" if commit else b"dropped", partition=partition)
            if commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
    assert proxy.request_count(ApiKey.ADD_PARTITIONS_TO_TXN.value) >= 2
    assert await committed(proxy.bootstrap, topic) == [b"kept", b"kept"]


@pytest.mark.parametrize("api", OF_A_TRANSACTION, ids=lambda api: api.name)
@pytest.mark.parametrize("fault", ["loses", "drops"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_each_request_of_a_transaction_is_asked_again(
    proxy: FlakyProxy, api: ApiKey, fault: str, commit: bool
) -> None:
    await two_transactions_with_a_fault(proxy, api, fault, commit=commit)


async def test_after_a_refused_record_the_next_transaction_has_a_new_epoch(proxy: FlakyProxy) -> None:
    topic = create_topic(proxy.bootstrap, "refused", config={"max.message.bytes": 1_000})
    async with a_transactional(proxy.bootstrap, new_id(), batch_size=300) as producer:
        await producer.begin_transaction()
        for size in (100, 5_000, 100, 100, 100):
            await producer.send(topic, b"v" * size)
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"next")
        await producer.commit_transaction()
    assert await committed(proxy.bootstrap, topic) == [b"next"]


async def test_two_phase_commit_requires_transaction_version_2(proxy: FlakyProxy) -> None:
    async with a_producer(proxy.bootstrap, transactional_id=new_id(), two_phase_commit=True) as producer:
        with pytest.raises(FatalError, match=r"transaction\.version 2") as refused:
            await producer.init_transactions()
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
