"""Tests that requests between brokers, in a recording made in front of Apache Kafka, do not count as a client's
requests."""

from __future__ import annotations

import pytest

from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
from odradek.protocol.messages.fetch_request import FetchRequest, ReplicaState
from odradek.protocol.messages.read_share_group_state_request import ReadShareGroupStateRequest
from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.protocol.struct import Message
from odradek.testing.judge.judging import judge
from tests.support.traces import Trace


def clients(*requests: tuple[Message, int]) -> int:
    """Returns the number of clients that the judge finds if these requests arrive on one connection."""
    trace = Trace()
    peer = trace.connect()
    peer.ask(ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.3.1"), 4)
    for request, version in requests:
        peer.ask(request, version)
    return len(judge(lambda: trace.entries).clients())


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (FetchRequest(replica_id=1), 12),
        (FetchRequest(replica_state=ReplicaState(replica_id=1)), 17),
        (AddPartitionsToTxnRequest(), 5),
        (WriteTxnMarkersRequest(), 1),
        (ReadShareGroupStateRequest(), 0),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Message) else str(each),
)
def test_a_broker_is_not_a_client(request_: Message, version: int) -> None:
    assert clients((request_, version)) == 0


@pytest.mark.parametrize("version", [12, 17])
def test_a_consumer_is_a_client(version: int) -> None:
    assert clients((FetchRequest(), version)) == 1


def test_an_admin_client_that_aborts_a_transaction_is_a_client() -> None:
    assert clients((DescribeProducersRequest(topics=[]), 0), (WriteTxnMarkersRequest(), 1)) == 1


def test_a_producer_below_transaction_version_2_is_a_client() -> None:
    assert clients((AddPartitionsToTxnRequest(v3_and_below_transactional_id="t"), 3)) == 1
