"""Scenarios of share groups (KIP-932)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from odradek.testing.suite.driver import ApplicationFailed, DrivenClient
from odradek.testing.suite.scenarios.scenario import NODES, Scenario, asked_of, hits
from odradek.testing.suite.stage import (
    GROUP,
    JUDGED,
    PATIENCE_S,
    POLL_MS,
    TOPIC,
    ScenarioCluster,
    differs,
    polled,
    polled_by,
)

CLOSES = -1
SHORT_POLL_MS = 100
MOST_IN_A_WHILE = 40
ERRORS = 20


def sharer(stage: ScenarioCluster) -> DrivenClient:
    stage.read_from_the_start()
    driver = stage.driver(group=GROUP)
    driver.say("share", TOPIC)
    return driver


def taken(driver: DrivenClient, count: int = 1) -> list[str]:
    """Like `polled`, but without further polls, which would acknowledge the records."""
    got: list[str] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < until_s:
        got += driver.say("poll", str(POLL_MS))
    return got


def acknowledged(stage: ScenarioCluster) -> tuple[DrivenClient, list[str]]:
    """Returns a member that has received and acknowledged the topic's only record, and the values it received."""
    stage.topic()
    stage.send("a")
    driver = sharer(stage)
    got = taken(driver)
    driver.say("ack")
    return driver, got


def once(stage: ScenarioCluster, do: Mapping[str, Any], api: str = "ShareFetch", at: str = "received") -> None:
    """Adds a fault for the next request of the driver."""
    stage.kafka.fault({"name": "once", "match": {"api": api, "client_id": JUDGED}, "at": at, "do": do, "times": 1})


def goes_on(stage: ScenarioCluster, driver: DrivenClient, got: list[str]) -> str | None:
    """Polls until the fault was applied, and then until another record arrives."""
    until_s = time.monotonic() + PATIENCE_S
    while not hits(stage, "once") and time.monotonic() < until_s:
        got += driver.say("poll", str(POLL_MS))
    stage.send("b")
    return differs(got + polled(driver, 1), ["a", "b"])


def of_a_session(stage: ScenarioCluster) -> list[Mapping[str, Any]]:
    found = [each for api in ("ShareFetch", "ShareAcknowledge") for each in stage.kafka.requests(api=api)]
    return sorted((each for each in found if each["client_id"] == JUDGED), key=lambda each: int(each["number"]))


def acknowledgements(asked: Mapping[str, Any], offset: int) -> Iterator[Mapping[str, Any]]:
    for topic in asked["request"]["topics"]:
        for partition in topic["partitions"]:
            for batch in partition.get("acknowledgementBatches", []):
                if batch["firstOffset"] <= offset <= batch["lastOffset"]:
                    yield batch


def record_that_is_open_at_close(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = sharer(stage)
    got = taken(driver)
    driver.end()
    asked = of_a_session(stage)
    if not any(each["request"]["shareSessionEpoch"] == CLOSES or [*acknowledgements(each, 0)] for each in asked):
        return "it closed, and neither acknowledged its record nor ended its share session"
    return differs(got, ["a"])


def acknowledged_while_a_fetch_is_held(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = sharer(stage)
    got = taken(driver)
    once(stage, {"delay_ms": 2000}, at="applied")
    got += driver.say("poll", str(SHORT_POLL_MS))
    driver.say("ack")
    stage.kafka.wait(share_group=GROUP, topic=TOPIC, partition=0, offset=0, state="ENDED", timeout_s=PATIENCE_S)
    return goes_on(stage, driver, got)


def disconnected_in_a_share_fetch(stage: ScenarioCluster) -> str | None:
    driver, got = acknowledged(stage)
    once(stage, {"disconnect": "fin"}, at="applied")
    return goes_on(stage, driver, got)


def leader_moves_under_acknowledgements(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    stage.send("a")
    driver = sharer(stage)
    taken(driver)
    stage.kafka.move_leader(TOPIC, 0, 2)
    with suppress(ApplicationFailed):  # the acknowledgement may fail, and the record is delivered again
        driver.say("ack")
    stage.send("b")
    got: list[str] = []
    until_s = time.monotonic() + PATIENCE_S
    while "b" not in got and time.monotonic() < until_s:
        got += driver.say("poll", str(POLL_MS))
    return None if "b" in got else f"the application got {got} after the leader had moved, where b is to come"


def session_that_is_lost(stage: ScenarioCluster) -> str | None:
    driver, got = acknowledged(stage)
    once(stage, {"error": "SHARE_SESSION_NOT_FOUND"})
    return goes_on(stage, driver, got)


def sessions_are_too_many(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    once(stage, {"error": "SHARE_SESSION_LIMIT_REACHED"})
    return differs(polled(sharer(stage), 1), ["a"])


def share_member_that_is_fenced(stage: ScenarioCluster) -> str | None:
    driver, got = acknowledged(stage)
    once(stage, {"error": "FENCED_MEMBER_EPOCH"}, api="ShareGroupHeartbeat")
    return goes_on(stage, driver, got)


def errors_of_share_fetches(stage: ScenarioCluster) -> str | None:
    driver, got = acknowledged(stage)
    match = {"api": "ShareFetch", "client_id": JUDGED}
    moved = {"error": "NOT_LEADER_OR_FOLLOWER", "partitions": [0]}
    stage.kafka.fault({"name": "once", "match": match, "do": moved, "times": ERRORS})
    return goes_on(stage, driver, got)


def second_member_of_a_share_group(stage: ScenarioCluster) -> str | None:
    stage.topic(partitions=2)
    stage.send("a")
    stage.send("b", partition=1)
    first = sharer(stage)
    got = taken(first, 2)
    first.say("ack")
    second = sharer(stage)
    for _ in range(MOST_IN_A_WHILE):
        got += first.say("poll", str(SHORT_POLL_MS)) + second.say("poll", str(SHORT_POLL_MS))
    stage.send("c")
    stage.send("d", partition=1)
    got += polled_by([first, second], 4 - len(got))
    return differs(sorted(got), ["a", "b", "c", "d"])


def coordinator_of_a_share_group(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.commit("another")  # creates the topic of the coordinators
    stage.kafka.move_coordinator("group", GROUP, 2)
    for node in (1, 3):
        asked_of(stage, "DescribeShareGroupOffsets", node)
    stage.driver(group=GROUP).say("offsets")
    asked = [node for node in (1, 3) if hits(stage, f"DescribeShareGroupOffsets at {node}")]
    return f"DescribeShareGroupOffsets went to node {asked[0]}, where node 2 coordinates" if asked else None


SCENARIOS = (
    Scenario("SHR.3", session_that_is_lost),
    Scenario("SHR.6", record_that_is_open_at_close),
    Scenario("SHR.8", second_member_of_a_share_group),
    Scenario("SHR.9", acknowledged_while_a_fetch_is_held),
    Scenario("SHR.10", disconnected_in_a_share_fetch),
    Scenario("SHR.11", leader_moves_under_acknowledgements, nodes=NODES),
    Scenario("SHR.12", share_member_that_is_fenced),
    Scenario("SHR.13", errors_of_share_fetches),
    Scenario("SHR.14", coordinator_of_a_share_group, nodes=NODES),
    Scenario("SHR.15", sessions_are_too_many),
)
