"""Tests a transaction that acknowledges a share group's records, against a scripted broker (KIP-1289).

Source: docs/spec/share-groups.md#s1-9, #s5-3, #s5-9.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from odradek.client import (
    AbortableError,
    AcknowledgedRange,
    AcknowledgeType,
    AuthorizationFailed,
    FatalError,
    IllegalState,
    Producer,
    ProducerFenced,
    ShareGroupMetadata,
    ShareRecord,
    TopicPartition,
)
from odradek.client.producing.share_acknowledgements import acknowledgements, txn_acknowledge_verdict
from odradek.client.producing.verdicts import Verdict
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.txn_share_acknowledge_request import TxnShareAcknowledgeRequest
from odradek.protocol.messages.txn_share_acknowledge_response import (
    PartitionData,
    TxnShareAcknowledgeResponse,
    TxnShareAcknowledgeTopicResponse,
)
from tests.unit.client.scripted_broker import Request, ScriptedBroker, scripted

E = ErrorCode
TOPIC_ID = bytes(15) + b"\7"
SERVED = {
    ApiKey.API_VERSIONS: 3,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_SHARE_ACKNOWLEDGE: 0,
}
GROUP = ShareGroupMetadata("workers", "member-1", 5)
JOBS = TopicPartition("jobs", 0)
ONE = {JOBS: [AcknowledgedRange(0, 9)]}
RETRIED = {
    E.CONCURRENT_TRANSACTIONS,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.NOT_LEADER_OR_FOLLOWER,
}
FATAL = {E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.UNSUPPORTED_VERSION, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


@dataclass
class Leader:
    """The leader of both partitions and the coordinator of all groups and transactions. It answers TxnShareAcknowledge
    (key 95) with the scripted responses first and then without errors."""

    broker: ScriptedBroker
    served: dict[ApiKey, int] = field(default_factory=lambda: dict(SERVED))
    transaction_version: int = 2
    share_transactions: int = 1
    scripted_answers: list[TxnShareAcknowledgeResponse | None] = field(default_factory=list)

    @property
    def acknowledgings(self) -> list[TxnShareAcknowledgeRequest]:
        return self.requests_of(ApiKey.TXN_SHARE_ACKNOWLEDGE, TxnShareAcknowledgeRequest)

    @property
    def ends(self) -> list[bool]:
        return [each.committed for each in self.requests_of(ApiKey.END_TXN, EndTxnRequest)]

    def requests_of(self, api: ApiKey, kind: type) -> list:  # type: ignore[type-arg]
        return [request.read(kind) for request in self.broker.requests if request.api_key == api.value]

    def answers(self, request: Request) -> bytes | None:
        match ApiKey(request.api_key):
            case ApiKey.API_VERSIONS:
                return request.answer(self.versions())
            case ApiKey.METADATA:
                return request.answer(self.metadata())
            case ApiKey.FIND_COORDINATOR:
                return request.answer(FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=self.broker.port))
            case ApiKey.INIT_PRODUCER_ID:
                return request.answer(InitProducerIdResponse(producer_id=42, producer_epoch=3))
            case ApiKey.END_TXN:
                return request.answer(EndTxnResponse(producer_id=42, producer_epoch=4))
            case _:
                said = (
                    self.scripted_answers.pop(0)
                    if self.scripted_answers
                    else pending(request.read(TxnShareAcknowledgeRequest))
                )
                return None if said is None else request.answer(said)

    def versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=api.value, min_version=0, max_version=newest) for api, newest in self.served.items()
            ],
            finalized_features_epoch=1,
            finalized_features=[
                FinalizedFeatureKey(name="transaction.version", max_version_level=self.transaction_version),
                FinalizedFeatureKey(name="odradek.share.transactions", max_version_level=self.share_transactions),
            ],
        )

    def metadata(self) -> MetadataResponse:
        partitions = [MetadataResponsePartition(partition_index=index, leader_id=1) for index in range(2)]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.broker.port)],
            topics=[MetadataResponseTopic(name="jobs", topic_id=TOPIC_ID, partitions=partitions)],
        )


def pending(request: TxnShareAcknowledgeRequest) -> TxnShareAcknowledgeResponse:
    return said(*(E.NONE for topic in request.topics for _ in topic.partitions))


def said(*codes: ErrorCode, top: ErrorCode = E.NONE) -> TxnShareAcknowledgeResponse:
    """Returns a response with the given error codes for partitions 0, 1 and so on."""
    partitions = [PartitionData(partition_index=index, error_code=code.value) for index, code in enumerate(codes)]
    topics = [TxnShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=partitions)] if partitions else []
    return TxnShareAcknowledgeResponse(error_code=top.value, responses=topics)


@asynccontextmanager
async def in_transaction(
    *scripted_answers: TxnShareAcknowledgeResponse | None, **more: object
) -> AsyncIterator[tuple[Producer, Leader]]:
    async with scripted() as broker:
        leader = Leader(broker, scripted_answers=list(scripted_answers), **more)  # type: ignore[arg-type]
        broker.answers = leader.answers
        producer = Producer(
            bootstrap_servers=f"127.0.0.1:{broker.port}",
            transactional_id="copy-1",
            retry_backoff_ms=0.01,
            max_block_ms=5_000,
        )
        async with producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            yield producer, leader


def record(offset: int, partition: int = 0) -> ShareRecord:
    return ShareRecord("jobs", partition, offset, 0, None, b"", (), 1)


async def test_records_go_as_ranges_with_the_member_and_the_producer() -> None:
    async with in_transaction() as (producer, leader):
        await producer.send_share_acknowledgements_to_transaction([record(each) for each in (3, 1, 2, 7)], GROUP)
        await producer.commit_transaction()
        (request,) = leader.acknowledgings
        assert leader.ends == [True]
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("copy-1", 42, 3)
    assert (request.group_id, request.member_id, request.member_epoch) == ("workers", "member-1", 5)
    (topic,) = request.topics
    assert topic.topic_id == TOPIC_ID
    batches = topic.partitions[0].acknowledgement_batches
    assert [(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches] == [
        (1, 3, [1]),
        (7, 7, [1]),
    ]


async def test_no_request_is_sent_without_acknowledgements() -> None:
    async with in_transaction() as (producer, leader):
        await producer.send_share_acknowledgements_to_transaction([], GROUP)
        assert leader.acknowledgings == []


def test_ranges_are_sorted_and_allow_only_accept_and_reject() -> None:
    reject, accept = AcknowledgedRange(5, 9, AcknowledgeType.REJECT), AcknowledgedRange(0, 4)
    assert acknowledgements({JOBS: [reject, accept]}) == {JOBS: [accept, reject]}
    for kind in (AcknowledgeType.RELEASE, AcknowledgeType.RENEW):
        with pytest.raises(AbortableError, match="ACCEPT and REJECT") as refused:
            acknowledgements({JOBS: [AcknowledgedRange(0, 4, kind)]})
        assert refused.value.code is E.INVALID_RECORD_STATE
    for wrong in ([AcknowledgedRange(4, 3)], [AcknowledgedRange(-1, 3)], [accept, AcknowledgedRange(4, 5)]):
        with pytest.raises(AbortableError, match="not a valid range") as refused:
            acknowledgements({JOBS: wrong})
        assert refused.value.code is E.INVALID_REQUEST


async def test_outside_of_a_transaction_nothing_is_sent() -> None:
    async with in_transaction() as (producer, leader):
        await producer.abort_transaction()
        with pytest.raises(IllegalState, match="send_share_acknowledgements_to_transaction"):
            await producer.send_share_acknowledgements_to_transaction(ONE, GROUP)
        assert leader.acknowledgings == []


async def test_a_cluster_without_the_request_is_detected_before_anything_is_sent() -> None:
    without = {api: newest for api, newest in SERVED.items() if api is not ApiKey.TXN_SHARE_ACKNOWLEDGE}
    # The API key alone is not enough, because a later Kafka may use it for another request.
    for more in ({"served": without}, {"transaction_version": 1}, {"share_transactions": 0}):
        async with in_transaction(**more) as (producer, leader):
            with pytest.raises(AbortableError, match=r"KIP-1289.*odradek\.share\.transactions at level 1") as refused:
                await producer.send_share_acknowledgements_to_transaction(ONE, GROUP)
            assert refused.value.code is E.UNSUPPORTED_VERSION
            with pytest.raises(AbortableError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            assert leader.acknowledgings == []
            await producer.begin_transaction()


async def test_a_feature_that_was_raised_while_the_broker_ran_is_noticed() -> None:
    without = {api: newest for api, newest in SERVED.items() if api is not ApiKey.TXN_SHARE_ACKNOWLEDGE}
    async with in_transaction(served=without) as (producer, leader):
        leader.served = dict(SERVED)
        await producer.send_share_acknowledgements_to_transaction(ONE, GROUP)
        assert len(leader.acknowledgings) == 1


@pytest.mark.parametrize("code", sorted(RETRIED, key=str))
async def test_the_request_is_repeated_unchanged_after_a_transient_error(code: ErrorCode) -> None:
    answer = said(code) if code is E.NOT_LEADER_OR_FOLLOWER else said(top=code)
    async with in_transaction(answer, answer) as (producer, leader):
        await producer.send_share_acknowledgements_to_transaction(ONE, GROUP)
        await producer.commit_transaction()
        assert len(leader.acknowledgings) == 3


async def test_a_lost_answer_is_asked_for_again_which_makes_nothing_pending_twice() -> None:
    async with in_transaction(None) as (producer, leader):
        await producer.send_share_acknowledgements_to_transaction(ONE, GROUP)
        assert len(leader.acknowledgings) == 2


@pytest.mark.parametrize("code", [E.INVALID_RECORD_STATE, E.UNKNOWN_TOPIC_OR_PARTITION, E.KAFKA_STORAGE_ERROR])
async def test_a_partition_that_failed_decides_for_all(code: ErrorCode) -> None:
    both = {JOBS: [AcknowledgedRange(0, 9)], TopicPartition("jobs", 1): [AcknowledgedRange(0, 9)]}
    async with in_transaction(said(E.OPERATION_NOT_ATTEMPTED, code)) as (producer, leader):
        with pytest.raises(AbortableError, match=code.name) as refused:
            await producer.send_share_acknowledgements_to_transaction(both, GROUP)
        assert refused.value.code is code
        with pytest.raises(AbortableError, match=code.name):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert (len(leader.acknowledgings), leader.ends) == (1, [False])


async def test_a_partition_that_the_answer_leaves_out_is_not_pending() -> None:
    async with in_transaction(said()) as (producer, _):
        with pytest.raises(AbortableError, match="INVALID_RECORD_STATE"):
            await producer.send_share_acknowledgements_to_transaction(ONE, GROUP)
        await producer.abort_transaction()


@pytest.mark.parametrize("code", [E.STALE_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID, E.INVALID_TXN_STATE, E.INVALID_REQUEST])
async def test_other_errors_require_an_abort_and_leave_the_producer_usable(code: ErrorCode) -> None:
    async with in_transaction(said(top=code)) as (producer, leader):
        with pytest.raises(AbortableError, match=code.name):
            await producer.send_share_acknowledgements_to_transaction(ONE, GROUP)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_share_acknowledgements_to_transaction(ONE, GROUP)
        await producer.commit_transaction()
        assert leader.ends == [False, True]


@pytest.mark.parametrize("code", sorted(FATAL, key=str))
async def test_fatal_errors_end_the_producer(code: ErrorCode) -> None:
    kind = {
        E.PRODUCER_FENCED: ProducerFenced,
        E.INVALID_PRODUCER_EPOCH: ProducerFenced,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationFailed,
    }.get(code, FatalError)
    async with in_transaction(said(top=code)) as (producer, leader):
        with pytest.raises(kind, match=code.name):
            await producer.send_share_acknowledgements_to_transaction(ONE, GROUP)
        with pytest.raises(kind):
            await producer.abort_transaction()
        assert leader.ends == []


def test_each_error_code_has_a_verdict() -> None:
    for code in ErrorCode:
        expected = Verdict.RETRY if code in RETRIED else Verdict.FATAL if code in FATAL else Verdict.ABORT
        assert txn_acknowledge_verdict(code) is (Verdict.FINE if code is E.NONE else expected), code
