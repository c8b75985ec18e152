"""Tests that used, forked and deleted clusters leave nothing behind in their process: no file, descriptor, thread,
task, object or memory.

The environment variable CLUSTERS sets the number of clusters. Its default is 40.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import threading
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from weakref import WeakSet

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from odradek.broker.broker import Broker
from odradek.broker.control.clusters.clusters import CLOSED_BROKERS_PER_RETURN, Cluster, Clusters
from odradek.broker.control.clusters.copies import PREFIX, parent_of_roots

COUNT = int(os.environ.get("CLUSTERS", "40"))
PATIENCE_S = 30
WARM_UP = 20  # number of clusters after which all objects created once per process exist
MAX_BYTES = 2_000  # allowed growth of caches per cluster, in bytes


@dataclass(frozen=True, slots=True)
class Resources:
    descriptors: int
    threads: int
    tasks: int
    files: int


@pytest.fixture
async def clusters() -> AsyncIterator[Clusters]:
    made = Clusters(asyncio.get_running_loop())
    yield made
    await made.close()


async def one_life(clusters: Clusters, lives: WeakSet[Broker]) -> None:
    one = await clusters.create({}, None, None)
    await asyncio.to_thread(produce, bootstrap(one))
    other = await clusters.create({}, one.id, None)
    assert (
        await asyncio.to_thread(consume, bootstrap(one)) == await asyncio.to_thread(consume, bootstrap(other)) == b"a"
    )
    lives.update(each.running.broker for each in (one, other))
    await clusters.delete(one.id)
    await clusters.delete(other.id)


async def wait_for_release(lives: WeakSet[Broker]) -> None:
    """Waits until the brokers of deleted clusters have been garbage-collected."""
    async with asyncio.timeout(PATIENCE_S):
        while lives:
            gc.collect()  # frees cycles; frozen objects are freed by reference counting only
            await asyncio.sleep(0.1)


def bootstrap(cluster: Cluster) -> str:
    return str(cluster.as_json()["bootstrap"])


def produce(at: str) -> None:
    producer = Producer({"bootstrap.servers": at, "linger.ms": 0})
    producer.produce("orders", b"a")
    assert producer.flush(30) == 0


def consume(at: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": at, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    message: Message | None = None
    while message is None:
        message = consumer.poll(30)
    consumer.close()
    return message.value()


def left() -> Resources:
    gc.collect()
    gc.collect()
    return Resources(
        descriptors=len(os.listdir("/proc/self/fd")),
        # Threads of `to_thread` do not count, because the loop starts another one, up to a limit, whenever none is
        # idle.
        threads=sum(not each.name.startswith("asyncio_") for each in threading.enumerate()),
        tasks=len(asyncio.all_tasks()),
        files=sum(1 for root in parent_of_roots().glob(f"{PREFIX}{os.getpid()}-*") for _ in Path(root).iterdir()),
    )


def grown(now: Resources, before: Resources) -> dict[str, int]:
    """Returns the resources whose count has increased. A count may also decrease, for example when librdkafka closes an
    older socket."""
    return {name: count for name, count in asdict(now).items() if count > asdict(before)[name]}


def held_bytes() -> int:
    """Returns the number of allocated bytes.

    Leaves out allocations by pathlib, which interns names in a table that grows by megabytes at a time.
    """
    without = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, pathlib.__file__)])
    return sum(each.size for each in without.traces)


async def test_memory_is_returned_after_every_so_many_clusters() -> None:
    returned = asyncio.Event()
    clusters = Clusters(asyncio.get_running_loop(), returned.set)
    async with asyncio.timeout(PATIENCE_S):
        for count in range(CLOSED_BROKERS_PER_RETURN):
            assert not returned.is_set(), count
            await clusters.delete((await clusters.create({}, None, None)).id)
        await returned.wait()
    await clusters.close()


@pytest.mark.slow
async def test_nothing_is_left_of_deleted_clusters(clusters: Clusters) -> None:
    lives: WeakSet[Broker] = WeakSet()
    for _ in range(WARM_UP):
        await one_life(clusters, lives)
    tracemalloc.start()
    try:
        await one_life(clusters, lives)
        await wait_for_release(lives)
        before, bytes_before = left(), held_bytes()
        for _ in range(COUNT):
            await one_life(clusters, lives)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):  # librdkafka closes sockets some time after `close`.
                while grown(left(), before):
                    await asyncio.sleep(0.1)
        await wait_for_release(lives)
        assert not grown(left(), before)
        assert (held_bytes() - bytes_before) / COUNT < MAX_BYTES
    finally:
        tracemalloc.stop()
