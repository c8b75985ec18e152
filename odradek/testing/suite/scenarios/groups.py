"""Scenarios for members of classic groups and consumer groups."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from odradek.testing.suite.driver import ApplicationFailed, Unimplemented
from odradek.testing.suite.members import (
    HandOver,
    hand_over,
    join_with_claim,
    poll_until_stable,
    start_member,
    start_reader,
)
from odradek.testing.suite.scenarios.scenario import Scenario, hits, refuse
from odradek.testing.suite.stage import (
    GROUP,
    JUDGED,
    PATIENCE_S,
    POLL_MS,
    TOPIC,
    ScenarioCluster,
    difference,
    poll_values,
)
from odradek.testing.sync import Unmet

IDLE_MS = 6000
LEAVE_TIMEOUT_S = 20.0


def static_member_closes(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = stage.driver(group="g", group_instance_id="i")
    driver.run_command("subscribe", TOPIC)
    poll_values(driver, 1)
    driver.end()
    joined = [each["request"].get("groupInstanceId") for each in stage.kafka.requests(api="JoinGroup")]
    if "i" not in joined:
        raise Unimplemented("group.instance.id")
    return "the member sent LeaveGroup when it closed" if stage.kafka.requests(api="LeaveGroup") else None


def coordinator_loads(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    refuse(stage, "JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
    driver = stage.driver(group="g")
    driver.run_command("subscribe", TOPIC)
    return difference(poll_values(driver, 1), ["a"])


def coordinator_errors_of_a_commit(stage: ScenarioCluster) -> str | None:
    driver, received = start_reader(stage, {}, acknowledges=False)
    refuse(stage, "OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    driver.run_command("ack")
    return difference(received, ["a"])


def more_partitions(stage: ScenarioCluster) -> str | None:
    driver, received = start_reader(stage, {})
    stage.kafka.preset("more-partitions", topic=TOPIC)
    stage.send("b", partition=1)
    return difference(received + poll_values(driver, 1), ["a", "b"])


def application_that_stops_polling(stage: ScenarioCluster) -> str | None:
    driver, received = start_reader(stage, {"max_poll_interval_ms": str(IDLE_MS)})
    try:
        stage.kafka.wait(group=GROUP, members=0, timeout_s=LEAVE_TIMEOUT_S)
    except Unmet:
        return (
            f"the client is still a member {LEAVE_TIMEOUT_S} s after its last poll; max.poll.interval.ms is {IDLE_MS}"
        )
    stage.send("b")
    return difference(received + poll_values(driver, 1), ["a", "b"])


def instance_id_is_fenced(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = stage.driver(group=GROUP, group_instance_id="i")
    driver.run_command("subscribe", TOPIC)
    received = poll_values(driver, 1)
    refuse(stage, "Heartbeat", "FENCED_INSTANCE_ID")
    with suppress(ApplicationFailed):
        for _ in range(10):
            driver.run_command("poll", "500")
    return difference(received, ["a"])


def member_that_is_removed(stage: ScenarioCluster) -> str | None:
    driver, received = start_reader(stage, {})
    stage.remove_members()
    received += poll_until_stable(stage, [driver])
    stage.send("b")
    # The application may receive "b" twice if the member received it before learning of its removal.
    return difference(dict.fromkeys(received + poll_values(driver, 1)), ["a", "b"])


def generation_that_is_refused(stage: ScenarioCluster) -> str | None:
    driver, received = start_reader(stage, {})
    illegal = {"error": "ILLEGAL_GENERATION"}
    stage.kafka.fault({"name": "illegal", "match": {"api": "Heartbeat"}, "do": illegal, "times": 1})
    until_s = time.monotonic() + PATIENCE_S
    while not hits(stage, "illegal") and time.monotonic() < until_s:
        received += driver.run_command("poll", str(POLL_MS))
    stage.send("b")
    # The application may receive "b" twice if the member received it before joining again.
    return difference(dict.fromkeys(received + poll_values(driver, 1, more=4)), ["a", "b"])


def epoch_that_is_fenced(stage: ScenarioCluster) -> str | None:
    driver, received = start_reader(stage, {"protocol": "consumer"})
    fenced = {"error": "FENCED_MEMBER_EPOCH"}
    stage.kafka.fault({"name": "fenced", "match": {"api": "ConsumerGroupHeartbeat"}, "do": fenced, "times": 1})
    stage.kafka.wait(fault="fenced", hits=1, timeout_s=PATIENCE_S)
    stage.send("b")
    # The application may receive "b" twice if the member received it before learning that it was fenced.
    return difference(dict.fromkeys(received + poll_values(driver, 1)), ["a", "b"])


def partition_that_a_second_member_takes(stage: ScenarioCluster) -> str | None:
    return _handed(hand_over(stage))


def partition_that_is_handed_over_cooperatively(stage: ScenarioCluster) -> str | None:
    return _handed(hand_over(stage, assignor="cooperative-sticky"))


def claim_of_an_earlier_generation(stage: ScenarioCluster) -> str | None:
    driver, received = start_reader(stage, {"assignor": "cooperative-sticky"}, partitions=2)
    driver.send_command("poll", "10000")
    asyncio.run(join_with_claim(stage.kafka, 0))
    stage.send("b")
    return difference(received + driver.read_reply("poll") + poll_values(driver, 0), ["a", "b"])


def partition_that_the_broker_revokes(stage: ScenarioCluster) -> str | None:
    return _handed(hand_over(stage, protocol="consumer"))


def _handed(handed: HandOver) -> str | None:
    if handed.still_fetched:
        return f"the first member still fetches {sorted(handed.still_fetched)}, which was assigned to the second member"
    return difference(sorted(handed.received), ["a", "b", "c", "d"])


def commit_with_a_stale_epoch(stage: ScenarioCluster) -> str | None:
    driver, received = start_reader(stage, {"protocol": "consumer"}, acknowledges=False)
    refuse(stage, "OffsetCommit", "STALE_MEMBER_EPOCH")
    with suppress(ApplicationFailed):  # some clients leave retrying the commit to the application
        driver.run_command("ack")
    poll_values(driver, 0)
    driver.run_command("ack")
    return difference(received, ["a"])


def join_that_is_refused_for_good(stage: ScenarioCluster) -> str | None:
    stage.topic()
    refuse(stage, "ConsumerGroupHeartbeat", "UNSUPPORTED_ASSIGNOR")
    with suppress(ApplicationFailed):
        driver = start_member(stage, {"protocol": "consumer"})
        for _ in range(6):
            driver.run_command("poll", "500")
    return None


def answer_of_a_membership_that_is_over(stage: ScenarioCluster) -> str | None:
    driver, received = start_reader(stage, {"protocol": "consumer"})
    match = {"api": "ConsumerGroupHeartbeat", "client_id": JUDGED}
    stage.kafka.fault({"name": "late", "match": match, "at": "applied", "do": {"delay_ms": 3000}, "times": 1})
    stage.kafka.wait(fault="late", hits=1, timeout_s=PATIENCE_S)
    driver.run_command("unsubscribe")
    driver.run_command("subscribe", TOPIC)
    stage.send("b")
    return difference(received + poll_values(driver, 1), ["a", "b"])


def topic_that_metadata_does_not_know_yet(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    unknown = {"match": {"api": "Metadata", "client_id": JUDGED}, "at": "applied", "times": 4}
    stage.kafka.fault({**unknown, "do": {"edit": {"Topics[*]": {"remove": True}}}})
    return difference(poll_values(start_member(stage, {"protocol": "consumer"}), 1), ["a"])


SCENARIOS = (
    Scenario("GRP.7", static_member_closes),
    Scenario("GRP.12", coordinator_loads),
    Scenario("GRP.13", coordinator_errors_of_a_commit),
    Scenario("GRP.18", more_partitions),
    Scenario("GRP.3", application_that_stops_polling),
    Scenario("GRP.5", member_that_is_removed),
    Scenario("GRP.6", instance_id_is_fenced),
    Scenario("GRP.8", partition_that_is_handed_over_cooperatively),
    Scenario("GRP.9", claim_of_an_earlier_generation),
    Scenario("GRP.20", generation_that_is_refused),
    Scenario("GRP.16", partition_that_a_second_member_takes),
    Scenario("848.5", epoch_that_is_fenced),
    Scenario("848.6", partition_that_the_broker_revokes),
    Scenario("848.8", commit_with_a_stale_epoch),
    Scenario("848.10", join_that_is_refused_for_good),
    Scenario("848.11", answer_of_a_membership_that_is_over),
    Scenario("848.12", topic_that_metadata_does_not_know_yet),
)
