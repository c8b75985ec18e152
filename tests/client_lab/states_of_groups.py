"""States of groups and group members that provoke bugs."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from odradek.testing.sync import Cluster
from tests.client_lab.states import NAME, PATIENCE_S, commit, orders, send, topic


def heartbeat_tells_of_a_rebalance(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Heartbeat"}, "do": {"error": "REBALANCE_IN_PROGRESS"}, "times": 1})


def coordinator_searches(kafka: Cluster) -> str:
    requests = [each for each in kafka.requests(api="FindCoordinator") if each["client_id"] != NAME]
    return f"FindCoordinator {len(requests)}"


def heartbeats_unanswered(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Heartbeat"}, "after": 2, "do": {"hold": "heartbeat"}})


def late_metadata(kafka: Cluster) -> None:
    """Delays Metadata responses, so that heartbeats are due while the client waits for metadata."""
    orders(kafka)
    commit(kafka, 0)
    kafka.fault({"match": {"api": "Metadata"}, "after": 3, "do": {"delay_ms": 300}})


def joined_to_two_topics(kafka: Cluster) -> None:
    """Holds the first OffsetFetch, so that a member that has joined waits for its committed offsets."""
    orders(kafka)
    send(kafka, "a")
    topic(kafka, "others")
    kafka.fault({"match": {"api": "OffsetFetch"}, "do": {"hold": "offsets"}, "times": 1})


def topic_deleted(kafka: Cluster) -> None:
    kafka.wait(hold="offsets", timeout_s=PATIENCE_S)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "client.id": NAME})
    admin.delete_topics(["others"])["others"].result(PATIENCE_S)
    kafka.release("offsets")


def one_node_answers_no_fetch(kafka: Cluster) -> None:
    orders(kafka, partitions=3)
    kafka.fault({"match": {"api": "Fetch", "node": 2}, "do": {"hold": "fetch"}})


def rebalance_for_long(kafka: Cluster) -> None:
    """Makes a member rejoin eight times after joining."""
    orders(kafka)
    send(kafka, "a", "b")
    kafka.fault({"match": {"api": "Heartbeat"}, "do": {"error": "REBALANCE_IN_PROGRESS"}, "times": 1})
    again = {"error": "REBALANCE_IN_PROGRESS", "delay_ms": 300}
    kafka.fault({"match": {"api": "SyncGroup"}, "do": again, "after": 1, "times": 8})


def refused_commits(kafka: Cluster) -> str:
    answers = [each["answer"] for each in kafka.requests(api="OffsetCommit") if each["answer"]]
    codes = [answer["topics"][0]["partitions"][0]["errorCode"] for answer in answers]
    return "commits refused" if any(codes) else "no commit refused"
