"""Tests that a call is refused if a full disk makes the copy of a cluster's files fail. The cluster is then either
unchanged or stopped and ready to be restarted."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from odradek.broker.control.clusters import copies
from odradek.broker.control.clusters.clusters import Cluster, Clusters
from odradek.broker.control.problems import Problem
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from tests.support.wire import ClosedByBroker, Wire

METADATA = 4


@dataclass(slots=True)
class FailingCopies:
    """Copies directories, and can fail as if the disk were full.

    at  when the next copy fails: "soon" (after copying some of the files), "late" (after clients were disconnected), or
        None (never)
    """

    at: str | None = None

    async def copy(
        self, directory: Path, to: Path, *, changed: Callable[[], list[str]], and_then: Callable[[], None]
    ) -> None:
        at, self.at = self.at, None
        if at == "soon":
            to.mkdir()
            (to / "part").write_bytes(b"some")
        else:
            await copies.copy(directory, to, changed=changed, and_then=and_then)
        if at is not None:
            raise OSError(errno.ENOSPC, "No space left on device")


@dataclass(frozen=True, slots=True)
class Scene:
    clusters: Clusters
    copies: FailingCopies

    async def refused(self, at: str, call: Awaitable[object]) -> None:
        """Makes the next copy fail at the point `at` and checks that the call is refused."""
        self.copies.at = at
        with pytest.raises(Problem, match="No space left on device") as refusal:
            await call
        assert refusal.value.status == 507


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    failing = FailingCopies()
    clusters = Clusters(asyncio.get_running_loop(), copy=failing.copy)
    yield Scene(clusters, failing)
    await clusters.close()


def connected(cluster: Cluster) -> Wire:
    return Wire(f"127.0.0.1:{next(iter(cluster.ports.values()))}")


def topics(wire: Wire) -> list[str | None]:
    answer = wire.ask(MetadataRequest(topics=None), METADATA, MetadataResponse)
    return [each.name for each in answer.topics]


def make_topic(wire: Wire, name: str) -> None:
    """Creates a topic by repeating a Metadata request, which creates missing topics."""
    while name not in topics(wire):
        wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), METADATA, MetadataResponse)


def files(cluster: Cluster) -> list[str]:
    return sorted(each.name for each in cluster.directory.parent.iterdir())


@pytest.mark.parametrize("call", ["crash", "rewind", "checkpoint", "fork"])
async def test_a_cluster_whose_files_cannot_be_copied_stays_unchanged(scene: Scene, call: str) -> None:
    cluster = await scene.clusters.create({}, None, None)
    await scene.clusters.checkpoint(cluster.id, "empty")
    wire = await asyncio.to_thread(connected, cluster)
    await asyncio.to_thread(make_topic, wire, "t")
    before = files(cluster), cluster.as_json()
    calls: Mapping[str, Callable[[], Awaitable[object]]] = {
        "crash": lambda: scene.clusters.crash(cluster.id),
        "rewind": lambda: scene.clusters.rewind(cluster.id, "empty"),
        "checkpoint": lambda: scene.clusters.checkpoint(cluster.id, "full"),
        "fork": lambda: scene.clusters.create({}, cluster.id, None),
    }
    await scene.refused("soon", calls[call]())
    assert (files(cluster), cluster.as_json()) == before
    assert await asyncio.to_thread(topics, wire) == ["t"]  # the connection is still open
    await calls[call]()
    await asyncio.to_thread(wire.close)


async def test_a_crash_that_fails_once_clients_are_cut_off_leaves_a_cluster_that_can_be_restarted(scene: Scene) -> None:
    cluster = await scene.clusters.create({}, None, None)
    wire = await asyncio.to_thread(connected, cluster)
    await asyncio.to_thread(make_topic, wire, "t")
    await scene.refused("late", scene.clusters.crash(cluster.id))
    with pytest.raises((ClosedByBroker, ConnectionError)):
        await asyncio.to_thread(topics, wire)
    assert cluster.as_json()["state"] == "crashed"
    assert files(cluster) == [cluster.id]
    await scene.clusters.restart(cluster.id, is_clean=True)
    again = await asyncio.to_thread(connected, cluster)
    assert await asyncio.to_thread(topics, again) == ["t"]
    await asyncio.to_thread(again.close)


async def test_a_cluster_whose_crash_failed_can_be_deleted(scene: Scene) -> None:
    cluster = await scene.clusters.create({}, None, None)
    await scene.refused("late", scene.clusters.crash(cluster.id))
    await scene.clusters.delete(cluster.id)
    assert files(cluster) == []
