"""The producers of one log: their state as appended, and the questions about their transactions.

`check_…` says whether a batch may be appended and changes nothing, `apply_…` remembers it. As in `ProducerStates`,
`accept` says that all that was applied is written, `take_back` that none of it was.
"""

from __future__ import annotations

from odradek.protocol.batch_header import TRANSACTIONAL
from odradek.protocol.control_records import Marker, read_marker
from odradek.protocol.records import BatchHeader
from odradek.storage.index import AbortedTxn
from odradek.storage.producer_state import (
    CachedBatch,
    Origin,
    ProducerStates,
    check_data,
    check_epoch,
    check_guard,
    check_marker,
    duplicate_of,
    has_open_transaction,
)
from odradek.storage.verification import NO_GUARD, VerificationGuard, Verifications


class LogProducers:
    __slots__ = ("_verifications", "has_changed", "states")

    def __init__(self, states: ProducerStates) -> None:
        self.states = states
        self.has_changed = False  # since the last `accept` or `take_back`
        self._verifications = Verifications()

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int | None, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """See `Log.begin_verification`."""
        entry = self.states.get(producer_id)
        if has_open_transaction(entry, producer_epoch):
            return NO_GUARD
        check_epoch(entry, producer_id, producer_epoch)
        return self._verifications.begin(
            producer_id, producer_epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    def check_marker(
        self, batch: bytearray | memoryview, header: BatchHeader, transaction_version: int, offset: int
    ) -> Marker | None:
        """The marker as it will lie at `offset`; None for a control batch that holds none. Raises KafkaError."""
        marker = read_marker(batch, header=header)
        if marker is None:
            return None
        check_marker(self.states.get(header.producer_id), marker, transaction_version)
        marker.offset = offset
        return marker

    def check_data(self, header: BatchHeader, origin: Origin, guard: VerificationGuard | None) -> CachedBatch | None:
        """The batch in the log that this one repeats; None if it is to be appended. Raises KafkaError."""
        producer_id = header.producer_id
        entry = self.states.get(producer_id)
        if origin is Origin.CLIENT:
            original = duplicate_of(entry, header)
            if original is not None:
                return original
        verification = self._verifications.get(producer_id)
        if guard is not None and header.attributes & TRANSACTIONAL:
            check_guard(entry, header, verification, guard)
        check_data(entry, header, origin, verification)
        return None

    def apply_marker(self, marker: Marker, transaction_version: int) -> AbortedTxn | None:
        """At `marker.offset`. Returns the entry for the transaction index where it aborts an open transaction."""
        self.has_changed = True
        completed = self.states.apply_marker(marker)
        self._verifications.marker_appended(marker.producer_id, marker.producer_epoch, transaction_version)
        return None if completed is None or not completed.is_aborted else self.states.aborted_txn(completed)

    def apply_data(self, header: BatchHeader, base_offset: int) -> None:
        self.has_changed = True
        self.states.apply_data(header, base_offset)
        if header.attributes & TRANSACTIONAL:
            self._verifications.data_appended(header.producer_id)

    def accept(self) -> None:
        self.has_changed = False
        self.states.accept()
        self._verifications.accept()

    def take_back(self) -> None:
        self.has_changed = False
        self.states.take_back()
        self._verifications.take_back()

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forgets producers and questions that are older. Returns the ids of the producers."""
        self._verifications.expire(now_ms, expiration_ms)
        return self.states.expire(now_ms, expiration_ms)

    def expires_ms(self, expiration_ms: int) -> int | None:
        """When `expire` will find the first of them; None where there are none."""
        oldest_ms = min([*self.states.idle_since_ms(), *self._verifications.created_ms()], default=None)
        return None if oldest_ms is None else oldest_ms + expiration_ms
