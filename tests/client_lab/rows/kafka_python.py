"""Bugs in old kafka-python releases."""

from __future__ import annotations

from odradek.testing.sync import Cluster
from tests.client_lab import states, states_of_groups
from tests.client_lab.row import AccusedRelease, Client, Conviction, Row, Sight

KAFKA_PYTHON = Client("kafka-python", "kafka_python_.py")
KAFKA_PYTHON_1_0 = Client("kafka-python", "kafka_python_1_0.py")


def concurrent_transactions(kafka: Cluster) -> None:
    states.orders(kafka)
    for api in ("AddPartitionsToTxn", "AddOffsetsToTxn"):
        kafka.fault({"match": {"api": api}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 7})


ROWS = (
    Row(
        "dpkp/kafka-python#2499", KAFKA_PYTHON, "2.0.5", "2.0.6",
        [Sight("read_all", states.committed_transaction, "read b'a', b'\\x00\\x00", "read b'a', b'b'")],
    ),
    Row(
        "dpkp/kafka-python#3082", KAFKA_PYTHON, "3.0.2", "3.0.4",
        [Sight(
            "join_twice", states_of_groups.heartbeat_tells_of_a_rebalance, "joined twice, FindCoordinator 2",
            "joined twice, FindCoordinator 1", traffic=states_of_groups.coordinator_searches,
        )],
    ),
    Row(
        "dpkp/kafka-python#3084", KAFKA_PYTHON, "3.0.2", "3.0.4",
        [Sight("wait_idly", states_of_groups.one_node_answers_no_fetch, "busy", "idle", nodes=3)],
    ),
    Row(
        "dpkp/kafka-python#2064, #1628", KAFKA_PYTHON, "2.0.1", "2.0.2",
        [Sight("wait_long", states_of_groups.heartbeats_unanswered, "hangs", "polled")], python="3.8",
    ),
    Row(
        "dpkp/kafka-python#1782", KAFKA_PYTHON, "1.4.6", "1.4.7",
        [Sight(
            "read_one_of_two_topics", states_of_groups.joined_to_two_topics, "hangs", "read b'a'",
            states_of_groups.topic_deleted, settings={"auto.create.topics.enable": "false"},
        )], python="3.8",
    ),
    Row(
        "dpkp/kafka-python#571, #582", KAFKA_PYTHON_1_0, "1.0.1", "1.0.2",
        [Sight(
            "commit_late", states_of_groups.late_metadata, "raised UnknownMemberIdError", "committed",
        )], python="3.6",
    ),
    Row(
        "dpkp/kafka-python#2663", KAFKA_PYTHON, "2.3.3", "3.0.12",
        [Conviction("IDM.6", "send_ten", states.unknown_producer, also=("VER.1",))],
    ),
)  # fmt: skip

ACCUSED = (
    # This release sends requests of two APIs without waiting for the first response and repeats both requests.
    AccusedRelease(KAFKA_PYTHON, "3.0.12", "TXN.8", "ten_transactions_with_offsets", concurrent_transactions),
)
