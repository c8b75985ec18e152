"""The transaction coordinator. It consists of all partitions of `__transaction_state`, each a `Shard` with a
`TransactionCore`.

This module finds a transactional id's shard, loads shards at startup and when the topic is created, allocates producer
ids for decisions that need one, and passes markers from the core to the partitions. It also triggers timeouts:
transactions that have been open for too long are aborted, and unused transactional ids expire. Decisions are made in
`odradek/broker/transactions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from mypy_extensions import mypyc_attr

from odradek.broker.configuration.settings import TimePerPrefix
from odradek.broker.coordinators.partition_sync import PartitionSync, sync_and_wait
from odradek.broker.coordinators.shard import Shard
from odradek.broker.coordinators.shard_records import RecordFormat, ShardLog
from odradek.broker.coordinators.shards import Scans, Shards
from odradek.broker.coordinators.transaction_markers import MarkerRound, MarkerRounds, MarkerWriter, NewMarkerRound
from odradek.broker.metadata.supported_features import TRANSACTION_VERSION
from odradek.broker.runtime.waiting import (
    Deferred,
    NowOrLater,
    start_coroutine,
    start_unattended,
    wait_for_all,
    wait_for_answer,
)
from odradek.broker.transactions.core import TransactionCore
from odradek.broker.transactions.producers import Seals, TwoPhaseProducers
from odradek.broker.transactions.records import decode_record, encode_record, record_headers, restore_headers
from odradek.broker.transactions.requests import check_request
from odradek.broker.transactions.turn import DecisionInputs, Outcome, OverdueFate, TransactionConfig
from odradek.protocol.batch_header import NO_SEQUENCE
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TRANSACTION_STATE, PartitionCodes, TopicPartition

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.coordinators.producer_ids import OnProducerId
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.protocol.messages.describe_transactions_response import TransactionState
    from odradek.protocol.messages.end_txn_request import EndTxnRequest
    from odradek.protocol.messages.end_txn_response import EndTxnResponse
    from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
    from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse

logger = logging.getLogger("odradek.transactions")

R = TypeVar("R")
TransactionShard = Shard[TransactionCore]

# Internal topics that cannot be added to a transaction. Only the broker writes to `__transaction_state`. The other
# internal topics are part of transactions that commit offsets or acknowledge records of share groups. Usually the
# broker adds them, because clients have no permission for them.
REFUSED_TOPICS: Final = frozenset({TRANSACTION_STATE})
# If a busy producer begins its next transaction within this time, the completion is written together with the first
# record of that transaction.
COMPLETION_DELAY_MS: Final = 50
EXPIRED_IDS_PER_SLICE: Final = 200  # number of ids to forget in one slice; takes about 3 ms
SHORTEST_SCAN_MS: Final = 1_000  # minimum interval of the expiry scan if there are expiration rules


class ProducerIdSource(Protocol):
    def allocate(self, then: OnProducerId) -> None: ...


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    decisions: TransactionConfig
    partition_count: int
    abort_timed_out_interval_ms: int
    remove_expired_interval_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        written = config.odradek_transactional_id_expiration_rules
        rules = [rule for each in written if (rule := TimePerPrefix.read(each)) is not None]
        remove_expired_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        return cls(
            decisions=TransactionConfig(
                transaction_max_timeout_ms=config.transaction_max_timeout_ms,
                transactional_id_expiration_ms=config.transactional_id_expiration_ms,
                transactional_id_expiration_rules=tuple(rules),
                transaction_two_phase_commit_enable=config.transaction_two_phase_commit_enable,
                completion_delay_ms=COMPLETION_DELAY_MS,
            ),
            partition_count=config.transaction_state_log_num_partitions,
            abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            # Ids that a rule expires after one minute must not wait for the hourly scan.
            remove_expired_interval_ms=min([remove_expired_ms, *[max(ms, SHORTEST_SCAN_MS) for _, ms in rules]]),
        )


@mypyc_attr(allow_interpreted_subclasses=True)
class TransactionCoordinator:
    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        timers: Timers,
        *,
        open_log: Callable[[int], ShardLog],
        coordinator_epoch: Callable[[int], int],
        marker_writer: MarkerWriter,
        partition_sync: PartitionSync,
        producer_ids: ProducerIdSource,
        features: Mapping[str, int],
        partition_exists: Callable[[TopicPartition], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        two_phase: TwoPhaseProducers,
        seals: Seals | None = None,
        new_core: Callable[..., TransactionCore] = TransactionCore,
        new_round: NewMarkerRound = MarkerRound,
    ) -> None:
        """Creates a coordinator without partitions.

        open_log           opens the log of a partition of `__transaction_state`; raises KafkaError if the log is
                           unusable
        coordinator_epoch  returns the leader epoch of a partition, which increases with each restart
        features           the finalised feature levels, kept up to date by the metadata
        partition_exists   returns whether the metadata contains a partition
        spawn              runs a coroutine as a task on the loop
        two_phase          the two-phase producers; updated by the coordinator
        seals              the sealed transactions; updated by the coordinator
        new_core           creates a core, with the parameters of `TransactionCore`
        new_round          creates the round of markers of a decision; see the steps of `MarkerRound`
        """
        self.settings = settings
        self._clock = clock
        self._timers = timers
        self._coordinator_epoch = coordinator_epoch
        self._marker_writer = marker_writer
        self._partition_sync = partition_sync
        self._producer_ids = producer_ids
        self._features = features
        self._partition_exists = partition_exists
        self._two_phase = two_phase
        self._seals = Seals() if seals is None else seals
        self._new_core = new_core
        self._new_round = new_round
        self._deleted_while_loading: dict[int, set[str]] = {}  # topic names, by index of the loading shard
        self._scans = Scans(timers)
        self._format = RecordFormat(
            partial(_encode, features),
            decode_record,
            base_sequence=NO_SEQUENCE,
            headers=record_headers,
            revive=restore_headers,
        )
        self.shards: Shards[TransactionCore, ShardLog] = Shards(
            TRANSACTION_STATE,
            keys="transactional ids",
            usual_partition_count=settings.partition_count,
            open_log=open_log,
            new_shard=self._new_shard,
            spawn=spawn,
            loaded=lambda _: self._check_completeness(),
        )

    # The life cycle of the topic.

    def start(self, partition_count: int | None) -> None:
        """Starts loading if the topic exists. Until a partition is loaded, its requests fail with
        COORDINATOR_LOAD_IN_PROGRESS."""
        self._scans.repeat(
            self.settings.abort_timed_out_interval_ms,
            self.abort_timed_out,
            lambda: self.shards.earliest(lambda core: core.times_out_ms()),
        )
        self._scans.repeat(
            self.settings.remove_expired_interval_ms,
            IdExpiry(self.shards, self._timers).start,
            lambda: self.shards.earliest(lambda core: core.expires_ms()),
        )
        if partition_count is not None:
            self.state_topic_created(partition_count)

    def state_topic_created(self, partition_count: int) -> None:
        """Opens the topic, but only once per process: even if partitions are added, ids keep their partitions until a
        restart."""
        if not self.shards.is_open:
            self._two_phase.are_all_known = False
            self.shards.open(partition_count)
            self._check_completeness()

    def _new_shard(self, index: int, name: str, log: ShardLog) -> TransactionShard:
        rounds = MarkerRounds(name, self._marker_writer, self._partition_exists, self._inputs, self._new_round)
        missed = self._deleted_while_loading[index] = set()
        shard: TransactionShard = Shard(
            name,
            log,
            lambda: self._new_core(
                self.settings.decisions,
                coordinator_epoch=self._coordinator_epoch(index),
                is_deleted=lambda topic: topic in missed or not self._partition_exists((topic, 0)),
                two_phase=self._two_phase.ids,
                seals=self._seals,
            ),
            self._format,
            self._clock,
            self._timers,
            # Kafka would handle requests for the ids whose records it could read. This broker does not, because a
            # transaction could be committed or fenced by mistake if the last record of its id is missing.
            when_unreadable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            send_markers=rounds.send,
        )
        rounds.shard = shard
        return shard

    def _check_completeness(self) -> None:
        if self.shards.is_complete and self.shards.is_loaded:
            self._two_phase.are_all_known = True

    def state_topic_deleted(self) -> None:
        """Drops all transactional ids and their transactions. Called after the topic has been deleted."""
        self.shards.delete()
        self._two_phase.ids.clear()
        self._seals.by_producer.clear()
        self._two_phase.are_all_known = True

    def stop(self) -> None:
        """Stops the coordinator. Waiting requests fail with NOT_COORDINATOR."""
        self._scans.stop()
        self.shards.unload()

    # Finding shards.

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic, or the configured number if the topic does not exist yet."""
        return self.shards.partition_count

    def partition_for(self, transactional_id: str) -> int:
        return self.shards.partition_for(transactional_id)

    def shard_for(self, transactional_id: str) -> TransactionShard:
        """Returns the shard for a transactional id. Raises NOT_COORDINATOR if the id has no shard, for instance because
        the topic does not exist."""
        return self.shards.of_key(transactional_id)

    @property
    def is_loaded(self) -> bool:
        """True if every usable partition is loaded."""
        return self.shards.is_loaded

    # Requests. Each request is answered immediately or once its records are durable. A refusal is raised as KafkaError.

    def init_producer_id(self, request: InitProducerIdRequest) -> NowOrLater[InitProducerIdResponse]:
        """Handles an InitProducerId request with a transactional id."""
        return start_coroutine(self._init_producer_id(request))

    async def _init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        check_request(request, self.settings.decisions, self._features.get(TRANSACTION_VERSION, 0))
        assert request.transactional_id is not None
        shard = self.shard_for(request.transactional_id)
        to_sync: set[TopicPartition] = set()

        def decide(core: TransactionCore, inputs: DecisionInputs) -> Outcome[InitProducerIdResponse]:
            outcome = core.init_producer_id(request, inputs)
            to_sync.update(outcome.to_sync)
            return outcome

        response = await wait_for_answer(self._submit(shard, decide, before_again=partial(_reserve, shard, request)))
        if request.keep_prepared_txn:
            await sync_and_wait(self._partition_sync, to_sync)
        return response

    def end_txn(self, request: EndTxnRequest, *, requested_version: int) -> NowOrLater[EndTxnResponse]:
        """Ends a transaction. `requested_version` is the transaction version of the request: 2 for EndTxn v5 and later,
        otherwise 0."""
        _require_id(request.transactional_id)
        parked: Deferred[EndTxnResponse] = Deferred()
        return self._submit(
            self.shard_for(request.transactional_id),
            lambda core, inputs: core.end_txn(request, parked, requested_version=requested_version, inputs=inputs),
            parked,
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
        requested_version: int,
    ) -> NowOrLater[PartitionCodes]:
        """Adds partitions to a transaction or verifies that they are part of it. Returns an error code for each
        partition. Never raises an exception.

        requested_version  2 if a Produce or an offset commit adds its own partition (AddPartitionsToTxn v4 and later),
                           otherwise 0
        """
        requested = frozenset(partitions)
        refused = {each for each in requested if each[0] in REFUSED_TOPICS}
        if refused and not verify_only:
            return {
                each: ErrorCode.INVALID_TOPIC_EXCEPTION if each in refused else ErrorCode.OPERATION_NOT_ATTEMPTED
                for each in requested
            }
        try:
            _require_id(transactional_id)
            shard = self.shard_for(transactional_id)
            if verify_only:
                answer = shard.submit(
                    lambda core, _: core.verify_partitions(transactional_id, producer_id, producer_epoch, requested)
                )
            else:
                answer = shard.submit(
                    lambda core, now_ms: core.add_partitions(
                        transactional_id,
                        producer_id,
                        producer_epoch,
                        requested,
                        requested_version=requested_version,
                        inputs=self._inputs(now_ms),
                    )
                )
        except KafkaError as refusal:
            return dict.fromkeys(requested, refusal.code)
        return start_coroutine(_codes(answer, requested)) if isinstance(answer, Deferred) else answer

    def describe(self, transactional_id: str) -> TransactionState:
        _require_id(transactional_id)
        return self.shard_for(transactional_id).read_state(lambda core: core.describe(transactional_id))

    # Background work.

    def topic_deleted(self, topic: str) -> Deferred[None] | None:
        """Removes the partitions of a deleted topic from their transactions, so that no marker is written to a new
        topic with this name.

        Returns a Deferred that resolves when the removal is recorded as durably as the settings require. No topic with
        this name may be created before then. Returns None if there is nothing to wait for.
        """
        if topic == TRANSACTION_STATE:
            self.state_topic_deleted()
            return None
        answers: list[NowOrLater[int]] = []
        for index, shard in self.shards.items():
            if not shard.is_loaded:
                self._deleted_while_loading[index].add(topic)
                continue
            if not shard.read_state(lambda core: core.open_count):
                continue  # the common case: nothing has to wait for the disk
            try:
                answers.append(shard.submit(lambda core, _: core.forget_topic(topic)))
            except KafkaError as error:
                logger.error("deletion of topic %s could not be recorded in its open transactions: %s", topic, error)
        recorded = start_coroutine(_all_recorded(answers))
        return recorded if isinstance(recorded, Deferred) else None

    def abort_timed_out(self) -> None:
        for shard in self.shards:
            try:
                timed_out = shard.read_state(lambda core: core.timed_out(self._clock.now_ms()))
            except KafkaError:
                continue  # not loaded yet; a later scan will find its overdue transactions
            for transactional_id in timed_out:
                start_unattended(self._abort_timed_out(shard, transactional_id))

    async def _abort_timed_out(self, shard: TransactionShard, transactional_id: str) -> None:
        """Aborts a transaction that has timed out. If the abort fails, the next scan tries again."""
        try:
            await wait_for_answer(
                self._submit(shard, lambda core, inputs: core.abort_timed_out(transactional_id, inputs))
            )
        except KafkaError as error:
            logger.warning(
                "transaction %r has timed out but could not be aborted; trying again: %s", transactional_id, error
            )

    def abort_overdue(self, transactional_id: str, producer_id: int, producer_epoch: int) -> NowOrLater[OverdueFate]:
        """Aborts a transaction for a share partition's leader; see `TransactionCore.abort_overdue`. Raises KafkaError
        if the abort fails."""
        return self._submit(
            self.shard_for(transactional_id),
            lambda core, inputs: core.abort_overdue(transactional_id, producer_id, producer_epoch, inputs),
        )

    def record_completions(self) -> None:
        """Records the completion of all completed transactions. Called before a clean stop and before
        `transaction.version` is lowered."""
        for shard in self.shards:
            shard.submit_maintenance(lambda core, _: core.record_completions())

    # Private methods.

    def _submit(
        self,
        shard: TransactionShard,
        decide: Callable[[TransactionCore, DecisionInputs], Outcome[R]],
        parked: Deferred[R] | None = None,
        *,
        before_again: Callable[[int], None] | None = None,
    ) -> NowOrLater[R]:
        """Like `Shard.submit`, but if the decision needs a producer id, allocates one and decides again.

        before_again  called with the producer id before the second decision
        """
        now_ms = self._clock.now_ms()
        outcome = decide(shard.core, self._inputs(now_ms))
        if not outcome.needs_producer_id:
            result = shard.carry_out(outcome, now_ms, parked)
            return result.now_or_later() if isinstance(result, Deferred) else result
        return start_coroutine(self._decide_again(shard, decide, parked, before_again))

    async def _decide_again(
        self,
        shard: TransactionShard,
        decide: Callable[[TransactionCore, DecisionInputs], Outcome[R]],
        parked: Deferred[R] | None,
        before_again: Callable[[int], None] | None,
    ) -> R:
        new_id: Deferred[int] = Deferred()
        self._producer_ids.allocate(new_id.complete)
        producer_id = await new_id
        if before_again is not None:
            before_again(producer_id)
        inputs = partial(self._inputs, new_producer_id=producer_id)
        return await wait_for_answer(shard.submit(lambda core, now_ms: decide(core, inputs(now_ms)), parked))

    def _inputs(self, now_ms: int, new_producer_id: int | None = None) -> DecisionInputs:
        return DecisionInputs(now_ms, self._features.get(TRANSACTION_VERSION, 0), new_producer_id)


def _encode(features: Mapping[str, int], record: Any) -> tuple[bytes, bytes | None]:
    return encode_record(record, features.get(TRANSACTION_VERSION, 0))


async def _codes(answer: Deferred[PartitionCodes], requested: Iterable[TopicPartition]) -> PartitionCodes:
    """Waits for the response. If the request is refused, returns the refusal's code for all partitions."""
    try:
        return await answer
    except KafkaError as error:
        return dict.fromkeys(requested, error.code)


async def _all_recorded(answers: Sequence[NowOrLater[int]]) -> None:
    """Waits until every change has been recorded or has failed."""
    await wait_for_all(answers)


def _reserve(shard: TransactionShard, request: InitProducerIdRequest, producer_id: int) -> None:
    shard.submit_maintenance(lambda core, now_ms: core.reserve(request, producer_id, now_ms))


def _require_id(transactional_id: str) -> None:
    if transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)


class IdExpiry:
    """Expires transactional ids that have been unused for a long time. Processes one shard at a time, each in slices,
    because a million ids may expire at the same time."""

    def __init__(self, shards: Shards[TransactionCore, Any], timers: Timers) -> None:
        self._shards = shards
        self._timers = timers
        self._left: list[Shard[TransactionCore]] = []

    def start(self) -> None:
        """Starts expiring ids, unless a previous run is still in progress."""
        if not self._left:
            self._left = list(self._shards)
            self._expire_next_shard()

    def _expire_next_shard(self) -> None:
        if not self._left:
            return
        count = 0

        def decide(core: TransactionCore, now_ms: int) -> Outcome[None]:
            nonlocal count
            outcome = core.expire(now_ms, EXPIRED_IDS_PER_SLICE)
            count = len(outcome.records)
            return outcome

        if not self._left[-1].submit_maintenance(decide) or count < EXPIRED_IDS_PER_SLICE:
            self._left.pop()
        self._timers.after(0, self._expire_next_shard)
