"""Bugs in old franz-go releases."""

from __future__ import annotations

import asyncio

from odradek.testing.sync import Cluster
from tests.client_lab import states
from tests.client_lab.row import Client, Conviction, Row, ScenarioConviction, Sight
from tests.clients.own_producers import set_transaction_version

FRANZ_GO = Client("github.com/twmb/franz-go", "franz_go.go", driver="franz_go.go")
REGEX = Client("github.com/twmb/franz-go", "franz_go_regex.go")
SHARE = Client("github.com/twmb/franz-go", "franz_go_share.go")
# A commit between two releases. It supports transaction version 2 and is two days older than the fix in #967.
BEFORE_1_19 = "1.18.2-0.20250413173443-1d5a55fa468d"


def aborted_list_without_asking(kafka: Cluster) -> None:
    """Lists aborted transactions in Fetch responses to consumers that read uncommitted records."""
    states.orders(kafka)
    states.transaction(kafka, ["aborted"], committed=False)
    (producer,) = kafka.producers()
    states.send(kafka, "b")
    aborted = [{"ProducerId": producer["producer_id"], "FirstOffset": 0}]
    path = "Responses[*].Partitions[*].AbortedTransactions"
    kafka.fault({"match": {"api": "Fetch"}, "at": "applied", "do": {"edit": {path: aborted}}})


def api_versions_too_new(kafka: Cluster) -> None:
    """Refuses the client's first ApiVersions request because its version is too new. The response contains only the
    supported versions of ApiVersions."""
    states.orders(kafka)
    match = {"api": "ApiVersions", "versions": "4+", "client_id": "kgo"}
    kafka.fault({"match": match, "do": {"error": "UNSUPPORTED_VERSION"}, "times": 1})


def leader_is_elsewhere_behind_the_wrap(kafka: Cluster) -> None:
    """Refuses the last of four records once. Its sequence number is 0, because the previous record in its partition has
    the sequence number 2³¹ - 1. The first of the four records is in another partition."""
    states.orders(kafka, 2)
    refusal = {"error": "NOT_LEADER_OR_FOLLOWER"}
    kafka.fault({"match": {"api": "Produce"}, "do": refusal, "after": 3, "times": 1})


def record_refused(kafka: Cluster) -> None:
    states.orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "INVALID_RECORD"}, "times": 1})


def other_topic_matches(kafka: Cluster) -> None:
    states.topic(kafka, "orders-of-yesterday")
    kafka.fault({"name": "read", "match": {"api": "Fetch"}, "do": {"observe": True}})


def topic_is_assigned_while_metadata_tells_of_it(kafka: Cluster) -> None:
    """Assigns the new topic to the member while the client is still processing the Metadata response that contains it.

    The client takes a long time to process the response, because the application logs metadata slowly. Meanwhile the
    clock advances by 11 s, because the coordinator evaluates regular expressions every 10 s.
    """
    match = {"api": "Metadata", "client_id": "kgo"}
    kafka.wait(fault="read", hits=2, timeout_s=states.PATIENCE_S)
    kafka.fault({"match": match, "do": {"hold": "metadata"}, "times": 1})
    kafka.wait(hold="metadata", timeout_s=states.PATIENCE_S)
    states.orders(kafka)
    states.send(kafka, "a")
    kafka.fault({"name": "told", "match": match, "at": "applied", "do": {"observe": True}})
    kafka.release("metadata")
    kafka.wait(fault="told", hits=1, timeout_s=states.PATIENCE_S)
    kafka.clock.advance(11_000)


def transactions_of_version_1(kafka: Cluster) -> None:
    states.orders(kafka)
    asyncio.run(set_transaction_version(kafka.bootstrap, 1))


def metadata_without_ids(kafka: Cluster) -> None:
    """Advertises only versions of Metadata below 10, which have no topic ids, although Produce and Fetch use topic
    ids."""
    states.orders(kafka)
    kafka.fault({"match": {"api": "ApiVersions"}, "at": "applied", "do": {"edit": {"ApiKeys[3].MaxVersion": 9}}})


def two_partitions(kafka: Cluster) -> None:
    states.orders(kafka, 2)
    states.send(kafka, "a")


ROWS = (
    Row(
        "twmb/franz-go#239", FRANZ_GO, "1.8.0", "1.10.3",
        [Sight(
            "twoTransactions", states.second_held("AddPartitionsToTxn"), "hangs", "committed", states.coordinator_ends,
            nodes=3,
        )],
    ),
    Row(
        "twmb/franz-go#227", FRANZ_GO, "1.8.0", "1.9.0",
        [Sight("sendThreeFromTheEnd", leader_is_elsewhere_behind_the_wrap, "raised INVALID_RECORD", "sent")],
    ),
    Row(
        "twmb/franz-go#758", FRANZ_GO, "1.17.0", "1.17.1",
        [Sight("readUncommitted", aborted_list_without_asking, "read 1 of 2", "read 2 of 2")],
    ),
    Row(
        "twmb/franz-go#967", FRANZ_GO, BEFORE_1_19, "1.19.0",
        [Sight("oneFailedRecord", record_refused, "raised INVALID_TXN_STATE", "committed")],
    ),
    Row(
        "twmb/franz-go#1011", FRANZ_GO, "1.19.0", "1.19.1",
        [Sight("send", api_versions_too_new, "raised context deadline exceeded", "sent", emulate="3.9")],
    ),
    Row(
        "twmb/franz-go#1348, 42", FRANZ_GO, "1.21.3", "1.21.4",
        [
            Sight("readTwo", states.aborted_list_reversed, "read aborted", "read a, b"),
            ScenarioConviction("FET.4"),
        ],
    ),
    Row(
        "twmb/franz-go#1348, 39", FRANZ_GO, "1.21.3", "1.21.4",
        [Sight("copyOne", states.unknown_end, "committed: true", "committed: false")],
    ),
    Row(
        "twmb/franz-go#1348, 40", FRANZ_GO, "1.21.3", "1.21.4",
        [
            Sight(
                "oneTransaction", states.dead_producer, "raised producer ID has a fatal, unrecoverable error",
                "committed", states.dead_producer_is_ended,
            ),
            ScenarioConviction("TXN.8"),
        ],
    ),
    Row(
        "franz-go before 1.21.6", REGEX, "1.21.5", "1.21.6",
        [Sight(
            "readOne", other_topic_matches, "read nothing", "read a", topic_is_assigned_while_metadata_tells_of_it,
            settings=states.OFTEN,
        )],
    ),
    Row(
        "twmb/franz-go#1330", SHARE, "1.21.2", "1.21.3",
        [Sight("describeOffsets", states.orders, "raised INVALID_REQUEST", "described")],
    ),
    Row(
        "franz-go before 1.21.5", SHARE, "1.21.4", "1.21.5",
        [Sight("readPaused", two_partitions, "read 1 of 2", "read 2 of 2")],
    ),
    Row(
        "twmb/franz-go 1.19.2", FRANZ_GO, "1.19.0", "1.19.5",
        [Conviction("VER.7", "twoTransactions", transactions_of_version_1)],
    ),
    Row(
        "franz-go 1.21.0, its changelog", FRANZ_GO, "1.20.0", "1.21.4",
        [Conviction("VER.1", "twoTransactions", states.orders)],
    ),
    Row(
        "twmb/franz-go#1312", FRANZ_GO, "1.21.0", "1.21.2",
        [Conviction("MET.6", "twoTransactions", metadata_without_ids, avoided=True)],
    ),
)  # fmt: skip
