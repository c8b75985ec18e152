"""Tests that a reset removes everything that a test has done to its cluster.

A reset deletes rules and holds, ends rare answers and the lease, lets the clock continue, and returns to a checkpoint.
The cluster's state, as shown by the control interface and the broker, then equals the state at the checkpoint. The
number of objects of each class that can be reached from the cluster is the same as for an unused cluster. No object
contains a name that the test used, and memory does not grow. A seed chooses the test's calls. Only the last requests
are kept intentionally, because a test may read them after a restart.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import pytest

from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.control.clusters.clusters import Cluster as ServedCluster
from odradek.broker.control.clusters.clusters import Clusters
from odradek.broker.control.http.routes import add_control
from odradek.broker.control.presets.table import PRESETS
from odradek.broker.control.recording.exchanges import Exchanges
from odradek.broker.network.recent_exchanges import RecentExchanges
from odradek.broker.network.server import Server
from odradek.broker.runtime.loop_watch import LoopWatch
from odradek.broker.serving import ServingBroker
from odradek.protocol.kafka_json import kafka_json
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.struct import Message
from odradek.testing.asynchronous import Cluster, Odradek
from odradek.testing.sync import Refused, Unmet
from tests.support.wire import ClosedByBroker, Wire

SEEDS = int(os.environ.get("SEEDS", "2"))
FEW, MANY, AGAIN = range(2), range(2, 2 + SEEDS), range(2, 4)  # seeds; memory is measured after each run over AGAIN
CALLS = 12  # number of calls in a sequence
MARK = "residue"  # part of every name that a sequence uses
MAX_BYTES = 50_000  # bytes that a sequence may leave for kept requests; a leaked broker takes up 150,000
BEGINNING = "fresh"
SOON_MS = 60_000  # By then the broker has finished all delayed work, such as recording completed transactions.
WHERE = {"topic": f"{MARK}-topic", "group": f"{MARK}-group", "transactional_id": f"{MARK}-id"}
RULES: tuple[Mapping[str, Any], ...] = (
    {"at": "accepted", "do": {"disconnect": True}, "times": 2},
    {"match": {"api": "EndTxn"}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 2},
    {"match": {"api": "Fetch"}, "do": {"hold": f"{MARK}-fetch"}},
    {"match": {"api": "Produce"}, "at": "applied", "do": {"delay_ms": 60_000}},
    {"match": {"api": "Metadata"}, "at": "applied", "do": {"drop": True}, "every": 3},
    {"match": {"api": "InitProducerId"}, "do": {"hold": f"{MARK}-init"}},
    {"match": {"api": "Metadata"}, "at": "applied", "do": {"edit": {"Topics": {"reverse": True}}, "throttle_ms": 7}},
    {"match": {"api": "Fetch"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER", "partitions": [0]}},
    {"match": {"api": "ShareGroupHeartbeat"}, "at": "replying", "do": {"hold": f"{MARK}-replying"}},
    {"match": {"api": "Fetch"}, "at": "replying", "do": {"disconnect": "rst"}},
    {"at": "verified", "do": {"delay_ms": 1}, "times": 1},
    {"at": "prepared", "do": {"hold": f"{MARK}-prepared"}},
    {"at": "share_state", "do": {"hold": f"{MARK}-share-state"}},
    {"at": "marker", "do": {"hold": f"{MARK}-marker"}},
    {"at": "completed", "do": {"delay_ms": 3_600_000}},
    {"at": "loading", "match": {"topic": "__consumer_offsets"}, "do": {"hold": f"{MARK}-loading"}},
    {"do": {"observe": True}, "probability": 0.5, "seed": 3},
)
REQUESTS: tuple[tuple[Message, int], ...] = (
    (InitProducerIdRequest(transactional_id=WHERE["transactional_id"], transaction_timeout_ms=10_000), 4),
    (MetadataRequest(topics=None), 12),
    (
        ConsumerGroupHeartbeatRequest(
            group_id=WHERE["group"],
            member_id=f"{MARK}-member",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[WHERE["topic"]],
            topic_partitions=list[TopicPartitions](),
        ),
        1,
    ),
    (
        ShareGroupHeartbeatRequest(
            group_id=f"{MARK}-share", member_id=f"{MARK}-member", subscribed_topic_names=[WHERE["topic"]]
        ),
        1,
    ),
    (
        FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            session_epoch=0,
            topics=[FetchTopic(topic="before", partitions=[FetchPartition(partition=0, fetch_offset=1_000)])],
        ),
        12,
    ),
    (
        AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type="client-id", entity_name=f"{MARK}-client")],
                    ops=[OpData(key="producer_byte_rate", value=1000.0)],
                )
            ]
        ),
        1,
    ),
)
ASKED: tuple[tuple[Message, int], ...] = (
    (MetadataRequest(topics=None), 12),
    (ListGroupsRequest(), 5),
    (ListTransactionsRequest(), 1),
    (DescribeClientQuotasRequest(components=[], strict=False), 1),
    (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="before")]), 4),
)
DRAWN = sorted(PRESETS)
# The search stops at these types, whose contents belong to other objects or depend on real time.
STOPPED = (type, ModuleType, BuiltinFunctionType, asyncio.AbstractEventLoop, Exchanges, RecentExchanges, LoopWatch)


@dataclass(frozen=True, slots=True)
class Scene:
    clusters: Clusters
    odradek: Odradek

    def served(self, kafka: Cluster) -> ServedCluster:
        return self.clusters.get(kafka.id)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clusters = Clusters(asyncio.get_running_loop())
    config = BrokerConfig({"log.dirs": str(tmp_path), "odradek.port": "0", "odradek.http.port": "0"})
    serving: ServingBroker = await clusters.start_default(config, lambda app: add_control(app, clusters))
    assert serving.control is not None
    odradek = Odradek("127.0.0.1", serving.control.port)
    yield Scene(clusters, odradek)
    await odradek.stop()
    await clusters.close()
    await serving.stop(0)


async def prepared_cluster(scene: Scene, nodes: int) -> Cluster:
    """Returns a cluster that has some state and has been reset to its checkpoint once."""
    kafka = await scene.odradek.cluster(nodes=nodes)
    await kafka.preset("aborted-tail", topic="before", transactional_id="before")
    await kafka.preset("log-end-before-commit", topic="before", group="before")
    await kafka.clock.freeze()  # so that no time passes between two observations
    await kafka.clock.advance(SOON_MS)
    await kafka.checkpoint(BEGINNING)
    await reset(kafka)
    return kafka


async def reset(kafka: Cluster) -> None:
    await kafka.clear_faults()
    await kafka.odd(0)
    await kafka.clock.resume()
    await kafka.call("POST", "/lease", {"ttl_s": None})
    await kafka.clock.freeze()
    await kafka.rewind(BEGINNING)


async def disturb(scene: Scene, kafka: Cluster, random: Random) -> None:
    """Makes one random change to the cluster. The broker may refuse it."""
    nodes = [each["id"] for each in await kafka.nodes()]
    waiting = list(await kafka.holds())
    moved = random.choice(nodes)
    calls: list[Callable[[], Any]] = [
        lambda: kafka.fault(random.choice(RULES)),
        lambda: kafka.release(random.choice([*waiting, "nothing"])),
        lambda: kafka.clear_faults(),
        lambda: kafka.clock.freeze(),
        lambda: kafka.clock.resume(),
        lambda: kafka.clock.advance(random.randrange(3_600_000)),
        lambda: kafka.odd(random.randrange(1, 100)),
        lambda: kafka.cut_off(moved, f"{MARK}-client"),
        lambda: kafka.call("POST", "/lease", {"ttl_s": 600}),
        lambda: kafka.restart(clean=random.random() < 0.5),
        lambda: kafka.stop_node(moved, clean=random.random() < 0.5),
        lambda: kafka.start_node(moved),
        lambda: kafka.move_leader("before", 0, moved),
        lambda: kafka.move_coordinator("group", WHERE["group"], moved),
        lambda: kafka.truncate("before", 0, random.randrange(3)),
        lambda: kafka.wait(topic="before", log_end_offset=random.randrange(9), timeout_s=0.01),
    ]
    calls += [partial(marked_preset, kafka, name) for name in random.sample(DRAWN, 4)]
    calls += [partial(asyncio.to_thread, send, kafka, request) for request in random.sample(REQUESTS, 4)]
    with suppress(Refused, Unmet):
        await random.choice(calls)()


async def marked_preset(kafka: Cluster, name: str) -> None:
    defaults = PRESETS[name].defaults
    await kafka.preset(name, **{each: named for each, named in WHERE.items() if each in defaults})


def send(kafka: Cluster, request: tuple[Message, int]) -> None:
    """Sends a request, waits briefly for a response, and closes the connection."""
    with suppress(OSError, ClosedByBroker), Wire(kafka.bootstrap.partition(",")[0], f"{MARK}-client") as wire:
        wire.send(*request)
        wire.set_timeout(0.02)
        wire.receive_bytes()


async def reported_state(scene: Scene, kafka: Cluster) -> Mapping[str, object]:
    """Returns everything that the control interface and Kafka's protocol show of the cluster."""
    logs = {
        f"{each.topic}-{each.index}": (each.log.log_start_offset, each.log.last_stable_offset, each.log.log_end_offset)
        for each in scene.served(kafka).running.broker.partitions
    }
    shown = {path: (await kafka.call("GET", path))[1] for path in ("", "/faults", "/holds", "/clock", "/odd")}
    rows = [await kafka.producers(), await kafka.sessions(), await kafka.connections()]
    answers = await asyncio.to_thread(answered, kafka)
    while await kafka.connections():  # The broker may not have noticed that its client has left.
        await asyncio.sleep(0.001)
    return {"answers": answers, "logs": logs, "shown": shown, "rows": rows}


def answered(kafka: Cluster) -> list[object]:
    with Wire(kafka.bootstrap.partition(",")[0]) as wire:
        return [kafka_json(wire.ask(request, version), version) for request, version in ASKED]


def reached(cluster: ServedCluster) -> tuple[Counter[str], set[str]]:
    """Counts the instances of each Odradek class that are reachable from the cluster. Returns the counts and all
    reachable strings."""
    counts: Counter[str] = Counter()
    texts: set[str] = set()
    seen: set[int] = set()
    waiting: list[object] = [cluster]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, STOPPED):
            continue
        seen.add(id(one))
        kind = type(one)
        if kind.__module__.startswith("odradek."):
            counts[f"{kind.__module__}.{kind.__qualname__}"] += 1
        # A server's buffer belongs to the event loop and contains bytes of other clusters.
        if isinstance(one, Server):
            seen |= {id(one.receive_buffer), id(one.received), id(one.receive_buffer.obj)}
        if isinstance(one, str):
            texts.add(one)
        elif isinstance(one, bytes | bytearray | memoryview):
            texts.add(bytes(one).decode("latin-1"))
        elif isinstance(one, FunctionType):
            waiting += [each.cell_contents for each in one.__closure__ or ()]
        else:
            waiting += gc.get_referents(one)
    return counts, texts


async def check_seed(scene: Scene, seed: int) -> None:
    random = Random(seed)
    nodes = random.choice([1, 1, 2])
    fresh, used = await prepared_cluster(scene, nodes), await prepared_cluster(scene, nodes)
    before = await reported_state(scene, used)
    for _ in range(CALLS):
        await disturb(scene, used, random)
    await reset(used)
    assert await reported_state(scene, used) == before
    await reported_state(scene, fresh)
    counts, texts = reached(scene.served(used))
    assert counts == reached(scene.served(fresh))[0]
    assert [each for each in texts if MARK in each] == []
    await fresh.delete()
    await used.delete()


@pytest.mark.parametrize("seed", FEW)
async def test_nothing_is_left_behind_by_a_reset(scene: Scene, seed: int) -> None:
    await check_seed(scene, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
async def test_nothing_is_left_behind_by_many_resets(scene: Scene, seed: int) -> None:
    await check_seed(scene, seed)


@pytest.mark.slow
async def test_resets_do_not_use_up_memory(scene: Scene) -> None:
    """Each sequence runs several times before the measurement, because caches fill in the first runs and a table of the
    interpreter grows once."""
    kafka = await prepared_cluster(scene, 1)

    async def all_of_them() -> int:
        for seed in AGAIN:
            random = Random(seed)
            for _ in range(CALLS):
                await disturb(scene, kafka, random)
            await reset(kafka)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        await all_of_them()
        used = [await all_of_them() for _ in range(3)]
        assert min(after - before for before, after in pairwise(used)) / len(AGAIN) < MAX_BYTES
    finally:
        tracemalloc.stop()
