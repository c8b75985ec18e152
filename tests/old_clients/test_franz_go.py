"""Old releases of franz-go. `make old-clients`"""

from __future__ import annotations

from collections.abc import Mapping

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


def api_versions_too_new(kafka: Cluster) -> None:
    """The first node asked serves older versions than the client knows, and tells only the one of ApiVersions."""
    states.orders(kafka)
    match = {"api": "ApiVersions", "versions": "4+", "client_id": "kgo"}
    kafka.fault({"match": match, "do": {"error": "UNSUPPORTED_VERSION"}, "times": 1})


def leader_is_elsewhere_behind_the_wrap(kafka: Cluster) -> None:
    """Of four records the last, of sequence 0 behind 2³¹ - 1, is refused once; the first is in another partition."""
    states.orders(kafka, 2)
    refusal = {"error": "NOT_LEADER_OR_FOLLOWER"}
    kafka.fault({"match": {"api": "Produce"}, "do": refusal, "after": 3, "times": 1})


ROWS = (
    Row(
        "twmb/franz-go#239", FRANZ_GO, "1.8.0", "1.10.3", "twoTransactions", states.second_held("AddPartitionsToTxn"),
        "hangs", "committed", states.coordinator_ends, nodes=3,
    ),
    Row(
        "twmb/franz-go#227", FRANZ_GO, "1.8.0", "1.9.0", "sendThreeFromTheEnd", leader_is_elsewhere_behind_the_wrap,
        "raised INVALID_RECORD", "sent",
    ),
    Row(
        "twmb/franz-go#758", FRANZ_GO, "1.17.0", "1.17.1", "readUncommitted", aborted_list_without_asking,
        "read 1 of 2", "read 2 of 2",
    ),
    Row(
        "twmb/franz-go#1011", FRANZ_GO, "1.19.0", "1.19.1", "send", api_versions_too_new,
        "raised context deadline exceeded", "sent", emulate="3.9",
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

NOT_SHOWN: Mapping[str, str] = {
    "twmb/franz-go#967": "No release has it: 1.18.1 does not write version 12 of Produce, and 1.19.0 mends it.",
    "franz-go before 1.21.6": (
        "A race inside the client: the answer to a heartbeat has to be read after the metadata named the topic, and "
        "before the same update added it to what the group uses."
    ),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
