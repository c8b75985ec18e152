"""The core of the transaction coordinator for the transactional ids in one partition of `__transaction_state`. It only
makes decisions: it uses no clock, opens no files and never waits.

    EMPTY, COMPLETE_* → ONGOING → PREPARE_COMMIT or PREPARE_ABORT → markers in every partition → COMPLETE_*

A loaded core changes in exactly two ways. `replay` applies a log record. `settle` applies the part of a decision that
is kept only in memory, once the decision's records are in the log: the markers that still have to be written, the
requests waiting for the end of a transaction, the transactions that are complete but not yet recorded as such, and the
producer id of a transactional id that has no record. A request method only makes a decision. Its caller appends
`Outcome.records`, replays them and calls `settle`. If the entire request is refused, the method raises `KafkaError`. In
addition, `on_loaded` finishes loading and makes the core's seals visible to the partitions, and `unload` ends the use
of the core.

A decided transaction needs a marker in each of its partitions. The caller sends `Outcome.markers` and reports the
result to `markers_written` in a separate turn. A timer retries failed markers indefinitely. After the last marker the
transaction is complete. The completion is recorded together with the next record of the same transactional id, or after
a short delay if there is none (ADR 23). If the broker restarts before the completion is recorded, the markers are sent
again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, MutableSet
from typing import Final, TypeVar

from mypy_extensions import mypyc_attr

from odradek.broker.transactions.entry import (
    PRODUCER_ID_NEEDED,
    ProducerIdNeeded,
    TransactionTombstone,
    Txn,
    TxnRecord,
    complete_transaction,
    next_epoch,
    next_pair,
    prepare_fence,
    without_topic,
)
from odradek.broker.transactions.producers import Seals
from odradek.broker.transactions.requests import (
    TransactionFilter,
    add_partitions,
    describe_transaction,
    end_txn,
    init_producer_id,
    timeout_ms,
    verify_partitions,
)
from odradek.broker.transactions.tables import EXPIRABLE, TxnState
from odradek.broker.transactions.turn import (
    DecisionInputs,
    Outcome,
    OverdueFate,
    PendingMarkers,
    Reply,
    Timer,
    Token,
    TransactionConfig,
)
from odradek.protocol.batch_header import NO_PRODUCER_ID
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_transactions_response import TransactionState
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.topic_partition import PartitionCodes, TopicPartition

MARKER_RETRY_MS: Final = 100
COMPLETIONS: Final = ""  # key of the timer that records completions; transactional ids are never empty
NOTHING: Final[frozenset[TopicPartition]] = frozenset()
# A ListTransactions request for ongoing transactions only has to examine the few ids with an open transaction. Spark's
# sinks send this request with each batch, so it must be fast.
ONLY_ONGOING: Final = frozenset({TxnState.ONGOING})

R = TypeVar("R")


@mypyc_attr(allow_interpreted_subclasses=True)
class TransactionCore:
    def __init__(
        self,
        config: TransactionConfig,
        *,
        coordinator_epoch: int,
        is_deleted: Callable[[str], bool] = lambda topic: False,
        two_phase: MutableSet[int] | None = None,
        seals: Seals | None = None,
    ) -> None:
        """Creates an empty core.

        coordinator_epoch  the epoch in markers, higher than the epoch of every earlier core of this partition
        is_deleted         returns whether a topic in the records has been deleted, even if a new topic has the same
                           name; called right after loading
        two_phase          the producer ids that use Enable2Pc, shared with other cores
        seals              the sealed transactions, shared with other cores
        """
        self._config = config
        self._is_deleted = is_deleted
        self._coordinator_epoch = coordinator_epoch
        self._two_phase = set() if two_phase is None else two_phase
        # During loading, a record may seal a transaction that a later record completes, so partitions do not see the
        # seals until loading has finished.
        self._seals = Seals()
        self._known_seals = self._seals if seals is None else seals
        self._txns: dict[str, Txn] = {}
        self._ongoing: dict[str, None] = {}
        # The partitions of decided transactions that still need a marker, by transactional id.
        self._remaining: dict[str, frozenset[TopicPartition]] = {}
        self._awaited: dict[str, Reply] = {}
        self._completed: dict[str, Txn] = {}  # completed entries, as they will be recorded
        self._records_completions_soon = False  # whether the COMPLETIONS timer is armed

    # State.

    def replay(self, record: TxnRecord, record_offset: int = 0, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies a log record, both during loading and while the broker runs."""
        transactional_id = record.transactional_id
        self._remaining.pop(transactional_id, None)
        self._ongoing.pop(transactional_id, None)
        self._completed.pop(transactional_id, None)
        before = self._txns.get(transactional_id)
        if before is not None:
            if before.is_two_phase:
                self._two_phase.discard(before.producer_id)
            if before.is_sealed:
                self._seals.remove(before)
        if isinstance(record, TransactionTombstone):
            self._txns.pop(transactional_id, None)
            return
        self._txns[transactional_id] = record
        if record.is_two_phase:
            self._two_phase.add(record.producer_id)
        if record.is_sealed:
            self._seals.add(record)
        if record.is_prepared:
            self._remaining[transactional_id] = record.partitions
        elif record.state is TxnState.ONGOING:
            self._ongoing[transactional_id] = None

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Does nothing, because a marker in the coordinator's own partition does not affect its state. The log can
        contain such markers, because clients can make Kafka write them."""

    def settle(self, outcome: Outcome[object]) -> None:
        """Applies the part of the outcome that its records do not contain. Called after the records have been
        replayed."""
        if outcome.reserved is not None:
            self._txns[outcome.reserved.transactional_id] = outcome.reserved
        if outcome.remaining is not None:
            self._remaining.update(outcome.remaining)
        if outcome.completed is not None:
            self._remaining.pop(outcome.completed.transactional_id, None)
            decided = self._txns[outcome.completed.transactional_id]
            if decided.is_sealed:
                self._seals.remove(decided)
            self._completed[outcome.completed.transactional_id] = outcome.completed
        for timer in outcome.timers:
            if timer.key == COMPLETIONS:
                self._records_completions_soon = timer.delay_ms is not None
        if outcome.awaited is not None:
            for transactional_id, reply in outcome.awaited.items():
                if reply is None:
                    self._awaited.pop(transactional_id, None)
                else:
                    self._awaited[transactional_id] = reply

    def on_loaded(self, now_ms: int) -> Outcome[None]:
        """Finishes loading: makes this core's seals visible to the partitions, resumes decided transactions, and
        removes deleted topics that a crash left in the records."""
        self._known_seals.by_producer.update(self._seals.by_producer)
        self._seals = self._known_seals
        forgotten = self._without_topics(self._is_deleted)
        left = {txn.transactional_id: txn.partitions for txn in forgotten}
        markers = [
            self._pending_markers(self._txns[each], left.get(each, partitions))
            for each, partitions in self._remaining.items()
        ]
        must_sync = any(self._txns[each].is_two_phase for each in self._remaining)
        return Outcome(records=forgotten, markers=markers, may_split=True, must_sync=must_sync)

    def on_timer(self, key: str, now_ms: int) -> Outcome[None]:
        """Retries failed markers, or records completions."""
        if key == COMPLETIONS:
            return self.record_completions()
        if key not in self._remaining:
            return Outcome()
        txn = self._txns[key]
        return Outcome(markers=(self._pending_markers(txn, self._remaining[key]),), must_sync=txn.is_two_phase)

    def unload(self, code: ErrorCode) -> list[Reply]:
        """Returns replies that refuse all waiting requests. Called when this broker no longer coordinates these ids.
        The core must not be used afterwards."""
        refusal = EndTxnResponse(error_code=code.value)
        replies = [Reply(reply.token, refusal) for reply in self._awaited.values()]
        self._awaited.clear()
        return replies

    # Requests.

    def init_producer_id(
        self, request: InitProducerIdRequest, inputs: DecisionInputs
    ) -> Outcome[InitProducerIdResponse]:
        """Decides an InitProducerId request that has passed `check_request`. An unknown transactional id first needs a
        producer id; see `reserve`."""
        assert request.transactional_id is not None
        txn = self.txn(request.transactional_id)
        if txn is None:
            return Outcome(needs_producer_id=True)
        owned = init_producer_id(txn, request, inputs)
        if owned is PRODUCER_ID_NEEDED:
            return Outcome(needs_producer_id=True)
        if owned is None:
            refusal = InitProducerIdResponse(
                error_code=ErrorCode.CONCURRENT_TRANSACTIONS.value, producer_id=-1, producer_epoch=-1
            )
            return self._decision_outcome(self._prepare_fence(txn, inputs), refusal)
        # Records that were written before the owner requested Enable2Pc, or before a crash, may still be only in the
        # page cache.
        to_sync = owned.partitions if owned.is_kept and owned.is_two_phase else NOTHING
        records = self._with_completion(owned)
        return Outcome(init_producer_id_response(owned), records=records, must_sync=owned.is_two_phase, to_sync=to_sync)

    def reserve(self, request: InitProducerIdRequest, producer_id: int, now_ms: int) -> Outcome[None]:
        """Reserves a producer id for an unknown transactional id until `init_producer_id` records it. Does nothing if
        the transactional id already has a producer id."""
        transactional_id = request.transactional_id
        assert transactional_id is not None
        if transactional_id in self._txns:
            return Outcome()
        return Outcome(reserved=Txn(transactional_id, producer_id, None, timeout_ms(request), updated_ms=now_ms))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        *,
        requested_version: int,
        inputs: DecisionInputs,
    ) -> Outcome[PartitionCodes]:
        """Adds partitions to a transaction.

        requested_version  the transaction version of the request: 2 if a Produce or an offset commit adds the
                           partition itself, otherwise 0
        """
        txn = self._require(transactional_id)
        grown = add_partitions(txn, producer_id, producer_epoch, partitions, requested_version, inputs)
        codes = dict.fromkeys(partitions, ErrorCode.NONE)
        records = () if grown is None else self._with_completion(grown)
        return Outcome(codes, records=records, must_sync=txn.is_two_phase)

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]
    ) -> Outcome[PartitionCodes]:
        """Returns an error code for each partition: NONE if the partition is part of the transaction. Records
        nothing."""
        txn = self._require(transactional_id)
        return Outcome(verify_partitions(txn, producer_id, producer_epoch, partitions), must_sync=txn.is_two_phase)

    def end_txn(
        self, request: EndTxnRequest, token: Token, *, requested_version: int, inputs: DecisionInputs
    ) -> Outcome[EndTxnResponse]:
        """Decides how a transaction ends; see `requests.end_txn`. The request that `token` represents is answered when
        all markers have been written, or as soon as a marker is reported as refused or still pending."""
        txn = self._require(request.transactional_id)
        decided = end_txn(txn, request, requested_version, inputs)
        if decided is PRODUCER_ID_NEEDED:
            return Outcome(needs_producer_id=True)
        if decided is None:
            return Outcome(end_txn_response(txn, requested_version), must_sync=txn.is_two_phase)
        awaited = {request.transactional_id: Reply(token, end_txn_response(decided, requested_version))}
        return self._decision_outcome(decided, None, awaited)

    def markers_written(
        self,
        markers: PendingMarkers,
        written: frozenset[TopicPartition],
        inputs: DecisionInputs,
        pending: frozenset[TopicPartition] = NOTHING,
    ) -> Outcome[int]:
        """Processes the result of sending markers. The response is the number of partitions that still need a marker.

        written  partitions whose marker is in the log or no longer needed
        pending  partitions whose marker is still being written; the sender will report their result later
        """
        transactional_id = markers.transactional_id
        txn = self.txn(transactional_id)
        if (
            txn is None
            or not txn.is_prepared
            or markers.coordinator_epoch != self._coordinator_epoch
            or (txn.producer_id, txn.producer_epoch) != (markers.producer_id, markers.producer_epoch)
        ):
            return Outcome(0)  # these markers belong to an earlier decision
        remaining = self._remaining[transactional_id] - written
        if remaining:
            retry_ms = None if remaining <= pending else MARKER_RETRY_MS
            return self._answer_before_markers(transactional_id, len(remaining), retry_ms, remaining)
        complete = complete_transaction(txn, now_ms=inputs.now_ms, transaction_version=inputs.transaction_version)
        delay_ms = self._config.completion_delay_ms
        timers = [Timer(transactional_id, None)]
        if delay_ms > 0 and not self._records_completions_soon:
            timers.append(Timer(COMPLETIONS, delay_ms))
        return Outcome(
            0,
            records=() if delay_ms > 0 else (complete,),
            completed=complete if delay_ms > 0 else None,
            replies=self._waiting_replies(transactional_id),
            timers=timers,
            awaited={transactional_id: None},
        )

    def send_later(self, transactional_id: str) -> Outcome[None]:
        """Answers the waiting request, because the decision is recorded, and sends the markers again later."""
        return self._answer_before_markers(transactional_id, None, MARKER_RETRY_MS)

    def _answer_before_markers(
        self,
        transactional_id: str,
        response: R,
        retry_ms: int | None,
        remaining: frozenset[TopicPartition] | None = None,
    ) -> Outcome[R]:
        """Answers the request waiting for the transaction to end, even though some partitions still need a marker.

        response   the response to send in the current turn
        retry_ms   delay before markers are sent again; None if no marker has to be sent again
        remaining  the partitions that still need a marker; None if they have not changed
        """
        return Outcome(
            response,
            replies=self._waiting_replies(transactional_id),
            timers=(Timer(transactional_id, retry_ms),),
            awaited={transactional_id: None},
            remaining=None if remaining is None else {transactional_id: remaining},
        )

    # Actions of timers and other internal events.

    def timed_out(self, now_ms: int) -> list[str]:
        """Returns the transactional ids whose transaction has timed out."""
        return [each for each in self._ongoing if self._txns[each].is_timed_out(now_ms)]

    def times_out_ms(self) -> int | None:
        """Returns the time of the next transaction timeout, or None if no open transaction can time out."""
        times_ms = (self._txns[each].times_out_ms for each in self._ongoing)
        return min((each for each in times_ms if each is not None), default=None)

    def abort_timed_out(self, transactional_id: str, inputs: DecisionInputs) -> Outcome[bool]:
        """Aborts the transaction if it has timed out and is still open."""
        txn = self._txns.get(transactional_id)
        if txn is None or not txn.is_timed_out(inputs.now_ms):
            return Outcome(False)
        return self._decision_outcome(self._prepare_fence(txn, inputs), True)

    def abort_overdue(
        self, transactional_id: str, producer_id: int, producer_epoch: int, inputs: DecisionInputs
    ) -> Outcome[OverdueFate]:
        """Aborts a transaction as if it had timed out. Called when the transaction acknowledges share-group records
        whose locks have expired.

        producer_epoch  the producer epoch in the transaction's records
        """
        txn = self.txn(transactional_id)
        if txn is None or txn.producer_id != producer_id:
            return Outcome(OverdueFate.OVER)
        if txn.is_prepared and txn.producer_epoch in (producer_epoch, next_epoch(producer_epoch)):
            return Outcome(OverdueFate.ENDING, must_sync=txn.is_two_phase)
        if txn.state is not TxnState.ONGOING or txn.producer_epoch != producer_epoch:
            return Outcome(OverdueFate.OVER)
        if txn.is_two_phase:
            return Outcome(OverdueFate.PENDING)
        return self._decision_outcome(self._prepare_fence(txn, inputs), OverdueFate.ENDING)

    def expire(self, now_ms: int, at_most: int | None = None) -> Outcome[None]:
        """Removes transactional ids that have been unused for `transactional.id.expiration.ms`, or for the time in a
        matching expiration rule."""
        expiration_ms = self._config.expiration_ms
        expired: list[TransactionTombstone] = []
        for txn in self._txns.values():
            if txn.state in EXPIRABLE and txn.updated_ms <= now_ms - expiration_ms(txn.transactional_id):
                expired.append(TransactionTombstone(txn.transactional_id))
                if len(expired) == at_most:
                    break
        return Outcome(records=expired, may_split=True)

    def expires_ms(self) -> int | None:
        """Returns the time at which the next transactional id expires, or None if no id can expire."""
        expiration_ms = self._config.expiration_ms
        expirable = (txn for txn in self._txns.values() if txn.state in EXPIRABLE)
        return min((txn.updated_ms + expiration_ms(txn.transactional_id) for txn in expirable), default=None)

    def forget_topic(self, topic: str) -> Outcome[int]:
        """Removes a deleted topic from all transactions, so that no marker is written to a future topic with the same
        name, even after a power failure. The response is the number of transactions that contained partitions of the
        deleted topic."""
        left = self._without_topics(lambda each: each == topic)
        records = [*self._completed.values(), *left]
        return Outcome(len(left), records=records, may_split=True, must_sync=bool(records))

    def record_completions(self) -> Outcome[None]:
        """Records the completion of all transactions that are complete only in memory."""
        return Outcome(records=list(self._completed.values()), timers=(Timer(COMPLETIONS, None),), may_split=True)

    # Administration.

    def describe(self, transactional_id: str) -> TransactionState:
        txn = self.txn(transactional_id)
        if txn is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return describe_transaction(txn, self._remaining.get(transactional_id, txn.partitions))

    def candidates(self, selection: TransactionFilter) -> list[Txn]:
        """Returns at least the entries that a ListTransactions filter can select. The list may contain other entries
        too."""
        return [self._txns[name] for name in self._ongoing] if selection.states == ONLY_ONGOING else self.entries()

    @property
    def kept_count(self) -> int:
        """The number of open transactions that were kept for a new owner (KIP-939)."""
        return sum(self._txns[each].is_kept for each in self._ongoing)

    def open_time_max_ms(self, now_ms: int) -> int:
        """Returns the age of the oldest open transaction, or 0 if there is none. KIP-939 calls this metric
        `active-transaction-open-time-max`."""
        started_ms = [each for name in self._ongoing if (each := self._txns[name].started_ms) is not None]
        return max(0, now_ms - min(started_ms)) if started_ms else 0

    @property
    def open_count(self) -> int:
        """The number of transactions that are open, or decided but not yet recorded as complete."""
        return len(self._ongoing) + len(self._remaining) + len(self._completed)

    @property
    def open_partition_count(self) -> int:
        """The number of partitions in open transactions. A partition is counted once for each transaction that contains
        it (KIP-1289)."""
        return sum(len(self._txns[each].partitions) for each in self._ongoing)

    def entries(self) -> list[Txn]:
        """Returns the entries of all transactional ids."""
        return list((self._txns | self._completed).values() if self._completed else self._txns.values())

    def open_entries(self) -> list[Txn]:
        """Returns the entries whose transaction is open or decided but not complete."""
        return [self._txns[each] for each in (*self._ongoing, *self._remaining)]

    @property
    def id_count(self) -> int:
        return len(self._txns)

    def state_counts(self) -> Counter[TxnState]:
        """Returns the number of transactional ids in each state."""
        return Counter(txn.state for txn in self.entries())

    def txn(self, transactional_id: str) -> Txn | None:
        """Returns a transactional id's current entry, whether or not the entry has been recorded."""
        return self._completed.get(transactional_id) or self._txns.get(transactional_id)

    # Private methods.

    def _without_topics(self, is_deleted: Callable[[str], bool]) -> list[Txn]:
        """Returns the entries of transactions that contain partitions of deleted topics, with these partitions
        removed."""
        records = []
        for transactional_id in [*self._ongoing, *self._remaining]:
            txn = self._txns[transactional_id]
            partitions = self._remaining.get(transactional_id, txn.partitions)
            deleted = {topic for topic in {topic for topic, _ in partitions} if is_deleted(topic)}
            if deleted:
                records.append(without_topic(txn, frozenset(each for each in partitions if each[0] not in deleted)))
        return records

    def _require(self, transactional_id: str) -> Txn:
        if transactional_id == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        txn = self.txn(transactional_id)
        if txn is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return txn

    def _with_completion(self, record: Txn) -> tuple[Txn, ...]:
        """Returns the records to append: the new record, preceded by the completion of the previous transaction if the
        completion has not been written yet."""
        complete = self._completed.get(record.transactional_id)
        return (record,) if complete is None else (complete, record)

    def _prepare_fence(self, txn: Txn, inputs: DecisionInputs) -> Txn | ProducerIdNeeded:
        return prepare_fence(
            txn,
            now_ms=inputs.now_ms,
            transaction_version=inputs.transaction_version,
            new_producer_id=inputs.new_producer_id,
        )

    def _decision_outcome(
        self, decided: Txn | ProducerIdNeeded, response: R | None, awaited: Mapping[str, Reply | None] | None = None
    ) -> Outcome[R]:
        if decided is PRODUCER_ID_NEEDED:
            return Outcome(needs_producer_id=True)
        markers = (self._pending_markers(decided, decided.partitions),)
        records = self._with_completion(decided)
        return Outcome(response, records=records, markers=markers, awaited=awaited, must_sync=decided.is_two_phase)

    def _pending_markers(self, txn: Txn, partitions: frozenset[TopicPartition]) -> PendingMarkers:
        assert txn.producer_epoch is not None
        return PendingMarkers(
            txn.transactional_id,
            txn.producer_id,
            txn.producer_epoch,
            is_commit=txn.is_commit,
            transaction_version=txn.client_version,
            coordinator_epoch=self._coordinator_epoch,
            partitions=partitions,
            must_sync=txn.is_two_phase,
        )

    def _waiting_replies(self, transactional_id: str) -> tuple[Reply, ...]:
        reply = self._awaited.get(transactional_id)
        return () if reply is None else (reply,)


def init_producer_id_response(txn: Txn) -> InitProducerIdResponse:
    """Builds the response to InitProducerId, which contains the new producer id and epoch. If a transaction was kept,
    the response also contains the producer id and epoch in that transaction's records."""
    producer_id, producer_epoch = txn.client_pair
    assert producer_epoch is not None
    response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch)
    if txn.is_kept:
        assert txn.producer_epoch is not None
        response.ongoing_txn_producer_id = txn.producer_id
        response.ongoing_txn_producer_epoch = txn.producer_epoch
    return response


def end_txn_response(txn: Txn, requested_version: int) -> EndTxnResponse:
    """Builds the response to EndTxn. Under transaction version 2, the response contains the producer's next producer id
    and epoch. Under older versions it contains neither, because they do not change."""
    if requested_version != 2 or txn.client_version != 2:
        return EndTxnResponse()
    producer_id, producer_epoch = next_pair(txn)
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)
