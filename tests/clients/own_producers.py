"""Helpers for tests of Odradek's producer: producers that retry quickly, and functions that read the written
records."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from odradek.client import Producer, RetriableError, TopicPartition
from odradek.client.network.cluster import Cluster
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from tests.clients.admin import create_topic
from tests.clients.speakers import wait_for
from tests.clients.test_transactions import is_decided, offset_becomes
from tests.clients.transactions import confluent_values
from tests.support.broker_process import Broker
from tests.support.flaky_proxy import FlakyProxy

UPGRADE, SAFE_DOWNGRADE = 1, 2
TWO_PHASE: dict[str, object] = {"transaction.two.phase.commit.enable": "true"}


async def set_transaction_version(bootstrap: str, level: int) -> None:
    cluster = Cluster(bootstrap, client_id="test")
    await cluster.start()
    kind = UPGRADE if level > cluster.transaction_version else SAFE_DOWNGRADE
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
    answer = await cluster.ask(
        UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), UpdateFeaturesResponse
    )
    assert answer.error_code == 0, answer
    await cluster.close()


@asynccontextmanager
async def a_producer(bootstrap: str, **more: Any) -> AsyncIterator[Producer]:
    settings: dict[str, Any] = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 100, "linger_ms": 0}
    async with Producer(bootstrap_servers=bootstrap, **(settings | more)) as producer:
        yield producer


@asynccontextmanager
async def a_transactional(bootstrap: str, transactional_id: str, **more: Any) -> AsyncIterator[Producer]:
    """Yields a transactional producer that has called `init_transactions`."""
    async with a_producer(bootstrap, transactional_id=transactional_id, **more) as producer:
        await producer.init_transactions()
        yield producer


async def committed(bootstrap: str, topic: str) -> list[bytes]:
    """Returns the values that read_committed consumers see.

    Waits until no transaction is open, because Kafka answers EndTxn before it writes the markers.
    """

    def read() -> list[bytes]:
        wait_for("the markers", lambda: is_decided(bootstrap, topic))
        return confluent_values(bootstrap, topic, committed=True)

    return await asyncio.to_thread(read)


async def written(bootstrap: str, topic: str) -> list[bytes]:
    """Returns the values of all records, committed or not."""
    return await asyncio.to_thread(confluent_values, bootstrap, topic, committed=False)


async def again_and_again(call: Callable[[], Awaitable[object]]) -> None:
    """Retries a call until it no longer raises RetriableError."""
    while True:
        with suppress(RetriableError):
            await call()
            return


async def killed_and_started(broker: Broker) -> None:
    await asyncio.to_thread(broker.kill9)
    await asyncio.to_thread(broker.start)


async def two_transactions_with_a_fault(proxy: FlakyProxy, api: ApiKey, fault: str, *, commit: bool) -> None:
    """Runs two transactions. During the first one, the proxy "loses" a response to `api`, or "drops" a request. The
    producer retries without raising an error in the application.

    commit  whether the first transaction commits too
    """
    topic, group = create_topic(proxy.bootstrap, f"{fault}-{api.name}"), uuid.uuid4().hex
    setattr(proxy, fault, lambda key, _version, seen: key == api.value and seen == 0)
    async with a_transactional(proxy.bootstrap, uuid.uuid4().hex) as producer:
        for last in (False, True):
            await producer.begin_transaction()
            await producer.send(topic, b"last" if last else b"first")
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 20 if last else 10}, group)
            await producer.flush()
            if last or commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
    assert [*proxy.lost, *proxy.dropped] == [api.value]
    proxy.forget()
    assert await committed(proxy.bootstrap, topic) == ([b"first"] if commit else []) + [b"last"]
    assert await written(proxy.bootstrap, topic) == [b"first", b"last"]
    await asyncio.to_thread(offset_becomes, proxy.bootstrap, group, topic, 20)
