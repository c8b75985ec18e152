"""DescribeTransactions and ListTransactions: the entries of the coordinator, as administrators see them.

Source: docs/spec/transactions.md#s2-10, #s2-11.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.tables import KAFKA_NAMES, TxnState
from odradek.protocol.messages.describe_transactions_response import TopicData, TransactionState
from odradek.protocol.messages.list_transactions_response import TransactionState as ListedTransaction
from odradek.protocol.topic_partition import TopicPartition

NONE = -1
STATES_BY_NAME = {name: state for state, name in KAFKA_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which transactional ids are wanted.

    states        None: whatever the state
    producer_ids  empty: whatever the producer id
    older_than_ms Of the transaction's start. Ids without one pass, as in Kafka: it takes them to have begun at -1
    matches       the whole id
    """

    states: frozenset[TxnState] | None = None
    producer_ids: frozenset[int] = frozenset()
    older_than_ms: int | None = None
    matches: Callable[[str], bool] | None = None

    def selects(self, txn: Txn, now_ms: int) -> bool:
        started_ms = NONE if txn.started_ms is None else txn.started_ms
        return (
            (self.states is None or txn.state in self.states)
            and (not self.producer_ids or txn.producer_id in self.producer_ids)
            and (self.older_than_ms is None or now_ms - started_ms > self.older_than_ms)
            and (self.matches is None or self.matches(txn.transactional_id))
        )


def states_of(names: Sequence[str]) -> tuple[frozenset[TxnState] | None, list[str]]:
    """The states that are named, None if none was asked for; and the names that name none."""
    unknown = [name for name in names if name not in STATES_BY_NAME]
    known = frozenset(STATES_BY_NAME[name] for name in names if name in STATES_BY_NAME)
    return (known if names else None), unknown


def described(txn: Txn, partitions: frozenset[TopicPartition]) -> TransactionState:
    """`partitions` that take part, or that still owe their marker."""
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


def listed(txn: Txn) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        transaction_state=txn.state.kafka_name,
    )
