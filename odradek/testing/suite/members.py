"""Runs two drivers in one group to check that the first driver stops fetching partitions that move to the second.

A Fetch does not contain a member id, but every connection that sent a Fetch before the second driver started belongs to
the first driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.common.values import TopicPartition
from odradek.client.consuming.assignors import MemberSubscription, subscription_bytes
from odradek.client.network.cluster import Cluster as ClientCluster
from odradek.client.network.cluster import CoordinatorType
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.testing.suite.driver import DrivenClient
from odradek.testing.suite.stage import (
    CLIENT_ID,
    GROUP,
    JUDGED,
    PATIENCE_S,
    POLL_MS,
    TOPIC,
    ScenarioCluster,
    poll_drivers,
    poll_values,
)
from odradek.testing.sync import Cluster, Unmet

FULL, FINAL = 0, -1
CLAIM_MS: Final = 10_000
# Time after which no Fetch sent before the rebalance is still in flight.
REBALANCE_PAUSE_S: Final = 1.5
Requests = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class HandOver:
    """The result of a handover of partitions from one driver to another.

    received       the values that the applications of both drivers received
    still_fetched  partitions that the first driver still fetches although they now belong to the second driver
    has_sessions   whether the first driver uses fetch sessions; a session keeps fetching a partition until the client
                   removes the partition from the session
    """

    received: list[str]
    still_fetched: set[int]
    has_sessions: bool


def hand_over(stage: ScenarioCluster, **settings: str) -> HandOver:
    """Has one driver read a topic with two partitions, and then has a second driver join the group. Both drivers are
    started with `settings`. Raises Unimplemented, ApplicationFailed or Unmet."""
    stage.topic(partitions=2)
    for partition, value in enumerate("ab"):
        stage.send(value, partition=partition)
    first = start_member(stage, settings)
    received = poll_drivers([first], 2)
    first.run_command("ack")
    first_connections = {each["connection"] for each in stage.kafka.requests(api="Fetch", client_id=JUDGED)}
    second = start_member(stage, settings)
    received += poll_until_stable(stage, [first, second])
    time.sleep(REBALANCE_PAUSE_S)
    for partition, value in enumerate("cd"):
        stage.send(value, partition=partition)
    settled = stage.kafka.requests()[-1]["number"]
    received += poll_drivers([first, second], 2)
    time.sleep(REBALANCE_PAUSE_S)
    fetches = stage.kafka.requests(api="Fetch", client_id=JUDGED)
    second_partitions = fetched_partitions(
        (each for each in fetches if each["connection"] not in first_connections), settled
    )
    first_fetches = [each for each in fetches if each["connection"] in first_connections]
    has_sessions = any(each["request"].get("sessionEpoch", FINAL) > FULL for each in first_fetches)
    return HandOver(received, fetched_partitions(first_fetches, settled) & second_partitions, has_sessions)


def start_member(stage: ScenarioCluster, settings: Mapping[str, str]) -> DrivenClient:
    driver = stage.driver(group=GROUP)
    for name, value in settings.items():
        driver.run_command("set", name, value)
    driver.run_command("subscribe", TOPIC)
    return driver


def start_reader(
    stage: ScenarioCluster, settings: Mapping[str, str], *, partitions: int = 1, acknowledges: bool = True
) -> tuple[DrivenClient, list[str]]:
    """Starts a member that receives the topic's only record. Returns its driver and the values that its application
    received."""
    stage.topic(partitions=partitions)
    stage.send("a")
    driver = start_member(stage, settings)
    received = poll_values(driver, 1)
    if acknowledges:
        driver.run_command("ack")
    return driver, received


def poll_until_stable(stage: ScenarioCluster, drivers: list[DrivenClient]) -> list[str]:
    """Polls the drivers in turn until all of them are members of a stable group. Returns the values that they received.
    Raises Unmet on timeout."""
    received: list[str] = []
    until_s = time.monotonic() + PATIENCE_S
    while True:
        for driver in drivers:
            received += driver.run_command("poll", str(POLL_MS))
        try:
            stage.kafka.wait(group=GROUP, state="Stable", members=len(drivers), timeout_s=0.01)
        except Unmet:
            if time.monotonic() > until_s:
                raise
        else:
            return received


def fetched_partitions(fetches: Requests, since: int) -> set[int]:
    """Returns the partitions fetched by Fetch requests numbered above `since`. A request fetches the partitions that it
    lists and the partitions in its fetch session."""
    found: set[int] = set()
    sessions: dict[int, set[int]] = {}
    for each in fetches:
        request = each["request"]
        session = sessions.setdefault(each["connection"], set())
        if request.get("sessionEpoch", FINAL) in (FULL, FINAL):
            session.clear()
        session |= {partition["partition"] for topic in request["topics"] for partition in topic["partitions"]}
        session -= {partition for topic in request.get("forgottenTopicsData", []) for partition in topic["partitions"]}
        if each["number"] > since:
            found |= session
    return found


async def join_with_claim(kafka: Cluster, generation: int) -> None:
    """Joins the group as a member that claims both partitions with this generation, and leaves it after the
    rebalance."""
    owned = frozenset(TopicPartition(TOPIC, partition) for partition in range(2))
    metadata = subscription_bytes(MemberSubscription(frozenset({TOPIC}), owned, generation))
    cluster = ClientCluster(kafka.bootstrap, client_id=CLIENT_ID)
    await cluster.start()
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=CLAIM_MS,
        rebalance_timeout_ms=CLAIM_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata)],
    )
    kind = CoordinatorType.GROUP
    for _ in range(2):  # the first response contains the member id (KIP-394)
        joined = await cluster.ask_coordinator(GROUP, kind, request, JoinGroupResponse, timeout_ms=2 * CLAIM_MS)
        request.member_id = joined.member_id
    sync = SyncGroupRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id)
    sync.protocol_type, sync.protocol_name = "consumer", "cooperative-sticky"
    await cluster.ask_coordinator(GROUP, kind, sync, SyncGroupResponse, timeout_ms=2 * CLAIM_MS)
    leave = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=joined.member_id)])
    await cluster.ask_coordinator(GROUP, kind, leave, LeaveGroupResponse)
    await cluster.close()
