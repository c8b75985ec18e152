"""Tests that a client that switches from topic names to topic ids, or back, is judged as if it had used only names or
only ids.

The Java producer switches when the highest version of Produce that all its brokers support changes from 12 to 13.
"""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from odradek.protocol.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.protocol.schema import ZERO_UUID
from odradek.testing.judge.topics import Topics
from tests.support.judged_cases import batch, init, produce
from tests.support.traces import Peer, Trace

BY_NAME, BY_ID = 12, 13
ID, OTHER_ID = b"1" * 16, b"2" * 16
PRODUCER = (7, 0)
SEQUENCES = ("IDM.1", "IDM.2", "IDM.3", "IDM.5")


def metadata(peer: Peer, topic_id: bytes = ID) -> None:
    peer.ask(
        MetadataRequest(topics=[]), 12, MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=topic_id)])
    )


def described(peer: Peer) -> None:
    topic = DescribeTopicPartitionsResponseTopic(name="t", topic_id=ID)
    peer.ask(DescribeTopicPartitionsRequest(), 0, DescribeTopicPartitionsResponse(topics=[topic]))


def created(peer: Peer) -> None:
    topic = CreatableTopicResult(name="t", topic_id=ID)
    peer.ask(CreateTopicsRequest(), 7, CreateTopicsResponse(topics=[topic]))


def deleted(peer: Peer, name: str | None = "t", topic_id: bytes = ZERO_UUID) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=topic_id)])
    answer = DeleteTopicsResponse(responses=[DeletableTopicResult(name=name, topic_id=topic_id)])
    peer.ask(request, 6, answer)


def send(peer: Peer, sequence: int, version: int, topic_id: bytes = ID, **how: object) -> None:
    records = batch(sequence, producer=PRODUCER, value=b"%d" % sequence)
    produce(peer, records, version=version, topic_id=topic_id if version >= BY_ID else ZERO_UUID, **how)  # type: ignore[arg-type]


def broken(trace: Trace) -> list[str]:
    return sorted(rule for rule in SEQUENCES if trace.verdict(rule) == "broken")


@pytest.mark.parametrize("tells", [metadata, described, created])
@pytest.mark.parametrize("versions", [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])
def test_sequences_go_on_where_a_producer_changes_between_name_and_id(tells: object, versions: tuple[int, int]) -> None:
    trace = Trace()
    peer = trace.connect()
    init(peer, PRODUCER)
    assert callable(tells)
    tells(peer)
    send(peer, 0, versions[0])
    send(peer, 1, versions[0])
    send(peer, 2, versions[1])
    assert (broken(trace), trace.verdict("IDM.2")) == ([], "kept")


@pytest.mark.parametrize("versions", [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])
@pytest.mark.parametrize(("sequence", "rule"), [(3, "IDM.2"), (0, "IDM.3")])
def test_a_gap_or_a_restart_is_found_across_the_change(versions: tuple[int, int], sequence: int, rule: str) -> None:
    trace = Trace()
    peer = trace.connect()
    init(peer, PRODUCER)
    metadata(peer)
    for each in range(2):
        produce(
            peer,
            batch(each, producer=PRODUCER, value=b"first"),
            version=versions[0],
            topic_id=ID if versions[0] >= BY_ID else ZERO_UUID,
        )
    send(peer, sequence, versions[1])
    assert rule in broken(trace)


def test_no_rule_is_broken_if_metadata_arrive_after_both_name_and_id_were_used() -> None:
    """Checks that no rule is broken in a recording that started too late for the judge to know which sequence comes
    next."""
    trace = Trace()
    peer = trace.connect()
    init(peer, PRODUCER)
    send(peer, 0, BY_NAME)
    metadata(peer)
    send(peer, 1, BY_ID)
    assert broken(trace) == []


def test_sequences_begin_anew_in_a_topic_that_was_created_again() -> None:
    for is_told_by_deletion in (False, True):
        for by_id in (False, True):
            trace = Trace()
            peer = trace.connect()
            init(peer, PRODUCER)
            metadata(peer)
            send(peer, 0, BY_NAME)
            send(peer, 1, BY_ID)
            if is_told_by_deletion:
                deleted(peer, *((None, ID) if by_id else ("t",)))
            metadata(peer, OTHER_ID)
            send(peer, 0, BY_ID, OTHER_ID)
            send(peer, 1, BY_NAME)
            assert broken(trace) == []


def test_a_batch_for_the_deleted_topic_is_not_counted_for_the_new_one() -> None:
    trace = Trace()
    peer = trace.connect()
    init(peer, PRODUCER)
    metadata(peer)
    for sequence in range(3):
        send(peer, sequence, BY_ID)
    metadata(peer, OTHER_ID)
    send(peer, 3, BY_ID, error=ErrorCode.UNKNOWN_TOPIC_ID.value)
    send(peer, 0, BY_ID, OTHER_ID)
    send(peer, 1, BY_ID, OTHER_ID)
    assert broken(trace) == []


def test_stale_metadata_does_not_bring_a_deleted_topic_back() -> None:
    trace = Trace()
    peer = trace.connect()
    init(peer, PRODUCER)
    metadata(peer)
    for sequence in range(3):
        send(peer, sequence, BY_NAME)
    deleted(peer)
    metadata(peer)
    send(peer, 0, BY_NAME)
    assert broken(trace) == []


def test_a_batch_that_failed_by_name_and_was_repeated_by_id_does_not_stand_against_the_commit() -> None:
    trace = Trace()
    peer = trace.connect()
    init(peer, PRODUCER, "tx")
    metadata(peer)
    records = batch(0, producer=PRODUCER, transactional=True)
    produce(peer, records, version=BY_NAME, transactional_id="tx", error=ErrorCode.NOT_ENOUGH_REPLICAS.value)
    produce(peer, records, version=BY_ID, transactional_id="tx", topic_id=ID)
    end = EndTxnRequest(transactional_id="tx", producer_id=7, producer_epoch=0, committed=True)
    peer.ask(end, 5, EndTxnResponse(producer_id=7, producer_epoch=1))
    assert trace.verdict("TXN.5") == "kept"


def test_a_fetch_by_id_after_an_error_by_name_needs_new_metadata() -> None:
    trace = Trace()
    peer = trace.connect()
    metadata(peer)
    for version in (BY_NAME, BY_ID, BY_ID, BY_ID):
        name, topic_id = ("t", ZERO_UUID) if version < BY_ID else ("", ID)
        topic = FetchTopic(topic=name, topic_id=topic_id, partitions=[FetchPartition(partition=0)])
        refused = PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER.value)
        response = FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[refused])
        peer.ask(FetchRequest(topics=[topic]), version, FetchResponse(responses=[response]))
    assert trace.verdict("MET.1") == "broken"


def test_a_listing_of_all_topics_crowds_out_none_that_a_client_uses() -> None:
    known = Topics(most=2)
    known.link("t", ID)
    used = known.find("t", ZERO_UUID)
    for number in range(5):
        known.link(f"other-{number}", bytes([number + 1]) * 16)
    assert known.find(None, ID) is used
    assert (known.name_of(ID), known.name_of(b"\x01" * 16), known.name_of(b"\x05" * 16)) == ("t", "", "other-4")
