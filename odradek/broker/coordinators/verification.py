"""Verification (KIP-890). Before transactional records are written, the transaction coordinator confirms that their
partition is part of the transaction.

    partition: open here? then write    else: take a guard → ask the coordinator → write with the guard

A transaction that is open in the partition may still be sealed. Once all transactional ids are loaded,
`Partition.append` checks for seals itself. Until then the coordinator is always called.

The request to the coordinator depends on whether the producer has added its partitions itself or relies on the broker
to add them. The error codes that clients receive are in `odradek/broker/api/error_translations.py`. The guards, and the
events that invalidate them, are described in `storage/verification.py`. Source: docs/spec/transactions.md#s2-7, #s2-8,
#s4-6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from odradek.broker.partitions.partition import Partition
from odradek.broker.runtime.waiting import Deferred, NowOrLater, sleep, start_unattended
from odradek.broker.transactions.producers import TwoPhaseProducers
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import PartitionCodes, TopicPartition
from odradek.storage.verification import NO_GUARD, VerificationGuard

if TYPE_CHECKING:
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.protocol.batch_header import BatchHeader

E = ErrorCode


# The first request versions in which a client relies on the broker to add its partitions to the transaction. Clients
# use these versions if `transaction.version` is 2.
FIRST_PRODUCE_VERSION_THAT_ADDS: Final = 12
FIRST_TXN_OFFSET_COMMIT_VERSION_THAT_ADDS: Final = 5
RETRIABLE_SOON: Final = E.CONCURRENT_TRANSACTIONS  # the previous transaction will soon be complete
# Coordinator responses that do not reveal whether the transaction is sealed.
UNREACHABLE: Final = frozenset({E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR})


class TransactionalProducer(NamedTuple):
    """The producer of a batch, as identified by the request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class UnverifiedBatch:
    """A batch to verify. `base_sequence` is None if the broker assigns it."""

    partition: Partition
    base_sequence: int | None


VerificationResult = VerificationGuard | KafkaError | None
"""The guard to use when appending the batch, or the error that refuses the batch. None if no guard is needed."""

VerificationResults = Mapping[TopicPartition, VerificationResult]


class VerificationSettings(Protocol):
    """The settings of verification. They are read each time they are used, because
    `transaction_partition_verification_enable` may change while the broker runs."""

    @property
    def transaction_partition_verification_enable(self) -> bool: ...
    @property
    def add_partitions_to_txn_retry_backoff_ms(self) -> int: ...
    @property
    def add_partitions_to_txn_retry_backoff_max_ms(self) -> int: ...
    @property
    def request_timeout_ms(self) -> int: ...


class PartitionAdder(Protocol):
    """The method of the transaction coordinator that verification calls. It corresponds to AddPartitionsToTxn v4 and
    later, but returns refusals as error codes instead of raising them."""

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
        requested_version: int,
    ) -> NowOrLater[PartitionCodes]: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Verifier:
    def __init__(
        self,
        settings: VerificationSettings,
        clock: Clock,
        timers: Timers,
        *,
        coordinator: Callable[[], PartitionAdder | None],
        two_phase: TwoPhaseProducers | None = None,
    ) -> None:
        """Creates a verifier.

        coordinator  returns the coordinator of transactional ids, or None while the coordinator's topic does not exist
        two_phase    shows whether all transactional ids are loaded; None if they always are
        """
        self.settings = settings
        self.clock = clock
        self.timers = timers
        self.coordinator = coordinator
        self.two_phase = TwoPhaseProducers(are_all_known=True) if two_phase is None else two_phase
        # For metrics: the number of coordinator responses, their total duration, and the number of partitions that
        # failed verification.
        self.answered = self.answered_ms = self.failed = 0

    def asks_for(self, adds: bool) -> bool:
        """Returns whether the coordinator must be called. `adds` means that the client relies on the broker to add
        partitions."""
        return adds or self.settings.transaction_partition_verification_enable or not self.two_phase.are_all_known

    def verify_now(
        self, transactional_id: str, header: BatchHeader, partition: Partition, adds: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Returns the guard to use when appending a batch, or None if no guard is needed. Raises KafkaError unless the
        coordinator confirms the batch immediately. After an error, the caller uses `verify`, which calls the
        coordinator again and determines the precise error."""
        is_enabled = self.settings.transaction_partition_verification_enable
        are_all_known = self.two_phase.are_all_known
        if not adds and not is_enabled and are_all_known:
            return None
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        guard = partition.log.begin_verification(
            producer_id, producer_epoch, header.base_sequence, supports_epoch_bump=adds, now_ms=now_ms
        )
        if guard is not NO_GUARD or not are_all_known:
            coordinator = self.coordinator()
            if coordinator is None:
                raise KafkaError(E.COORDINATOR_NOT_AVAILABLE)
            key = partition.topic, partition.index
            codes = coordinator.add_partitions(
                transactional_id,
                producer_id,
                producer_epoch,
                (key,),
                verify_only=not adds,
                requested_version=2 if adds else 0,
            )
            if isinstance(codes, Deferred):
                raise KafkaError(RETRIABLE_SOON)
            if codes[key] is not E.NONE:  # the caller then uses `verify`, which distinguishes between refusals
                raise KafkaError(codes[key])
            self.answered += 1
            self.answered_ms += self.clock.now_ms() - now_ms
        return guard if is_enabled else None

    def verify(
        self,
        producer: TransactionalProducer,
        batches: Sequence[UnverifiedBatch],
        adds: bool,
        then: Callable[[VerificationResults], None],
        *,
        waits_for_the_last: bool,
    ) -> None:
        """Calls `then`, usually immediately, with a result for each batch's partition.

        waits_for_the_last  whether to retry for a limited time until the previous transaction is complete; only used if
                            `adds` is set
        """
        if not self.asks_for(adds):
            then({(each.partition.topic, each.partition.index): None for each in batches})
            return
        start_unattended(self._verify(producer, batches, adds, then, may_repeat=waits_for_the_last and adds))

    async def _verify(
        self,
        producer: TransactionalProducer,
        batches: Sequence[UnverifiedBatch],
        adds: bool,
        then: Callable[[VerificationResults], None],
        *,
        may_repeat: bool,
    ) -> None:
        since_ms, settings = self.clock.now_ms(), self.settings
        window_ms = min(settings.add_partitions_to_txn_retry_backoff_max_ms, settings.request_timeout_ms)
        # All steps are repeated, because a transaction may have been opened in the partition, or the producer fenced,
        # while this coroutine was waiting.
        while True:
            guards, results = self._begin_verification(producer, batches, adds)
            unknown = [
                key for key, guard in guards.items() if guard is not NO_GUARD or not self.two_phase.are_all_known
            ]
            codes: PartitionCodes = await self._ask_coordinator(producer, unknown, adds) if unknown else {}
            is_worth_repeating = may_repeat and RETRIABLE_SOON in codes.values()
            if not is_worth_repeating or self.clock.now_ms() - since_ms >= window_ms:
                break
            await sleep(self.timers, settings.add_partitions_to_txn_retry_backoff_ms)
        is_enabled = settings.transaction_partition_verification_enable
        for key, guard in guards.items():
            code = codes.get(key, E.NONE)
            if code is E.NONE or (not is_enabled and not adds and code not in UNREACHABLE):
                results[key] = guard if is_enabled else None
            else:
                results[key] = KafkaError(code)
        then(results)

    def _begin_verification(
        self, producer: TransactionalProducer, batches: Sequence[UnverifiedBatch], adds: bool
    ) -> tuple[dict[TopicPartition, VerificationGuard], dict[TopicPartition, VerificationResult]]:
        """Returns the guard of each partition, and the errors of partitions whose logs have fenced the producer."""
        guards: dict[TopicPartition, VerificationGuard] = {}
        refused: dict[TopicPartition, VerificationResult] = {}
        for batch in batches:
            partition = batch.partition
            key = partition.topic, partition.index
            try:
                guards[key] = partition.log.begin_verification(
                    producer.producer_id,
                    producer.producer_epoch,
                    batch.base_sequence,
                    supports_epoch_bump=adds,
                    now_ms=self.clock.now_ms(),
                )
            except KafkaError as fenced:
                refused[key] = fenced
        return guards, refused

    async def _ask_coordinator(
        self, producer: TransactionalProducer, unknown: Sequence[TopicPartition], adds: bool
    ) -> PartitionCodes:
        """Calls the coordinator for the unverified partitions and counts the response for the metrics."""
        asked_ms = self.clock.now_ms()
        coordinator = self.coordinator()
        if coordinator is None:
            codes: PartitionCodes = dict.fromkeys(unknown, E.COORDINATOR_NOT_AVAILABLE)
        else:
            answer = coordinator.add_partitions(
                *producer, unknown, verify_only=not adds, requested_version=2 if adds else 0
            )
            codes = await answer if isinstance(answer, Deferred) else answer
        self.answered += 1
        self.answered_ms += self.clock.now_ms() - asked_ms
        self.failed += sum(code is not E.NONE for code in codes.values())
        return codes
