"""Tests that a deleted cluster's memory is freed without the garbage collector, whose runs would delay all other
clusters."""

from __future__ import annotations

import asyncio
import gc
import time
from weakref import ref

from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.broker.broker import Broker
from odradek.broker.control.clusters.clusters import Clusters

PATIENCE_S = 30
# If the cluster's objects formed cycles, the collector would find more than 3,000 objects (100 partitions of internal
# topics).
MAX_REMAINING_OBJECTS = 300


def use(bootstrap: str) -> None:
    """Commits a transaction, reads its record with a consumer, and commits an offset."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", b"a")
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"a"
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()


async def live(clusters: Clusters) -> ref[Broker]:
    """Creates and deletes a cluster. Returns a weak reference to its broker."""
    cluster = await clusters.create({}, None, None)
    await asyncio.to_thread(use, f"127.0.0.1:{next(iter(cluster.ports.values()))}")
    broker = ref(cluster.running.broker)
    await clusters.delete(cluster.id)
    return broker


async def until_gone(broker: ref[Broker]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while broker() is not None:
        assert time.monotonic() < until_s, "the broker of a deleted cluster is there still"
        await asyncio.sleep(0.01)


async def test_a_deleted_cluster_leaves_next_to_nothing_to_the_garbage_collector() -> None:
    clusters = Clusters(asyncio.get_running_loop())
    gc.disable()
    try:
        await until_gone(await live(clusters))  # the first cluster imports modules, which leaves garbage
        gc.unfreeze()
        gc.collect()
        await until_gone(await live(clusters))
        gc.unfreeze()  # otherwise the collector would skip objects that existed when the cluster had started
        assert gc.collect() <= MAX_REMAINING_OBJECTS
    finally:
        gc.enable()
        await clusters.close()
