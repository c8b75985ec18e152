"""Tests that advancing the clock by 366 days runs only the actions that are due, regardless of the cluster's state
(docs/testing.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.control.clusters.clusters import Clusters
from odradek.broker.control.http.routes import add_control
from odradek.broker.control.presets.table import PRESETS
from odradek.broker.serving import ServingBroker
from odradek.testing.asynchronous import Cluster, Odradek

YEAR_MS = 366 * 24 * 3600 * 1000
FEW = 300  # A daily action would run 366 times.
SETTINGS = {
    "transaction.two.phase.commit.enable": True,
    "delegation.token.secret.key": "secret",
    "log.flush.scheduler.interval.ms": 1_000,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}


@pytest.fixture
async def clusters(tmp_path: Path) -> AsyncIterator[Clusters]:
    clusters = Clusters(asyncio.get_running_loop())
    yield clusters
    await clusters.close()


@pytest.fixture
async def odradek(clusters: Clusters, tmp_path: Path) -> AsyncIterator[Odradek]:
    config = BrokerConfig({"log.dirs": str(tmp_path), "odradek.port": "0", "odradek.http.port": "0"})
    serving: ServingBroker = await clusters.start_default(config, lambda app: add_control(app, clusters))
    assert serving.control is not None
    started = Odradek("127.0.0.1", serving.control.port)
    yield started
    await started.stop()
    await serving.stop(0)


async def actions_of_a_year(clusters: Clusters, kafka: Cluster) -> int:
    time = clusters.get(kafka.id).time
    before = time.actions_run
    await kafka.clock.advance(YEAR_MS)
    return time.actions_run - before


@pytest.mark.parametrize("name", sorted(PRESETS))
async def test_a_year_of_any_rare_state_runs_few_actions(clusters: Clusters, odradek: Odradek, name: str) -> None:
    kafka = await odradek.cluster(settings=SETTINGS)
    if name == "stale-member-epoch":
        await kafka.preset("revocation-outstanding")
    await kafka.preset(name)
    assert await actions_of_a_year(clusters, kafka) < FEW


async def test_a_year_with_a_rule_that_refuses_markers_runs_few_actions(clusters: Clusters, odradek: Odradek) -> None:
    kafka = await odradek.cluster()
    await kafka.fault({"at": "marker", "do": {"error": "NOT_LEADER_OR_FOLLOWER"}})
    await kafka.preset("half-written-markers")
    assert await actions_of_a_year(clusters, kafka) < FEW
    await kafka.clear_faults()
    await kafka.wait(transaction="t", state="CompleteCommit")


async def test_a_year_with_a_log_that_is_flushed_after_a_month_flushes_it_once(
    clusters: Clusters, odradek: Odradek
) -> None:
    month_ms = 30 * 24 * 3600 * 1000
    kafka = await odradek.cluster(
        settings={"log.flush.interval.ms": month_ms, "log.flush.scheduler.interval.ms": 1_000, "log.retention.ms": -1}
    )
    await kafka.preset("large-batch")
    partitions = [each for each in clusters.get(kafka.id).running.broker.partitions if not each.topic.startswith("__")]
    assert [each.log.synced_offset for each in partitions] == [0]
    await kafka.clock.advance(month_ms - 2_000)
    assert [each.log.synced_offset for each in partitions] == [0]
    assert await actions_of_a_year(clusters, kafka) < FEW
    assert [each.log.synced_offset for each in partitions] == [each.log.log_end_offset for each in partitions]
