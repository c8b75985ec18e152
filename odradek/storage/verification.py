"""Which producers one partition has asked the transaction coordinator about: the verification guards.

A transactional batch may be written while its transaction is open in this partition, or with the guard of a question
that the coordinator answered with yes. A marker invalidates the guard: between the answer and the append the
transaction may have ended and another one begun, and then the batch belongs to neither.

Guards live in the leader's memory only: a restart forgets them, and producers are verified again. Source:
docs/spec/transactions.md#s4-6.
"""

from dataclasses import dataclass, replace
from typing import Final


class VerificationGuard:
    """One question to the coordinator. Equal to nothing but itself."""

    __slots__ = ()


# Nobody was asked, since the transaction was open. Not the guard of anything, should it have ended meanwhile.
NO_GUARD: Final = VerificationGuard()


@dataclass(slots=True)
class Verification:
    """A transaction whose first batch here waits for the coordinator's word."""

    guard: VerificationGuard
    created_ms: int
    lowest_sequence: int | None  # of the batches that asked; None for the broker's own, which have no sequences
    producer_epoch: int
    supports_epoch_bump: bool  # asked by a produce that brings its partition itself


class Verifications:
    """By producer id, one at most. Changes by appends are taken back with them, as in `ProducerStates`."""

    __slots__ = ("_by_producer", "_removed")

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}
        self._removed: list[tuple[int, Verification]] = []

    def __len__(self) -> int:
        return len(self._by_producer)

    def get(self, producer_id: int) -> Verification | None:
        return self._by_producer.get(producer_id)

    def begin(
        self, producer_id: int, producer_epoch: int, sequence: int | None, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """The guard under which a batch may be written once the coordinator has agreed."""
        known = self._by_producer.get(producer_id)
        if known is None:
            known = Verification(VerificationGuard(), now_ms, sequence, producer_epoch, supports_epoch_bump)
        elif producer_epoch > known.producer_epoch:
            known = replace(known, producer_epoch=producer_epoch, lowest_sequence=sequence)
        elif producer_epoch == known.producer_epoch and _is_lower(sequence, known.lowest_sequence):
            known = replace(known, lowest_sequence=sequence)
        self._by_producer[producer_id] = known
        return known.guard

    def data_appended(self, producer_id: int) -> None:
        """A transactional batch: its transaction is open here now, which is better than any guard."""
        if producer_id in self._by_producer:
            self._remove(producer_id)

    def marker_appended(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        """Takes the guard of the transaction that ended. A marker of version 2 or later carries the epoch of the next
        transaction, and leaves that one's guard; an earlier one carries the epoch of the transaction that it ends,
        whatever the batch's request can do (known bug 62)."""
        known = self._by_producer.get(producer_id)
        if known is None:
            return
        if transaction_version >= 2 and known.supports_epoch_bump and known.producer_epoch == producer_epoch:
            return
        self._remove(producer_id)

    def accept(self) -> None:
        """Notes that what was appended so far is written."""
        self._removed.clear()

    def take_back(self) -> None:
        """Takes back what was appended since the last `accept`, which was not written. A question asked meanwhile is
        the newer one."""
        for producer_id, removed in reversed(self._removed):
            self._by_producer.setdefault(producer_id, removed)
        self._removed.clear()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets questions that are `expiration_ms` old, or older."""
        for producer_id, known in list(self._by_producer.items()):
            if now_ms - known.created_ms >= expiration_ms:
                del self._by_producer[producer_id]

    def created_ms(self) -> list[int]:
        return [known.created_ms for known in self._by_producer.values()]

    def _remove(self, producer_id: int) -> None:
        removed = self._by_producer.pop(producer_id, None)
        if removed is not None:
            self._removed.append((producer_id, removed))


def _is_lower(sequence: int | None, than: int | None) -> bool:
    return sequence is not None and than is not None and sequence < than
