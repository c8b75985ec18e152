"""Scenarios about streams groups (KIP-1071), for drivers that run Kafka Streams applications."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from odradek.testing.suite.driver import ApplicationFailed, DrivenClient, DriverGone, Unimplemented
from odradek.testing.suite.members import poll_until_stable
from odradek.testing.suite.scenarios.scenario import Scenario
from odradek.testing.suite.stage import GROUP, PATIENCE_S, POLL_MS, TOPIC, ScenarioCluster, difference, poll_drivers

LEAVE_EPOCH, TEMPORARY_LEAVE_EPOCH = -1, -2  # member epochs
HEARTBEAT = "StreamsGroupHeartbeat"
# A group of two members becomes stable after about four heartbeats, which take 20 s at the default interval.
QUICK: Final[Mapping[str, str]] = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.heartbeat.interval.ms": "1000",
}


def application(stage: ScenarioCluster, **environment: str) -> DrivenClient:
    """Starts a Kafka Streams application that processes the topic."""
    driver = stage.driver(group=GROUP, **environment)
    driver.run_command("stream", TOPIC)
    return driver


def member_of_a_streams_group_closes(stage: ScenarioCluster) -> str | None:
    stage.topic()
    return _closes(stage, LEAVE_EPOCH) or _closes(stage, TEMPORARY_LEAVE_EPOCH, group_instance_id="i")


def _closes(stage: ScenarioCluster, expected: int, **environment: str) -> str | None:
    """Starts an application, stops it, and compares its members' last epochs with `expected`. Returns a description of
    the difference, or None if there is none."""
    earlier = {each["number"] for each in _heartbeats(stage)}
    driver = application(stage, **environment)
    poll_until_stable(stage, [driver])
    driver.end()
    requests = [each["request"] for each in _heartbeats(stage) if each["number"] not in earlier]
    if environment and not any(each["instanceId"] for each in requests):
        raise Unimplemented("group.instance.id")
    last = {each["memberId"]: each["memberEpoch"] for each in requests}
    kind = "static" if environment else "dynamic"
    for member_id, epoch in last.items():
        if epoch != expected:
            return f"the last epoch of the {kind} member {member_id} was {epoch}, not {expected}, when it closed"
    return None


def task_that_moves_to_another_instance(stage: ScenarioCluster) -> str | None:
    stage.topic(partitions=2)
    for partition, value in enumerate("ab"):
        stage.send(value, partition=partition)
    first = application(stage)
    received = poll_drivers([first], 2)
    drivers = [first, application(stage)]
    received += poll_until_stable(stage, drivers)
    for partition, value in enumerate("cd"):
        stage.send(value, partition=partition)
    # If the first instance did not commit, the second instance processes "a" or "b" again.
    return difference(sorted(received + poll_drivers(drivers, 4 - len(received))), ["a", "b", "c", "d"])


def source_topic_that_is_missing(stage: ScenarioCluster) -> str | None:
    driver = application(stage)
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        try:
            driver.run_command("poll", str(POLL_MS))
        except DriverGone:
            raise
        except ApplicationFailed as failed:
            if not _heartbeats(stage):
                raise Unimplemented("group.protocol=streams") from None
            return None if TOPIC in str(failed) else f"the error does not name the missing topic: {failed}"
    return f"the application received no error in {PATIENCE_S:.0f} s, although its source topic is missing"


def _heartbeats(stage: ScenarioCluster) -> list[Mapping[str, Any]]:
    return stage.kafka.requests(api=HEARTBEAT)


SCENARIOS = (
    Scenario("STG.19", member_of_a_streams_group_closes, settings=QUICK),
    Scenario("STG.30", task_that_moves_to_another_instance, settings=QUICK),
    Scenario("STG.31", source_topic_that_is_missing, settings=QUICK),
)
