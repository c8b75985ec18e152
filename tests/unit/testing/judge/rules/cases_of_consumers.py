"""Cases for the FET, SHR, MET and TEL rules. For each rule, one trace keeps the rule and one breaks it."""

from __future__ import annotations

from odradek.protocol.batch_header import small_batch
from odradek.protocol.control_records import marker_batch
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from odradek.protocol.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from odradek.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from odradek.protocol.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from odradek.protocol.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequest
from odradek.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequestGroup as DescribedGroup,
)
from odradek.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from odradek.protocol.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponseGroup as DescribedGroupOffsets,
)
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from odradek.protocol.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from odradek.protocol.messages.push_telemetry_request import PushTelemetryRequest
from odradek.protocol.messages.push_telemetry_response import PushTelemetryResponse
from odradek.protocol.messages.share_acknowledge_request import ShareAcknowledgeRequest
from odradek.protocol.messages.share_acknowledge_response import ShareAcknowledgeResponse
from odradek.protocol.messages.share_fetch_request import AcknowledgementBatch, ShareFetchRequest
from odradek.protocol.messages.share_fetch_request import FetchPartition as SharePartition
from odradek.protocol.messages.share_fetch_request import FetchTopic as ShareTopic
from odradek.protocol.messages.share_fetch_response import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from odradek.protocol.messages.share_fetch_response import PartitionData as ShareData
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.struct import ZERO_UUID, Message
from tests.support.judged_cases import Case, Story, batch, produce
from tests.support.traces import Peer, Trace

TOPIC = bytes(range(16))
MARKER = bytes(marker_batch(producer_id=7, producer_epoch=0, is_commit=True, coordinator_epoch=0, timestamp_ms=0))
EMPTY = bytes(small_batch(b"", 0, -1, 0, 4, 0, 0, -1, -1, -1, 0)[0])


def fetch(
    peer: Peer,
    offset: int = 0,
    *,
    session: tuple[int, int] = (0, -1),
    gives: int = 0,
    error: int = 0,
    partition_error: int = 0,
    records: bytes = b"",
    isolation: int = 0,
    version: int = 12,
    topic_id: bytes = TOPIC,
    after_ms: float = 100,
    answered_after_ms: float = 1,
) -> None:
    """Adds a Fetch request for one partition, and its response.

    session  session id and session epoch of the request
    gives    session id in the response
    """
    topic = FetchTopic(topic="t", topic_id=topic_id, partitions=[FetchPartition(partition=0, fetch_offset=offset)])
    request = FetchRequest(session_id=session[0], session_epoch=session[1], isolation_level=isolation, topics=[topic])
    part = PartitionData(partition_index=0, error_code=partition_error, records=records)
    answer = FetchResponse(
        error_code=error,
        session_id=gives,
        responses=[FetchableTopicResponse(topic="t", topic_id=topic_id, partitions=[part])],
    )
    exchange = peer.send(request, version, after_ms=after_ms)
    peer.trace.wait(answered_after_ms)
    peer.reply(exchange, request, version, answer)


def lists_with(isolation: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        fetch(peer, isolation=1)
        topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        peer.ask(ListOffsetsRequest(isolation_level=isolation, topics=[topic]), 7, ListOffsetsResponse())

    return story


def at_offsets(records: bytes, *offsets: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        for offset in offsets:
            fetch(peer, offset, records=records)

    return story


def session_goes_on(*epochs: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        fetch(peer, session=(0, 0), gives=9)
        for epoch in epochs:
            fetch(peer, session=(9 if epoch else 0, epoch), gives=9)

    return story


def session_lost(then: int) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        fetch(peer, session=(0, 0), gives=9)
        fetch(peer, session=(9, 1), error=70)
        fetch(peer, session=(9 if then else 0, then))

    return story


def fetch_errors(after_ms: float, answered_after_ms: float = 1) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        for _ in range(40):
            fetch(peer, partition_error=3, after_ms=after_ms, answered_after_ms=answered_after_ms)

    return story


def topic_ids(topic_id: bytes) -> Story:
    return lambda trace: fetch(trace.connect(), version=13, topic_id=topic_id)


def leader_moved(refreshes: bool, error: int = 6) -> Story:
    def story(trace: Trace) -> None:
        peer, other = trace.connect(), trace.connect()
        for _ in range(5):
            produce(peer, batch(), error=error)
            if refreshes:
                other.ask(MetadataRequest(topics=[]), 12, MetadataResponse())

    return story


def reads_metadata(times: int, after_ms: float) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        for _ in range(times):
            peer.ask(MetadataRequest(topics=[]), 12, MetadataResponse(), after_ms=after_ms)

    return story


def coordinator_moved(looks: bool) -> Story:
    def story(trace: Trace) -> None:
        peer, other = trace.connect(), trace.connect()
        for _ in range(5):
            peer.ask(EndTxnRequest(transactional_id="t"), 4, EndTxnResponse(error_code=16))
            if looks:
                finds(other, 1, "t")

    return story


def share_coordinator_moved(looks: bool) -> Story:
    def story(trace: Trace) -> None:
        peer, other = trace.connect(), trace.connect()
        for _ in range(5):
            peer.ask(AlterShareGroupOffsetsRequest(group_id="g"), 0, AlterShareGroupOffsetsResponse(error_code=16))
            peer.ask(DeleteShareGroupOffsetsRequest(group_id="g"), 0, DeleteShareGroupOffsetsResponse(error_code=16))
            if looks:
                finds(other, 0, "g")

    return story


def described_coordinator_moved(looks: bool) -> Story:
    """Returns a story in which two groups are described, and only one of their coordinators has moved."""

    def story(trace: Trace) -> None:
        peer, other = trace.connect(), trace.connect()
        request = DescribeShareGroupOffsetsRequest(groups=[DescribedGroup(group_id="g"), DescribedGroup(group_id="h")])
        answer = DescribeShareGroupOffsetsResponse(
            groups=[DescribedGroupOffsets(group_id="g"), DescribedGroupOffsets(group_id="h", error_code=16)]
        )
        for _ in range(5):
            peer.ask(request, 0, answer)
            finds(other, 0, "h" if looks else "g")

    return story


def refused(request: Message, version: int, answer: Message, *, finds_type: int, key: str) -> Story:
    """Returns a story in which a request is repeated although its response contains NOT_COORDINATOR. After each
    response, the client sends FindCoordinator with the given key type and key."""

    def story(trace: Trace) -> None:
        peer, other = trace.connect(), trace.connect()
        for _ in range(5):
            peer.ask(request, version, answer)
            finds(other, finds_type, key)

    return story


def requests_of_a_group() -> tuple[tuple[Message, int, Message], ...]:
    """Returns requests to group g's coordinator, each with its version and a response that contains NOT_COORDINATOR."""
    committed = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="a", partitions=[OffsetCommitResponsePartition(error_code=16)])]
    )
    fetched = OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="a", partitions=[OffsetFetchResponsePartition(error_code=16)])]
    )
    fetched_groups = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=16)])
    in_txn = TxnOffsetCommitResponse(
        topics=[TxnOffsetCommitResponseTopic(name="a", partitions=[TxnOffsetCommitResponsePartition(error_code=16)])]
    )
    return (
        (LeaveGroupRequest(group_id="g"), 4, LeaveGroupResponse(error_code=16)),
        (OffsetCommitRequest(group_id="g"), 8, committed),
        (OffsetFetchRequest(group_id="g"), 1, fetched),
        (OffsetFetchRequest(group_id="g"), 7, OffsetFetchResponse(error_code=16)),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), 9, fetched_groups),
        (StreamsGroupHeartbeatRequest(group_id="g"), 0, StreamsGroupHeartbeatResponse(error_code=16)),
        (TxnOffsetCommitRequest(transactional_id="t", group_id="g"), 3, in_txn),
    )


def adds_partitions() -> tuple[Message, int, Message]:
    """Returns an AddPartitionsToTxn request, its version, and a response that contains NOT_COORDINATOR."""
    partition = AddPartitionsToTxnPartitionResult(partition_error_code=16)
    topic = AddPartitionsToTxnTopicResult(name="a", results_by_partition=[partition])
    request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="t")
    return request, 3, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def finds(peer: Peer, key_type: int, *keys: str) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    peer.ask(request, 4, FindCoordinatorResponse())


def pushes(
    *, subscription: int = 5, size: int = 1, after_ms: float = 900, unknown: bool = False, asks: bool = False
) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()

        def subscribe() -> None:
            response = GetTelemetrySubscriptionsResponse(
                client_instance_id=TOPIC, subscription_id=5, push_interval_ms=1000, telemetry_max_bytes=100
            )
            peer.ask(GetTelemetrySubscriptionsRequest(client_instance_id=TOPIC), 0, response)

        def push() -> None:
            request = PushTelemetryRequest(client_instance_id=TOPIC, subscription_id=subscription, metrics=b"m" * size)
            peer.ask(request, 0, PushTelemetryResponse(error_code=117 if unknown else 0), after_ms=after_ms)

        subscribe()
        push()
        if asks:
            subscribe()
        elif unknown:
            push()

    return story


class Sharer:
    """A member of a share group with one connection to a leader."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.peer = trace.connect()

    def fetch(
        self,
        epoch: int,
        *acknowledged: tuple[int, int, list[int]],
        acquires: tuple[int, int] | None = None,
        error: int = 0,
        after_ms: float = 100,
        version: int = 1,
    ) -> None:
        batches = [AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=c) for a, b, c in acknowledged]
        part = SharePartition(partition_index=0, acknowledgement_batches=batches)
        request = ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=epoch,
            topics=[ShareTopic(topic_id=TOPIC, partitions=[part])],
        )
        got = [AcquiredRecords(first_offset=acquires[0], last_offset=acquires[1])] if acquires else []
        data = ShareData(partition_index=0, records=b"", acquired_records=got)
        topic = ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[data])
        answer = ShareFetchResponse(error_code=error, responses=[topic])
        self.peer.ask(request, version, answer, after_ms=after_ms)

    def acknowledge(self, epoch: int) -> None:
        request = ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=epoch)
        self.peer.ask(request, 1, ShareAcknowledgeResponse())

    def beat(self, epoch: int, answered: int, error: int = 0) -> None:
        request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
        answer = ShareGroupHeartbeatResponse(member_id="m", member_epoch=answered, error_code=error)
        self.peer.ask(request, 1, answer, after_ms=5000)


def shares(*epochs: int, error: int = 0, after_ms: float = 100) -> Story:
    """Returns a story of ShareFetches with these session epochs. The second response has `error`."""

    def story(trace: Trace) -> None:
        sharer = Sharer(trace)
        for place, epoch in enumerate(epochs):
            sharer.fetch(epoch, error=error if place == 1 else 0, after_ms=after_ms)

    return story


def acknowledges(*acknowledged: tuple[int, int, list[int]], epoch: int = 1) -> Story:
    def story(trace: Trace) -> None:
        sharer = Sharer(trace)
        sharer.fetch(0, acquires=(0, 9))
        sharer.fetch(epoch, *acknowledged)

    return story


def acknowledges_first(trace: Trace) -> None:
    Sharer(trace).acknowledge(0)


def acknowledges_twice(trace: Trace) -> None:
    sharer = Sharer(trace)
    sharer.fetch(0, acquires=(0, 9))
    sharer.fetch(1, (0, 4, [1]))
    sharer.fetch(2, (3, 5, [1]))


def renews(kind: int) -> Story:
    """Returns a story in which the last of ten records is acknowledged with the type `kind`, such as RENEW, and
    acknowledged again later."""

    def story(trace: Trace) -> None:
        sharer = Sharer(trace)
        sharer.fetch(0, acquires=(0, 9), version=2)
        sharer.fetch(1, (0, 9, [1] * 9 + [kind]), version=2)
        sharer.fetch(2, (9, 9, [1]), version=2)

    return story


def acknowledges_again_after(error: int) -> Story:
    def story(trace: Trace) -> None:
        sharer = Sharer(trace)
        sharer.fetch(0, acquires=(0, 9))
        sharer.fetch(1, (0, 3, [1]))
        sharer.fetch(2, (4, 9, [1]), error=error)
        sharer.fetch(3, (4, 9, [1]))

    return story


def at_once(trace: Trace) -> None:
    sharer = Sharer(trace)
    sharer.fetch(0)
    sharer.fetch(1)
    del trace.entries[-2:]
    sharer.fetch(2)


def share_beats(*beats: tuple[int, int, int]) -> Story:
    def story(trace: Trace) -> None:
        sharer = Sharer(trace)
        for epoch, answered, error in beats:
            sharer.beat(epoch, answered, error)

    return story


CASES = (
    Case("FET.1", lists_with(1), lists_with(0)),
    Case("FET.3", at_offsets(MARKER, 0, 1), at_offsets(MARKER, *[0] * 8)),
    Case("FET.5", at_offsets(EMPTY, 0, 5), at_offsets(EMPTY, *[0] * 8)),
    Case("FET.6", session_goes_on(1, 2), session_goes_on(1, 3)),
    Case("FET.6", session_goes_on(1, 2), session_goes_on(0, 0, 0, 0, 0, 0)),
    Case("FET.7", session_lost(0), session_lost(2)),
    Case("FET.15", fetch_errors(50), fetch_errors(1)),
    Case("FET.15", fetch_errors(1, answered_after_ms=100), fetch_errors(1, answered_after_ms=5)),
    Case("MET.1", leader_moved(True), leader_moved(False)),
    Case("MET.4", reads_metadata(60, 100), reads_metadata(60, 5)),
    Case("MET.6", topic_ids(TOPIC), topic_ids(ZERO_UUID)),
    Case("MET.7", leader_moved(True, 100), leader_moved(False, 100)),
    Case("MET.10", coordinator_moved(True), coordinator_moved(False)),
    Case("MET.10", share_coordinator_moved(True), share_coordinator_moved(False)),
    Case("MET.10", described_coordinator_moved(True), described_coordinator_moved(False)),
    *(
        Case("MET.10", refused(*each, finds_type=0, key="g"), refused(*each, finds_type=1, key=name))
        for each in requests_of_a_group()
        for name in ("g", "t")
    ),
    Case(
        "MET.10",
        refused(*adds_partitions(), finds_type=1, key="t"),
        refused(*adds_partitions(), finds_type=0, key="t"),
    ),
    Case("MET.11", lambda trace: finds(trace.connect(), 0, "g"), lambda trace: finds(trace.connect(), 7, "g")),
    Case("TEL.1", pushes(), pushes(subscription=6)),
    Case("TEL.1", pushes(), pushes(after_ms=100)),
    Case("TEL.2", pushes(unknown=True, asks=True), pushes(unknown=True)),
    Case("TEL.3", pushes(), pushes(size=101)),
    Case("SHR.1", shares(0, 1, 2), shares(0, 1, 3)),
    Case("SHR.2", shares(0), acknowledges((0, 9, [1]), epoch=0)),
    Case("SHR.2", shares(0), acknowledges_first),
    Case("SHR.3", shares(0, 1, 0, error=122), shares(0, 1, 2, error=122)),
    Case("SHR.4", acknowledges((0, 4, [1]), (5, 5, [2])), acknowledges((5, 5, [1]), (0, 4, [1]))),
    Case("SHR.4", acknowledges((0, 1, [1, 3])), acknowledges((0, 1, [1, 4]))),
    Case("SHR.4", acknowledges((0, 1, [1, 3])), acknowledges((0, 2, [1, 1]))),
    Case("SHR.5", acknowledges((0, 4, [1]), (5, 9, [1])), acknowledges((0, 10, [1]))),
    Case("SHR.5", acknowledges((0, 4, [1])), acknowledges_twice),
    Case("SHR.5", renews(4), renews(1)),
    Case("SHR.5", acknowledges_again_after(-1), acknowledges_again_after(0)),
    Case("SHR.7", shares(0, 1), at_once),
    Case("SHR.12", share_beats((0, 2, 0), (2, 2, 0)), share_beats((0, 2, 0), (1, 2, 0))),
    Case("SHR.12", share_beats((0, 2, 0), (2, 0, 110), (0, 3, 0)), share_beats((0, 2, 0), (2, 0, 110), (2, 3, 0))),
    Case("SHR.15", shares(0, 0, 0, error=133), shares(0, 0, 0, error=133, after_ms=1)),
)
