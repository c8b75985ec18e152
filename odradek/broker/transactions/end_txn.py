"""EndTxn: whether a transaction commits or aborts, decided once.

Source: docs/spec/transactions.md#s2-5, #s3-7.
"""

from __future__ import annotations

from odradek.broker.transactions.entry import Txn, is_exhausted
from odradek.broker.transactions.tables import END_TXN, Claim, TxnState, Verdict
from odradek.broker.transactions.transitions import client_version, prepared_0, prepared_2
from odradek.broker.transactions.turn import Moment, ProducerIdNeeded
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.end_txn_request import EndTxnRequest


def claim_of(txn: Txn, request: EndTxnRequest, version: int) -> Claim:
    producer_id, producer_epoch = request.producer_id, request.producer_epoch
    known_id, known_epoch = txn.client_pair
    may_be_retry = version == 2 and not txn.is_kept  # what was given to a recovery before the last one is no retry's
    if producer_id != known_id:
        was_rotated = producer_id == txn.previous_producer_id and is_exhausted(producer_epoch) and known_epoch == 0
        return Claim.RETRY if may_be_retry and was_rotated else Claim.OTHER_ID
    if producer_epoch == known_epoch:
        return Claim.CURRENT
    # Only an end under version 2 bumps; had InitProducerId bumped, this producer would have been replaced.
    if may_be_retry and txn.client_version == 2 and producer_epoch + 1 == known_epoch:
        return Claim.RETRY
    return Claim.OTHER_EPOCH


def end_txn(txn: Txn, request: EndTxnRequest, asked_version: int, moment: Moment) -> Txn | ProducerIdNeeded | None:
    """The decision to be recorded; None for a retry, to be answered with the pair as it is.

    asked_version  what the request's own version stands for: 2 from EndTxn v5 on, else 0
    returns        PRODUCER_ID_NEEDED when the epochs are used up
    raises         KafkaError
    """
    version = asked_version if txn.is_kept else client_version(asked_version, moment.transaction_version)
    verdict = END_TXN[request.committed, version][txn.row][claim_of(txn, request, version)]
    match verdict:
        case ErrorCode():
            raise KafkaError(verdict)
        case Verdict.AGAIN:
            return None
    state = TxnState.PREPARE_COMMIT if verdict is Verdict.COMMIT else TxnState.PREPARE_ABORT
    if version == 0:
        return prepared_0(txn, state, moment.now_ms)
    return prepared_2(txn, state, moment.now_ms, moment.new_producer_id)
