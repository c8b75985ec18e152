"""Tracks a partition's producer state: epochs, the last five batches of each producer, and open transactions.

This module does no I/O: the log writes the batches. Entries are immutable and are only replaced, so a batch that could
not be written is undone by restoring the old entry, and a snapshot is a copy of the table. Source:
docs/spec/transactions.md#s4-1 to #s4-5, #s4-8, #s4-9, #s4-12.
"""

from bisect import insort
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from odradek.files.indexes import AbortedTxn
from odradek.files.producer_snapshot import SnapshotEntry
from odradek.protocol.batch_header import TRANSACTIONAL
from odradek.protocol.control_records import Marker, read_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import BatchHeader
from odradek.storage.verification import NO_GUARD, Verification, VerificationGuard, Verifications

INT32_MAX: Final = 2**31 - 1
MAX_PRODUCER_EPOCH: Final = 2**15 - 1
WINDOW_BATCHES: Final = 5  # maximum number of batches in flight; a client may send any of them again


class Origin(Enum):
    """A batch's writer, which determines how the batch is checked."""

    CLIENT = "client"  # Produce request: sequences are checked, and duplicates detected
    COORDINATOR = "coordinator"  # offsets and markers that the broker writes: only epochs are checked


def increment_sequence(sequence: int, by: int) -> int:
    """Adds `by` to a sequence number, which wraps from 2**31 - 1 to 0."""
    return (sequence + by) & INT32_MAX


def decrement_sequence(sequence: int, by: int) -> int:
    return (sequence - by) & INT32_MAX


def is_next_sequence(last_sequence: int, next_sequence: int) -> bool:
    """Returns whether `next_sequence` directly follows `last_sequence`. The successor of -1 is 0."""
    return next_sequence == last_sequence + 1 or (next_sequence == 0 and last_sequence == INT32_MAX)


@dataclass(slots=True)
class CachedBatch:
    """The facts that identify a repeated batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    producer_id: int
    producer_epoch: int
    last_timestamp: int  # timestamp of the last batch, which may differ greatly from the clock
    coordinator_epoch: int | None = None  # coordinator epoch in the last marker
    current_txn_first_offset: int | None = None
    batches: tuple[CachedBatch, ...] = ()  # oldest first, at most WINDOW_BATCHES, all with producer_epoch

    @classmethod
    def from_snapshot(cls, entry: SnapshotEntry) -> "ProducerEntry":
        batch = CachedBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
        return cls(
            entry.producer_id,
            entry.producer_epoch,
            entry.timestamp,
            None if entry.coordinator_epoch < 0 else entry.coordinator_epoch,
            None if entry.current_txn_first_offset < 0 else entry.current_txn_first_offset,
            () if entry.last_offset < 0 else (batch,),
        )

    def to_snapshot(self) -> SnapshotEntry:
        """Returns the producer's snapshot entry. It contains only the producer's newest batch."""
        batch = self.batches[-1] if self.batches else None
        return SnapshotEntry(
            self.producer_id,
            self.producer_epoch,
            -1 if batch is None else batch.last_sequence,
            -1 if batch is None else batch.last_offset,
            0 if batch is None else batch.offset_delta,
            self.last_timestamp,
            -1 if self.coordinator_epoch is None else self.coordinator_epoch,
            -1 if self.current_txn_first_offset is None else self.current_txn_first_offset,
        )

    @property
    def last_sequence(self) -> int | None:
        return self.batches[-1].last_sequence if self.batches else None

    @property
    def last_data_offset(self) -> int | None:
        return self.batches[-1].last_offset if self.batches else None


@dataclass(slots=True)
class CompletedTxn:
    producer_id: int
    first_offset: int
    last_offset: int  # offset of the marker
    is_aborted: bool


# The data needed to undo one applied batch: (producer id, its previous entry, first offset of the transaction that the
# batch opened, the transaction that it completed). The data is a plain tuple for speed, because every batch needs one.
_Change: TypeAlias = tuple[int, ProducerEntry | None, int | None, CompletedTxn | None]


def duplicate_of(entry: ProducerEntry | None, header: BatchHeader) -> CachedBatch | None:
    """Returns the earlier batch that this batch repeats, or None. Only the producer's last five batches with the
    current epoch are known."""
    if entry is None or not entry.batches or entry.producer_epoch != header.producer_epoch:
        return None
    last = entry.batches[-1]
    if header.base_sequence == (last.last_sequence + 1) & INT32_MAX:
        return None  # the usual case: the batch is new
    last_sequence = header.last_sequence
    delta = header.last_offset_delta
    for batch in entry.batches:
        if batch.last_sequence == last_sequence and batch.offset_delta == delta:
            return batch
    return None


def has_open_transaction(entry: ProducerEntry | None, producer_epoch: int) -> bool:
    """Returns whether the producer with this entry has an open transaction with exactly this epoch."""
    return entry is not None and entry.current_txn_first_offset is not None and entry.producer_epoch == producer_epoch


def check_epoch(entry: ProducerEntry | None, producer_id: int, producer_epoch: int) -> None:
    """Raises INVALID_PRODUCER_EPOCH if this producer has already written to this log with a newer epoch."""
    if entry is not None and producer_epoch < entry.producer_epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id}: the epoch here is {entry.producer_epoch}, not {producer_epoch}",
        )


def check_guard(
    entry: ProducerEntry | None, header: BatchHeader, verification: Verification | None, guard: VerificationGuard
) -> None:
    """Raises KafkaError unless the coordinator has confirmed the transaction of this batch. Source: #s4-3, row b."""
    if has_open_transaction(entry, header.producer_epoch):
        return
    check_epoch(entry, header.producer_id, header.producer_epoch)
    if verification is None or verification.guard is not guard:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id}: the transaction that this batch was verified for is not the current one",
        )


def check_data(
    entry: ProducerEntry | None, header: BatchHeader, origin: Origin, verification: Verification | None = None
) -> None:
    """Raises KafkaError if this batch of records may not be written. Callers must handle duplicates first."""
    if entry is not None and header.producer_epoch != entry.producer_epoch:
        check_epoch(entry, header.producer_id, header.producer_epoch)
    if origin is Origin.CLIENT:
        check_sequence(entry, header, verification)
    if entry is not None and entry.current_txn_first_offset is not None and not header.is_transactional:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has an open transaction here, but the batch is not part of it",
        )


def check_sequence(entry: ProducerEntry | None, header: BatchHeader, verification: Verification | None) -> None:
    """Checks the sequence number against the rows of the table in #s4-4, in their order. Raises
    OUT_OF_ORDER_SEQUENCE_NUMBER."""
    sequence = header.base_sequence
    if verification is not None:
        if verification.supports_epoch_bump and sequence != 0 and (entry is None or not entry.batches):
            raise _out_of_order(header, "the first sequence must be 0")
        lowest_sequence = verification.lowest_sequence
        if lowest_sequence is not None and sequence > lowest_sequence:
            raise _out_of_order(header, f"the earlier sequence {lowest_sequence} was refused")
    if entry is None:
        return  # retention may have removed the previous records
    if header.producer_epoch != entry.producer_epoch:
        if sequence != 0:
            raise _out_of_order(header, "the first sequence of a new epoch must be 0")
        return
    last_sequence = entry.batches[-1].last_sequence if entry.batches else -1
    if not is_next_sequence(last_sequence, sequence):
        raise _out_of_order(header, f"the last sequence was {last_sequence}")


def _out_of_order(header: BatchHeader, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} of producer {header.producer_id}, epoch {header.producer_epoch}: {reason}",
    )


def check_marker(entry: ProducerEntry | None, marker: Marker, transaction_version: int) -> None:
    """Checks a marker against the table in #s4-8. Raises KafkaError if it may not be written."""
    if entry is None:
        return
    epoch, stored = marker.producer_epoch, entry.producer_epoch
    # With transaction version 2, a marker has a higher epoch than the transaction that it ends. A marker with the epoch
    # of the open transaction therefore arrived late, unless the epoch cannot be increased any further.
    is_late = (
        transaction_version >= 2
        and epoch == stored
        and entry.current_txn_first_offset is not None
        and epoch < MAX_PRODUCER_EPOCH
    )
    if epoch < stored or is_late:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"the marker has epoch {epoch}, but producer {marker.producer_id} has epoch {stored} in this partition",
        )
    if entry.coordinator_epoch is not None and marker.coordinator_epoch < entry.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"the marker has coordinator epoch {marker.coordinator_epoch}, but an earlier marker had"
            f" {entry.coordinator_epoch}",
        )


class ProducerStates:
    """The producers of one partition, and the transactions that hold back its last stable offset.

    Batches are applied when they are staged. Afterwards, the log calls `accept` if the batches were written, or
    `roll_back` if the write failed.
    """

    __slots__ = ("_changes", "_entries", "_first_unstable_offset", "_ongoing", "_unreplicated")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}  # first offset → producer id, ascending
        # transactions whose markers are staged, but are not below the high watermark yet
        self._unreplicated: list[CompletedTxn] = []
        self._first_unstable_offset: int | None = None
        self._changes: list[_Change] = []

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is undecided below the high watermark."""
        return self._first_unstable_offset

    @property
    def ongoing(self) -> dict[int, int]:
        """The first offset of every open transaction in ascending order, mapped to the producer id."""
        return self._ongoing

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> dict[int, ProducerEntry]:
        """Returns a copy of the table of entries by producer id. The entries themselves never change."""
        return dict(self._entries)

    def load(self, entries: list[ProducerEntry]) -> None:
        """Replaces the state with the entries of a snapshot."""
        self._entries = {entry.producer_id: entry for entry in entries}
        opened = ((e.current_txn_first_offset, e.producer_id) for e in entries)
        self._ongoing = dict(sorted((first, pid) for first, pid in opened if first is not None))
        self._unreplicated = []
        self._changes = []
        self._find_first_unstable()

    def apply_data(self, header: BatchHeader, base_offset: int) -> None:
        """Applies a batch of records at `base_offset`, without checking it."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        before = self._entries.get(producer_id)
        delta = header.last_offset_delta
        batch = CachedBatch(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        opened = None
        if before is None:
            coordinator_epoch, txn_first_offset = None, None
            batches: tuple[CachedBatch, ...] = (batch,)
        else:
            coordinator_epoch, txn_first_offset = before.coordinator_epoch, before.current_txn_first_offset
            previous_batches = before.batches if before.producer_epoch == epoch else ()
            batches = (*previous_batches[1 - WINDOW_BATCHES :], batch)
        if txn_first_offset is None and header.attributes & TRANSACTIONAL:
            opened = txn_first_offset = base_offset
            self._ongoing[base_offset] = producer_id
            if self._first_unstable_offset is None:
                self._first_unstable_offset = base_offset
        self._entries[producer_id] = ProducerEntry(
            producer_id, epoch, header.max_timestamp, coordinator_epoch, txn_first_offset, batches
        )
        self._changes.append((producer_id, before, opened, None))

    def apply_marker(self, marker: Marker) -> CompletedTxn | None:
        """Applies a marker at `marker.offset`, without checking it.

        returns   the transaction that the marker ends; None if none was open
        """
        producer_id = marker.producer_id
        before = self._entries.get(producer_id)
        batches = before.batches if before is not None and before.producer_epoch == marker.producer_epoch else ()
        completed = None
        if before is not None and before.current_txn_first_offset is not None:
            first_offset = before.current_txn_first_offset
            completed = CompletedTxn(producer_id, first_offset, marker.offset, not marker.is_commit)
            del self._ongoing[first_offset]
            self._unreplicated.append(completed)
        self._entries[producer_id] = ProducerEntry(
            producer_id, marker.producer_epoch, marker.timestamp, marker.coordinator_epoch, None, batches
        )
        self._changes.append((producer_id, before, None, completed))
        return completed

    def apply_emptied_marker(self, header: BatchHeader) -> None:
        """Applies a marker whose record compaction has removed, because no record of its transaction is left.

        If an older snapshot contains the transaction as open, the marker ends it. The marker is applied as a commit,
        because there are no records left to abort.
        """
        before = self._entries.get(header.producer_id)
        if before is None or before.current_txn_first_offset is None:
            return
        coordinator_epoch = -1 if before.coordinator_epoch is None else before.coordinator_epoch
        self.apply_marker(
            Marker(
                header.base_offset,
                header.producer_id,
                header.producer_epoch,
                is_commit=True,
                coordinator_epoch=coordinator_epoch,
                timestamp=header.max_timestamp,
            )
        )

    def aborted_txn(self, completed: CompletedTxn) -> AbortedTxn:
        """Returns the transaction index entry for a transaction that was just aborted. The last stable offset in it is
        the start of the oldest transaction that is still open, or the offset after the marker."""
        last_stable_offset = next(iter(self._ongoing), completed.last_offset + 1)
        return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)

    def accept(self) -> None:
        """Makes all applied batches permanent. Called once these batches are below the high watermark."""
        self._changes.clear()
        if self._unreplicated:
            self._unreplicated.clear()
            self._find_first_unstable()

    def roll_back(self) -> None:
        """Undoes all batches that were applied since the last `accept`, because they could not be written."""
        for producer_id, before, opened, completed in reversed(self._changes):
            if before is None:
                del self._entries[producer_id]
            else:
                self._entries[producer_id] = before
            if opened is not None:
                del self._ongoing[opened]
            if completed is not None:
                self._unreplicated.remove(completed)
                reopened = list(self._ongoing.items())
                insort(reopened, (completed.first_offset, producer_id))
                self._ongoing = dict(reopened)
        self._changes.clear()
        self._find_first_unstable()

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forgets producers that have no open transaction and whose last batch is at least `expiration_ms` old. Returns
        their ids."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return expired

    def idle_since_ms(self) -> list[int]:
        """Returns the last timestamp of every producer that may expire."""
        return [each.last_timestamp for each in self._entries.values() if each.current_txn_first_offset is None]

    def _find_first_unstable(self) -> None:
        first = next(iter(self._ongoing), None)
        for txn in self._unreplicated:
            if first is None or txn.first_offset < first:
                first = txn.first_offset
        self._first_unstable_offset = first


class LogProducers:
    """The producers of one log, with their state (including staged batches) and their verifications.

    The `check_…` methods decide whether a batch may be appended but change nothing; the `apply_…` methods apply it. As
    in `ProducerStates`, `accept` is called once all applied batches have been written, and `roll_back` if the write has
    failed.
    """

    __slots__ = ("_verifications", "has_changed", "states")

    def __init__(self, states: ProducerStates) -> None:
        self.states = states
        self.has_changed = False  # whether the state has changed since the last `accept` or `roll_back`
        self._verifications = Verifications()

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int | None, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """Starts a verification, as `Log.begin_verification` describes."""
        entry = self.states.get(producer_id)
        if has_open_transaction(entry, producer_epoch):
            return NO_GUARD
        check_epoch(entry, producer_id, producer_epoch)
        return self._verifications.start_verification(
            producer_id, producer_epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    def check_marker(
        self, batch: bytearray | memoryview, header: BatchHeader, transaction_version: int, offset: int
    ) -> Marker | None:
        """Returns the marker with its future offset, or None if the control batch is not a transaction marker. Raises
        KafkaError if the marker may not be written."""
        marker = read_marker(batch, header=header)
        if marker is None:
            return None
        check_marker(self.states.get(header.producer_id), marker, transaction_version)
        marker.offset = offset
        return marker

    def check_data(self, header: BatchHeader, origin: Origin, guard: VerificationGuard | None) -> CachedBatch | None:
        """Returns the batch in the log that this batch repeats, or None if the batch is new. Raises KafkaError if it
        may not be appended."""
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
        """Applies a marker. If it aborts an open transaction, returns the entry for the transaction index."""
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

    def roll_back(self) -> None:
        self.has_changed = False
        self.states.roll_back()
        self._verifications.roll_back()

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forgets producers and verifications that have reached this age. Returns the producers' ids."""
        self._verifications.expire(now_ms, expiration_ms)
        return self.states.expire(now_ms, expiration_ms)

    def expires_ms(self, expiration_ms: int) -> int | None:
        """Returns the time (ms) at which `expire` will next find a producer or a verification to forget, or None if
        there is nothing to forget."""
        oldest_ms = min([*self.states.idle_since_ms(), *self._verifications.created_ms()], default=None)
        return None if oldest_ms is None else oldest_ms + expiration_ms
