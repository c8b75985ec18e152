"""Describes transactions the way their coordinators do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from odradek.broker.broker import Broker
    from odradek.protocol.messages.describe_transactions_response import TransactionState


class TransactionFacts(NamedTuple):
    """A transactional id with its latest transaction. `started_ms` is None unless a transaction is open or is being
    completed."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: Sequence[str]


def transactions(broker: Broker) -> Iterator[TransactionFacts]:
    """Yields every transactional id with its latest transaction. Raises KafkaError while a coordinator is loading."""
    for shard in broker.transactions.shards if broker.has_started("transactions") else ():
        core = shard.read_state(lambda core: core)
        for txn in core.entries():
            yield _facts(core.describe(txn.transactional_id))


def transaction(broker: Broker, transactional_id: str) -> TransactionFacts | None:
    """Returns a transactional id's latest transaction, or None if the id is unknown. Raises KafkaError while the id's
    coordinator is loading."""
    if not broker.has_started("transactions"):
        return None
    try:
        return _facts(broker.transactions.describe(transactional_id))
    except KafkaError as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise


def _facts(found: TransactionState) -> TransactionFacts:
    return TransactionFacts(
        found.transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        [f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions],
    )
