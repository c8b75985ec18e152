"""Bugs in old Sarama releases."""

from __future__ import annotations

from odradek.testing.sync import Cluster
from tests.client_lab import states
from tests.client_lab.row import Client, Conviction, Row, Sight

SARAMA = Client("github.com/IBM/sarama", "sarama.go")
INTERCEPTORS = Client("github.com/IBM/sarama", "sarama_interceptors.go")
TRANSACTIONS = Client("github.com/IBM/sarama", "sarama_transactions.go")
# the module's name up to release 1.38
SHOPIFY = Client("github.com/Shopify/sarama", "sarama.go")
READERS = Client("github.com/Shopify/sarama", "sarama_consumers.go")
READERS_1_26 = Client("github.com/Shopify/sarama", "sarama_1_26.go")


def last_epoch(kafka: Cluster) -> None:
    """Gives the producer the highest possible epoch and refuses its second batch."""
    states.orders(kafka)
    edit = {"ProducerEpoch": 32767}
    kafka.fault({"match": {"api": "InitProducerId"}, "at": "applied", "do": {"edit": edit}, "times": 1})
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "INVALID_RECORD"}, "after": 1, "times": 1})


def leader_is_elsewhere_once(kafka: Cluster) -> None:
    states.orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 1})


def coordinator_loads(kafka: Cluster) -> None:
    states.orders(kafka)
    kafka.fault({"match": {"api": "InitProducerId"}, "do": {"error": "COORDINATOR_LOAD_IN_PROGRESS"}, "times": 2})


def node_away_for_one_record(kafka: Cluster) -> None:
    """Closes the connection when the client sends the second record, and at each of its three retries."""
    states.orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "do": {"disconnect": True}, "after": 1, "times": 4})


def follower_is_near(kafka: Cluster) -> None:
    states.orders(kafka)
    states.send(kafka, "a")
    kafka.move_leader("orders", 0, 1)
    kafka.put_in_rack(2, "near")
    kafka.fault({"name": "follower", "match": {"api": "Fetch", "node": 2}, "at": "applied", "do": {"observe": True}})
    kafka.fault({"name": "leader", "match": {"api": "Fetch", "node": 1}, "at": "applied", "do": {"observe": True}})


def follower_goes_and_returns(kafka: Cluster) -> None:
    kafka.wait(fault="follower", hits=2, timeout_s=states.PATIENCE_S)
    kafka.stop_node(2)
    kafka.wait(fault="leader", hits=3, timeout_s=states.PATIENCE_S)
    states.send(kafka, "b")
    kafka.start_node(2)
    states.send(kafka, "c")


def followers_serve(kafka: Cluster) -> None:
    """Puts each node into a rack, so that followers answer Fetch requests from version 11."""
    kafka.put_in_rack(1, "here")
    kafka.put_in_rack(2, "there")
    states.orders(kafka)
    kafka.move_leader("orders", 0, 1)
    states.send(kafka, "a")
    kafka.fault({"name": "read", "match": {"api": "Fetch", "node": 1}, "at": "applied", "do": {"observe": True}})


def leader_moves_and_is_not_followed(kafka: Cluster) -> None:
    kafka.wait(fault="read", hits=2, timeout_s=states.PATIENCE_S)
    kafka.move_leader("orders", 0, 2)
    kafka.follow("orders", 0, 1, 1)
    states.send(kafka, "b", "c")


ROWS = (
    Row(
        "IBM/sarama#2178", SHOPIFY, "1.32.0", "1.33.0",
        [Sight(
            "sendThree", last_epoch, "raised kafka server: Producer attempted an operation with an old epoch", "sent",
        )],
    ),
    Row(
        "IBM/sarama#2619", SARAMA, "1.46.3", "1.48.0",
        [Sight("sendMany", leader_is_elsewhere_once, "in order: false", "in order: true")],
    ),
    Row(
        "IBM/sarama#2701", TRANSACTIONS, "1.41.3", "1.42.1",
        [Sight("commitOffsets", coordinator_loads, "raised kafka server: The broker is still loading", "committed")],
    ),
    Row(
        "IBM/sarama#2090", READERS, "1.30.1", "1.31.1",
        [Sight("readThreeInRack", follower_is_near, "read 2 of 3", "read 3 of 3", follower_goes_and_returns, nodes=2)],
    ),
    Row(
        "IBM/sarama#2939", SARAMA, "1.43.2", "1.43.3",
        [Sight("send", states.storage_error, "raised kafka server: Disk error", "sent")],
    ),
    Row(
        "IBM/sarama#1661, #1430", SHOPIFY, "1.26.1", "1.26.4",
        [Sight(
            "sendThree", node_away_for_one_record,
            "raised kafka server: The broker received an out of order sequence number", "sent",
        )],
    ),
    Row(
        "IBM/sarama#1927", READERS, "1.27.0", "1.29.1",
        [Sight(
            "readThreeOfTheLeader", followers_serve, "read 1 of 3", "read 3 of 3", leader_moves_and_is_not_followed,
            nodes=2,
        )],
    ),
    Row(
        "IBM/sarama#3354", INTERCEPTORS, "1.46.2", "1.46.3",
        [Sight(
            "sendThreeAmongRetries", leader_is_elsewhere_once, "sent to offsets [0 1 0]", "sent to offsets [0 1 2]",
        )],
    ),
    Row(
        "IBM/sarama#2915, #2859", TRANSACTIONS, "1.50.3", "1.61.1",
        [Sight(
            "sendOne", states.dead_producer,
            "raised kafka server: The producer attempted to update a transaction while another concurrent",
            "committed", states.dead_producer_is_ended,
        )],
    ),
    Row(
        "IBM/sarama#1644", READERS_1_26, "1.26.0", "1.27.0",
        [Conviction("FET.6", "readForAWhile", states.orders, avoided=True)],
    ),
)  # fmt: skip
