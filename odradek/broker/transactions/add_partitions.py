"""AddPartitionsToTxn, AddOffsetsToTxn and the verification requests of partition leaders: adding partitions.

Source: docs/spec/transactions.md#s2-3, #s2-4, #s3-7.
"""

from __future__ import annotations

from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.tables import ADD_PARTITIONS, VERIFY_PARTITIONS, Cell, Claim, TxnState
from odradek.broker.transactions.transitions import added
from odradek.broker.transactions.turn import Moment
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition


def claim_of(txn: Txn, producer_id: int, producer_epoch: int) -> Claim:
    known_id, known_epoch = txn.client_pair
    if producer_id != known_id:
        return Claim.OTHER_ID
    return Claim.CURRENT if producer_epoch == known_epoch else Claim.OTHER_EPOCH


def add_partitions(
    txn: Txn,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    asked_version: int,
    moment: Moment,
) -> Txn | None:
    """The entry to be recorded; None where all of them take part already. Raises KafkaError."""
    _accept(ADD_PARTITIONS[txn.row][claim_of(txn, producer_id, producer_epoch)])
    if txn.state is TxnState.ONGOING and partitions <= txn.partitions:
        return None
    return added(
        txn,
        partitions,
        asked_version=asked_version,
        now_ms=moment.now_ms,
        transaction_version=moment.transaction_version,
    )


def verify_partitions(
    txn: Txn, producer_id: int, producer_epoch: int, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """What is to be told of each. Raises KafkaError."""
    _accept(VERIFY_PARTITIONS[txn.row][claim_of(txn, producer_id, producer_epoch)])
    return {each: ErrorCode.NONE if each in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}


def _accept(verdict: Cell) -> None:
    if isinstance(verdict, ErrorCode):
        raise KafkaError(verdict)
