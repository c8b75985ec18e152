"""Decides requests from producers and administrators that concern a transactional id's entry.

InitProducerId assigns a producer id and epoch to the owner. AddPartitionsToTxn, AddOffsetsToTxn and requests from
partition leaders add or verify partitions. EndTxn commits or aborts a transaction, and its decision is final.
DescribeTransactions and ListTransactions return entries. Except for refusals by `check_request`, every refusal comes
from a grid cell in `tables`. Refusals are raised as KafkaError. Source: docs/spec/transactions.md#s2-2 to #s2-5,
#s2-10, #s2-11, #s3-2 to #s3-4, #s3-7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from odradek.broker.transactions.entry import (
    NEVER_MS,
    ProducerIdNeeded,
    Txn,
    assign_next_epoch,
    client_version,
    is_exhausted,
    keep_transaction,
    prepare_end_v0,
    prepare_end_v2,
    record_partitions,
    repeat_initialisation,
)
from odradek.broker.transactions.tables import (
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_KEEPING,
    INIT_PRODUCER_ID_TWO_PHASE,
    KAFKA_NAMES,
    VERIFY_PARTITIONS,
    Cell,
    Claim,
    TxnState,
    TxnVerdict,
)
from odradek.broker.transactions.turn import DecisionInputs, TransactionConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_transactions_response import TopicData, TransactionState
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_transactions_response import TransactionState as ListedTransaction
from odradek.protocol.topic_partition import TopicPartition

NONE: Final = -1  # represents a missing id, epoch or time
# First level of transaction.version that supports KeepPreparedTxn.
FIRST_LEVEL_WITH_KEPT_PREPARED: Final = 2
STATES_BY_NAME: Final = {name: state for state, name in KAFKA_NAMES.items()}


# InitProducerId.


def check_request(request: InitProducerIdRequest, config: TransactionConfig, transaction_version: int) -> None:
    """Raises KafkaError if the request is invalid in every state of the transactional id."""
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc and not config.transaction_two_phase_commit_enable:
        reason = "Enable2Pc is refused while transaction.two.phase.commit.enable is false."
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason)
    if request.keep_prepared_txn and transaction_version < FIRST_LEVEL_WITH_KEPT_PREPARED:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if not request.enable2_pc and not 0 < request.transaction_timeout_ms <= config.transaction_max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def timeout_ms(request: InitProducerIdRequest) -> int:
    """Returns the timeout that applies to the producer's future transactions."""
    return NEVER_MS if request.enable2_pc else request.transaction_timeout_ms


def init_claim(txn: Txn, request: InitProducerIdRequest) -> Claim:
    """Compares the producer id and epoch in the request with the stored producer id and epoch."""
    if request.producer_id == NONE:
        return Claim.NONE
    if txn.is_kept:
        producer_id, producer_epoch = txn.client_pair
        if request.producer_id != producer_id:
            return Claim.OTHER_ID
        return Claim.CURRENT if request.producer_epoch == producer_epoch else Claim.OTHER_EPOCH
    if txn.producer_epoch is None:
        return Claim.CURRENT  # no client has received the producer id yet
    is_own = request.producer_id == txn.producer_id
    was_rotated = request.producer_id == txn.previous_producer_id and is_exhausted(request.producer_epoch)
    if not is_own and not was_rotated:
        return Claim.OTHER_ID
    if is_own and request.producer_epoch == txn.producer_epoch:
        return Claim.CURRENT
    return Claim.RETRY if request.producer_epoch == txn.last_producer_epoch else Claim.OTHER_EPOCH


def init_producer_id(txn: Txn, request: InitProducerIdRequest, inputs: DecisionInputs) -> Txn | ProducerIdNeeded | None:
    """Returns the entry to record for the owner. Returns None if the open transaction must be aborted first, or
    PRODUCER_ID_NEEDED if the epochs are used up and `inputs` contains no new producer id. Raises KafkaError if the
    request is refused."""
    claim = init_claim(txn, request)
    usual = INIT_PRODUCER_ID_TWO_PHASE if txn.is_two_phase else INIT_PRODUCER_ID
    grid = INIT_PRODUCER_ID_KEEPING if request.keep_prepared_txn else usual
    verdict = grid[txn.row][claim]
    match verdict:
        case ErrorCode():
            raise KafkaError(verdict)
        case TxnVerdict.FENCE:
            return None
        case TxnVerdict.KEEP:
            return keep_transaction(
                txn, timeout_ms=timeout_ms(request), now_ms=inputs.now_ms, new_producer_id=inputs.new_producer_id
            )
        case TxnVerdict.AGAIN:
            return repeat_initialisation(
                txn,
                timeout_ms=timeout_ms(request),
                now_ms=inputs.now_ms,
                transaction_version=inputs.transaction_version,
            )
        case _:
            return assign_next_epoch(
                txn,
                timeout_ms=timeout_ms(request),
                keeps_last_epoch=claim is not Claim.NONE,
                now_ms=inputs.now_ms,
                transaction_version=inputs.transaction_version,
                new_producer_id=inputs.new_producer_id,
            )


# AddPartitionsToTxn and similar requests.


def adding_claim(txn: Txn, producer_id: int, producer_epoch: int) -> Claim:
    known_id, known_epoch = txn.client_pair
    if producer_id != known_id:
        return Claim.OTHER_ID
    return Claim.CURRENT if producer_epoch == known_epoch else Claim.OTHER_EPOCH


def add_partitions(
    txn: Txn,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    requested_version: int,
    inputs: DecisionInputs,
) -> Txn | None:
    """Returns the entry to record, or None if all partitions have already been added. Raises KafkaError if the request
    is refused."""
    _accept(ADD_PARTITIONS[txn.row][adding_claim(txn, producer_id, producer_epoch)])
    if txn.state is TxnState.ONGOING and partitions <= txn.partitions:
        return None
    return record_partitions(
        txn,
        partitions,
        requested_version=requested_version,
        now_ms=inputs.now_ms,
        transaction_version=inputs.transaction_version,
    )


def verify_partitions(
    txn: Txn, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Returns an error code for each partition: NONE if the partition is in the transaction, otherwise
    TRANSACTION_ABORTABLE, because the producer can still abort the transaction. Raises KafkaError if the request is
    refused. Source: docs/spec/transactions.md#s2-3, row 7"""
    _accept(VERIFY_PARTITIONS[txn.row][adding_claim(txn, producer_id, producer_epoch)])
    return {each: ErrorCode.NONE if each in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}


def sealed_code(txn: Txn, producer_id: int, producer_epoch: int) -> ErrorCode:
    """Returns the error code for a request that would change a sealed transaction. While the transaction is open, it is
    the error code that `verify_partitions` raises. Once the transaction is decided, the error code depends on whether
    the producer's epoch is outdated."""
    if txn.is_prepared:
        assert txn.producer_epoch is not None
        # A newer producer id and epoch belong to the next transaction, which has to wait until the markers of this
        # transaction are written.
        return ErrorCode.PRODUCER_FENCED if producer_epoch < txn.producer_epoch else ErrorCode.CONCURRENT_TRANSACTIONS
    cell = VERIFY_PARTITIONS[txn.row][adding_claim(txn, producer_id, producer_epoch)]
    assert isinstance(cell, ErrorCode), "partitions cannot be verified while a transaction is kept"
    return cell


def _accept(verdict: Cell) -> None:
    if isinstance(verdict, ErrorCode):
        raise KafkaError(verdict)


# EndTxn.


def end_claim(txn: Txn, request: EndTxnRequest, version: int) -> Claim:
    producer_id, producer_epoch = request.producer_id, request.producer_epoch
    known_id, known_epoch = txn.client_pair
    may_be_retry = version == 2 and not txn.is_kept  # a request from an earlier owner is not a retry
    if producer_id != known_id:
        was_rotated = producer_id == txn.previous_producer_id and is_exhausted(producer_epoch) and known_epoch == 0
        return Claim.RETRY if may_be_retry and was_rotated else Claim.OTHER_ID
    if producer_epoch == known_epoch:
        return Claim.CURRENT
    # Only ending a transaction under version 2 bumps the epoch for the same producer. InitProducerId also bumps the
    # epoch, but for another producer.
    if may_be_retry and txn.client_version == 2 and producer_epoch + 1 == known_epoch:
        return Claim.RETRY
    return Claim.OTHER_EPOCH


def end_txn(
    txn: Txn, request: EndTxnRequest, requested_version: int, inputs: DecisionInputs
) -> Txn | ProducerIdNeeded | None:
    """Returns the entry to record. Returns None for a retry, whose response contains the current producer id and epoch.
    Returns PRODUCER_ID_NEEDED if the epochs are used up and `inputs` contains no new producer id. Raises KafkaError if
    the request is refused.

    requested_version  the transaction version of the request: 2 for EndTxn v5 and later, otherwise 0
    """
    version = requested_version if txn.is_kept else client_version(requested_version, inputs.transaction_version)
    verdict = END_TXN[request.committed, version][txn.row][end_claim(txn, request, version)]
    match verdict:
        case ErrorCode():
            raise KafkaError(verdict)
        case TxnVerdict.AGAIN:
            return None
    state = TxnState.PREPARE_COMMIT if verdict is TxnVerdict.COMMIT else TxnState.PREPARE_ABORT
    if version == 0:
        return prepare_end_v0(txn, state, inputs.now_ms)
    return prepare_end_v2(txn, state, inputs.now_ms, inputs.new_producer_id)


# DescribeTransactions and ListTransactions.


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """The filter of a ListTransactions request.

    states         the states to include; None for any state
    producer_ids   the producer ids to include; empty for any producer id
    older_than_ms  minimum age of the transaction; ids without a transaction also match, because Kafka uses -1 as their
                   start time
    """

    states: frozenset[TxnState] | None = None
    producer_ids: frozenset[int] = frozenset()
    older_than_ms: int | None = None

    def selects(self, txn: Txn, now_ms: int) -> bool:
        started_ms = NONE if txn.started_ms is None else txn.started_ms
        return (
            (self.states is None or txn.state in self.states)
            and (not self.producer_ids or txn.producer_id in self.producer_ids)
            and (self.older_than_ms is None or now_ms - started_ms > self.older_than_ms)
        )


def states_of(names: Sequence[str]) -> tuple[frozenset[TxnState] | None, list[str]]:
    """Returns the named states, or None if no names are given, and a list of the unknown names."""
    unknown = [name for name in names if name not in STATES_BY_NAME]
    known = frozenset(STATES_BY_NAME[name] for name in names if name in STATES_BY_NAME)
    return (known if names else None), unknown


def describe_transaction(txn: Txn, partitions: frozenset[TopicPartition]) -> TransactionState:
    """Describes a transaction. `partitions` are the partitions of the transaction or, once it is decided, the
    partitions that still need a marker."""
    return TransactionState(
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.kafka_name,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=NONE if txn.started_ms is None else txn.started_ms,
        producer_id=txn.producer_id,
        producer_epoch=NONE if txn.producer_epoch is None else txn.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=[partition for _, partition in members])
            for topic, members in groupby(sorted(partitions), key=lambda each: each[0])
        ],
    )


def list_entry(txn: Txn) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=txn.transactional_id, producer_id=txn.producer_id, transaction_state=txn.state.kafka_name
    )
