"""What an entry is after each step: the rows of transactions-behaviour 1.6, and the arithmetic of epochs (5.3).

Each returns the entry as it is to be recorded. `transaction_version` is the cluster's finalised level: at level 0 a
record cannot say under which version its step was taken, so everything is then a step of version 0.
"""

from broker.transactions.entry import MAX_EPOCH, TopicPartition, Txn, is_exhausted
from broker.transactions.tables import COMPLETED, NEXT, TxnState
from broker.transactions.turn import ProducerIdNeeded


def client_version(asked: int, transaction_version: int) -> int:
    """The version under which a step is really taken. Kafka lets 2 through at level 0, and cannot record it."""
    return asked if transaction_version >= 1 else 0


def bumped(producer_epoch: int | None) -> int:
    """Never above MAX_EPOCH: markers of equal epoch are accepted there."""
    return 0 if producer_epoch is None else min(producer_epoch + 1, MAX_EPOCH)


def initialised(
    txn: Txn,
    *,
    timeout_ms: int,
    keeps_last_epoch: bool,
    now_ms: int,
    transaction_version: int,
    new_producer_id: int | None,
) -> Txn:
    """The next epoch, or with the epochs used up epoch 0 of a new producer id.

    keeps_last_epoch  the producer told its pair, so that it may tell it again if the answer gets lost
    raises            ProducerIdNeeded
    """
    producer_id, producer_epoch = txn.producer_id, bumped(txn.producer_epoch)
    if txn.is_exhausted:
        producer_id, producer_epoch = _required(new_producer_id), 0
    idle = initialised_again(txn, timeout_ms=timeout_ms, now_ms=now_ms, transaction_version=transaction_version)
    return idle._replace(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=txn.producer_id,
        last_producer_epoch=txn.producer_epoch if keeps_last_epoch else None,
    )


def initialised_again(txn: Txn, *, timeout_ms: int, now_ms: int, transaction_version: int) -> Txn:
    """A retry: the pair stays. So does the previous id, lest a third try be refused (in Kafka it is)."""
    return txn._replace(
        state=_next(txn, TxnState.EMPTY),
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=None,
        updated_ms=now_ms,
        next_producer_id=None,
        next_producer_epoch=None,
        client_version=client_version(txn.client_version, transaction_version),
    )


def added(
    txn: Txn, partitions: frozenset[TopicPartition], *, asked_version: int, now_ms: int, transaction_version: int
) -> Txn:
    begins = txn.state is not TxnState.ONGOING
    return txn._replace(
        state=_next(txn, TxnState.ONGOING),
        partitions=partitions if begins else txn.partitions | partitions,
        started_ms=now_ms if begins else txn.started_ms,
        updated_ms=now_ms,
        previous_producer_id=txn.producer_id,
        client_version=client_version(asked_version, transaction_version),
    )


def without_topic(txn: Txn, partitions: frozenset[TopicPartition]) -> Txn:
    """The topic of some partitions is gone: these are left. Not a step of the client's, so its time goes on."""
    return txn._replace(state=_next(txn, txn.state), partitions=partitions)


def prepared_0(txn: Txn, state: TxnState, now_ms: int) -> Txn:
    """Decided by a client of the old protocol: the epoch stays."""
    return txn._replace(
        state=_next(txn, state),
        updated_ms=now_ms,
        previous_producer_id=txn.producer_id,
        next_producer_id=None,
        next_producer_epoch=None,
        client_version=0,
    )


def prepared_2(txn: Txn, state: TxnState, now_ms: int, new_producer_id: int | None) -> Txn:
    """Decided with the epoch bumped, and with the next producer id laid down where epochs are used up.

    raises  ProducerIdNeeded
    """
    is_last = is_exhausted(txn.producer_epoch)
    return txn._replace(
        state=_next(txn, state),
        producer_epoch=bumped(txn.producer_epoch),
        started_ms=txn.started_ms if txn.state is TxnState.ONGOING else now_ms,
        partitions=txn.partitions if txn.state is TxnState.ONGOING else frozenset(),
        updated_ms=now_ms,
        previous_producer_id=txn.producer_id,
        next_producer_id=_required(new_producer_id) if is_last else None,
        next_producer_epoch=0 if is_last else None,
        last_producer_epoch=txn.producer_epoch,
        client_version=2,
    )


def fenced(txn: Txn, *, now_ms: int, transaction_version: int, new_producer_id: int | None) -> Txn:
    """Aborted by the coordinator, for a new owner or because its time is over; whoever began it is fenced.

    raises  ProducerIdNeeded
    """
    if transaction_version >= 2:
        return prepared_2(txn, TxnState.PREPARE_ABORT, now_ms, new_producer_id)
    return prepared_0(txn, TxnState.PREPARE_ABORT, now_ms)._replace(
        producer_epoch=bumped(txn.producer_epoch),
        last_producer_epoch=None,
    )


def completed(txn: Txn, *, now_ms: int, transaction_version: int) -> Txn:
    """All markers are written."""
    producer_id, producer_epoch = answered_pair(txn)
    return txn._replace(
        state=_next(txn, COMPLETED[txn.state]),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=frozenset(),
        updated_ms=now_ms,
        previous_producer_id=txn.producer_id,
        next_producer_id=None,
        next_producer_epoch=None,
        client_version=client_version(txn.client_version, transaction_version),
    )


def answered_pair(txn: Txn) -> tuple[int, int]:
    """Of a decision: the producer id and epoch that the producer goes on with, which it has when it is complete."""
    if txn.next_producer_id is not None:
        return txn.next_producer_id, txn.next_producer_epoch or 0
    assert txn.producer_epoch is not None
    return txn.producer_id, txn.producer_epoch


def _required(producer_id: int | None) -> int:
    if producer_id is None:
        raise ProducerIdNeeded
    return producer_id


def _next(txn: Txn, state: TxnState) -> TxnState:
    assert state in NEXT[txn.state], f"{txn.transactional_id}: {txn.state.name} cannot become {state.name}"
    return state
