"""The TX_PENDING records of a share partition. Their acknowledgements are pending in a transaction (KIP-1289).

A request is checked in all of its partitions (`require_acquired`) before any partition is changed (`acknowledge`). A
transaction marker ends the pending acknowledgements (`apply_marker`). Acquisition locks are not suspended. If a lock
expires, its transaction becomes overdue, and the caller aborts the transaction before the record is released. Source:
docs/spec/share-groups.md#s5-5, #s5-6, #s5-8.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from operator import attrgetter

from odradek.broker.shares.core.dead_letters import Cause
from odradek.broker.shares.core.in_flight import (
    EVENTS,
    NOBODY,
    Acknowledgement,
    InFlight,
    Limits,
    PendingAcknowledgement,
    Span,
    SpanChange,
    StateWrite,
    TrackedBatch,
    batches_to_store,
    dead_letter_state,
    state_after,
    state_after_release,
)
from odradek.broker.shares.core.state import (
    ACCEPT,
    DEAD_LETTER,
    REJECT,
    PendingRange,
    PendingTransaction,
    Resolution,
    ResolvedRange,
    StateBatch,
    TransactionEnd,
    resolution_by,
)
from odradek.broker.shares.core.tables import (
    CANNOT_BE_PENDING,
    GRID,
    LOADED_STATES,
    CellRefusal,
    Effect,
    Event,
    RecordState,
)
from odradek.protocol.errors import ErrorCode, KafkaError

NOT_TRACKED = "The acknowledgement cannot become pending. No acquired records were found at these offsets."
FINISHED = "The acknowledgement cannot become pending. The records are below the start offset of the share partition."
PAST_THE_END = "The offsets in the request are past the acquired records."
NOT_OWNER = "The acknowledgement cannot become pending. The member does not own the records."
EXPIRED = "The acknowledgement cannot become pending. The acquisition lock has expired."

PENDING_TYPES = {Event.ACCEPT: ACCEPT, Event.REJECT: REJECT}


def check_txn_form(acknowledgements: Sequence[Acknowledgement]) -> None:
    """Raises INVALID_REQUEST if a batch is invalid regardless of the partition, and INVALID_RECORD_STATE if an
    acknowledgement type cannot be part of a transaction (docs/spec/share-groups.md#s5-3, rows 8 and 9)."""
    reached = -1
    for each in acknowledgements:
        if not reached < each.first_offset <= each.last_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The batches are not in ascending order, or overlap.")
        reached = each.last_offset
        if len(each.types) not in (1, each.last_offset - each.first_offset + 1):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "A batch must have one acknowledgement type, or one for each offset."
            )
        if not set(each.types) <= EVENTS.keys():
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A batch has an unknown acknowledgement type.")
    if not all({ACCEPT, REJECT}.issuperset(each.types) for each in acknowledgements):
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Only ACCEPT and REJECT are possible inside a transaction.")


class PendingRecords:
    """One share partition's pending acknowledgements.

    lock_expired_count  number of offsets that are no longer TX_PENDING because their lock expired
    overdue             transactions with an expired lock that the caller has not processed yet
    """

    def __init__(self, flight: InFlight) -> None:
        self._flight = flight
        # Markers that arrived while the state writes for their ranges were still unanswered.
        self._missed: list[TransactionEnd] = []
        self._producer_ids: set[int] = set()  # producers that may have pending acknowledgements in this share partition
        self.lock_expired_count = 0
        self.overdue: set[PendingTransaction] = set()

    @property
    def producer_ids(self) -> Set[int]:
        """The producers that may have pending acknowledgements in this share partition. Markers of other producers have
        no effect."""
        return self._producer_ids

    @property
    def record_count(self) -> int:
        return sum(len(span) for span in self._flight.spans() if span.state is RecordState.TX_PENDING)

    @property
    def held_count(self) -> int:
        return sum(len(span) for span in self._flight.spans() if span.pending is not None)

    def load(self, ranges: Iterable[PendingRange]) -> None:
        """Loads the stored pending ranges. Ranges that a marker has ended are no longer stored."""
        flight = self._flight
        for one in ranges:
            for batch in flight.overlapping(one.first_offset, one.last_offset):
                for span in batch.cut(one.first_offset, one.last_offset):
                    if span.state is not RecordState.AVAILABLE:
                        continue
                    span.pending = PendingAcknowledgement(
                        one.transaction, one.ack_type, one.member_id, one.member_epoch
                    )
                    self._producer_ids.add(one.producer_id)
                    span.member_id = one.member_id
                    span.lock_deadline_ms = one.lock_deadline_ms
                    flight.become_pending(span)

    # Becoming pending.

    def require_acquired(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], transaction: PendingTransaction, now_ms: int
    ) -> None:
        """Raises KafkaError INVALID_RECORD_STATE or INVALID_REQUEST unless each of these acknowledgements can become
        pending or is already pending."""
        for each in acknowledgements:
            self._check_bounds(each.first_offset, each.last_offset)
            for first, last, event in each.runs():
                reached = first
                for span in self._spans(first, last):
                    if span.first_offset > reached:
                        break
                    self._check(span, first, event, member_id, transaction, now_ms)
                    reached = span.last_offset + 1
                if reached <= last:
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, NOT_TRACKED)

    def acknowledge(
        self,
        member_id: str,
        member_epoch: int,
        acknowledgements: Sequence[Acknowledgement],
        transaction: PendingTransaction,
        limits: Limits,
    ) -> StateWrite | None:
        """Returns a write that makes the acknowledgements pending once it is stored, or None if nothing changes. The
        acknowledgements must have passed `require_acquired` in the same turn of the event loop."""
        flight = self._flight
        changes: list[SpanChange] = []
        for each in acknowledgements:
            for run_first, last, event in each.runs():
                ack_type = PENDING_TYPES[event]
                if ack_type == REJECT and limits.has_dead_letter_queue:
                    ack_type = DEAD_LETTER
                # Records below the start offset will not be delivered again, so they need not be acknowledged (#s5-5
                # G2).
                first = max(run_first, flight.start_offset)
                if first > last:
                    continue
                for batch in flight.overlapping(first, last):
                    for span in batch.cut(first, last):
                        if GRID[span.state][Event.TXN_ACKNOWLEDGE] is RecordState.TX_PENDING:
                            span.in_transition = True
                            span.pending = PendingAcknowledgement(transaction, ack_type, member_id, member_epoch)
                            changes.append(SpanChange(span, RecordState.TX_PENDING))
        if not changes:
            return None
        self._producer_ids.add(transaction.producer_id)
        return self._write(changes, pending=tuple(_pending_range(span) for span, _ in changes))

    def undo_write(self, write: StateWrite, limits: Limits, now_ms: int) -> StateWrite:
        """Undoes a stored write after another part of the request has failed. Restores the previous states in memory
        and returns a write that restores them in the stored state."""
        resolved = tuple(ResolvedRange.of(each, Resolution.ABORTED, now_ms) for each in write.pending)
        overdue = []
        for span, _ in write.changes:
            if span.is_overdue:
                state = state_after(self._flight, span, Event.LOCK_EXPIRED, limits)
                self._flight.set_state(span, state)
                overdue.append((span, state))
            else:
                self._flight.become_acquired_again(span)
        self.forget_missed()
        self._flight.advance()
        return self._write((), batches_to_store(overdue), resolved=resolved)

    # The end of a transaction.

    def apply_marker(
        self, ending: TransactionEnd, has_session: Callable[[str], bool], limits: Limits, now_ms: int
    ) -> StateWrite | None:
        """Applies a transaction marker to the state in memory. Its effect on the stored state has already been
        recorded.

        has_session  returns whether a member still fetches this partition from this broker
        returns      an additional best-effort write for records that have reached the delivery count limit
        """
        ended: list[tuple[Span, Resolution]] = []
        stays = False
        for batch in self._flight.batches:
            for span in list(batch.spans):
                if span.pending is None:
                    continue
                txn = span.pending.transaction
                resolution = resolution_by(ending, txn.producer_id, txn.producer_epoch)
                if resolution is None:
                    stays = stays or txn.producer_id == ending.producer_id
                    continue
                if span.in_transition:
                    stays = True
                    if ending not in self._missed:
                        self._missed.append(ending)
                else:
                    ended += [(part, resolution) for part in self._cut_at_start(batch, span)]
        if not stays:
            self._producer_ids.discard(ending.producer_id)
        archived = []
        for span, resolution in ended:
            if span.is_overdue and resolution is Resolution.ABORTED:
                self.lock_expired_count += len(span)
            archived += self._resolve(span, resolution, has_session, limits, now_ms)
        return self._write_archived(archived)

    def write_stored(self, write: StateWrite) -> list[TransactionEnd]:
        """Makes the stored ranges TX_PENDING. Returns the markers that arrived while the write was unanswered, for the
        caller to apply."""
        for span, _ in write.changes:
            self._flight.become_pending(span)
        self._flight.advance()
        missed, self._missed = self._missed, []
        return missed

    def forget_missed(self) -> None:
        """Discards early markers that no longer have anything to end because their writes failed or were undone.
        Markers that end ranges of other unanswered writes are kept."""
        if self._missed:
            under_way = [
                span.pending.transaction
                for span in self._flight.spans()
                if span.in_transition and span.pending is not None
            ]
            self._missed = [
                ending
                for ending in self._missed
                if any(resolution_by(ending, each.producer_id, each.producer_epoch) for each in under_way)
            ]

    def forget_owner(self, member_id: str) -> None:
        """Handles the end of the member's share session. The member's acknowledgements stay pending, but if they are
        aborted, the member does not get the records back."""
        for span in self._flight.spans():
            if span.member_id == member_id and span.pending is not None and not span.in_transition:
                span.member_id = NOBODY

    # Expired locks.

    def find_overdue(self, now_ms: int) -> None:
        for span in self._flight.spans():
            if span.state is not RecordState.TX_PENDING or span.is_overdue:
                continue
            assert GRID[span.state][Event.LOCK_EXPIRED] is Effect.END_TRANSACTION
            assert span.pending is not None
            if span.lock_deadline_ms > now_ms:
                self._flight.note_deadline(span.lock_deadline_ms)
            else:
                span.is_overdue = True
                self.overdue.add(span.pending.transaction)

    def ended_by(self, ending: TransactionEnd) -> set[PendingTransaction]:
        return {
            span.pending.transaction
            for span in self._flight.spans()
            if span.state is RecordState.TX_PENDING
            and span.pending is not None
            and resolution_by(ending, span.pending.transaction.producer_id, span.pending.transaction.producer_epoch)
        }

    def has_pending_of(self, transaction: PendingTransaction) -> bool:
        return any(True for _ in self._spans_of(transaction))

    def release(self, transaction: PendingTransaction, limits: Limits, now_ms: int) -> StateWrite | None:
        """Releases the overdue records of a transaction whose outcome cannot be determined."""
        released = []
        for batch, each in list(self._spans_of(transaction)):
            if not each.is_overdue:
                continue
            for span in self._cut_at_start(batch, each):
                range_ = _pending_range(span)
                state = state_after_release(self._flight, span, limits)
                self._flight.set_state(span, state)
                self.lock_expired_count += len(span)
                released.append((span, state, ResolvedRange.of(range_, Resolution.LOCK_EXPIRED, now_ms)))
        if not released:
            return None
        batches = batches_to_store((span, state) for span, state, _ in released)
        write = self._write((), batches, resolved=tuple(each for _, _, each in released))
        self._flight.advance()
        return write

    def adopt_stored_state(
        self,
        transaction: PendingTransaction,
        batches: Sequence[StateBatch],
        ranges: Sequence[PendingRange],
        limits: Limits,
    ) -> None:
        """Adopts the stored state for a transaction that has ended without this leader receiving its marker. Spans that
        are stored as pending stay pending. All other spans get their stored state."""
        ranges = sorted(ranges)  # Neither the ranges nor the batches overlap.
        batches = sorted(batches)
        for batch, each in list(self._spans_of(transaction)):
            for span in self._cut_at_start(batch, each):
                at = bisect_right(ranges, span.last_offset, key=_FIRST_OFFSET) - 1
                if at >= 0 and ranges[at].last_offset >= span.first_offset:
                    continue
                state = _stored_state(span, batches)
                span.cause = Cause.REJECTED  # only used if a rejection was committed and stored as ARCHIVING
                if state is RecordState.AVAILABLE:
                    state = state_after_release(self._flight, span, limits)
                    self.lock_expired_count += len(span) if span.is_overdue else 0
                self._flight.set_state(span, state)
        self._flight.advance()

    # Internal steps.

    def _spans(self, first: int, last: int) -> Iterator[Span]:
        for batch in self._flight.overlapping(first, last):
            yield from batch.overlapping(first, last)

    def _spans_of(self, transaction: PendingTransaction) -> Iterator[tuple[TrackedBatch, Span]]:
        for batch in self._flight.batches:
            for span in batch.spans:
                if (
                    span.state is RecordState.TX_PENDING
                    and span.pending is not None
                    and span.pending.transaction == transaction
                ):
                    yield batch, span

    def _check_bounds(self, first: int, last: int) -> None:
        flight = self._flight
        if flight.floor(first) < 0:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, NOT_TRACKED)
        if flight.batches[flight.floor(last)].last_offset < last:
            raise KafkaError(ErrorCode.INVALID_REQUEST, PAST_THE_END)

    def _check(
        self, span: Span, first: int, event: Event, member_id: str, transaction: PendingTransaction, now_ms: int
    ) -> None:
        if span.pending is not None and not span.in_transition:
            pending = span.pending
            reported_type = REJECT if pending.ack_type == DEAD_LETTER else pending.ack_type
            if (pending.transaction, reported_type, pending.member_id) == (
                transaction,
                PENDING_TYPES[event],
                member_id,
            ):
                return  # the client has retried a request whose response was lost
        is_below = max(first, span.first_offset) < self._flight.start_offset
        cell = CANNOT_BE_PENDING if span.in_transition else GRID[span.state][Event.TXN_ACKNOWLEDGE]
        if isinstance(cell, CellRefusal):
            raise KafkaError(cell.code, FINISHED if is_below else cell.message)
        if span.member_id != member_id:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, NOT_OWNER)
        if span.lock_deadline_ms <= now_ms and not is_below:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, EXPIRED)

    def _resolve(
        self, span: Span, resolution: Resolution, has_session: Callable[[str], bool], limits: Limits, now_ms: int
    ) -> list[tuple[Span, RecordState]]:
        """Applies the resolution to one span. Returns the changes that must be stored in addition to the changes that
        the marker has made."""
        flight, pending = self._flight, span.pending
        assert pending is not None
        event = Event.COMMIT_MARKER if resolution is Resolution.COMMITTED else Event.ABORT_MARKER
        if GRID[span.state][event] is Effect.APPLY:
            if pending.ack_type == ACCEPT:
                flight.set_state(span, RecordState.ACKNOWLEDGED)
            elif pending.ack_type == DEAD_LETTER:  # the marker has stored the record as ARCHIVING
                span.cause = Cause.REJECTED
                flight.set_state(span, RecordState.ARCHIVING)
            # The marker has stored the record as ARCHIVED. If the group got a dead-letter queue after the rejection, a
            # copy is written anyway, unless a crash prevents it.
            else:
                flight.set_state(span, dead_letter_state(span, Cause.REJECTED, limits))
            return []
        assert GRID[span.state][event] is Effect.RETURN, (span.state, event)
        has_owner = span.member_id != NOBODY and has_session(span.member_id)
        if has_owner and span.lock_deadline_ms > now_ms and span.first_offset >= flight.start_offset:
            flight.become_acquired_again(span)
            return []
        state = state_after_release(flight, span, limits)
        flight.set_state(span, state)
        return [] if state is RecordState.AVAILABLE else [(span, state)]

    def _cut_at_start(self, batch: TrackedBatch, span: Span) -> list[Span]:
        start, first, last = self._flight.start_offset, span.first_offset, span.last_offset
        if first < start <= last:
            return batch.cut(first, start - 1) + batch.cut(start, last)
        return [span]

    def _write_archived(self, archived: Sequence[tuple[Span, RecordState]]) -> StateWrite | None:
        write = self._write((), batches_to_store(archived)) if archived else None
        self._flight.advance()
        return write

    def _write(
        self,
        changes: Sequence[SpanChange],
        batches: tuple[StateBatch, ...] | None = None,
        *,
        pending: tuple[PendingRange, ...] = (),
        resolved: tuple[ResolvedRange, ...] = (),
    ) -> StateWrite:
        flight = self._flight
        return StateWrite(
            flight.start_offset,
            flight.complete_count,
            batches_to_store(changes) if batches is None else batches,
            tuple(changes),
            pending,
            resolved,
            flight.take_archiving() if batches is not None else (),
        )


def _pending_range(span: Span) -> PendingRange:
    pending = span.pending
    assert pending is not None
    transactional_id, producer_id, producer_epoch = pending.transaction
    return PendingRange(
        span.first_offset,
        span.last_offset,
        producer_id,
        producer_epoch,
        pending.ack_type,
        span.delivery_count,
        pending.member_id,
        pending.member_epoch,
        span.lock_deadline_ms,
        transactional_id,
    )


def _stored_state(span: Span, batches: Sequence[StateBatch]) -> RecordState:
    """Returns the stored state of the span's first offset. `batches` is ascending. An offset without a batch is
    finished, because nothing is stored below the start offset."""
    at = bisect_right(batches, span.first_offset, key=_FIRST_OFFSET) - 1
    if at >= 0 and span.first_offset <= batches[at].last_offset:
        return LOADED_STATES.get(batches[at].delivery_state, RecordState.AVAILABLE)
    return RecordState.ACKNOWLEDGED


_FIRST_OFFSET = attrgetter("first_offset")
