"""Sends a transactional producer's requests to its coordinators and tracks the resulting state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from odradek.client.common.errors import (
    STALE_COORDINATOR,
    AbortableError,
    ClientError,
    FatalError,
    IllegalState,
    RetriableError,
    code_of,
)
from odradek.client.common.values import (
    Acknowledgements,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTxnState,
    ShareGroupMetadata,
    TopicPartition,
    TransactionEnded,
)
from odradek.client.network.backoff import Backoff
from odradek.client.network.cluster import Cluster, CoordinatorType
from odradek.client.producing.producer_batch import ProducerIdentity
from odradek.client.producing.share_acknowledgements import (
    TxnAcknowledgeCall,
    add_partitions,
    commit_offsets,
    error_of_offsets,
    error_of_partitions,
    not_served,
    txn_acknowledge_verdict,
)
from odradek.client.producing.transaction import Call, ProducerTxnState, after_error, next_state
from odradek.client.producing.verdicts import Verdict, as_exception, verdict
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_header import NO_PRODUCER_ID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.protocol.struct import ZERO_UUID, Message

M = TypeVar("M", bound=Message)

TRANSACTION_V2 = 2  # lowest transaction.version that uses the KIP-890 part 2 protocol
# The request versions that transaction.version 2 requires (KIP-890 part 2).
END_TXN_V2, TXN_OFFSET_COMMIT_V2 = 5, 5
TXN_OFFSET_COMMIT_BY_ID = 6  # first version that identifies topics by their ids alone (KIP-1319)
ADD_PARTITIONS_OF_CLIENTS = 3  # last version for clients; later versions are for brokers only
TWO_PHASE_COMMIT = 6  # version of InitProducerId that supports KIP-939
# Short, because a coordinator finishes the previous transaction within milliseconds.
CONCURRENT_BACKOFF_MS = 20


class TransactionSession:
    """Tracks the state of one producer's transactions and sends the requests that change it."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        two_phase_commit: bool,
        transaction_timeout_ms: int,
        max_block_ms: float,
        request_timeout_ms: float,
        on_error: Callable[[ClientError], None],
        on_progress: Callable[[], None],
    ) -> None:
        """Creates a session for a producer that has not been initialised.

        on_error      called if the transaction or the producer cannot continue
        on_progress   called if more batches may be sent
        """
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._two_phase_commit = two_phase_commit
        self._transaction_timeout_ms = transaction_timeout_ms
        self._max_block_s = max_block_ms / 1000
        self._request_timeout_ms = request_timeout_ms
        self._on_error = on_error
        self._on_progress = on_progress
        self._concurrent = Backoff(min(CONCURRENT_BACKOFF_MS, cluster.backoff.first_ms), cluster.backoff.max_ms)
        self.state = ProducerTxnState.UNINITIALIZED
        self.error: ClientError | None = None
        self.identity: ProducerIdentity | None = None
        self.prepared = PreparedTxnState()
        self.is_transaction_v2 = False
        self.has_begun = False  # True if the coordinator may have a transaction, which must then be ended
        self._must_init_anew = False  # True if a new epoch must be acquired before the next transaction
        self._added: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._added_groups: set[str] = set()
        self._adding: asyncio.Task[None] | None = None
        # Callbacks of share consumers, to be called when the transaction ends.
        self._ended: list[TransactionEnded] = []
        self._running_calls = asyncio.Lock()  # prevents a task from sending offsets while another ends the transaction

    def enter(self, call: Call) -> None:
        """Changes to the state that the call leads to. If the call is not allowed, raises the pending error, or
        IllegalState if no error is pending."""
        try:
            self.state = next_state(self.state, call)
        except IllegalState as illegal:
            if self.error is None:
                raise
            raise type(self.error)(f"{illegal}: {self.error}", self.error.code) from self.error

    def on_failure(self, verdict: Verdict, error: ClientError) -> None:
        """Records that a batch or a request of this transaction has failed with this verdict."""
        before, self.state = self.state, after_error(self.state, verdict)
        if self.state is not before:
            self.error = error
            self._on_error(error)

    def raise_error(self) -> None:
        """Raises the error that was passed to `on_failure`, if the transaction or the producer cannot continue because
        of it."""
        if self.error is not None and self.state in (ProducerTxnState.ABORTABLE_ERROR, ProducerTxnState.FATAL_ERROR):
            raise type(self.error)(str(self.error), self.error.code) from self.error

    async def close(self) -> None:
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.wait([self._adding])

    # Initialising.

    async def init(self, *, keep_prepared: bool) -> None:
        """Acquires a producer id. Without `keep_prepared`, `state` is READY afterwards. With `keep_prepared`, `state`
        is PREPARED if there is a prepared transaction, which `prepared` then identifies, and NO_PREPARED otherwise."""
        needs_version = TWO_PHASE_COMMIT if keep_prepared or self._two_phase_commit else 0
        self.is_transaction_v2 = self._cluster.transaction_version >= TRANSACTION_V2
        if needs_version and not self.is_transaction_v2:
            error = _needs_version_2()
            self.on_failure(Verdict.FATAL, error)
            raise error
        answer = await self._init_producer_id(needs_version, keep_prepared=keep_prepared)
        self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        if answer.ongoing_txn_producer_id != NO_PRODUCER_ID:
            self.prepared = PreparedTxnState(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
            self.has_begun = True
            # Required because KIP-939 does not specify which timeout applies to the transaction that follows a
            # recovered transaction.
            self._must_init_anew = True
            self.state = ProducerTxnState.PREPARED
        else:
            self.state = ProducerTxnState.NO_PREPARED if keep_prepared else ProducerTxnState.READY

    async def _init_producer_id(
        self, needs_version: int, *, keep_prepared: bool = False, expected: ProducerIdentity | None = None
    ) -> InitProducerIdResponse:
        producer_id, producer_epoch = expected or ProducerIdentity(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            enable2_pc=self._two_phase_commit,
            keep_prepared_txn=keep_prepared,
        )
        return await self._ask(
            ApiKey.INIT_PRODUCER_ID,
            request,
            InitProducerIdResponse,
            lambda answer: answer.error_code,
            min_version=needs_version,
        )

    async def prepare(self) -> PreparedTxnState:
        """Returns the state that identifies the flushed transaction.

        If nothing was sent, the state is empty, because the coordinator has no transaction, and the next transaction
        will have the same producer epoch.
        """
        async with self._running_calls:
            self.raise_error()
            assert self.identity is not None
            self.prepared = PreparedTxnState(*self.identity) if self.has_begun else PreparedTxnState()
            self.state = ProducerTxnState.PREPARED
            return self.prepared

    async def begin(self) -> None:
        """Begins a transaction by changing to the state IN_TRANSACTION.

        Sends a request only if a transaction was recovered or the protocol has changed. Raises RetriableError if the
        request takes longer than `max_block_ms`; repeat the call.
        """
        if self._must_init_anew and self.state is ProducerTxnState.READY:
            await self._init_anew()
        self.enter(Call.BEGIN)

    async def _init_anew(self) -> None:
        """Acquires the next epoch, unless a newer producer has taken over."""
        bumped = await self._init_producer_id(0, expected=self.identity)
        self.identity = ProducerIdentity(bumped.producer_id, bumped.producer_epoch)
        self._must_init_anew = False

    # Adding partitions and offsets.

    def on_lost_sequence(self, partition: TopicPartition, identity: ProducerIdentity) -> ProducerIdentity | None:
        topic, index = partition
        text = f"the producer gave up on records for {topic}-{index}, and it is unknown whether they were written"
        self.on_failure(Verdict.ABORT, AbortableError(text))
        return None

    def note_sending(self) -> None:
        """Notes that a record is about to be sent. With transaction.version 2, the broker may open the transaction when
        the record arrives."""
        if self.is_transaction_v2:
            self.has_begun = True

    def may_send_to(self, partition: TopicPartition) -> bool:
        """Returns whether batches may be sent to this partition. With transaction.version 2, the broker itself adds the
        partition to the transaction. With earlier versions, a request must add it first."""
        if self.is_transaction_v2 or partition in self._added:
            return True
        if self.state in (ProducerTxnState.IN_TRANSACTION, ProducerTxnState.PREPARING, ProducerTxnState.COMMITTING):
            self._to_add.add(partition)
            if self._adding is None:
                self._adding = asyncio.get_running_loop().create_task(self._add_partitions())
        return False

    async def _add_partitions(self) -> None:
        assert self.identity is not None
        try:
            while self._to_add:
                partitions, self._to_add = self._to_add, set()
                await self._ask(
                    ApiKey.ADD_PARTITIONS_TO_TXN,
                    add_partitions(self._transactional_id, self.identity, partitions),
                    AddPartitionsToTxnResponse,
                    error_of_partitions,
                    max_version=ADD_PARTITIONS_OF_CLIENTS,
                )
                self._added |= partitions
                self.has_begun = True
        except RetriableError as error:  # the request timed out
            self.on_failure(Verdict.ABORT, AbortableError(str(error), error.code))
        except ClientError:
            pass  # `_ask` has already called `on_failure`
        finally:
            self._adding = None
            self._on_progress()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commits offsets as part of the transaction.

        If no response arrives in time or the call is cancelled, the transaction may or may not contain the offsets and
        can only be aborted. A timeout raises AbortableError.
        """
        if not offsets:
            return
        async with self._adding_to_the_transaction("offsets"):
            if not self.is_transaction_v2 and group.group_id not in self._added_groups:
                await self._add_offsets(group.group_id)
            await self._commit_offsets(offsets, group)

    async def send_acknowledgements(self, given: Acknowledgements, group: ShareGroupMetadata) -> None:
        """Acknowledges records as part of the transaction. Raises the same errors as `send_offsets`.

        Nothing is sent unless every broker supports the request. If a broker does not, the transaction must still be
        aborted, because it would otherwise be committed without the acknowledgements.
        """
        if not given:
            return
        async with self._adding_to_the_transaction("acknowledgements"):
            assert self.identity is not None
            await self._make_pending(
                TxnAcknowledgeCall(self._cluster, self._transactional_id, self.identity, group, given)
            )

    def on_end(self, call: TransactionEnded) -> None:
        """Registers a callback for the commit or abort of the transaction. It is not called if the outcome remains
        unknown to the producer."""
        self._ended.append(call)

    async def _make_pending(self, call: TxnAcknowledgeCall) -> None:
        """Retries the request until all acknowledgements are pending. Raises the errors of `_ask`."""
        ends_at = time.monotonic() + self._max_block_s
        failures = 0
        while True:
            left_ms = max(1.0, (ends_at - time.monotonic()) * 1000)
            error: ClientError
            try:
                if not self.is_transaction_v2:
                    raise not_served("the cluster")
                await call.check_served()
                code = await call.send(min(self._request_timeout_ms, left_ms))
                if code is ErrorCode.NONE:
                    return
                decided = txn_acknowledge_verdict(code)
                error = as_exception(decided, code, f"acknowledgements in {self._transactional_id!r}: {code.name}")
            except RetriableError as lost:
                decided, error = Verdict.RETRY, lost
            except ClientError as refused:
                decided, error = Verdict.ABORT, AbortableError(str(refused), refused.code)
            if decided is not Verdict.RETRY:
                self.on_failure(decided, error)
                raise error
            if time.monotonic() >= ends_at:
                raise error
            failures += 1
            backoff = self._concurrent if error.code is ErrorCode.CONCURRENT_TRANSACTIONS else self._cluster.backoff
            await asyncio.sleep(backoff.delay_s(failures))

    @asynccontextmanager
    async def _adding_to_the_transaction(self, what: str) -> AsyncIterator[None]:
        """Runs requests that add offsets or acknowledgements to the transaction, one at a time. The transaction does
        not end until they have finished."""
        self.note_sending()
        try:
            async with self._running_calls:
                yield
        except RetriableError as error:
            lost = AbortableError(str(error), error.code)
            self.on_failure(Verdict.ABORT, lost)
            raise lost from error
        except asyncio.CancelledError:
            self.on_failure(Verdict.ABORT, AbortableError(f"sending {what} to the transaction was cancelled"))
            raise

    async def _add_offsets(self, group_id: str) -> None:
        assert self.identity is not None
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            group_id=group_id,
        )
        await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, request, AddOffsetsToTxnResponse, lambda answer: answer.error_code)
        self._added_groups.add(group_id)
        self.has_begun = True

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        assert self.identity is not None
        topic_ids = await self._topic_ids({topic for topic, _ in offsets}) if self.is_transaction_v2 else {}
        newest = TXN_OFFSET_COMMIT_V2 if self.is_transaction_v2 else TXN_OFFSET_COMMIT_V2 - 1
        await self._ask(
            ApiKey.TXN_OFFSET_COMMIT,
            commit_offsets(self._transactional_id, self.identity, offsets, group, topic_ids),
            TxnOffsetCommitResponse,
            error_of_offsets,
            kind=CoordinatorType.GROUP,
            key=group.group_id,
            max_version=TXN_OFFSET_COMMIT_BY_ID if topic_ids else newest,
            min_version=TXN_OFFSET_COMMIT_V2 if self.is_transaction_v2 else 0,
        )

    async def _topic_ids(self, topics: set[str]) -> dict[str, bytes]:
        """Returns the ids of all these topics, or an empty dict if any of the ids cannot be determined."""
        unknown = [topic for topic in topics if self._cluster.known_topic(topic) is None]
        if unknown:
            try:
                await self._cluster.refresh(unknown, allow_auto_create=False)
            except RetriableError:
                return {}
        known = [found for topic in topics if (found := self._cluster.known_topic(topic)) is not None]
        found_ids = {each.topic: each.topic_id for each in known if each.topic_id != ZERO_UUID}
        return found_ids if len(found_ids) == len(topics) else {}

    # Ending.

    async def end(self, *, committed: bool, needs_new_epoch: Callable[[ProducerIdentity], bool]) -> None:
        """Ends the transaction and changes to the state READY. Sends no request if the coordinator cannot have the
        transaction.

        needs_new_epoch   returns whether sequences of this identity cannot continue. Not called with
                          transaction.version 2, where each transaction has a new epoch.
        """
        async with self._running_calls:
            self.raise_error()  # raises the error from a request that was still in flight
            await self._end(committed, needs_new_epoch)

    async def _end(self, committed: bool, needs_new_epoch: Callable[[ProducerIdentity], bool]) -> None:
        if self._adding is not None:
            await asyncio.wait([self._adding])
        if self.identity is None:  # the abort follows a failed initialisation, so there is no transaction
            self.error = None
            self.state = ProducerTxnState.UNINITIALIZED
            return
        if self.has_begun:
            request = EndTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                committed=committed,
            )
            answer = await self._ask(
                ApiKey.END_TXN,
                request,
                EndTxnResponse,
                lambda answer: answer.error_code,
                max_version=END_TXN_V2 if self.is_transaction_v2 else END_TXN_V2 - 1,
                min_version=END_TXN_V2 if self.is_transaction_v2 else 0,
                is_aborting=not committed,
            )
            # A cluster with transaction.version 0 returns no producer id, even for EndTxn v5.
            if answer.producer_id != NO_PRODUCER_ID:
                self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            # Prevents the transaction from being ended again if a later step fails and the call is repeated.
            self.has_begun = False
            await self._follow_the_cluster(is_sure=self.is_transaction_v2 and answer.producer_id != NO_PRODUCER_ID)
        if not self.is_transaction_v2 and needs_new_epoch(self.identity):
            await self._init_anew()
        self._added.clear()
        self._to_add.clear()
        self._added_groups.clear()
        ended, self._ended = self._ended, []
        for call in ended:
            call(committed)
        self.has_begun = False
        self.error = None
        self.prepared = PreparedTxnState()
        self.state = ProducerTxnState.READY
        if self._two_phase_commit and not self.is_transaction_v2:
            self.on_failure(Verdict.FATAL, _needs_version_2())

    async def _follow_the_cluster(self, *, is_sure: bool) -> None:
        """Chooses the next transaction's protocol, because transaction.version may have changed.

        is_sure   True if the last response shows that the version is 2. The features are then requested only if they
                  are stale.
        """
        if not is_sure or self._cluster.are_features_stale:
            with suppress(ClientError):  # if the cluster cannot be reached, the next request will fail
                await self._cluster.refresh_features()
        is_transaction_v2 = self._cluster.transaction_version >= TRANSACTION_V2
        # Partitions have seen the current epoch in the old protocol, so the new protocol begins with a new epoch.
        self._must_init_anew |= is_transaction_v2 and not self.is_transaction_v2
        self.is_transaction_v2 = is_transaction_v2

    # Requests.

    async def _ask(
        self,
        api: ApiKey,
        request: Message,
        answer: type[M],
        error_code: Callable[[M], int],
        *,
        kind: CoordinatorType = CoordinatorType.TRANSACTION,
        key: str | None = None,
        max_version: int | None = None,
        min_version: int = 0,
        is_aborting: bool = False,
    ) -> M:
        """Retries a request until it succeeds.

        Raises RetriableError if it does not succeed within `max_block_ms`; the outcome is then unknown. All other
        errors are passed to `on_failure` before they are raised.
        """
        key = self._transactional_id if key is None else key
        ends_at = time.monotonic() + self._max_block_s
        failures = 0
        while True:
            code = ErrorCode.NONE
            try:
                answered = await self._cluster.ask_coordinator(
                    key,
                    kind,
                    request,
                    answer,
                    max_version=max_version,
                    min_version=min_version,
                    timeout_ms=min(self._request_timeout_ms, max(1.0, (ends_at - time.monotonic()) * 1000)),
                    find_timeout_ms=0,
                )
                code = code_of(error_code(answered))
                if code is ErrorCode.NONE:
                    return answered
                text = f"{api.name} for {key!r}: {code.name}"
                decided = verdict(api, code, is_transactional=True, is_aborting=is_aborting)
            except RetriableError as lost:
                code, text, decided = lost.code or ErrorCode.NETWORK_EXCEPTION, str(lost), Verdict.RETRY
            except ClientError as refused:  # there is no common version, or no coordinator for this client
                code, text = refused.code or ErrorCode.UNKNOWN_SERVER_ERROR, str(refused)
                decided = verdict(ApiKey.FIND_COORDINATOR, code, is_transactional=True)
            error = as_exception(decided, code, text)
            if decided is not Verdict.RETRY:
                self.on_failure(decided, error)
                raise error
            if code in STALE_COORDINATOR:
                self._cluster.forget_coordinator(key, kind)
            if time.monotonic() >= ends_at:
                raise error
            failures += 1
            backoff = self._concurrent if code is ErrorCode.CONCURRENT_TRANSACTIONS else self._cluster.backoff
            await asyncio.sleep(backoff.delay_s(failures))


def _needs_version_2() -> FatalError:
    return FatalError(
        "two-phase commit needs transaction.version 2, with which each transaction has its own pair of producer id"
        " and epoch",
        ErrorCode.UNSUPPORTED_VERSION,
    )
