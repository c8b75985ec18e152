"""Tests that the loop is not blocked when a node in a cluster with many partitions stops or starts, because the
resulting changes are decided in slices."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.broker.control.clusters.clusters import Cluster, Clusters
from odradek.broker.control.faults.steps import ControlledSteps
from odradek.broker.metadata.records import Decision
from odradek.broker.runtime.slices import ENTRIES_PER_SLICE
from odradek.client import Admin, NewTopic

PARTITIONS = 8 * ENTRIES_PER_SLICE


class WatchedTurns:
    """Counts the turns of the loop before each decision about many partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self.turns: list[int] = []
        self._passed = 0
        steps = cluster.running.broker.steps
        assert isinstance(steps, ControlledSteps)
        assert steps.nodes is not None
        self._nodes, steps.nodes = steps.nodes, self
        self._loop = asyncio.get_running_loop()
        self._tick()

    def _tick(self) -> None:
        self._passed += 1
        self._next = self._loop.call_soon(self._tick)

    def adapt_decision(self, decision: Decision[Any]) -> Decision[Any]:
        if len(decision.records) > 1:
            self.turns.append(self._passed)
        self._passed = 0
        return self._nodes.adapt_decision(decision)

    def end(self) -> None:
        self._next.cancel()


async def test_a_node_that_stops_or_starts_moves_partitions_in_slices() -> None:
    clusters = Clusters(asyncio.get_running_loop())
    cluster = await clusters.create({}, None, None, 3)
    async with Admin(bootstrap_servers=f"127.0.0.1:{next(iter(cluster.ports.values()))}") as admin:
        await admin.create_topics([NewTopic("many", PARTITIONS)])
    nodes, image = cluster.running_nodes, cluster.running.broker.metadata.image
    places = image.topics["many"].partitions
    watched = WatchedTurns(cluster)
    await nodes.stop(nodes.get(cluster.node_ids[1]), is_clean=True)
    gone = {cluster.node_ids[1]}
    assert [(one.leader in gone, set(one.isr) & gone) for one in places] == [(False, set())] * PARTITIONS
    await nodes.start(nodes.get(cluster.node_ids[1]))
    watched.end()
    assert [set(one.isr) for one in places] == [set(cluster.node_ids)] * PARTITIONS
    await clusters.delete(cluster.id)
    assert len(watched.turns) == 3, "of leaders and of replicas, then of replicas"
    assert min(watched.turns) >= PARTITIONS // ENTRIES_PER_SLICE
