"""Lists transactions as ListTransactions does, for tests without a client."""

from __future__ import annotations

from odradek.broker.coordinators.transaction_coordinator import TransactionCoordinator
from odradek.broker.transactions.core import TransactionCore
from odradek.broker.transactions.requests import TransactionFilter, list_entry
from odradek.protocol.messages.list_transactions_response import TransactionState


def listed_by(core: TransactionCore, transaction_filter: TransactionFilter, now_ms: int) -> list[TransactionState]:
    return [list_entry(txn) for txn in core.candidates(transaction_filter) if transaction_filter.selects(txn, now_ms)]


def all_listed(coordinator: TransactionCoordinator) -> list[TransactionState]:
    """Returns all transactions. Raises KafkaError if a partition of the coordinator has not been loaded."""
    return [
        each
        for shard in coordinator.shards
        for each in shard.read_state(lambda core: listed_by(core, TransactionFilter(), now_ms=0))
    ]
