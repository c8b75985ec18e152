"""The coordinator's entry for one transactional id, which is also the content of its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.broker.transactions.tables import KEPT, PREPARED, Row, TxnState
from odradek.protocol.topic_partition import TopicPartition

MAX_EPOCH: Final = 32_767
LAST_USABLE_EPOCH: Final = MAX_EPOCH - 1  # so that there is always one more, for a marker or to fence with
NEVER_MS: Final = 2**31 - 1  # the timeout of a transaction that only its coordinator outside ends; ADR 9
NEVER_EXPIRES_MS: Final = frozenset({NEVER_MS, -1})  # what Kafka writes, and what KIP-939 says


@dataclass(slots=True)
class Txn:
    """A transactional id and its current or last transaction. Never changed once it is recorded: see `copy`.

    producer_epoch        that of the current or last transaction, or of its markers once it is decided; None until the
                          first InitProducerId is recorded, and never in a record
    previous_producer_id  what clients knew it by before the last record
    next_producer_id      with `next_producer_epoch`, of a decision: what takes over once it is complete, where that is
                          not this producer id at this epoch. Of an open transaction: it is kept (KIP-939), and this is
                          the pair that its new owner was given
    last_producer_epoch   what the client held before the last bump; only to recognise a retry of InitProducerId
    partitions            that take part, or as a decision is recorded, that await a marker
    started_ms            when the first partition was added
    updated_ms            when the last record was decided
    client_version        the transaction version under which the last step was taken, 0 or 2
    next_timeout_ms       of a kept transaction and of its decision: the timeout of the transactions after it, which is
                          what its owner asked for; None where that is `timeout_ms`. A header of the record (ADR 11)
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
        """For a transition to change; `dataclasses.replace` takes three times as long."""
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
    def is_two_phase(self) -> bool:
        """Begun, or kept, with Enable2Pc: no timeout ends the transaction, and no power failure undoes it."""
        return self.timeout_ms in NEVER_EXPIRES_MS

    @property
    def row(self) -> Row:
        """That of the grids."""
        return KEPT if self.is_kept else self.state

    @property
    def client_pair(self) -> tuple[int, int | None]:
        """The producer id and epoch that clients know it by; they differ from its records' while it is kept."""
        if self.is_kept:
            assert self.next_producer_id is not None
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def is_prepared(self) -> bool:
        """Decided, not complete."""
        return self.state in PREPARED

    @property
    def is_commit(self) -> bool:
        return self.state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)

    def is_timed_out(self, now_ms: int) -> bool:
        return (
            self.state is TxnState.ONGOING
            and not self.is_two_phase
            and self.started_ms is not None
            and self.started_ms + self.timeout_ms < now_ms
        )


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The record that takes a transactional id out of the log: a tombstone."""

    transactional_id: str


TxnRecord = Txn | Forgotten


def is_exhausted(producer_epoch: int | None) -> bool:
    return producer_epoch is not None and producer_epoch >= LAST_USABLE_EPOCH
