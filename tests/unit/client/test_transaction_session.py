"""Tests a transactional producer's reactions to its coordinator's responses, error code by error code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from odradek.client.common.errors import AbortableError, ClientError, FatalError, ProducerFenced, RetriableError
from odradek.client.common.values import ConsumerGroupMetadata, OffsetAndMetadata, PreparedTxnState, TopicPartition
from odradek.client.network.cluster import Cluster
from odradek.client.producing.producer_batch import ProducerIdentity
from odradek.client.producing.transaction import Call, ProducerTxnState
from odradek.client.producing.transaction_session import TransactionSession
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from odradek.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.struct import Message
from tests.unit.client.scripted_broker import Request, ScriptedBroker, scripted

E, S = ErrorCode, ProducerTxnState
M = TypeVar("M", bound=Message)
SERVED = {
    ApiKey.API_VERSIONS: 3,
    ApiKey.METADATA: 9,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.INIT_PRODUCER_ID: 6,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
}
WAITS = [E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS]


@dataclass
class Coordinator:
    """A coordinator that answers each API with scripted responses."""

    broker: ScriptedBroker
    transaction_version: int = 2
    features_epoch: int = 1
    scripted_answers: dict[ApiKey, list[Message]] = field(default_factory=dict)

    def says(self, api: ApiKey, messages: Iterable[Message]) -> None:
        self.scripted_answers[api] = list(messages)

    def request_versions(self, api: ApiKey) -> list[int]:
        """Returns the versions of the requests to this API, in order."""
        return [request.api_version for request in self.broker.requests if request.api_key == api.value]

    def last(self, kind: type[M]) -> M:
        request = [each for each in self.broker.requests if each.api_key == kind.API_KEY][-1]
        return request.read(kind)

    def changes_level(self, level: int) -> None:
        self.transaction_version = level
        self.features_epoch += 1

    def answers(self, request: Request) -> bytes | None:
        api = ApiKey(request.api_key)
        match api:
            case ApiKey.API_VERSIONS:
                return request.answer(self.versions())
            case ApiKey.METADATA:
                node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.broker.port)
                return request.answer(MetadataResponse(brokers=[node]))
            case ApiKey.FIND_COORDINATOR:
                return request.answer(FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=self.broker.port))
            case _:
                return request.answer(self.scripted_answers[api].pop(0))

    def versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=api.value, min_version=0, max_version=newest) for api, newest in SERVED.items()
            ],
            finalized_features_epoch=self.features_epoch,
            finalized_features=[
                FinalizedFeatureKey(
                    name="transaction.version", max_version_level=self.transaction_version, min_version_level=0
                )
            ],
        )


def initialised(code: ErrorCode = E.NONE, *, epoch: int = 3, ongoing: tuple[int, int] = (-1, -1)) -> Message:
    return InitProducerIdResponse(
        error_code=code.value,
        producer_id=42,
        producer_epoch=epoch,
        ongoing_txn_producer_id=ongoing[0],
        ongoing_txn_producer_epoch=ongoing[1],
    )


def ended(code: ErrorCode = E.NONE, *, producer_id: int = 42, epoch: int = 4) -> Message:
    return EndTxnResponse(error_code=code.value, producer_id=producer_id, producer_epoch=epoch)


@asynccontextmanager
async def a_session(
    *,
    two_phase_commit: bool = False,
    transaction_version: int = 2,
    max_block_ms: float = 20_000,
    metadata_max_age_ms: float = 300_000,
) -> AsyncIterator[tuple[TransactionSession, Coordinator]]:
    async with scripted() as broker:
        coordinator = Coordinator(broker, transaction_version)
        broker.answers = coordinator.answers
        cluster = Cluster(
            f"127.0.0.1:{broker.port}", client_id="test", retry_backoff_ms=0.01, metadata_max_age_ms=metadata_max_age_ms
        )
        await cluster.start()
        session = TransactionSession(
            cluster,
            "id",
            two_phase_commit=two_phase_commit,
            transaction_timeout_ms=60_000,
            max_block_ms=max_block_ms,
            request_timeout_ms=20_000,
            on_error=lambda _: None,
            on_progress=lambda: None,
        )
        yield session, coordinator
        await cluster.close()


async def begin_transaction(session: TransactionSession, coordinator: Coordinator) -> None:
    """Begins a transaction, and notes that a request was sent in it, so that the transaction must be ended."""
    coordinator.says(ApiKey.INIT_PRODUCER_ID, [initialised()])
    session.enter(Call.INIT)
    await session.init(keep_prepared=False)
    session.enter(Call.BEGIN)
    session.note_sending()


async def end(session: TransactionSession, *, commit: bool) -> None:
    session.enter(Call.COMMIT if commit else Call.ABORT)
    await session.end(committed=commit, needs_new_epoch=lambda _: False)


# InitProducerId


async def test_initialising_goes_on_until_the_coordinator_is_ready() -> None:
    async with a_session() as (session, coordinator):
        coordinator.says(ApiKey.INIT_PRODUCER_ID, [*map(initialised, WAITS), initialised()])
        session.enter(Call.INIT)
        await session.init(keep_prepared=False)
        assert (session.state, session.identity) == (S.READY, ProducerIdentity(42, 3))
        assert len(coordinator.request_versions(ApiKey.FIND_COORDINATOR)) == 3, (
            "after NOT_AVAILABLE and NOT_COORDINATOR again"
        )


async def test_initialising_that_takes_too_long_may_be_repeated() -> None:
    async with a_session(max_block_ms=0) as (session, coordinator):
        coordinator.says(ApiKey.INIT_PRODUCER_ID, [initialised(E.CONCURRENT_TRANSACTIONS), initialised()])
        session.enter(Call.INIT)
        with pytest.raises(RetriableError) as error:
            await session.init(keep_prepared=False)
        assert error.value.code in {E.CONCURRENT_TRANSACTIONS, E.REQUEST_TIMED_OUT}
        assert session.state is S.INITIALIZING


async def test_an_id_that_is_not_permitted_can_be_initialised_once_it_is() -> None:
    async with a_session() as (session, coordinator):
        refused = initialised(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        coordinator.says(ApiKey.INIT_PRODUCER_ID, [refused, initialised()])
        session.enter(Call.INIT)
        with pytest.raises(AbortableError):
            await session.init(keep_prepared=False)
        await end(session, commit=False)
        aborted = session.state
        session.enter(Call.INIT)
        await session.init(keep_prepared=False)
        assert [aborted, session.state] == [S.UNINITIALIZED, S.READY]


async def test_a_kept_transaction_is_prepared_with_the_epoch_of_its_writer() -> None:
    """Checks that the prepared state has the epoch of the transaction's original producer. The current producer ends
    the transaction with a newer epoch."""
    async with a_session(two_phase_commit=True) as (session, coordinator):
        coordinator.says(ApiKey.INIT_PRODUCER_ID, [initialised(epoch=11, ongoing=(42, 10))])
        session.enter(Call.INIT)
        await session.init(keep_prepared=True)
        assert (session.state, session.prepared) == (S.PREPARED, PreparedTxnState(42, 10))
        assert session.identity == ProducerIdentity(42, 11)


async def test_two_phase_commit_is_not_even_asked_for_at_an_older_transaction_version() -> None:
    """Checks that InitProducerId is not sent at transaction.version 1, where it would abort the prepared
    transaction."""
    async with a_session(two_phase_commit=True, transaction_version=1) as (session, coordinator):
        session.enter(Call.INIT)
        with pytest.raises(FatalError):
            await session.init(keep_prepared=True)
        assert coordinator.request_versions(ApiKey.INIT_PRODUCER_ID) == []


# EndTxn


@pytest.mark.parametrize(("version", "newest"), [(2, 5), (1, 4)])
async def test_end_txn_is_repeated_until_it_succeeds(version: int, newest: int) -> None:
    async with a_session(transaction_version=version) as (session, coordinator):
        await begin_transaction(session, coordinator)
        session.has_begun = True
        coordinator.says(ApiKey.END_TXN, [*map(ended, WAITS), ended(producer_id=85, epoch=0)])
        await end(session, commit=True)
        assert session.state is S.READY
        assert session.identity == (ProducerIdentity(85, 0) if version == 2 else ProducerIdentity(42, 3))
        assert set(coordinator.request_versions(ApiKey.END_TXN)) == {newest}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (E.PRODUCER_FENCED, ProducerFenced),
        (E.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (E.INVALID_TXN_STATE, FatalError),
        (E.INVALID_PRODUCER_ID_MAPPING, FatalError),
        (E.UNKNOWN_SERVER_ERROR, FatalError),
        (E.TRANSACTION_ABORTABLE, AbortableError),
    ],
)
async def test_a_commit_that_is_refused_says_what_is_lost(code: ErrorCode, kind: type[ClientError]) -> None:
    async with a_session() as (session, coordinator):
        await begin_transaction(session, coordinator)
        coordinator.says(ApiKey.END_TXN, [ended(code)])
        with pytest.raises(kind) as refused:
            await end(session, commit=True)
        assert refused.value.code is code
        assert session.state is (S.ABORTABLE_ERROR if kind is AbortableError else S.FATAL_ERROR)
        with pytest.raises(kind, match="begin_transaction is not allowed"):
            session.enter(Call.BEGIN)


async def test_an_empty_transaction_ends_without_end_txn() -> None:
    async with a_session() as (session, coordinator):
        await begin_transaction(session, coordinator)
        session.has_begun = False
        await end(session, commit=True)
        assert (session.state, session.identity) == (S.READY, ProducerIdentity(42, 3))
        assert coordinator.request_versions(ApiKey.END_TXN) == []


async def test_before_version_2_sequences_that_cannot_go_on_take_a_new_epoch_after_the_end() -> None:
    async with a_session(transaction_version=1) as (session, coordinator):
        await begin_transaction(session, coordinator)
        session.has_begun = True
        coordinator.says(ApiKey.END_TXN, [ended()])
        coordinator.says(ApiKey.INIT_PRODUCER_ID, [initialised(epoch=4)])
        session.enter(Call.ABORT)
        await session.end(committed=False, needs_new_epoch=lambda identity: identity == ProducerIdentity(42, 3))
        assert session.identity == ProducerIdentity(42, 4)


# TxnOffsetCommit


def offsets_answered(*codes: ErrorCode) -> Message:
    partitions = [
        TxnOffsetCommitResponsePartition(partition_index=index, error_code=code.value)
        for index, code in enumerate(codes)
    ]
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=partitions)])


async def send_offsets(session: TransactionSession, group_id: str = "group") -> None:
    offsets = {TopicPartition("t", index): OffsetAndMetadata(7) for index in range(2)}
    session.enter(Call.SEND_OFFSETS)
    await session.send_offsets(offsets, ConsumerGroupMetadata(group_id))


async def test_below_version_2_a_group_is_added_once_in_each_transaction() -> None:
    async with a_session(transaction_version=1) as (session, coordinator):
        await begin_transaction(session, coordinator)
        coordinator.says(ApiKey.TXN_OFFSET_COMMIT, [offsets_answered(E.NONE, E.NONE)] * 5)
        waits = AddOffsetsToTxnResponse(error_code=E.CONCURRENT_TRANSACTIONS.value)
        coordinator.says(ApiKey.ADD_OFFSETS_TO_TXN, [waits, *([AddOffsetsToTxnResponse()] * 3)])
        for group_id in ("group", "group", "other", "group"):
            await send_offsets(session, group_id)
        assert len(coordinator.request_versions(ApiKey.ADD_OFFSETS_TO_TXN)) == 3  # the first request had no effect
        coordinator.says(ApiKey.END_TXN, [ended()])
        await end(session, commit=True)
        session.enter(Call.BEGIN)
        await send_offsets(session)
        assert coordinator.last(AddOffsetsToTxnRequest).group_id == "group"
        assert len(coordinator.request_versions(ApiKey.ADD_OFFSETS_TO_TXN)) == 4
        assert len(coordinator.request_versions(ApiKey.TXN_OFFSET_COMMIT)) == 5


async def test_offsets_are_sent_until_every_partition_has_them() -> None:
    async with a_session() as (session, coordinator):
        await begin_transaction(session, coordinator)
        waits = [offsets_answered(E.NONE, code) for code in (*WAITS, E.UNKNOWN_TOPIC_OR_PARTITION)]
        coordinator.says(ApiKey.TXN_OFFSET_COMMIT, [*waits, offsets_answered(E.NONE, E.NONE)])
        await send_offsets(session)
        assert session.state is S.IN_TRANSACTION


async def test_a_permanent_error_of_a_partition_overrides_transient_ones() -> None:
    async with a_session() as (session, coordinator):
        await begin_transaction(session, coordinator)
        answer = offsets_answered(E.COORDINATOR_LOAD_IN_PROGRESS, E.ILLEGAL_GENERATION)
        coordinator.says(ApiKey.TXN_OFFSET_COMMIT, [answer])
        with pytest.raises(AbortableError) as refused:
            await send_offsets(session)
        assert refused.value.code is E.ILLEGAL_GENERATION
        assert session.state is S.ABORTABLE_ERROR


# State that the next transaction must not inherit


async def recovered(session: TransactionSession, coordinator: Coordinator, *later: Message) -> None:
    """Ends a recovered transaction. `later` contains the responses to the InitProducerId requests that follow."""
    coordinator.says(ApiKey.INIT_PRODUCER_ID, [initialised(epoch=11, ongoing=(42, 10)), *later])
    coordinator.says(ApiKey.END_TXN, [ended(epoch=12)])
    session.enter(Call.INIT)
    await session.init(keep_prepared=True)
    await end(session, commit=True)


@pytest.mark.parametrize("two_phase_commit", [True, False])
async def test_after_a_recovered_transaction_the_producer_initialises_anew_without_keeping(
    two_phase_commit: bool,
) -> None:
    """Checks that the producer sends InitProducerId again. Otherwise, a broker that follows the draft of the KIP would
    keep the recovered transaction's timeout."""
    async with a_session(two_phase_commit=two_phase_commit) as (session, coordinator):
        await recovered(session, coordinator, initialised(epoch=13))
        assert coordinator.request_versions(ApiKey.INIT_PRODUCER_ID) == [6], "the end itself does not wait for it"
        await session.begin()
        assert (session.state, session.identity) == (S.IN_TRANSACTION, ProducerIdentity(42, 13))
        request = coordinator.last(InitProducerIdRequest)
        assert not request.keep_prepared_txn
        assert request.enable2_pc is two_phase_commit
        assert (request.producer_id, request.producer_epoch) == (42, 12)
        session.note_sending()
        coordinator.says(ApiKey.END_TXN, [ended(epoch=14)])
        await end(session, commit=True)
        await session.begin()
        assert len(coordinator.request_versions(ApiKey.INIT_PRODUCER_ID)) == 2, "once is enough"


async def test_if_initialising_times_out_the_next_transaction_can_begin_later() -> None:
    async with a_session(max_block_ms=1_000) as (session, coordinator):
        await recovered(session, coordinator, *[initialised(E.CONCURRENT_TRANSACTIONS)] * 1_000)
        with pytest.raises(RetriableError):
            await session.begin()
        assert session.state is S.READY
        coordinator.says(ApiKey.INIT_PRODUCER_ID, [initialised(epoch=13)])
        await session.begin()
        assert session.identity == ProducerIdentity(42, 13)


async def test_if_a_newer_producer_has_taken_over_meanwhile_no_transaction_begins() -> None:
    async with a_session() as (session, coordinator):
        await recovered(session, coordinator, initialised(E.PRODUCER_FENCED))
        with pytest.raises(ProducerFenced):
            await session.begin()
        assert session.state is S.FATAL_ERROR


async def test_without_a_kept_transaction_the_producer_initialises_once() -> None:
    async with a_session() as (session, coordinator):
        coordinator.says(ApiKey.INIT_PRODUCER_ID, [initialised()])
        session.enter(Call.INIT)
        await session.init(keep_prepared=True)
        await session.begin()
        assert len(coordinator.request_versions(ApiKey.INIT_PRODUCER_ID)) == 1


# Changes to transaction.version while the producer is running


async def test_when_the_level_is_lowered_to_0_the_producer_keeps_its_identity_and_goes_on_in_the_old_protocol() -> None:
    async with a_session() as (session, coordinator):
        await begin_transaction(session, coordinator)
        coordinator.changes_level(0)
        coordinator.says(ApiKey.END_TXN, [ended(producer_id=-1, epoch=-1), ended()])
        await end(session, commit=True)
        assert (session.state, session.identity) == (S.READY, ProducerIdentity(42, 3))
        assert not session.is_transaction_v2
        await session.begin()
        session.has_begun = True
        await end(session, commit=True)
        assert coordinator.request_versions(ApiKey.END_TXN) == [5, 4]
        assert session.identity == ProducerIdentity(42, 3)


async def test_when_it_is_raised_to_2_the_transaction_is_finished_and_the_next_has_a_new_epoch() -> None:
    async with a_session(transaction_version=0) as (session, coordinator):
        await begin_transaction(session, coordinator)
        session.has_begun = True
        coordinator.changes_level(2)
        coordinator.says(ApiKey.END_TXN, [ended(), ended(epoch=5)])
        await end(session, commit=False)
        assert session.identity == ProducerIdentity(42, 3)
        coordinator.says(ApiKey.INIT_PRODUCER_ID, [initialised(epoch=4)])
        await session.begin()
        request = coordinator.last(InitProducerIdRequest)
        assert (request.producer_id, request.producer_epoch) == (42, 3)
        assert session.identity == ProducerIdentity(42, 4)
        session.note_sending()
        await end(session, commit=True)
        assert coordinator.request_versions(ApiKey.END_TXN) == [4, 5]
        assert session.identity == ProducerIdentity(42, 5)


async def test_at_level_2_the_producer_does_not_request_the_versions_again() -> None:
    async with a_session() as (session, coordinator):
        await begin_transaction(session, coordinator)
        request_versions = len(coordinator.request_versions(ApiKey.API_VERSIONS))
        coordinator.says(ApiKey.END_TXN, [ended()])
        await end(session, commit=True)
        assert len(coordinator.request_versions(ApiKey.API_VERSIONS)) == request_versions


async def test_at_the_metadata_interval_the_producer_requests_the_versions_again() -> None:
    async with a_session(metadata_max_age_ms=0) as (session, coordinator):
        await begin_transaction(session, coordinator)
        coordinator.changes_level(1)
        coordinator.says(ApiKey.END_TXN, [ended()])
        await end(session, commit=True)
        assert not session.is_transaction_v2
        assert session.identity == ProducerIdentity(42, 4)


async def test_a_producer_with_two_phase_commit_ends_its_transaction_and_begins_no_other_below_level_2() -> None:
    """Checks that no other transaction begins. The producer's epoch does not change, so the next transaction would have
    the same producer id and epoch as the decided one."""
    async with a_session(two_phase_commit=True) as (session, coordinator):
        await begin_transaction(session, coordinator)
        coordinator.changes_level(0)
        coordinator.says(ApiKey.END_TXN, [ended(producer_id=-1, epoch=-1)])
        await end(session, commit=True)
        with pytest.raises(FatalError, match=r"transaction\.version 2"):
            await session.begin()
