"""The transaction coordinator's entry for one transactional id, and the transitions between entries. A transactional
id's record contains its entry.

A transition returns the new entry to record, including its epochs. `transaction_version` is the cluster's finalised
level. At level 0 a record has no field for the version of a step, so every step is recorded as version 0. When a
producer id's epochs are used up, a step needs a new producer id and returns PRODUCER_ID_NEEDED if the caller has not
provided one. Source: docs/spec/transactions.md#s1-6 (a row for each step), #s3-5, #s5-3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from odradek.broker.transactions.tables import COMPLETED, KEPT, NEXT, PREPARED, Row, TxnState
from odradek.protocol.topic_partition import TopicPartition

MAX_EPOCH: Final = 32_767
LAST_USABLE_EPOCH: Final = MAX_EPOCH - 1  # leaves one more epoch for a marker or for fencing
NEVER_MS: Final = 2**31 - 1  # timeout of a transaction that only its external coordinator can end (ADR 9)
NEVER_EXPIRES_MS: Final = frozenset({NEVER_MS, -1})  # the value that Kafka writes, and the value that KIP-939 specifies


@dataclass(slots=True)
class Txn:
    """A transactional id and its current or last transaction. A recorded entry is never modified; see `copy`.

    producer_epoch        the epoch of the current or last transaction; once the transaction is decided, the epoch of
                          its markers. None until the first InitProducerId is recorded, but never None in a record
    previous_producer_id  the producer id that clients used before the last record
    next_producer_id      in a decided transaction, the producer id that the producer uses next, with
                          `next_producer_epoch`; None if it continues with `producer_id` and `producer_epoch`. In an
                          open transaction, the new owner's producer id if the transaction is kept (KIP-939), otherwise
                          None
    last_producer_epoch   the client's epoch before the last bump; only used to recognise a retry of InitProducerId
    partitions            the partitions of the transaction; in the record of a decision, the partitions that need a
                          marker
    started_ms            time when the first partition was added
    updated_ms            time of the decision that created the last record
    client_version        the transaction version of the last step, 0 or 2
    next_timeout_ms       in a kept transaction, also after its decision: the timeout that the owner requested for later
                          transactions; None if it equals `timeout_ms`. Stored in a header of the record (ADR 11)
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int | None
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int | None = None
    updated_ms: int = 0
    previous_producer_id: int | None = None
    next_producer_id: int | None = None
    next_producer_epoch: int | None = None
    last_producer_epoch: int | None = None
    client_version: int = 0
    next_timeout_ms: int | None = None

    def copy(self) -> Txn:
        """Returns a copy that a transition can modify. `dataclasses.replace` would take three times as long."""
        return Txn(
            self.transactional_id,
            self.producer_id,
            self.producer_epoch,
            self.timeout_ms,
            self.state,
            self.partitions,
            self.started_ms,
            self.updated_ms,
            self.previous_producer_id,
            self.next_producer_id,
            self.next_producer_epoch,
            self.last_producer_epoch,
            self.client_version,
            self.next_timeout_ms,
        )

    @property
    def is_kept(self) -> bool:
        return self.state is TxnState.ONGOING and self.next_producer_epoch is not None

    @property
    def is_sealed(self) -> bool:
        """Whether the transaction is incomplete and accepts no more changes, because it is or was kept for a new owner
        (`producers.py`). If a decision has assigned a new producer id because the epochs are used up, its record looks
        the same. The transaction is then also treated as sealed, which is harmless."""
        return self.next_producer_epoch is not None and (self.state is TxnState.ONGOING or self.state in PREPARED)

    @property
    def is_two_phase(self) -> bool:
        """Whether the transaction uses Enable2Pc, so it never times out and must survive a power failure."""
        return self.timeout_ms in NEVER_EXPIRES_MS

    @property
    def row(self) -> Row:
        """This entry's row in the grids of `tables.py`."""
        return KEPT if self.is_kept else self.state

    @property
    def client_pair(self) -> tuple[int, int | None]:
        """The producer id and epoch that clients use. While the transaction is kept, they differ from the producer id
        and epoch in its records."""
        if self.is_kept:
            assert self.next_producer_id is not None
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is decided but not complete."""
        return self.state in PREPARED

    @property
    def is_commit(self) -> bool:
        return self.state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)

    def is_timed_out(self, now_ms: int) -> bool:
        times_out_ms = self.times_out_ms
        return times_out_ms is not None and times_out_ms <= now_ms

    @property
    def times_out_ms(self) -> int | None:
        """The time at which the transaction times out, or None if it cannot time out in its current state."""
        if self.state is not TxnState.ONGOING or self.is_two_phase or self.started_ms is None:
            return None
        return self.started_ms + self.timeout_ms + 1


@dataclass(frozen=True, slots=True)
class TransactionTombstone:
    """A record without a value, which removes a transactional id."""

    transactional_id: str


TxnRecord = Txn | TransactionTombstone


def is_exhausted(producer_epoch: int | None) -> bool:
    return producer_epoch is not None and producer_epoch >= LAST_USABLE_EPOCH


class ProducerIdNeeded(Enum):
    """The result of a step that needs `DecisionInputs.new_producer_id` if the caller has not provided it."""

    PRODUCER_ID_NEEDED = auto()


PRODUCER_ID_NEEDED = ProducerIdNeeded.PRODUCER_ID_NEEDED


def client_version(requested: int, transaction_version: int) -> int:
    """Returns the transaction version under which a step is recorded. At level 0, Kafka accepts version 2 but cannot
    record it."""
    return requested if transaction_version >= 1 else 0


def next_epoch(producer_epoch: int | None) -> int:
    """Returns the next epoch, which is at most MAX_EPOCH. At MAX_EPOCH, logs accept markers with an unchanged epoch."""
    return 0 if producer_epoch is None else min(producer_epoch + 1, MAX_EPOCH)


def assign_next_epoch(
    txn: Txn,
    *,
    timeout_ms: int,
    keeps_last_epoch: bool,
    now_ms: int,
    transaction_version: int,
    new_producer_id: int | None,
) -> Txn | ProducerIdNeeded:
    """Returns the entry with the next epoch, or with epoch 0 of a new producer id if the epochs are used up.

    keeps_last_epoch  True if the request contains the producer's id and epoch, which the producer sends again if the
                      response is lost
    """
    producer_id, producer_epoch = txn.producer_id, next_epoch(txn.producer_epoch)
    if txn.is_exhausted:
        if new_producer_id is None:
            return PRODUCER_ID_NEEDED
        producer_id, producer_epoch = new_producer_id, 0
    idle = repeat_initialisation(txn, timeout_ms=timeout_ms, now_ms=now_ms, transaction_version=transaction_version)
    after = idle.copy()
    after.producer_id = producer_id
    after.producer_epoch = producer_epoch
    after.previous_producer_id = txn.producer_id
    after.last_producer_epoch = txn.producer_epoch if keeps_last_epoch else None
    return after


def repeat_initialisation(txn: Txn, *, timeout_ms: int, now_ms: int, transaction_version: int) -> Txn:
    """Returns the entry for a retried InitProducerId, with the same producer id and epoch. The previous producer id
    does not change, so a third attempt is also accepted. Kafka refuses a third attempt."""
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


def record_partitions(
    txn: Txn, partitions: frozenset[TopicPartition], *, requested_version: int, now_ms: int, transaction_version: int
) -> Txn:
    begins = txn.state is not TxnState.ONGOING
    after = txn.copy()
    after.state = _next_state(txn, TxnState.ONGOING)
    after.partitions = partitions if begins else txn.partitions | partitions
    after.started_ms = now_ms if begins else txn.started_ms
    after.updated_ms = now_ms
    after.previous_producer_id = txn.producer_id
    after.client_version = client_version(requested_version, transaction_version)
    return after


def keep_transaction(txn: Txn, *, timeout_ms: int, now_ms: int, new_producer_id: int | None) -> Txn | ProducerIdNeeded:
    """Keeps the transaction open for a new owner, which gets its own producer id and epoch (#s3-5, K1 and K2). The
    producer id and epoch in the records do not change, because the external coordinator identifies the transaction by
    them. The partitions do not change either. The timeout changes only if the owner requested Enable2Pc, which
    permanently turns the transaction into a two-phase commit.

    timeout_ms  the timeout that the owner requested, which applies to later transactions
    """
    producer_id, producer_epoch = txn.client_pair
    assert producer_epoch is not None
    # Before the transaction is kept, the last epoch is reserved for the markers. Later owners can get the last epoch
    # too.
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
    """Returns the entry with the partitions that remain after a topic's deletion. The times do not change, because the
    client has not done anything."""
    _check_next(txn, txn.row)
    after = txn.copy()
    after.partitions = partitions
    return after


def prepare_end_v0(txn: Txn, state: TxnState, now_ms: int) -> Txn:
    """Decides a transaction for a client that uses the old protocol. The epoch does not change."""
    after = txn.copy()
    after.state = _next_state(txn, state)
    after.updated_ms = now_ms
    after.previous_producer_id = txn.producer_id
    after.next_producer_id = None
    after.next_producer_epoch = None
    after.client_version = 0
    return after


def prepare_end_v2(txn: Txn, state: TxnState, now_ms: int, new_producer_id: int | None) -> Txn | ProducerIdNeeded:
    """Decides a transaction and bumps the epoch. If the epochs are used up, also records the next producer id.

    The epoch of the markers is one higher than the epoch of the transaction's records. If the transaction was kept, the
    owner continues with its own producer id. The owner's epoch is also bumped, because the owner's request can arrive
    twice. Source: #s3-5, K3 to K5.
    """
    producer_id, producer_epoch = txn.client_pair
    following: tuple[int | None, int | None] = None, None
    if is_exhausted(producer_epoch):
        if new_producer_id is None:
            return PRODUCER_ID_NEEDED
        following = new_producer_id, 0
    elif txn.is_kept:
        following = producer_id, next_epoch(producer_epoch)
    begins = txn.state is not TxnState.ONGOING
    after = txn.copy()
    after.state = _next_state(txn, state)
    after.producer_epoch = next_epoch(txn.producer_epoch)
    after.started_ms = now_ms if begins else txn.started_ms
    after.partitions = frozenset() if begins else txn.partitions
    after.updated_ms = now_ms
    after.previous_producer_id = producer_id
    after.next_producer_id = following[0]
    after.next_producer_epoch = following[1]
    after.last_producer_epoch = producer_epoch
    after.client_version = 2
    return after


def prepare_fence(
    txn: Txn, *, now_ms: int, transaction_version: int, new_producer_id: int | None
) -> Txn | ProducerIdNeeded:
    """Aborts a transaction on the coordinator's own initiative, for a new owner or after a timeout. Fences the old
    owner."""
    # Even if the level was lowered while the transaction was kept, the owner's next producer id and epoch must be
    # recorded.
    if transaction_version >= 2 or txn.is_kept:
        return prepare_end_v2(txn, TxnState.PREPARE_ABORT, now_ms, new_producer_id)
    after = prepare_end_v0(txn, TxnState.PREPARE_ABORT, now_ms)
    after.producer_epoch = next_epoch(txn.producer_epoch)
    after.last_producer_epoch = None
    return after


def complete_transaction(txn: Txn, *, now_ms: int, transaction_version: int) -> Txn:
    """Completes a transaction whose markers have all been written (docs/spec/transactions.md#s3-5, K6)."""
    producer_id, producer_epoch = next_pair(txn)
    previous = txn.previous_producer_id  # None in records of Kafka before 4.3
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


def next_pair(txn: Txn) -> tuple[int, int]:
    """Returns the producer id and epoch that the producer uses once a decided transaction is complete."""
    if txn.next_producer_id is not None:
        return txn.next_producer_id, txn.next_producer_epoch or 0
    assert txn.producer_epoch is not None
    return txn.producer_id, txn.producer_epoch


def _next_state(txn: Txn, state: TxnState) -> TxnState:
    _check_next(txn, state)
    return state


def _check_next(txn: Txn, row: Row) -> None:
    assert row in NEXT[txn.row], f"{txn.transactional_id}: {txn.row.name} cannot become {row.name}"
