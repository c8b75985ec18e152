"""Bugs in old KafkaJS releases."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.testing.sync import Cluster
from tests.client_lab import states
from tests.client_lab.row import Client, Conviction, Row, ScenarioConviction, Sight

KAFKAJS = Client("kafkajs", "kafkajs.js", driver="kafkajs.js")


def coordinator_loads(kafka: Cluster) -> None:
    """Makes the broker refuse the first JoinGroup with COORDINATOR_LOAD_IN_PROGRESS, as a coordinator does after a
    restart until it has loaded its groups."""
    states.orders(kafka)
    states.send(kafka, "a")
    states.commit(kafka, 0)
    kafka.fault({"match": {"api": "JoinGroup"}, "do": {"error": "COORDINATOR_LOAD_IN_PROGRESS"}, "times": 1})


def one_record(kafka: Cluster) -> None:
    states.orders(kafka)
    states.send(kafka, "a")


ROWS = (
    Row(
        "tulios/kafkajs#1388", KAFKAJS, "2.0.2", "2.1.0",
        [
            Sight(
                "emptyTransaction", states.orders,
                "raised The producer attempted a transactional operation in an invalid state", "committed",
            ),
            ScenarioConviction("TXN.11"),
        ],
    ),
    Row(
        "tulios/kafkajs#1256", KAFKAJS, "1.15.0", "1.16.0",
        [Sight("readOne", states.aborted_records_first, "read nothing", "read a")],
    ),
    Row(
        "tulios/kafkajs#1532", KAFKAJS, "2.2.3", "2.2.4",
        [Sight("sendLong", states.throttled_by_a_millisecond, "sends no more", "sent")],
    ),
    Row(
        "tulios/kafkajs#1402, #1408", KAFKAJS, "2.0.1", "2.1.0",
        [Sight("readUntilCrash", states.orders, "hangs", "crashed", states.only_node_stops)],
    ),
    Row(
        "tulios/kafkajs#335, #267", KAFKAJS, "1.4.6", "1.5.0",
        [Sight("readOne", coordinator_loads, "read nothing", "read a")],
    ),
    Row(
        "tulios/kafkajs#1310", KAFKAJS, "1.16.0", "2.0.1",
        [Sight(
            "sendFive", states.orders,
            'raised The value of "value" is out of range. It must be >= -2147483648 and <= 2147483647', "sent",
        )],
    ),
    Row(
        "tulios/kafkajs#1616", KAFKAJS, "2.2.4", None,
        [Sight(
            "readAndBlock", one_record, "blocks, and its group is Stable", None, nodes=3,
            settings={"group.min.session.timeout.ms": "1000"},
        )],
    ),
    Row(
        "tulios/kafkajs#1050", KAFKAJS, "1.16.0", "2.0.2",
        [Conviction("IDM.2", "sendConcurrently", states.orders, also=("IDM.3",))],
    ),
)  # fmt: skip

NOT_SHOWN: Mapping[str, str] = {
    "tulios/kafkajs#299": "It was mended in a beta of 1.5.0, the first release with transactions.",
}
