"""Old releases of Sarama. `make old-clients`"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from odradek.testing.sync import Cluster, Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

SARAMA = Client("github.com/IBM/sarama", "sarama.go")
TRANSACTIONS = Client("github.com/IBM/sarama", "sarama_transactions.go")
SHOPIFY = Client("github.com/Shopify/sarama", "sarama.go")  # until 1.38


def last_epoch(kafka: Cluster) -> None:
    """The producer begins with the last epoch there is, and its second batch is refused."""
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


ROWS = (
    Row(
        "IBM/sarama#2178", SHOPIFY, "1.32.0", "1.33.0", "sendThree", last_epoch,
        "raised kafka server: Producer attempted an operation with an old epoch", "sent",
    ),
    Row(
        "IBM/sarama#2619", SARAMA, "1.46.3", "1.48.0", "sendMany", leader_is_elsewhere_once,
        "in order: false", "in order: true",
    ),
    Row(
        "IBM/sarama#2701", TRANSACTIONS, "1.41.3", "1.42.1", "commitOffsets", coordinator_loads,
        "raised kafka server: The broker is still loading", "committed",
    ),
    Row(
        "IBM/sarama#2090", SHOPIFY, "1.30.1", "1.31.1", "readThreeInRack", follower_is_near,
        "read 2 of 3", "read 3 of 3", follower_goes_and_returns, nodes=2,
    ),
    Row(
        "IBM/sarama#2939", SARAMA, "1.43.2", "1.43.3", "send", states.storage_error,
        "raised kafka server: Disk error", "sent",
    ),
)  # fmt: skip

NOT_SHOWN: Mapping[str, str] = {
    "IBM/sarama#1661": "1.26.0 sends its batch again, and it has arrived, whichever way the connection ends.",
    "IBM/sarama#1927": "1.27.0 turns to a new leader at once, as 1.29.1 does, with one replica or two.",
    "IBM/sarama#2915": "1.42.1 to 1.45.0 wait until a held marker is written, and commit the next transaction.",
    "IBM/sarama#3354": (
        "1.46.2 sees an out of order sequence number when its leader moves once; 1.46.3, which mends it, at times as "
        "well, by the order of its records (2619)."
    ),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
