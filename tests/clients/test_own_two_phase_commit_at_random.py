"""Tests an application whose database decides transactions while requests, responses, producers and the broker fail at
random.

Readers see the database's contents in the order of the decisions. `SEED=n` repeats the choices of a run (but not the
network's timing), and `SEEDS=n` sets the number of runs.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from functools import partial
from itertools import count

import pytest

from odradek.client import AbortableError, PreparedTxnState, Producer, RetriableError
from odradek.protocol.api_keys import ApiKey
from tests.clients.admin import create_topic
from tests.clients.conftest import StartBroker
from tests.clients.own_producers import TWO_PHASE, again_and_again, committed, killed_and_started
from tests.support.broker_process import IS_KAFKA, Broker
from tests.support.flaky_proxy import FlakyProxy, Rule

pytestmark = pytest.mark.slow  # runs in `make test-slow`

SEED = os.environ.get("SEED")
SEEDS = [int(SEED)] if SEED else list(range(int(os.environ.get("SEEDS", "4"))))
TRANSACTIONS = 25
FAULTS = 0.08  # probability that a request fails, except for requests that set up a connection
TRANSACTIONAL_ID = "shop"
SPARED = frozenset({ApiKey.API_VERSIONS.value, ApiKey.METADATA.value})


def now_and_then(rng: random.Random) -> Rule:
    return lambda key, _version, _seen: key not in SPARED and rng.random() < FAULTS / 3


class Application:
    """An application whose database has a `column` for the transaction. The decision is made by writing this column."""

    def __init__(self, seed: int, broker: Broker, proxy: FlakyProxy, topics: list[str]) -> None:
        self.rng = random.Random(seed)
        self.broker, self.proxy, self.topics = broker, proxy, topics
        self.column = ""
        self.decided: dict[str, list[bytes]] = {topic: [] for topic in topics}
        self.crashes = self.aborts = 0

    async def run(self) -> None:
        producer = await self.recovered()
        for number in count():
            if number >= TRANSACTIONS and self.proxy.lost and self.proxy.dropped and self.proxy.repeated:
                break  # The run ends after each kind of fault has occurred.
            records = self.some_records(number)
            try:
                state = await self.prepared(producer, records)
            except AbortableError:
                self.aborts += 1
                await again_and_again(producer.abort_transaction)
                continue
            if self.rng.random() < 0.7:  # The database commits in these cases.
                self.column = str(state)
                for topic, value in records:
                    self.decided[topic].append(value)
            if self.rng.random() < 0.3:
                await producer.close()  # Like a crash, this leaves the transaction prepared.
                if self.rng.random() < 0.3:
                    self.crashes += 1
                    await killed_and_started(self.broker)
                producer = await self.recovered()
            else:
                await self.complete(producer)
        await producer.close()

    def some_records(self, number: int) -> list[tuple[str, bytes]]:
        return [(self.rng.choice(self.topics), b"%d-%d" % (number, each)) for each in range(self.rng.randint(1, 6))]

    async def prepared(self, producer: Producer, records: list[tuple[str, bytes]]) -> PreparedTxnState:
        await producer.begin_transaction()
        for topic, value in records:
            await producer.send(topic, value)
        return await producer.prepare_transaction()

    async def recovered(self) -> Producer:
        while True:
            producer = Producer(
                bootstrap_servers=self.proxy.bootstrap,
                transactional_id=TRANSACTIONAL_ID,
                two_phase_commit=True,
                linger_ms=0,
                retry_backoff_ms=5,
                retry_backoff_max_ms=50,
            )
            with suppress(RetriableError):
                await producer.start()
                await again_and_again(partial(producer.init_transactions, keep_prepared=True))
                await self.complete(producer)
                return producer
            await producer.close()

    async def complete(self, producer: Producer) -> None:
        await again_and_again(lambda: producer.complete_transaction(PreparedTxnState.parse(self.column)))


@pytest.mark.skipif(IS_KAFKA, reason="no released Kafka keeps prepared transactions")
@pytest.mark.parametrize("seed", SEEDS)
async def test_readers_see_exactly_the_transactions_that_the_database_has_committed(
    start_broker: StartBroker, seed: int
) -> None:
    with FlakyProxy() as proxy:
        broker = start_broker({**TWO_PHASE, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"})
        proxy.target = (broker.host, broker.port)
        topics = [create_topic(proxy.bootstrap, name) for name in ("orders", "kitchen")]
        network = random.Random(seed)
        proxy.loses, proxy.drops, proxy.repeats = (now_and_then(network) for _ in range(3))
        application = Application(seed, broker, proxy, topics)
        async with asyncio.timeout(120):
            await application.run()
        proxy.forget()
        found = {topic: await committed(proxy.bootstrap, topic) for topic in topics}
    assert found == application.decided, f"SEED={seed}"
