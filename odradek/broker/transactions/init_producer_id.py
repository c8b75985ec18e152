"""InitProducerId for a transactional id: its new owner, and the producer id and epoch that the owner gets.

Source: docs/spec/transactions.md#s2-2, #s3-2 to #s3-4.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.transactions.entry import NEVER_MS, Txn, is_exhausted
from odradek.broker.transactions.tables import (
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_KEEPING,
    INIT_PRODUCER_ID_TWO_PHASE,
    Claim,
    Verdict,
)
from odradek.broker.transactions.transitions import initialised, initialised_again, kept
from odradek.broker.transactions.turn import Moment, ProducerIdNeeded, TransactionConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest

NONE: Final = -1
KEEPING_SINCE: Final = 2  # the level of transaction.version from which EndTxn can answer with another pair


def check_request(request: InitProducerIdRequest, config: TransactionConfig, transaction_version: int) -> None:
    """What is wrong with it, whatever is known of the id. Raises KafkaError."""
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc and not config.transaction_two_phase_commit_enable:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn and transaction_version < KEEPING_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if not request.enable2_pc and not 0 < request.transaction_timeout_ms <= config.transaction_max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def timeout_ms(request: InitProducerIdRequest) -> int:
    """Of the transactions that its producer is going to begin."""
    return NEVER_MS if request.enable2_pc else request.transaction_timeout_ms


def claim_of(txn: Txn, request: InitProducerIdRequest) -> Claim:
    """How the pair that the producer says it holds compares with the stored one."""
    if request.producer_id == NONE:
        return Claim.NONE
    if txn.is_kept:
        producer_id, producer_epoch = txn.client_pair
        if request.producer_id != producer_id:
            return Claim.OTHER_ID
        return Claim.CURRENT if request.producer_epoch == producer_epoch else Claim.OTHER_EPOCH
    if txn.producer_epoch is None:
        return Claim.CURRENT  # the id was never told to anybody
    is_own = request.producer_id == txn.producer_id
    was_rotated = request.producer_id == txn.previous_producer_id and is_exhausted(request.producer_epoch)
    if not is_own and not was_rotated:
        return Claim.OTHER_ID
    if is_own and request.producer_epoch == txn.producer_epoch:
        return Claim.CURRENT
    return Claim.RETRY if request.producer_epoch == txn.last_producer_epoch else Claim.OTHER_EPOCH


def init_producer_id(txn: Txn, request: InitProducerIdRequest, moment: Moment) -> Txn | ProducerIdNeeded | None:
    """The entry to be recorded for the owner; None where what is open must be aborted first.

    returns  PRODUCER_ID_NEEDED when the epochs are used up
    raises   KafkaError
    """
    claim = claim_of(txn, request)
    usual = INIT_PRODUCER_ID_TWO_PHASE if txn.is_two_phase else INIT_PRODUCER_ID
    grid = INIT_PRODUCER_ID_KEEPING if request.keep_prepared_txn else usual
    verdict = grid[txn.row][claim]
    match verdict:
        case ErrorCode():
            raise KafkaError(verdict)
        case Verdict.FENCE:
            return None
        case Verdict.KEEP:
            return kept(
                txn,
                timeout_ms=timeout_ms(request),
                now_ms=moment.now_ms,
                new_producer_id=moment.new_producer_id,
            )
        case Verdict.AGAIN:
            return initialised_again(
                txn,
                timeout_ms=timeout_ms(request),
                now_ms=moment.now_ms,
                transaction_version=moment.transaction_version,
            )
        case _:
            return initialised(
                txn,
                timeout_ms=timeout_ms(request),
                keeps_last_epoch=claim is not Claim.NONE,
                now_ms=moment.now_ms,
                transaction_version=moment.transaction_version,
                new_producer_id=moment.new_producer_id,
            )
