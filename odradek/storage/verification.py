"""Keeps one partition's verification guards. A guard belongs to a producer whose transaction is being verified with the
transaction coordinator.

A transactional batch may be written while its transaction is open in this partition, or with the guard of a
verification that the coordinator has confirmed. A marker invalidates the guard, because the confirmed transaction may
end, and another transaction may begin, before the batch is appended. The batch would then belong to neither
transaction.

Guards exist only in the leader's memory, so producers are verified again after a restart. Source:
docs/spec/transactions.md#s4-6.
"""

from dataclasses import dataclass, replace
from typing import Final


class VerificationGuard:
    """One verification with the coordinator. Guards are compared by identity."""

    __slots__ = ()


# The guard of a batch that needs no verification, because its transaction was already open. It is no longer valid if
# that transaction has ended since.
NO_GUARD: Final = VerificationGuard()


@dataclass(slots=True)
class Verification:
    """A transaction whose first batch in this partition is waiting for the coordinator's confirmation."""

    guard: VerificationGuard
    created_ms: int
    # Lowest sequence of the batches to verify; None for batches that the broker writes itself, which have no sequences.
    lowest_sequence: int | None
    producer_epoch: int
    supports_epoch_bump: bool  # whether the Produce request itself adds the partition to the transaction


class Verifications:
    """The verifications by producer id, at most one for each producer. Changes can be undone together with the appends
    that caused them, as in `ProducerStates`."""

    __slots__ = ("_by_producer", "_removed")

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}
        self._removed: list[tuple[int, Verification]] = []

    def __len__(self) -> int:
        return len(self._by_producer)

    def get(self, producer_id: int) -> Verification | None:
        return self._by_producer.get(producer_id)

    def start_verification(
        self, producer_id: int, producer_epoch: int, sequence: int | None, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """Returns the guard that allows a batch to be written once the coordinator has confirmed its transaction."""
        current = self._by_producer.get(producer_id)
        if current is None:
            current = Verification(VerificationGuard(), now_ms, sequence, producer_epoch, supports_epoch_bump)
        elif producer_epoch > current.producer_epoch:
            current = replace(current, producer_epoch=producer_epoch, lowest_sequence=sequence)
        elif producer_epoch == current.producer_epoch and _is_lower(sequence, current.lowest_sequence):
            current = replace(current, lowest_sequence=sequence)
        self._by_producer[producer_id] = current
        return current.guard

    def data_appended(self, producer_id: int) -> None:
        """Removes the guard once a transactional batch has been appended, because its transaction is now open in this
        partition."""
        if producer_id in self._by_producer:
            self._remove(producer_id)

    def marker_appended(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """Removes the guard of the transaction that the marker has ended.

        A marker of version 2 or later has the epoch of the next transaction, whose guard stays valid. A marker of an
        earlier version has the epoch of the transaction that it ends, even if the batch's request supports epoch bumps
        (known bug 62).
        """
        current = self._by_producer.get(producer_id)
        if current is None:
            return
        if transaction_version >= 2 and current.supports_epoch_bump and current.producer_epoch == producer_epoch:
            return
        self._remove(producer_id)

    def accept(self) -> None:
        """Makes all changes permanent, because the appended batches have been written."""
        self._removed.clear()

    def roll_back(self) -> None:
        """Undoes the changes since the last `accept`, because the batches were not written. A verification started
        since then is kept."""
        for producer_id, removed in reversed(self._removed):
            self._by_producer.setdefault(producer_id, removed)
        self._removed.clear()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets verifications that are at least `expiration_ms` old."""
        for producer_id, current in list(self._by_producer.items()):
            if now_ms - current.created_ms >= expiration_ms:
                del self._by_producer[producer_id]

    def created_ms(self) -> list[int]:
        return [current.created_ms for current in self._by_producer.values()]

    def _remove(self, producer_id: int) -> None:
        removed = self._by_producer.pop(producer_id, None)
        if removed is not None:
            self._removed.append((producer_id, removed))


def _is_lower(sequence: int | None, than: int | None) -> bool:
    return sequence is not None and than is not None and sequence < than
