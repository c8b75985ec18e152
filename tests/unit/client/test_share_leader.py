"""Tests a share consumer's reactions to a leader's responses. The tests cover lost sessions, unknown and missing
acknowledgement results, and the end of a session.

Source: docs/spec/share-groups.md#s6-1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from odradek.client.common.errors import RetriableError
from odradek.client.common.values import AcknowledgeType, ShareRecord, TopicPartition
from odradek.client.metrics.consumer_metrics import ShareConsumerMetrics
from odradek.client.network.cluster import Cluster
from odradek.client.sharing.share_leader import ShareFetchResult, ShareLeader
from odradek.client.sharing.share_session import AcquireMode, ShareSettings
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from odradek.protocol.messages.share_acknowledge_request import ShareAcknowledgeRequest
from odradek.protocol.messages.share_acknowledge_response import PartitionData as Acknowledgement
from odradek.protocol.messages.share_acknowledge_response import ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse
from odradek.protocol.messages.share_fetch_request import ShareFetchRequest
from odradek.protocol.messages.share_fetch_response import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import TopicIdPartition
from tests.unit.client.scripted_broker import Request, ScriptedBroker, scripted

E = ErrorCode
TOPIC_ID = bytes(15) + b"\7"
NAMED, JOBS = TopicIdPartition(TOPIC_ID, 0), TopicPartition("jobs", 0)
WANTED = {NAMED: JOBS}
SERVED = {
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.METADATA: (0, 12),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
}
SETTINGS = ShareSettings("g", "m", AcquireMode.BATCH_OPTIMIZED, 500, 1, 1 << 20, check_crcs=True)


@dataclass
class Broker:
    """Answers ShareFetch and ShareAcknowledge with scripted responses. None closes the connection."""

    scripted: ScriptedBroker
    scripted_answers: list[Message | None] = field(default_factory=list)

    def answers(self, request: Request) -> bytes | None:
        match ApiKey(request.api_key):
            case ApiKey.API_VERSIONS:
                versions = [
                    ApiVersion(api_key=api.value, min_version=a, max_version=b) for api, (a, b) in SERVED.items()
                ]
                return request.answer(ApiVersionsResponse(api_keys=versions))
            case ApiKey.METADATA:
                node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.scripted.port)
                return request.answer(MetadataResponse(brokers=[node]))
            case _:
                said = self.scripted_answers.pop(0)
                return None if said is None else request.answer(said)

    @property
    def sent_requests(self) -> list[tuple[str, int, list[tuple[int, int, list[int]]]]]:
        """Returns the kind, the session epoch and the acknowledgement batches of each ShareFetch and ShareAcknowledge
        request."""
        found = []
        for request in self.scripted.requests:
            if request.api_key in (ApiKey.SHARE_FETCH.value, ApiKey.SHARE_ACKNOWLEDGE.value):
                is_fetch = request.api_key == ApiKey.SHARE_FETCH.value
                message = request.read(ShareFetchRequest) if is_fetch else request.read(ShareAcknowledgeRequest)
                batches = [
                    (each.first_offset, each.last_offset, each.acknowledge_types)
                    for topic in message.topics
                    for partition in topic.partitions
                    for each in partition.acknowledgement_batches
                ]
                found.append(("fetch" if is_fetch else "acknowledge", message.share_session_epoch, batches))
        return found


def brought(first: int = 0, last: int = 9, acknowledged: ErrorCode = E.NONE) -> ShareFetchResponse:
    records = build_batch([NewRecord(None, b"v", 0)] * (last + 1 - first), base_offset=first) if last >= first else b""
    acquired = [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)] if last >= first else []
    data = PartitionData(acknowledge_error_code=acknowledged.value, records=records, acquired_records=acquired)
    topics = [ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]
    return ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=topics)


def nothing(acknowledged: ErrorCode = E.NONE) -> ShareFetchResponse:
    return brought(0, -1, acknowledged)


def acknowledged(code: ErrorCode = E.NONE, *, top: ErrorCode = E.NONE) -> ShareAcknowledgeResponse:
    topic = ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=[Acknowledgement(error_code=code.value)])
    return ShareAcknowledgeResponse(error_code=top.value, responses=[] if top is not E.NONE else [topic])


@asynccontextmanager
async def a_leader(*scripted_answers: Message | None) -> AsyncIterator[tuple[ShareLeader, Broker]]:
    async with scripted() as server:
        broker = Broker(server, list(scripted_answers))
        server.answers = broker.answers
        cluster = Cluster(f"127.0.0.1:{server.port}", client_id="test", retry_backoff_ms=0.01)
        await cluster.start()
        yield ShareLeader(cluster, 1, SETTINGS, ShareConsumerMetrics("test")), broker
        await cluster.close()


def delivered(leader: ShareLeader, found: ShareFetchResult) -> list[ShareRecord]:
    return [record for each in found.deliveries for record in leader.deliver(each)]


def results(leader: ShareLeader) -> list[tuple[list[tuple[int, int]], ErrorCode | None]]:
    acknowledged, leader.acknowledged = leader.acknowledged, []
    return [(each.ranges, None if each.error is None else each.error.code) for each in acknowledged]


async def test_acknowledgements_travel_with_the_next_fetch() -> None:
    async with a_leader(brought(0, 9), nothing(), brought(10, 10)) as (leader, broker):
        assert len(delivered(leader, await leader.fetch(WANTED, 0))) == 10
        leader.acquired.accept_all()
        await leader.fetch(WANTED, 0)
        assert results(leader) == [([(0, 9)], None)]
        await leader.fetch(WANTED, 0)
        assert broker.sent_requests == [("fetch", 0, []), ("fetch", 1, [(0, 9, [1])]), ("fetch", 2, [])]
        assert leader.lock_timeout_ms == 30_000


async def test_records_that_were_fetched_but_not_delivered_are_not_accepted() -> None:
    async with a_leader(brought(0, 9), nothing()) as (leader, broker):
        await leader.fetch(WANTED, 0)
        leader.acquired.accept_all()
        await leader.fetch(WANTED, 0)
        assert broker.sent_requests[-1] == ("fetch", 1, [])


@pytest.mark.parametrize("code", [E.SHARE_SESSION_NOT_FOUND, E.INVALID_SHARE_SESSION_EPOCH])
async def test_a_lost_session_fails_what_was_sent_with_it_and_is_opened_anew(code: ErrorCode) -> None:
    async with a_leader(brought(), ShareFetchResponse(error_code=code.value), nothing()) as (leader, broker):
        delivered(leader, await leader.fetch(WANTED, 0))
        leader.acquired.accept_all()
        with pytest.raises(RetriableError):
            await leader.fetch(WANTED, 0)
        assert results(leader) == [([(0, 9)], code)]
        await leader.fetch(WANTED, 0)
        assert [epoch for _, epoch, _ in broker.sent_requests] == [0, 1, 0]


async def test_after_a_lost_connection_acknowledgements_fail_without_being_sent() -> None:
    async with a_leader(brought(), None, nothing()) as (leader, broker):
        records = delivered(leader, await leader.fetch(WANTED, 0))
        with pytest.raises(RetriableError):
            await leader.fetch(WANTED, 0)
        for record in records:
            leader.acquired.acknowledge(JOBS, record.offset, AcknowledgeType.ACCEPT.value)
        await leader.fetch(WANTED, 0)
        assert results(leader) == [([(0, 9)], E.INVALID_SHARE_SESSION_EPOCH)]
        assert broker.sent_requests[-1] == ("fetch", 0, [])


@pytest.mark.parametrize("code", [E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR])
async def test_acknowledgements_that_the_broker_could_not_store_are_sent_again(code: ErrorCode) -> None:
    async with a_leader(brought(), nothing(code), acknowledged(code), acknowledged()) as (leader, broker):
        delivered(leader, await leader.fetch(WANTED, 0))
        leader.acquired.accept_all()
        await leader.fetch(WANTED, 0)
        for _ in range(2):
            assert results(leader) == []
            assert leader.acquired.unsent_partitions == [JOBS]
            await leader.acknowledge()
        assert results(leader) == [([(0, 9)], None)]
        assert [batches for _, _, batches in broker.sent_requests[1:]] == [[(0, 9, [1])]] * 3


async def test_other_errors_are_reported_and_not_retried() -> None:
    async with a_leader(brought(), acknowledged(E.INVALID_RECORD_STATE)) as (leader, _):
        delivered(leader, await leader.fetch(WANTED, 0))
        leader.acquired.accept_all()
        await leader.acknowledge()
        assert results(leader) == [([(0, 9)], E.INVALID_RECORD_STATE)]
        assert leader.acquired.unsent_partitions == []


async def test_a_partition_that_the_answer_leaves_out_was_not_acknowledged() -> None:
    async with a_leader(brought(), ShareAcknowledgeResponse()) as (leader, _):
        delivered(leader, await leader.fetch(WANTED, 0))
        leader.acquired.accept_all()
        await leader.acknowledge()
        assert results(leader) == [([(0, 9)], E.INVALID_RECORD_STATE)]


async def test_renewals_go_before_the_fetch_since_such_a_request_brings_nothing() -> None:
    async with a_leader(brought(0, 0), acknowledged(), nothing()) as (leader, broker):
        delivered(leader, await leader.fetch(WANTED, 0))
        leader.acquired.acknowledge(JOBS, 0, AcknowledgeType.RENEW.value)
        await leader.fetch(WANTED, 0)
        assert broker.sent_requests[1:] == [("acknowledge", 1, [(0, 0, [4])]), ("fetch", 2, [])]


async def test_partitions_that_are_no_longer_wanted_are_forgotten() -> None:
    async with a_leader(brought(), ShareFetchResponse()) as (leader, broker):
        await leader.fetch(WANTED, 0)
        assert leader.needs_request(())
        await leader.fetch({}, 500)
        request = broker.scripted.requests[-1].read(ShareFetchRequest)
        forgotten = [(each.topic_id, each.partitions) for each in request.forgotten_topics_data]
        assert (request.max_wait_ms, forgotten) == (0, [(TOPIC_ID, [0])])
        assert not leader.needs_request(())


async def test_the_last_request_closes_the_session_with_what_was_acknowledged() -> None:
    async with a_leader(brought(), acknowledged()) as (leader, broker):
        for record in delivered(leader, await leader.fetch(WANTED, 0))[:3]:
            leader.acquired.acknowledge(JOBS, record.offset, AcknowledgeType.ACCEPT.value)
        await leader.acknowledge(is_final=True)
        await leader.acknowledge(is_final=True)  # the session has already ended
        assert broker.sent_requests[1:] == [("acknowledge", -1, [(0, 2, [1])])]
        assert results(leader) == [([(0, 2)], None)]
