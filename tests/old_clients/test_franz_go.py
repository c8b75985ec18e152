"""Old releases of franz-go. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Cluster, Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

FRANZ_GO = Client("github.com/twmb/franz-go", "franz_go.go")


def aborted_list_without_asking(kafka: Cluster) -> None:
    """Who reads uncommitted records is told of aborted transactions, too."""
    states.orders(kafka)
    states.transaction(kafka, ["aborted"], committed=False)
    (producer,) = kafka.producers()
    states.send(kafka, "b")
    aborted = [{"ProducerId": producer["producer_id"], "FirstOffset": 0}]
    path = "Responses[*].Partitions[*].AbortedTransactions"
    kafka.fault({"match": {"api": "Fetch"}, "at": "applied", "do": {"edit": {path: aborted}}})


ROWS = (
    Row(
        "twmb/franz-go#239", FRANZ_GO, "1.7.0", "1.14.0", "twoTransactions", states.second_held("AddPartitionsToTxn"),
        "hangs", "committed", states.coordinator_ends, nodes=3,
    ),
    Row(
        "twmb/franz-go#758", FRANZ_GO, "1.17.0", "1.17.1", "readUncommitted", aborted_list_without_asking,
        "read 1 of 2", "read 2 of 2",
    ),
    Row(
        "twmb/franz-go#1348, 42", FRANZ_GO, "1.21.3", "1.21.4", "readTwo", states.aborted_list_reversed,
        "read aborted", "read a, b",
    ),
    Row(
        "twmb/franz-go#1348, 39", FRANZ_GO, "1.21.3", "1.21.4", "copyOne", states.unknown_end,
        "committed: true", "committed: false",
    ),
    Row(
        "twmb/franz-go#1348, 40", FRANZ_GO, "1.21.3", "1.21.4", "oneTransaction", states.dead_producer,
        "raised producer ID has a fatal, unrecoverable error", "committed", states.dead_producer_is_ended,
    ),
)  # fmt: skip

NOT_SHOWN = {
    "twmb/franz-go#967": "no release has it: 1.18.1 writes no version 12 of Produce, 1.19.0 mends it",
    "twmb/franz-go#227": "takes 2³¹ records of one producer",
    "twmb/franz-go#1011": "1.19.0 takes its own versions where it is told none; Kafka refuses them before"
    " 3.9, which is not emulated",
    "twmb/franz-go#1330": "not tried",
    "franz-go before 1.21.5": "not tried",
    "franz-go before 1.21.6": "not tried",
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
