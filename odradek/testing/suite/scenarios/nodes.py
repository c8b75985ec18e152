"""Scenarios about connections, metadata, and nodes that become leaders, move or fail."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from odradek.testing.suite.driver import ApplicationFailed, Unimplemented
from odradek.testing.suite.scenarios.scenario import NODES, Scenario, count_requests, hits, name_old_leader, refuse
from odradek.testing.suite.stage import JUDGED, PATIENCE_S, TOPIC, ScenarioCluster, difference, poll_values

PRODUCE_WITH_LEADERS = 10
PRODUCE_WITH_IDS = 13
METADATA_WITH_EPOCHS = 7
HANG_UP_DELAY_S = 4.0
MAX_CONNECTION_ATTEMPTS = 60  # clients typically make about ten with the default reconnect.backoff.ms of 50 ms


def works_with_the_versions_of_today(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(group="g")
    driver.run_command("produce", TOPIC, "0", "a")
    driver.run_command("subscribe", TOPIC)
    return difference(poll_values(driver, 1), ["a"])


def slow_answer(stage: ScenarioCluster) -> str | None:
    stage.topic()
    rule = {"match": {"api": "Produce"}, "at": "applied", "do": {"delay_ms": 2000}, "times": 1}
    stage.kafka.fault(rule)
    stage.driver().run_command("produce", TOPIC, "0", "a")
    count = len(stage.kafka.requests(api="Produce"))
    return (
        None
        if count == 1
        else (f"the client sent {count} Produce requests, although only the answer to the first was 2 s late")
    )


def topic_missing_from_one_answer(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver()
    driver.run_command("produce", TOPIC, "0", "a")
    rule = {"name": "gone", "match": {"api": "Metadata"}, "at": "applied", "times": 1}
    stage.kafka.fault({**rule, "do": {"edit": {"Topics[0]": {"remove": True}}}})
    stage.kafka.wait(fault="gone", hits=1, timeout_s=PATIENCE_S)
    driver.run_command("produce", TOPIC, "0", "b")
    return difference(stage.committed(2), ["a", "b"])


def coordinator_moves(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(transactional_id="t")
    driver.run_command("begin")
    driver.run_command("produce", TOPIC, "0", "a")
    (found, *_) = [each for each in stage.kafka.requests(api="FindCoordinator") if each["request"]["keyType"] == 1]
    answer = found["answer"]
    now = int((answer.get("coordinators") or [answer])[0]["nodeId"])
    stage.kafka.move_coordinator("transaction", "t", now % NODES + 1)
    driver.run_command("commit")
    return difference(stage.committed(1), ["a"])


def node_that_hangs_up(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver()
    driver.run_command("produce", TOPIC, "0", "a")
    stage.kafka.fault({"name": "closed", "match": {}, "at": "accepted", "do": {"disconnect": "rst"}})
    stage.kafka.restart()
    driver.send_command("produce", TOPIC, "0", "b")
    stage.kafka.wait(fault="closed", hits=1, timeout_s=PATIENCE_S)
    time.sleep(HANG_UP_DELAY_S)
    (closed,) = stage.kafka.faults()
    stage.kafka.clear_faults()
    driver.read_reply("produce")
    if closed["hits"] > MAX_CONNECTION_ATTEMPTS:
        return f"{closed['hits']} connections in {HANG_UP_DELAY_S} s, although each was closed immediately"
    return difference(stage.committed(2), ["a", "b"])


def metadata_of_an_older_epoch(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    driver = stage.driver()
    driver.run_command("produce", TOPIC, "0", "a")
    stage.kafka.move_leader(TOPIC, 0, 2)
    driver.run_command("produce", TOPIC, "0", "b")
    count_requests(stage, "Produce", 1)
    name_old_leader(stage, 1)
    stage.kafka.wait(fault="old", hits=2, timeout_s=PATIENCE_S)
    requests = stage.kafka.requests(api="Metadata", client_id=JUDGED)
    if all(each["version"] < METADATA_WITH_EPOCHS for each in requests):
        raise Unimplemented("leader epochs")
    driver.send_command("produce", TOPIC, "0", "c")
    try:
        driver.read_reply("produce")
    except ApplicationFailed:
        if not hits(stage, "Produce at 1"):
            raise
    if hits(stage, "Produce at 1"):
        return "the client sent Produce to node 1, which was the leader only in an earlier epoch"
    return difference(stage.committed(3), ["a", "b", "c"])


def leader_in_the_answer_to_produce(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    driver = stage.driver()
    driver.run_command("produce", TOPIC, "0", "a")
    if any(each["version"] < PRODUCE_WITH_LEADERS for each in stage.kafka.requests(api="Produce")):
        raise Unimplemented("Produce v10")
    name_old_leader(stage, 1)
    stage.kafka.move_leader(TOPIC, 0, 2)
    driver.run_command("produce", TOPIC, "0", "b")
    return difference(stage.committed(2), ["a", "b"])


def reader_of_a_node_that_does_not_lead_all(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 2)
    stage.send("a")
    for node in (1, 3):
        count_requests(stage, "ListOffsets", node)
    driver = stage.driver(group="g")
    driver.run_command("subscribe", TOPIC)
    received = poll_values(driver, 1)
    nodes = [node for node in (1, 3) if hits(stage, f"ListOffsets at {node}")]
    return (
        (f"the client sent ListOffsets to node {nodes[0]}, although node 2 is the leader")
        if nodes
        else difference(received, ["a"])
    )


def nodes_that_are_all_gone(stage: ScenarioCluster) -> str | None:
    """Checks a client whose first metadata lists only nodes at a port on which no process listens. Later metadata lists
    the real nodes."""
    stage.topic()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    action = {"edit": {"Brokers[*].Port": port}}
    stage.kafka.fault({"match": {"api": "Metadata", "client_id": JUDGED}, "at": "applied", "do": action, "times": 1})
    stage.driver().run_command("produce", TOPIC, "0", "a")
    return difference(stage.committed(1), ["a"])


def connections_of_many_requests(stage: ScenarioCluster) -> str | None:
    stage.topic(partitions=NODES)
    driver = stage.driver()
    counts = []
    for _ in range(10):
        for partition in range(NODES):
            driver.run_command("produce", TOPIC, str(partition), "a")
        counts.append(len({each["connection"] for each in stage.kafka.requests(client_id=JUDGED)}))
    if counts[-1] > counts[0] + 1:
        return (
            f"the client had {counts[0]} connections after the first records to {NODES} nodes, and {counts[-1]}"
            " after ten times as many records"
        )
    return difference(stage.committed(10), ["a"] * 10)


def topic_that_is_not_to_be_created(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver(group="g")
    driver.run_command("set", "create_topics", "off")
    with suppress(ApplicationFailed):  # the client may report that the topic does not exist
        driver.run_command("subscribe", "missing")
        for _ in range(4):
            driver.run_command("poll", "500")
    for each in stage.kafka.requests(api="Metadata", client_id=JUDGED):
        named = [topic["name"] for topic in each["request"]["topics"] or []]
        if "missing" in named and each["request"].get("allowAutoTopicCreation", True):
            return "the client allows Metadata to create the topic, although the application does not"
    return None


def metadata_that_is_never_answered(stage: ScenarioCluster) -> str | None:
    stage.topic()
    stage.kafka.move_leader(TOPIC, 0, 1)
    driver = stage.driver()
    driver.run_command("produce", TOPIC, "0", "a")
    lost = {"name": "lost", "match": {"api": "Metadata", "client_id": JUDGED}, "do": {"drop": True}, "times": 1}
    stage.kafka.fault(lost)
    stage.kafka.wait(fault="lost", hits=1, timeout_s=PATIENCE_S)
    stage.kafka.move_leader(TOPIC, 0, 2)
    driver.run_command("produce", TOPIC, "0", "b")
    return difference(stage.committed(2), ["a", "b"])


def topic_that_is_created_again(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver()
    driver.run_command("produce", TOPIC, "0", "a")
    if any(each["version"] < PRODUCE_WITH_IDS for each in stage.kafka.requests(api="Produce")):
        raise Unimplemented("topic ids in Produce")
    stage.create_again()
    driver.run_command("produce", TOPIC, "0", "b")
    return difference(stage.committed(1), ["b"])


def throttled_producer(stage: ScenarioCluster) -> str | None:
    stage.topic()
    driver = stage.driver()
    driver.run_command("produce", TOPIC, "0", "a")
    rule = {"match": {"api": "Produce", "client_id": JUDGED}, "at": "applied", "do": {"throttle_ms": 1000}, "times": 1}
    stage.kafka.fault(rule)
    driver.run_command("produce", TOPIC, "0", "b")
    driver.run_command("produce", TOPIC, "0", "c")
    return difference(stage.committed(3), ["a", "b", "c"])


def controller_that_has_moved(stage: ScenarioCluster) -> str | None:
    refuse(stage, "CreateTopics", "NOT_CONTROLLER")
    stage.driver().run_command("create", TOPIC)
    stage.send("a")
    return difference(stage.committed(1), ["a"])


def groups_at_several_nodes(stage: ScenarioCluster) -> str | None:
    stage.topic()
    groups = [f"group-{number}" for number in range(8)]
    stage.commit(*groups)
    for number, group in enumerate(groups):
        stage.kafka.move_coordinator("group", group, number % NODES + 1)
    return difference(sorted(stage.driver().run_command("groups")), groups)


SCENARIOS = (
    Scenario("VER.8", works_with_the_versions_of_today),
    Scenario("CON.1", node_that_hangs_up),
    Scenario("CON.7", slow_answer),
    Scenario("MET.2", metadata_of_an_older_epoch, nodes=NODES),
    Scenario("MET.3", leader_in_the_answer_to_produce, nodes=NODES),
    Scenario("MET.8", topic_missing_from_one_answer),
    Scenario("MET.10", coordinator_moves, nodes=NODES, is_decisive=True),
    Scenario("ADM.3", reader_of_a_node_that_does_not_lead_all, nodes=NODES),
    Scenario("CON.2", throttled_producer),
    Scenario("CON.3", nodes_that_are_all_gone),
    Scenario("CON.4", connections_of_many_requests, nodes=NODES),
    Scenario("MET.5", topic_that_is_not_to_be_created),
    Scenario("MET.7", topic_that_is_created_again, is_decisive=True),
    Scenario("MET.9", metadata_that_is_never_answered, nodes=NODES),
    Scenario("ADM.1", controller_that_has_moved, nodes=NODES),
    Scenario("ADM.2", groups_at_several_nodes, nodes=NODES),
)
