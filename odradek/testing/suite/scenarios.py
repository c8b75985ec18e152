"""The scenarios: a state or a fault, what the driver is told to do, and the rule that its answers decide.

A scenario returns None where the rule is kept, or why it is broken; an error that the application sees breaks it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from odradek.testing.suite.driver import ApplicationFailed, Unimplemented
from odradek.testing.suite.stage import CLIENT_ID, PATIENCE_S, TOPIC, ScenarioCluster, differs, polled

NODES = 3
PRODUCE_OF_TV2 = 12
PRODUCE_WITH_LEADERS = 10
METADATA_WITH_EPOCHS = 7
HANGS_UP_S = 4.0
MOST_CONNECTS = 60  # 50 ms apart and growing, as reconnect.backoff.ms is where nothing else is said, are ten
Play: TypeAlias = Callable[[ScenarioCluster], "str | None"]


@dataclass(frozen=True, slots=True)
class Scenario:
    rule: str
    play: Play
    nodes: int | None = None

    @property
    def name(self) -> str:
        return self.play.__name__.replace("_", " ")


def refuse(stage: ScenarioCluster, api: str, error: str, times: int = 1, after: int = 0) -> None:
    stage.kafka.fault({"match": {"api": api}, "do": {"error": error}, "times": times, "after": after})


def edit(stage: ScenarioCluster, api: str, changes: Mapping[str, int | dict[str, bool]], name: str = "edited") -> None:
    stage.kafka.fault({"name": name, "match": {"api": api}, "at": "applied", "do": {"edit": dict(changes)}})


def leader_of_old(stage: ScenarioCluster, node: int) -> None:
    """Metadata names it from now on, with the epoch before all others."""
    path = "Topics[*].Partitions[*]"
    changes: dict[str, object] = {f"{path}.LeaderId": node, f"{path}.LeaderEpoch": 0}
    match = {"api": "Metadata", "client_id": "judged"}
    stage.kafka.fault({"name": "old", "match": match, "at": "applied", "do": {"edit": changes}, "unused": "ok"})


def asked_of(stage: ScenarioCluster, api: str, node: int) -> None:
    """Counts the requests of clients that are judged, from now on."""
    match = {"api": api, "node": node, "client_id": "judged"}
    stage.kafka.fault({"name": f"{api} at {node}", "match": match, "do": {"observe": True}, "unused": "ok"})


def hits(stage: ScenarioCluster, rule: str) -> int:
    return next(int(each["hits"]) for each in stage.kafka.faults() if each["name"] == rule)


def works_with_the_versions_of_today(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(group="g")
    driver.say("produce", TOPIC, "0", "a")
    driver.say("subscribe", TOPIC)
    return differs(polled(driver, 1), ["a"])


def slow_answer(stage: ScenarioCluster) -> str | None:
    stage.topic()
    rule = {"match": {"api": "Produce"}, "at": "applied", "do": {"delay_ms": 2000}, "times": 1}
    stage.kafka.fault(rule)
    stage.driver().say("produce", TOPIC, "0", "a")
    count = len(stage.kafka.requests(api="Produce"))
    return None if count == 1 else f"{count} Produce requests, where the answer to the first was 2 s late"


def topic_missing_from_one_answer(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver()
    driver.say("produce", TOPIC, "0", "a")
    rule = {"name": "gone", "match": {"api": "Metadata"}, "at": "applied", "times": 1}
    stage.kafka.fault({**rule, "do": {"edit": {"Topics[0]": {"remove": True}}}})
    stage.kafka.wait(fault="gone", hits=1, timeout_s=PATIENCE_S)
    driver.say("produce", TOPIC, "0", "b")
    return differs(stage.committed(2), ["a", "b"])


def first_of_several_batches_fails(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(idempotence="off")
    driver.say("produce", TOPIC, "0", "a")
    refuse(stage, "Produce", "NOT_LEADER_OR_FOLLOWER")
    driver.say("produce", TOPIC, "0", "b", "c", "d", "e")
    return differs(stage.committed(5), ["a", "b", "c", "d", "e"])


def retriable_errors_of_produce(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver()
    for error in ("KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"):
        refuse(stage, "Produce", error)
        driver.say("produce", TOPIC, "0", error)
    return differs(stage.committed(3), ["KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"])


def empty_transaction(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(transactional_id="t")
    driver.say("begin")
    driver.say("commit")
    driver.say("begin")
    driver.say("produce", TOPIC, "0", "a")
    driver.say("commit")
    return differs(stage.committed(1), ["a"])


def last_transaction_is_still_ending(stage: ScenarioCluster) -> str | None:
    stage.topic()
    refuse(stage, "InitProducerId", "CONCURRENT_TRANSACTIONS", times=2)
    driver = stage.driver(transactional_id="t")
    driver.say("begin")
    driver.say("produce", TOPIC, "0", "a")
    driver.say("commit")
    return differs(stage.committed(1), ["a"])


def only_batch_of_a_transaction_fails(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(transactional_id="t")
    driver.say("begin")
    refuse(stage, "Produce", "INVALID_RECORD")
    try:
        driver.say("produce", TOPIC, "0", "refused")
    except ApplicationFailed:
        driver.say("abort")
    else:
        return "`produce` went well, where the batch was refused"
    if all(each["version"] < PRODUCE_OF_TV2 for each in stage.kafka.requests(api="Produce")):
        raise Unimplemented("transactions of version 2")
    driver.say("begin")
    driver.say("produce", TOPIC, "0", "a")
    driver.say("commit")
    return differs(stage.committed(1), ["a"])


def offsets_in_an_open_transaction(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a", "b")
    stage.leave_offsets_open("g")
    stage.kafka.fault({"name": "asked", "match": {"api": "OffsetFetch"}, "at": "applied", "do": {"observe": True}})
    driver = stage.driver(group="g")
    driver.say("subscribe", TOPIC)
    driver.begin("poll", "20000")
    stage.kafka.wait(fault="asked", hits=3, timeout_s=PATIENCE_S)
    stage.end_open_transaction()
    got = driver.heard("poll 20000")
    return differs(got + polled(driver, 2 - len(got)), ["a", "b"])


def aborted_and_committed(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.transaction(*["aborted"] * 50, commits=False)
    stage.transaction("a", commits=True)
    stage.send("b")
    driver = stage.driver(group="g")
    driver.say("subscribe", TOPIC)
    return differs(polled(driver, 2), ["a", "b"])


def aborted_list_reversed(stage: ScenarioCluster) -> str | None:
    stage.topic()
    for _ in range(4):
        stage.transaction("aborted", commits=False)
    stage.send("a", "b")
    edit(stage, "Fetch", {"Responses[*].Partitions[*].AbortedTransactions": {"reverse": True}})
    driver = stage.driver(group="g")
    driver.say("subscribe", TOPIC)
    return differs(polled(driver, 2), ["a", "b"])


def errors_that_reset_no_offset(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a", "b")
    driver = stage.driver(group="g")
    driver.say("subscribe", TOPIC)
    got = polled(driver, 2)
    driver.say("ack")
    refuse(stage, "Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    stage.send("c")
    return differs(got + polled(driver, 1), ["a", "b", "c"])


def static_member_closes(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = stage.driver(group="g", group_instance_id="i")
    driver.say("subscribe", TOPIC)
    polled(driver, 1)
    driver.end()
    joined = [each["request"].get("groupInstanceId") for each in stage.kafka.requests(api="JoinGroup")]
    if "i" not in joined:
        raise Unimplemented("group.instance.id")
    return "LeaveGroup came when the member closed" if stage.kafka.requests(api="LeaveGroup") else None


def coordinator_moves(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(transactional_id="t")
    driver.say("begin")
    driver.say("produce", TOPIC, "0", "a")
    (found, *_) = [each for each in stage.kafka.requests(api="FindCoordinator") if each["request"]["keyType"] == 1]
    answer = found["answer"]
    now = int((answer.get("coordinators") or [answer])[0]["nodeId"])
    stage.kafka.move_coordinator("transaction", "t", now % NODES + 1)
    driver.say("commit")
    return differs(stage.committed(1), ["a"])


def coordinator_loads(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    refuse(stage, "JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
    driver = stage.driver(group="g")
    driver.say("subscribe", TOPIC)
    return differs(polled(driver, 1), ["a"])


def coordinator_errors_of_a_commit(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = stage.driver(group="g")
    driver.say("subscribe", TOPIC)
    got = polled(driver, 1)
    refuse(stage, "OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    driver.say("ack")
    return differs(got, ["a"])


def more_partitions(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.send("a")
    driver = stage.driver(group="g")
    driver.say("subscribe", TOPIC)
    got = polled(driver, 1)
    driver.say("ack")
    stage.kafka.preset("more-partitions", topic=TOPIC)
    stage.send("b", partition=1)
    return differs(got + polled(driver, 1), ["a", "b"])


def node_that_hangs_up(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver()
    driver.say("produce", TOPIC, "0", "a")
    stage.kafka.fault({"name": "closed", "match": {}, "at": "accepted", "do": {"disconnect": "rst"}})
    stage.kafka.restart()
    driver.begin("produce", TOPIC, "0", "b")
    stage.kafka.wait(fault="closed", hits=1, timeout_s=PATIENCE_S)
    time.sleep(HANGS_UP_S)
    (closed,) = stage.kafka.faults()
    stage.kafka.clear_faults()
    driver.heard("produce")
    if closed["hits"] > MOST_CONNECTS:
        return f"{closed['hits']} connections in {HANGS_UP_S} s, each of which was closed at once"
    return differs(stage.committed(2), ["a", "b"])


def metadata_of_an_older_epoch(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    driver = stage.driver()
    driver.say("produce", TOPIC, "0", "a")
    stage.kafka.move_leader(TOPIC, 0, 2)
    driver.say("produce", TOPIC, "0", "b")
    asked_of(stage, "Produce", 1)
    leader_of_old(stage, 1)
    stage.kafka.wait(fault="old", hits=2, timeout_s=PATIENCE_S)
    if not any(each["version"] >= METADATA_WITH_EPOCHS for each in stage.kafka.requests(api="Metadata")):
        raise Unimplemented("leader epochs")
    driver.begin("produce", TOPIC, "0", "c")
    try:
        driver.heard("produce")
    except ApplicationFailed:
        if not hits(stage, "Produce at 1"):
            raise
    if hits(stage, "Produce at 1"):
        return "Produce went to node 1, which led in an earlier epoch"
    return differs(stage.committed(3), ["a", "b", "c"])


def leader_in_the_answer_to_produce(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    driver = stage.driver()
    driver.say("produce", TOPIC, "0", "a")
    if any(each["version"] < PRODUCE_WITH_LEADERS for each in stage.kafka.requests(api="Produce")):
        raise Unimplemented("Produce v10")
    leader_of_old(stage, 1)
    stage.kafka.move_leader(TOPIC, 0, 2)
    driver.say("produce", TOPIC, "0", "b")
    return differs(stage.committed(2), ["a", "b"])


def reader_of_a_node_that_does_not_lead_all(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 2)
    stage.send("a")
    for node in (1, 3):
        asked_of(stage, "ListOffsets", node)
    driver = stage.driver(group="g")
    driver.say("subscribe", TOPIC)
    got = polled(driver, 1)
    asked = [node for node in (1, 3) if hits(stage, f"ListOffsets at {node}")]
    return f"ListOffsets went to node {asked[0]}, where node 2 leads" if asked else differs(got, ["a"])


def leader_moves_under_a_reader(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    stage.send("a")
    driver = stage.driver(group="g")
    driver.say("subscribe", TOPIC)
    got = polled(driver, 1)
    driver.say("ack")
    stage.kafka.move_leader(TOPIC, 0, 2)
    stage.send("b")
    got += polled(driver, 1)
    fetched = [each["request"] for each in stage.kafka.requests(api="Fetch", client_id="judged")]
    partitions = [each for ask in fetched for topic in ask["topics"] for each in topic["partitions"]]
    if all(each.get("currentLeaderEpoch", -1) == -1 for each in partitions):
        raise Unimplemented("leader epochs")
    if not [each for each in stage.kafka.requests(api="OffsetForLeaderEpoch") if each["client_id"] != CLIENT_ID]:
        return "it fetched on at the new leader without OffsetForLeaderEpoch"
    return differs(got, ["a", "b"])


SCENARIOS = (
    Scenario("VER.8", works_with_the_versions_of_today),
    Scenario("CON.1", node_that_hangs_up),
    Scenario("CON.7", slow_answer),
    Scenario("MET.2", metadata_of_an_older_epoch, nodes=NODES),
    Scenario("MET.3", leader_in_the_answer_to_produce, nodes=NODES),
    Scenario("MET.8", topic_missing_from_one_answer),
    Scenario("MET.10", coordinator_moves, nodes=NODES),
    Scenario("ADM.3", reader_of_a_node_that_does_not_lead_all, nodes=NODES),
    Scenario("PRD.6", first_of_several_batches_fails),
    Scenario("PRD.7", retriable_errors_of_produce),
    Scenario("TXN.8", last_transaction_is_still_ending),
    Scenario("TXN.11", empty_transaction),
    Scenario("TXN.13", offsets_in_an_open_transaction),
    Scenario("TV2.7", only_batch_of_a_transaction_fails),
    Scenario("FET.2", aborted_and_committed),
    Scenario("FET.4", aborted_list_reversed),
    Scenario("FET.9", leader_moves_under_a_reader, nodes=NODES),
    Scenario("FET.13", errors_that_reset_no_offset),
    Scenario("GRP.7", static_member_closes),
    Scenario("GRP.12", coordinator_loads),
    Scenario("GRP.13", coordinator_errors_of_a_commit),
    Scenario("GRP.18", more_partitions),
)
