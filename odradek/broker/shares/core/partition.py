"""A share partition on its leader: the records that members hold, the delivery counts, and the finished records.

`SharePartition` owns the records in flight. Methods that finish or release records return a `StateWrite`. The changed
records are in transition until `write_stored` or `write_failed` reports the share coordinator's response; until then,
nothing else may change these records. The write after an expired lock is best effort, so nothing waits for it.

Source: docs/spec/share-groups.md#s3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from odradek.broker.shares.core.acquisition import AcquiredOffsets, Acquisition, LogBatches, acquire, archive_aborted
from odradek.broker.shares.core.dead_letters import Cause, DeadLetter, guess_cause
from odradek.broker.shares.core.in_flight import (
    EVENTS,
    RENEW,
    Acknowledgement,
    InFlight,
    Limits,
    Span,
    SpanChange,
    StateWrite,
    TrackedBatch,
    batches_to_store,
    complete_count,
    dead_letter_state,
    state_after,
)
from odradek.broker.shares.core.pending_records import PendingRecords
from odradek.broker.shares.core.state import PendingRange, StateBatch
from odradek.broker.shares.core.tables import GRID, LOADED_STATES, NOT_ACQUIRED, CellRefusal, Effect, Event, RecordState
from odradek.protocol.errors import ErrorCode, KafkaError

NOT_FOUND = "The batch cannot be acknowledged. No acquired records were found at these offsets."
NOT_OWNER = "Member is not the owner of batch record"
FIRST_TOO_HIGH = "The first offset in request is past acquired records."
LAST_TOO_HIGH = "The last offset in request is past acquired records."
RENEW_DISABLED = "Renewing acquisition locks is disabled for this group."


def check_form(acknowledgements: Sequence[Acknowledgement], *, may_renew: bool) -> None:
    """Raises INVALID_REQUEST if a batch is invalid regardless of the partition.

    may_renew  whether the request sets IsRenewAck (version 2 and later)
    """
    reached = -1
    for each in acknowledgements:
        types = set(each.types)
        if (
            not reached <= each.first_offset <= each.last_offset
            or len(each.types) not in (1, each.last_offset - each.first_offset + 1)
            or not types <= EVENTS.keys()
            or (RENEW in types and not may_renew)
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        reached = each.last_offset


class SharePartition:
    """The records in flight of one share partition on its leader. `pending` tracks the acknowledgements waiting for a
    transaction to end (KIP-1289)."""

    def __init__(
        self, start_offset: int, batches: Iterable[StateBatch] = (), pending: Iterable[PendingRange] = ()
    ) -> None:
        """Loads the stored state. Its start offset must already have been chosen.

        raises  KafkaError UNKNOWN_SERVER_ERROR if no leader could have written the stored state
        """
        self.flight = InFlight(start_offset)
        self._completing_count = 0  # offsets that unanswered writes will finish
        self.pending = PendingRecords(self.flight)
        self._load(sorted(batches))
        self.pending.load(pending)

    def _load(self, batches: Sequence[StateBatch]) -> None:
        flight = self.flight
        reached = flight.start_offset
        gap_start = None
        for batch in batches:
            state = LOADED_STATES.get(batch.delivery_state)
            if state is None or batch.first_offset < reached or batch.last_offset < batch.first_offset:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The stored share state cannot be read: {batch}")
            if batch.first_offset > reached and gap_start is None:
                gap_start = reached
            reached = batch.last_offset + 1
            span = Span(batch.first_offset, batch.last_offset, RecordState.AVAILABLE, batch.delivery_count)
            flight.batches.append(TrackedBatch([span]))
            flight.set_state(span, state)
        flight.next_offset = reached
        if batches:
            flight.gap_start = gap_start
            flight.found_available()
            flight.advance()

    def may_acquire(self, limits: Limits) -> bool:
        """Returns whether reading the log can yield records to deliver. If the partition has reached
        `max_record_locks`, only released records can be delivered."""
        flight = self.flight
        return flight.size < limits.max_record_locks or flight.next_fetch_offset < flight.next_offset

    # Delivering.

    def acquire(
        self,
        acquisition: Acquisition,
        log_batches: LogBatches,
        limits: Limits,
        now_ms: int,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[AcquiredOffsets]:
        """Acquires records for a member.

        log_batches  (first offset, last offset) of the log batches read from `next_fetch_offset`, ascending
        aborted      inclusive ranges of offsets in aborted transactions, which a read_committed group must not receive
        returns      the acquired ranges, ascending; empty if no records are available
        """
        acquired = acquire(self.flight, acquisition, log_batches, limits, now_ms + limits.lock_duration_ms)
        if acquired and aborted:
            acquired = archive_aborted(self.flight, acquired, aborted)
        if acquired:
            self.flight.note_deadline(now_ms + limits.lock_duration_ms)
        return acquired

    def log_start_moved(self, log_start_offset: int) -> None:
        """Archives the available records that retention has removed and moves the start offset. The next state write
        stores the new start offset."""
        flight = self.flight
        for batch in flight.overlapping(flight.start_offset, log_start_offset - 1):
            for span in batch.overlapping(batch.first_offset, log_start_offset - 1):
                if span.is_available and GRID[span.state][Event.DATA_GONE] is RecordState.ARCHIVED:
                    for part in batch.cut(span.first_offset, min(span.last_offset, log_start_offset - 1)):
                        flight.set_state(part, RecordState.ARCHIVED)
        flight.move_start_to(log_start_offset)

    def archive_used_up(self, limits: Limits) -> StateWrite | None:
        """Finishes available records that have already reached the delivery count limit.

        Such records were pending in a transaction that was aborted while the share partition had no leader to apply the
        limit (#s5-8). The write is best effort, as after an expired lock.
        """
        used_up = []
        for span in self.flight.spans():
            if span.state is RecordState.AVAILABLE and span.delivery_count >= limits.delivery_count_limit:
                self.flight.set_state(span, dead_letter_state(span, Cause.TOO_MANY_DELIVERIES, limits))
                used_up.append((span, span.state))
        if not used_up:
            return None
        batches = batches_to_store(used_up)
        self.flight.advance()
        return StateWrite(
            self.flight.start_offset, self.flight.complete_count, batches, archiving=self.flight.take_archiving()
        )

    # Acknowledging.

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], limits: Limits, now_ms: int
    ) -> StateWrite | None:
        """Starts applying the acknowledgements. If any of them is invalid, none are applied, but locks that were
        renewed before the invalid acknowledgement was found stay renewed.

        returns  the write that must be stored before the member receives a response; None if nothing changes
        raises   KafkaError INVALID_RECORD_STATE, INVALID_REQUEST
        """
        changes: list[SpanChange] = []
        try:
            for each in acknowledgements:
                self._begin_acknowledgement(member_id, each, limits, now_ms, changes)
        except KafkaError:
            for change in changes:
                change.span.in_transition = False
            raise
        return self._write(changes)

    def release(self, member_id: str, limits: Limits) -> StateWrite | None:
        """Releases all records of a member whose share session has ended. Other members can acquire them once the write
        is stored."""
        changes = []
        self.pending.forget_owner(member_id)
        for span in self._held_spans(lambda span: span.member_id == member_id):
            changes.append(self._in_transition(span, state_after(self.flight, span, Event.SESSION_ENDED, limits)))
        return self._write(changes)

    def write_stored(self, write: StateWrite) -> None:
        self._completing_count -= complete_count(write.changes)
        for span, state in write.changes:
            self.flight.set_state(span, state)
        if write.archiving:
            self.flight.archiving += write.archiving
        self.flight.advance()

    def write_failed(self, write: StateWrite, limits: Limits) -> None:
        """Restores the previous state of the records. Records whose lock expired during the write are released."""
        self._completing_count -= complete_count(write.changes)
        for span, _ in write.changes:
            span.in_transition = False
            span.pending = None
            if span.is_overdue:
                self.flight.set_state(span, state_after(self.flight, span, Event.LOCK_EXPIRED, limits))
        self.flight.archiving += write.archiving
        self.pending.forget_missed()
        self.flight.advance()

    # Expired locks.

    def expire_locks(self, limits: Limits, now_ms: int) -> StateWrite | None:
        """Releases the records whose lock has expired. The change is final even if the write fails."""
        self.flight.earliest_deadline_ms = None
        overdue = []
        for span in self.flight.spans():
            if span.state is RecordState.ACQUIRED and not span.is_overdue:
                if span.lock_deadline_ms > now_ms:
                    self.flight.note_deadline(span.lock_deadline_ms)
                elif span.in_transition:
                    span.is_overdue = True
                else:
                    overdue.append(span)
        self.pending.find_overdue(now_ms)
        if not overdue:
            return None
        ended = self._held_spans(lambda span: span.lock_deadline_ms <= now_ms)
        for span in ended:
            self.flight.set_state(span, state_after(self.flight, span, Event.LOCK_EXPIRED, limits))
        batches = batches_to_store((span, span.state) for span in ended)
        start_offset = self.flight.start_offset
        all_complete = self.flight.complete_count + self._completing_count
        self.flight.advance()
        return StateWrite(start_offset, all_complete, batches, archiving=self.flight.take_archiving())

    # The dead-letter queue.

    def take_dead_letters(self, limits: Limits) -> Sequence[DeadLetter]:
        """Returns the records that have become ARCHIVING since the last call and must be copied now. If records were
        loaded as ARCHIVING, the cause is guessed from the delivery count, because the stored state does not contain the
        cause."""
        archived = self.flight.take_archiving()
        return [self._dead_letter(each, limits) for each in archived]

    def _dead_letter(self, letter: DeadLetter, limits: Limits) -> DeadLetter:
        first, last, count, cause, _ = letter
        batch = self.flight.batches[self.flight.floor(first)] if self.flight.floor(first) >= 0 else None
        is_whole = batch is not None and (batch.first_offset, batch.last_offset) == (first, last)
        if cause is None:
            cause = guess_cause(count, limits.delivery_count_limit)
        return DeadLetter(first, last, count, cause, is_whole)

    def archive_copied(self, letters: Iterable[DeadLetter]) -> StateWrite | None:
        """Archives these records once copying has finished, successfully or not. Records that are not ARCHIVING are
        ignored. The change is final even if the write fails. Returns None if none of the records was ARCHIVING."""
        flight = self.flight
        archived: list[tuple[Span, RecordState]] = []
        for each in letters:
            for batch in flight.overlapping(each.first_offset, each.last_offset):
                for span in batch.cut(each.first_offset, each.last_offset):
                    cell = GRID[span.state][Event.COPIED]
                    if isinstance(cell, RecordState):
                        flight.set_state(span, cell)
                        archived.append((span, cell))
        if not archived:
            return None
        batches = batches_to_store(archived)
        flight.advance()
        return StateWrite(flight.start_offset, flight.complete_count + self._completing_count, batches)

    # Internal steps.

    def _begin_acknowledgement(
        self, member_id: str, acknowledgement: Acknowledgement, limits: Limits, now_ms: int, changes: list[SpanChange]
    ) -> None:
        flight = self.flight
        first, last, _ = acknowledgement
        start = flight.start_offset
        if last < start:
            return  # already finished, or removed by retention
        self._check_bounds(first, last)
        for run_first, run_last, event in acknowledgement.runs():
            run_first = max(run_first, start)
            if run_first > run_last:
                continue
            for batch in flight.overlapping(run_first, run_last):
                self._change(batch, run_first, run_last, event, member_id, limits, now_ms, changes)

    def _check_bounds(self, first: int, last: int) -> None:
        flight = self.flight
        start_is_inside = first < flight.start_offset
        at = flight.floor(flight.start_offset if start_is_inside else first)
        if at < 0:
            if start_is_inside and not flight.batches:
                raise KafkaError(ErrorCode.INVALID_REQUEST, LAST_TOO_HIGH)
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, NOT_FOUND)
        reached = flight.batches[flight.floor(last)].last_offset
        if reached < first:
            raise KafkaError(ErrorCode.INVALID_REQUEST, FIRST_TOO_HIGH)
        if reached < last:
            raise KafkaError(ErrorCode.INVALID_REQUEST, LAST_TOO_HIGH)

    def _change(
        self,
        batch: TrackedBatch,
        first: int,
        last: int,
        event: Event,
        member_id: str,
        limits: Limits,
        now_ms: int,
        changes: list[SpanChange],
    ) -> None:
        for span in batch.overlapping(first, last):
            cell = NOT_ACQUIRED if span.in_transition else GRID[span.state][event]
            if isinstance(cell, CellRefusal):
                raise KafkaError(cell.code, cell.message)
            if span.member_id != member_id:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, NOT_OWNER)
            if event is Event.RENEW and not limits.renew_enabled:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, RENEW_DISABLED)
        for span in batch.cut(first, last):
            if GRID[span.state][event] is Effect.EXTEND:
                span.lock_deadline_ms = now_ms + limits.lock_duration_ms
                self.flight.note_deadline(span.lock_deadline_ms)
            else:
                changes.append(self._in_transition(span, state_after(self.flight, span, event, limits)))

    def _in_transition(self, span: Span, state: RecordState) -> SpanChange:
        span.in_transition = True
        return SpanChange(span, state)

    def _held_spans(self, is_meant: Callable[[Span], bool]) -> list[Span]:
        """Returns the matching spans that members hold and that no unanswered write will change. A span that crosses
        the start offset is split there, because records below the start offset do not become available again."""
        start = self.flight.start_offset
        found = []
        for batch in self.flight.batches:
            for span in list(batch.spans):
                if span.state is RecordState.ACQUIRED and not span.in_transition and is_meant(span):
                    first, last = span.first_offset, span.last_offset
                    if first < start <= last:
                        found += batch.cut(first, start - 1) + batch.cut(start, last)
                    else:
                        found.append(span)
        return found

    def _write(self, changes: Sequence[SpanChange]) -> StateWrite | None:
        if not changes:
            return None
        flight = self.flight
        self._completing_count += complete_count(changes)
        all_complete = flight.complete_count + self._completing_count
        return StateWrite(flight.start_offset, all_complete, batches_to_store(changes), tuple(changes))
