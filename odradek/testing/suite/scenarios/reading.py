"""Scenarios about which records readers deliver, which node they read from, and which offset they start at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.testing.suite.driver import ApplicationFailed, DrivenClient, DriverGone, Unimplemented
from odradek.testing.suite.members import hand_over, start_member
from odradek.testing.suite.scenarios.scenario import NODES, Scenario, count_requests, edit, hits, refuse
from odradek.testing.suite.stage import (
    CLIENT_ID,
    JUDGED,
    PATIENCE_S,
    TOPIC,
    ScenarioCluster,
    difference,
    poll_drivers,
    poll_values,
)

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE.value
FEW_BYTES = "1024"
VALUE_BYTES = 300
VALUES = 30
POLLS = 8


def offsets_in_an_open_transaction(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a", "b")
    stage.leave_offsets_open("g")
    stage.kafka.fault({"name": "asked", "match": {"api": "OffsetFetch"}, "at": "applied", "do": {"observe": True}})
    driver = stage.driver(group="g")
    driver.run_command("subscribe", TOPIC)
    driver.send_command("poll", "20000")
    stage.kafka.wait(fault="asked", hits=3, timeout_s=PATIENCE_S)
    stage.end_open_transaction()
    received = driver.read_reply("poll 20000")
    return difference(received + poll_values(driver, 2 - len(received)), ["a", "b"])


def aborted_and_committed(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.transaction(*["aborted"] * 50, commits=False)
    stage.transaction("a", commits=True)
    stage.send("b")
    driver = stage.driver(group="g")
    driver.run_command("subscribe", TOPIC)
    return difference(poll_values(driver, 2), ["a", "b"])


def aborted_list_reversed(stage: ScenarioCluster) -> str | None:
    stage.topic()
    for _ in range(4):
        stage.transaction("aborted", commits=False)
    stage.send("a", "b")
    edit(stage, "Fetch", {"Responses[*].Partitions[*].AbortedTransactions": {"reverse": True}})
    driver = stage.driver(group="g")
    driver.run_command("subscribe", TOPIC)
    return difference(poll_values(driver, 2), ["a", "b"])


def errors_that_reset_no_offset(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a", "b")
    driver = stage.driver(group="g")
    driver.run_command("subscribe", TOPIC)
    received = poll_values(driver, 2)
    driver.run_command("ack")
    refuse(stage, "Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    stage.send("c")
    # The application may receive "c" twice, because KafkaJS rejoins and continues at the committed offset.
    later = dict.fromkeys(poll_values(driver, 1))
    return difference([*received, *later], ["a", "b", "c"])


def leader_moves_under_a_reader(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    stage.send("a")
    driver = stage.driver(group="g")
    driver.run_command("subscribe", TOPIC)
    received = poll_values(driver, 1)
    driver.run_command("ack")
    stage.kafka.move_leader(TOPIC, 0, 2)
    stage.send("b")
    received += poll_values(driver, 1)
    fetched = [each["request"] for each in stage.kafka.requests(api="Fetch", client_id="judged")]
    partitions = [each for ask in fetched for topic in ask["topics"] for each in topic["partitions"]]
    if all(each.get("currentLeaderEpoch", -1) == -1 for each in partitions):
        raise Unimplemented("leader epochs")
    if not [each for each in stage.kafka.requests(api="OffsetForLeaderEpoch") if each["client_id"] != CLIENT_ID]:
        return "the client continued to fetch from the new leader without OffsetForLeaderEpoch"
    return difference(received, ["a", "b"])


def offset_of_an_undefined_epoch(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    stage.send("a")
    driver = start_member(stage, {})
    received = poll_values(driver, 1)
    driver.run_command("ack")
    path = "Topics[*].Partitions[*]"
    undefined = {"edit": {f"{path}.LeaderEpoch": -1, f"{path}.EndOffset": -1}}
    match = {"api": "OffsetForLeaderEpoch", "client_id": JUDGED}
    stage.kafka.fault({"match": match, "at": "applied", "do": undefined, "times": 1})
    stage.kafka.move_leader(TOPIC, 0, 2)
    stage.send("b")
    # A client may read from the start again or report an error to the application. Kafka's own client treats the
    # response as a truncation (LogTruncationException if it has no reset policy), as does franz-go (ErrDataLoss).
    try:
        received += poll_values(driver, 1)
    except ApplicationFailed as errors:
        received += [*errors.records, *poll_values(driver, 1)]
    return None if "b" in received else f"the application received {received}, but should have received b"


def reader_of_follower(stage: ScenarioCluster) -> DrivenClient:
    """Returns a driver that reads from the follower on node 2. Raises Unimplemented if the client does not read from
    followers.

    The driver reads from the follower for at least a second. After that its metadata expires, which makes the Java
    client contact the leader again.
    """
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    stage.kafka.put_in_rack(2, "beside")
    stage.send("a")
    driver = start_member(stage, {"rack": "beside"})
    count_requests(stage, "Fetch", 2)
    if poll_values(driver, 1, more=0) != ["a"] or not hits(stage, "Fetch at 2"):
        raise Unimplemented("reading from a follower")
    driver.run_command("ack")
    return driver


def follower_that_goes_away(stage: ScenarioCluster) -> str | None:
    driver = reader_of_follower(stage)
    stage.kafka.stop_node(2)
    stage.send("b")
    # The application may receive "b" twice if the group rebalances because racks have changed.
    return difference(dict.fromkeys(poll_values(driver, 1)), ["b"])


def offset_that_a_follower_does_not_have(stage: ScenarioCluster) -> str | None:
    driver = reader_of_follower(stage)
    count_requests(stage, "ListOffsets", 2)
    stage.kafka.follow(TOPIC, 0, 2, 0)
    received = driver.run_command("poll", "3000")
    if not any(map(is_out_of_range, stage.kafka.requests(api="Fetch", client_id=JUDGED))):
        raise Unimplemented("a fetch beyond the end of the follower's log")
    stage.kafka.follow(TOPIC, 0, 2, None)
    stage.send("b")
    received += poll_values(driver, 1)
    if hits(stage, "ListOffsets at 2"):
        return (
            "after OFFSET_OUT_OF_RANGE from a follower, the client sent ListOffsets to the follower instead of the"
            " leader"
        )
    return difference(received, ["b"])


def is_out_of_range(fetched: Mapping[str, Any]) -> bool:
    topics = (fetched["answer"] or {}).get("responses", [])
    return any(each["errorCode"] == OUT_OF_RANGE for topic in topics for each in topic["partitions"])


def partition_that_is_forgotten(stage: ScenarioCluster) -> str | None:
    handed = hand_over(stage)
    if not handed.has_sessions:
        raise Unimplemented("fetch sessions")
    if handed.still_fetched:
        return (
            f"{sorted(handed.still_fetched)} was assigned to another member, but the client did not remove it from"
            " the fetch session"
        )
    return difference(sorted(handed.received), ["a", "b", "c", "d"])


def answers_of_few_bytes(stage: ScenarioCluster) -> str | None:
    stage.topic(partitions=3)
    for partition in range(3):
        stage.send(*[f"{partition}".ljust(VALUE_BYTES, "-")] * VALUES, partition=partition)
    received = poll_drivers([start_member(stage, {})], 3 * VALUES)
    if len(received) != 3 * VALUES:
        return f"the application received {len(received)} records instead of {3 * VALUES}"
    first = [next(at for at, value in enumerate(received) if value[0] == str(partition)) for partition in range(3)]
    if max(first) >= 2 * VALUES:
        return f"one of three partitions was delivered only after all {max(first)} records of the others"
    return None


def batch_that_is_corrupt(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a", "b")
    flipped = {"edit": {"Responses[0].Partitions[0].Records": {"corrupt": True}}}
    stage.kafka.fault({"match": {"api": "Fetch", "client_id": JUDGED}, "at": "applied", "do": flipped, "times": 1})
    driver = start_member(stage, {})
    received, errors = poll_despite_errors(driver)
    stage.send("c")
    more, more_errors = poll_despite_errors(driver)
    received += more
    errors += more_errors
    if received != ["a", "b", "c"][: len(received)] or (len(received) < 3 and not errors):
        return f"b was corrupt once, and the application received {received} of a, b and c, and {errors} errors"
    return None


def poll_despite_errors(driver: DrivenClient) -> tuple[list[str], int]:
    """Polls POLLS times. Returns the received values and the number of errors that the application received. Raises
    DriverGone."""
    received: list[str] = []
    errors = 0
    for _ in range(POLLS):
        try:
            received += driver.run_command("poll", "500")
        except DriverGone:
            raise
        except ApplicationFailed as failed:
            received += failed.records
            errors += 1
    return received, errors


def fetch_session_that_is_lost(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = start_member(stage, {})
    received = poll_values(driver, 1)
    refuse(stage, "Fetch", "FETCH_SESSION_ID_NOT_FOUND")
    stage.send("b")
    return difference(received + poll_values(driver, 1), ["a", "b"])


def errors_of_fetches(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = start_member(stage, {})
    received = poll_values(driver, 1)
    failing = {"error": "KAFKA_STORAGE_ERROR", "partitions": [0]}
    stage.kafka.fault({"match": {"api": "Fetch", "client_id": JUDGED}, "do": failing, "times": 30})
    stage.send("b")
    return difference(received + poll_values(driver, 1), ["a", "b"])


SCENARIOS = (
    Scenario("TXN.13", offsets_in_an_open_transaction),
    Scenario("FET.2", aborted_and_committed),
    Scenario("FET.4", aborted_list_reversed),
    Scenario("FET.9", leader_moves_under_a_reader, nodes=NODES),
    Scenario("FET.13", errors_that_reset_no_offset),
    Scenario("FET.7", fetch_session_that_is_lost),
    Scenario("FET.8", partition_that_is_forgotten),
    Scenario("FET.10", offset_of_an_undefined_epoch, nodes=NODES),
    Scenario("FET.11", follower_that_goes_away, nodes=NODES),
    Scenario("FET.12", offset_that_a_follower_does_not_have, nodes=NODES),
    Scenario("FET.14", answers_of_few_bytes, settings={"fetch.max.bytes": FEW_BYTES}),
    Scenario("FET.15", errors_of_fetches),
    Scenario("FET.16", batch_that_is_corrupt),
)
