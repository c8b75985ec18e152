"""Scenarios about share groups (KIP-932)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from odradek.testing.suite.driver import ApplicationFailed, DrivenClient
from odradek.testing.suite.scenarios.scenario import NODES, Scenario, count_requests, hits
from odradek.testing.suite.stage import (
    GROUP,
    JUDGED,
    PATIENCE_S,
    POLL_MS,
    TOPIC,
    ScenarioCluster,
    difference,
    poll_drivers,
    poll_values,
)

FINAL_EPOCH = -1
SHORT_POLL_MS = 100
MAX_POLLS = 40
ERRORS = 20


def start_share_consumer(stage: ScenarioCluster) -> DrivenClient:
    stage.read_from_the_start()
    driver = stage.driver(group=GROUP)
    driver.run_command("share", TOPIC)
    return driver


def poll_records(driver: DrivenClient, count: int = 1) -> list[str]:
    """Polls until the application has received `count` records. Unlike `poll_values`, it does not poll again
    afterwards, because another poll would acknowledge the records."""
    received: list[str] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(received) < count and time.monotonic() < until_s:
        received += driver.run_command("poll", str(POLL_MS))
    return received


def start_with_acknowledged_record(stage: ScenarioCluster) -> tuple[DrivenClient, list[str]]:
    """Starts a member that receives and acknowledges the topic's only record. Returns its driver and the values that
    its application received."""
    stage.topic()
    stage.send("a")
    driver = start_share_consumer(stage)
    received = poll_records(driver)
    driver.run_command("ack")
    return driver, received


def add_fault_once(
    stage: ScenarioCluster, do: Mapping[str, Any], api: str = "ShareFetch", at: str = "received"
) -> None:
    """Adds a fault that applies once, to the driver's next `api` request."""
    stage.kafka.fault({"name": "once", "match": {"api": api, "client_id": JUDGED}, "at": at, "do": do, "times": 1})


def poll_past_fault(stage: ScenarioCluster, driver: DrivenClient, received: list[str]) -> str | None:
    """Polls until the fault has been applied, and then until the application receives another record. Returns a
    description of how the records differ from the expected ones, or None if they do not."""
    until_s = time.monotonic() + PATIENCE_S
    while not hits(stage, "once") and time.monotonic() < until_s:
        received += driver.run_command("poll", str(POLL_MS))
    stage.send("b")
    return difference(received + poll_values(driver, 1), ["a", "b"])


def session_requests(stage: ScenarioCluster) -> list[Mapping[str, Any]]:
    found = [each for api in ("ShareFetch", "ShareAcknowledge") for each in stage.kafka.requests(api=api)]
    return sorted((each for each in found if each["client_id"] == JUDGED), key=lambda each: int(each["number"]))


def acknowledgements(sent: Mapping[str, Any], offset: int) -> Iterator[Mapping[str, Any]]:
    for topic in sent["request"]["topics"]:
        for partition in topic["partitions"]:
            for batch in partition.get("acknowledgementBatches", []):
                if batch["firstOffset"] <= offset <= batch["lastOffset"]:
                    yield batch


def record_that_is_open_at_close(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = start_share_consumer(stage)
    received = poll_records(driver)
    driver.end()
    sent = session_requests(stage)
    if not any(each["request"]["shareSessionEpoch"] == FINAL_EPOCH or [*acknowledgements(each, 0)] for each in sent):
        return "the consumer closed without acknowledging its record or ending its share session"
    return difference(received, ["a"])


def acknowledged_while_a_fetch_is_held(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = start_share_consumer(stage)
    received = poll_records(driver)
    add_fault_once(stage, {"delay_ms": 2000}, at="applied")
    received += driver.run_command("poll", str(SHORT_POLL_MS))
    driver.run_command("ack")
    stage.kafka.wait(share_group=GROUP, topic=TOPIC, partition=0, offset=0, state="ENDED", timeout_s=PATIENCE_S)
    return poll_past_fault(stage, driver, received)


def disconnected_in_a_share_fetch(stage: ScenarioCluster) -> str | None:
    driver, received = start_with_acknowledged_record(stage)
    add_fault_once(stage, {"disconnect": "fin"}, at="applied")
    return poll_past_fault(stage, driver, received)


def leader_moves_under_acknowledgements(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    stage.send("a")
    driver = start_share_consumer(stage)
    poll_records(driver)
    stage.kafka.move_leader(TOPIC, 0, 2)
    with suppress(ApplicationFailed):  # if the acknowledgement fails, the record is delivered again
        driver.run_command("ack")
    stage.send("b")
    received: list[str] = []
    until_s = time.monotonic() + PATIENCE_S
    while "b" not in received and time.monotonic() < until_s:
        received += driver.run_command("poll", str(POLL_MS))
    return (
        None
        if "b" in received
        else (f"the application received {received} after the leader had moved, but should have received b")
    )


def session_that_is_lost(stage: ScenarioCluster) -> str | None:
    driver, received = start_with_acknowledged_record(stage)
    add_fault_once(stage, {"error": "SHARE_SESSION_NOT_FOUND"})
    return poll_past_fault(stage, driver, received)


def sessions_are_too_many(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    add_fault_once(stage, {"error": "SHARE_SESSION_LIMIT_REACHED"})
    return difference(poll_values(start_share_consumer(stage), 1), ["a"])


def share_member_that_is_fenced(stage: ScenarioCluster) -> str | None:
    driver, received = start_with_acknowledged_record(stage)
    add_fault_once(stage, {"error": "FENCED_MEMBER_EPOCH"}, api="ShareGroupHeartbeat")
    return poll_past_fault(stage, driver, received)


def errors_of_share_fetches(stage: ScenarioCluster) -> str | None:
    driver, received = start_with_acknowledged_record(stage)
    match = {"api": "ShareFetch", "client_id": JUDGED}
    moved = {"error": "NOT_LEADER_OR_FOLLOWER", "partitions": [0]}
    stage.kafka.fault({"name": "once", "match": match, "do": moved, "times": ERRORS})
    return poll_past_fault(stage, driver, received)


def second_member_of_a_share_group(stage: ScenarioCluster) -> str | None:
    stage.topic(partitions=2)
    stage.send("a")
    stage.send("b", partition=1)
    first = start_share_consumer(stage)
    received = poll_records(first, 2)
    first.run_command("ack")
    second = start_share_consumer(stage)
    for _ in range(MAX_POLLS):
        received += first.run_command("poll", str(SHORT_POLL_MS)) + second.run_command("poll", str(SHORT_POLL_MS))
    stage.send("c")
    stage.send("d", partition=1)
    received += poll_drivers([first, second], 4 - len(received))
    return difference(sorted(received), ["a", "b", "c", "d"])


def coordinator_of_a_share_group(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.commit("another")  # creates the topic used by the coordinators
    stage.kafka.move_coordinator("group", GROUP, 2)
    for node in (1, 3):
        count_requests(stage, "DescribeShareGroupOffsets", node)
    stage.driver(group=GROUP).run_command("offsets")
    sent = [node for node in (1, 3) if hits(stage, f"DescribeShareGroupOffsets at {node}")]
    return (
        (f"the client sent DescribeShareGroupOffsets to node {sent[0]}, although node 2 is the coordinator")
        if sent
        else None
    )


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
