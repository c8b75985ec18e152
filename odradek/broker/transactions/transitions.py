"""What an entry is after each step, and the arithmetic of epochs.

Source: docs/spec/transactions.md#s1-6 (a row for each step), #s3-5, #s5-3.

Each returns the entry as it is to be recorded. `transaction_version` is the cluster's finalised level: at level 0 a
record cannot say under which version its step was taken, so everything is then a step of version 0. A step that begins
a new producer id, because the epochs are used up, comes out as PRODUCER_ID_NEEDED until it is given one.
"""

from odradek.broker.transactions.entry import LAST_USABLE_EPOCH, MAX_EPOCH, NEVER_EXPIRES_MS, Txn, is_exhausted
from odradek.broker.transactions.tables import COMPLETED, KEPT, NEXT, Row, TxnState
from odradek.broker.transactions.turn import PRODUCER_ID_NEEDED, ProducerIdNeeded
from odradek.protocol.topic_partition import TopicPartition


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
) -> Txn | ProducerIdNeeded:
    """The next epoch, or with the epochs used up epoch 0 of a new producer id.

    keeps_last_epoch  the producer told its pair, so that it may tell it again if the answer gets lost
    """
    producer_id, producer_epoch = txn.producer_id, bumped(txn.producer_epoch)
    if txn.is_exhausted:
        if new_producer_id is None:
            return PRODUCER_ID_NEEDED
        producer_id, producer_epoch = new_producer_id, 0
    idle = initialised_again(txn, timeout_ms=timeout_ms, now_ms=now_ms, transaction_version=transaction_version)
    after = idle.copy()
    after.producer_id = producer_id
    after.producer_epoch = producer_epoch
    after.previous_producer_id = txn.producer_id
    after.last_producer_epoch = txn.producer_epoch if keeps_last_epoch else None
    return after


def initialised_again(txn: Txn, *, timeout_ms: int, now_ms: int, transaction_version: int) -> Txn:
    """A retry: the pair stays. So does the previous id, so that a third try is not refused, as it is in Kafka."""
    after = txn.copy()
    after.state = _next_state(txn, TxnState.EMPTY)
    after.timeout_ms = timeout_ms
    after.partitions = frozenset()
    after.started_ms = None
    after.updated_ms = now_ms
    after.next_producer_id = None
    after.next_producer_epoch = None
    after.next_timeout_ms = None
    after.client_version = client_version(txn.client_version, transaction_version)
    return after


def added(
    txn: Txn, partitions: frozenset[TopicPartition], *, asked_version: int, now_ms: int, transaction_version: int
) -> Txn:
    begins = txn.state is not TxnState.ONGOING
    after = txn.copy()
    after.state = _next_state(txn, TxnState.ONGOING)
    after.partitions = partitions if begins else txn.partitions | partitions
    after.started_ms = now_ms if begins else txn.started_ms
    after.updated_ms = now_ms
    after.previous_producer_id = txn.producer_id
    after.client_version = client_version(asked_version, transaction_version)
    return after


def kept(txn: Txn, *, timeout_ms: int, now_ms: int, new_producer_id: int | None) -> Txn | ProducerIdNeeded:
    """Left open for a new owner, with a pair of its own (#s3-5, K1 and K2). The pair of the records stays: it is the
    name under which the coordinator outside has noted the transaction. So do its partitions, and its timeout, unless
    the owner asked for Enable2Pc: then it becomes a two-phase commit. It never becomes an ordinary one again.

    timeout_ms  what the owner asked for, which holds for the transactions after this one
    """
    producer_id, producer_epoch = txn.client_pair
    assert producer_epoch is not None
    # Before there is an owner to fence, the last epoch is for the markers; later it may be given out too.
    if producer_epoch >= (MAX_EPOCH if txn.is_kept else LAST_USABLE_EPOCH):
        if new_producer_id is None:
            return PRODUCER_ID_NEEDED
        producer_id, producer_epoch = new_producer_id, 0
    else:
        producer_epoch += 1
    _check_next(txn, KEPT)
    own_timeout_ms = timeout_ms if timeout_ms in NEVER_EXPIRES_MS else txn.timeout_ms
    after = txn.copy()
    after.timeout_ms = own_timeout_ms
    after.next_timeout_ms = None if timeout_ms == own_timeout_ms else timeout_ms
    after.updated_ms = now_ms
    after.previous_producer_id = txn.producer_id
    after.next_producer_id = producer_id
    after.next_producer_epoch = producer_epoch
    return after


def without_topic(txn: Txn, partitions: frozenset[TopicPartition]) -> Txn:
    """The topic of some partitions is gone: these are left. Not a step of the client's, so its time goes on."""
    _check_next(txn, txn.row)
    after = txn.copy()
    after.partitions = partitions
    return after


def prepared_0(txn: Txn, state: TxnState, now_ms: int) -> Txn:
    """Decided by a client of the old protocol: the epoch stays."""
    after = txn.copy()
    after.state = _next_state(txn, state)
    after.updated_ms = now_ms
    after.previous_producer_id = txn.producer_id
    after.next_producer_id = None
    after.next_producer_epoch = None
    after.client_version = 0
    return after


def prepared_2(txn: Txn, state: TxnState, now_ms: int, new_producer_id: int | None) -> Txn | ProducerIdNeeded:
    """Decided with the epoch bumped, and with the next producer id recorded where epochs are used up.

    Markers have the epoch after that of the records. If the transaction was kept, its owner goes on from its own pair:
    bumped even so, since the owner's request may be on its way twice. Source: #s3-5, K3 to K5.
    """
    producer_id, producer_epoch = txn.client_pair
    following: tuple[int | None, int | None] = None, None
    if is_exhausted(producer_epoch):
        if new_producer_id is None:
            return PRODUCER_ID_NEEDED
        following = new_producer_id, 0
    elif txn.is_kept:
        following = producer_id, bumped(producer_epoch)
    begins = txn.state is not TxnState.ONGOING
    after = txn.copy()
    after.state = _next_state(txn, state)
    after.producer_epoch = bumped(txn.producer_epoch)
    after.started_ms = now_ms if begins else txn.started_ms
    after.partitions = frozenset() if begins else txn.partitions
    after.updated_ms = now_ms
    after.previous_producer_id = producer_id
    after.next_producer_id = following[0]
    after.next_producer_epoch = following[1]
    after.last_producer_epoch = producer_epoch
    after.client_version = 2
    return after


def fenced(txn: Txn, *, now_ms: int, transaction_version: int, new_producer_id: int | None) -> Txn | ProducerIdNeeded:
    """Aborted by the coordinator, for a new owner or because its time is over; the old owner is fenced."""
    # The level may have been lowered while a transaction was kept: what its owner goes on with is still laid down.
    if transaction_version >= 2 or txn.is_kept:
        return prepared_2(txn, TxnState.PREPARE_ABORT, now_ms, new_producer_id)
    after = prepared_0(txn, TxnState.PREPARE_ABORT, now_ms)
    after.producer_epoch = bumped(txn.producer_epoch)
    after.last_producer_epoch = None
    return after


def completed(txn: Txn, *, now_ms: int, transaction_version: int) -> Txn:
    """All markers are written (#s3-5, K6)."""
    producer_id, producer_epoch = answered_pair(txn)
    previous = txn.previous_producer_id  # Kafka wrote none before 4.3
    after = txn.copy()
    after.state = _next_state(txn, COMPLETED[txn.state])
    after.producer_id = producer_id
    after.producer_epoch = producer_epoch
    after.timeout_ms = txn.timeout_ms if txn.next_timeout_ms is None else txn.next_timeout_ms
    after.next_timeout_ms = None
    after.partitions = frozenset()
    after.updated_ms = now_ms
    after.previous_producer_id = txn.producer_id if previous is None else previous
    after.next_producer_id = None
    after.next_producer_epoch = None
    after.client_version = client_version(txn.client_version, transaction_version)
    return after


def answered_pair(txn: Txn) -> tuple[int, int]:
    """Of a decision: the producer id and epoch that the producer goes on with, which it has when it is complete."""
    if txn.next_producer_id is not None:
        return txn.next_producer_id, txn.next_producer_epoch or 0
    assert txn.producer_epoch is not None
    return txn.producer_id, txn.producer_epoch


def _next_state(txn: Txn, state: TxnState) -> TxnState:
    _check_next(txn, state)
    return state


def _check_next(txn: Txn, row: Row) -> None:
    assert row in NEXT[txn.row], f"{txn.transactional_id}: {txn.row.name} cannot become {row.name}"
