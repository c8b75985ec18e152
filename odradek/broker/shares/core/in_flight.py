"""The in-flight records of one share partition, tracked as ranges between a start offset and a next offset.

    start offset     first offset that is not finished; every offset below it is finished
    next offset      first offset that has not been considered yet; equal to the start offset if nothing is tracked

A range that was acquired in one step is a `TrackedBatch` with one `Span`. Spans are split when their offsets get
different states, and are never joined again. For example, 500 records that are acquired and acknowledged together need
only one batch and one span. Source: docs/spec/share-groups.md#s3-5, #s3-7, #s3-8.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from odradek.broker.shares.core.dead_letters import Cause, DeadLetter
from odradek.broker.shares.core.state import PendingRange, PendingTransaction, ResolvedRange, StateBatch
from odradek.broker.shares.core.tables import GRID, TERMINAL, Effect, Event, RecordState

RENEW = 4
EVENTS: Mapping[int, Event] = {
    0: Event.GAP,
    1: Event.ACCEPT,
    2: Event.RELEASE,
    3: Event.REJECT,
    RENEW: Event.RENEW,
}
NOBODY = ""
NO_DEADLINE = 0
# With a delivery count limit of 2 or less, there is no special last attempt, because every redelivery would then
# contain only one record.
LAST_ATTEMPT_ALONE_ABOVE = 2


class Limits(NamedTuple):
    """Limits of a share group. Each limit is the group's own setting, or the broker's setting if the group has none.

    delivery_count_limit     share.delivery.count.limit
    max_record_locks         share.partition.max.record.locks: the maximum number of offsets in flight
    lock_duration_ms         share.record.lock.duration.ms
    renew_enabled            share.renew.acknowledge.enable
    has_dead_letter_queue    whether errors.deadletterqueue.topic.name is set for the group and share.version is 2
    """

    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    lock_duration_ms: int = 30_000
    renew_enabled: bool = True
    has_dead_letter_queue: bool = False

    @property
    def throttled_from(self) -> int:
        """The delivery count from which records are delivered in ever smaller batches."""
        return max(2, (self.delivery_count_limit + 1) // 2)

    @property
    def last_attempt(self) -> int | None:
        """The delivery count after which a record is delivered one last time, on its own. None if the limit is too
        small for such a last attempt."""
        limit = self.delivery_count_limit
        return limit - 1 if limit > LAST_ATTEMPT_ALONE_ABOVE else None


class Acknowledgement(NamedTuple):
    """An acknowledgement of an inclusive range of offsets. `types` contains either one type for all offsets or one type
    for each offset."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def runs(self) -> Iterator[tuple[int, int, Event]]:
        """Yields (first offset, last offset, event) for each run of offsets with the same type."""
        types = self.types
        if types.count(types[0]) == len(types):  # the usual case; `count` does not create an object for each record
            yield self.first_offset, self.last_offset, EVENTS[types[0]]
            return
        offset = self.first_offset
        for each, alike in groupby(types):
            count = sum(1 for _ in alike)
            yield offset, offset + count - 1, EVENTS[each]
            offset += count


class PendingAcknowledgement(NamedTuple):
    """An acknowledgement of offsets in a transaction, with the id and epoch of the member that sent it.

    ack_type  ACCEPT, REJECT or DEAD_LETTER; DEAD_LETTER is a rejection while the group has a dead-letter queue
    """

    transaction: PendingTransaction
    ack_type: int
    member_id: str
    member_epoch: int


class Span:
    """An inclusive range of offsets that all have the same state.

    member_id         the member that has acquired the offsets; NOBODY unless they are ACQUIRED or TX_PENDING
    lock_deadline_ms  when the member's lock expires
    in_transition     whether a state write that will change the offsets is still unanswered; until it is answered,
                      nothing else can change the offsets
    is_overdue        whether the lock expired during an unanswered state write or while the offsets were TX_PENDING
    pending           the pending acknowledgement if the offsets are TX_PENDING or about to become so
    cause             why the offsets are ARCHIVING or about to become so; None if they were loaded as ARCHIVING
    """

    __slots__ = (
        "cause",
        "delivery_count",
        "first_offset",
        "in_transition",
        "is_overdue",
        "last_offset",
        "lock_deadline_ms",
        "member_id",
        "pending",
        "state",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        state: RecordState,
        delivery_count: int,
        member_id: str = NOBODY,
        lock_deadline_ms: int = NO_DEADLINE,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_deadline_ms = lock_deadline_ms
        self.in_transition = False
        self.is_overdue = False
        self.pending: PendingAcknowledgement | None = None
        self.cause: Cause | None = None

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def is_finished(self) -> bool:
        return self.state in TERMINAL and not self.in_transition

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and not self.in_transition

    def split_before(self, offset: int) -> Span:
        """Splits the span. This span keeps the offsets below `offset`, and the returned span contains the rest."""
        rest = Span(offset, self.last_offset, self.state, self.delivery_count, self.member_id, self.lock_deadline_ms)
        rest.in_transition = self.in_transition
        rest.is_overdue = self.is_overdue
        rest.pending = self.pending
        rest.cause = self.cause
        self.last_offset = offset - 1
        return rest


class TrackedBatch:
    """Offsets that were acquired or loaded together. The spans cover the batch without gaps, except that finished spans
    below the start offset are removed."""

    __slots__ = ("first_offset", "last_offset", "spans")

    def __init__(self, spans: list[Span]) -> None:
        self.first_offset = spans[0].first_offset
        self.last_offset = spans[-1].last_offset
        self.spans = spans

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    def overlapping(self, first_offset: int, last_offset: int) -> list[Span]:
        start = bisect_left(self.spans, first_offset, key=_LAST_OFFSET)
        return self.spans[start : bisect_right(self.spans, last_offset, key=_FIRST_OFFSET)]

    def cut(self, first_offset: int, last_offset: int) -> list[Span]:
        """Returns the spans of the batch within these offsets. Spans that extend beyond the offsets are split first."""
        spans = self.spans
        if len(spans) == 1 and first_offset <= spans[0].first_offset and last_offset >= spans[0].last_offset:
            return spans
        self._split_before(first_offset)
        self._split_before(last_offset + 1)
        return self.overlapping(first_offset, last_offset)

    def _split_before(self, offset: int) -> None:
        at = bisect_right(self.spans, offset, key=_FIRST_OFFSET) - 1
        if at >= 0 and self.spans[at].first_offset < offset <= self.spans[at].last_offset:
            self.spans.insert(at + 1, self.spans[at].split_before(offset))


_FIRST_OFFSET = attrgetter("first_offset")
_LAST_OFFSET = attrgetter("last_offset")


class InFlight:
    """The tracked batches of one share partition, in ascending order.

    complete_count        the number of finished offsets at or above the start offset (KIP-1226)
    earliest_deadline_ms  the earliest time at which a lock may expire; None if nothing is locked
    gap_start             first offset in the gaps between loaded batches that may still contain unread records; None if
                          there are no such gaps. The first acquisition beyond the loaded batches proves that the gaps
                          are empty
    archiving             offsets that have become ARCHIVING and that `take_archiving` has not returned yet
    """

    __slots__ = (
        "_maybe_available",
        "archiving",
        "batches",
        "complete_count",
        "earliest_deadline_ms",
        "gap_start",
        "next_offset",
        "start_offset",
    )

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.next_offset = start_offset
        self.batches: list[TrackedBatch] = []
        self.complete_count = 0
        self.gap_start: int | None = None
        self.earliest_deadline_ms: int | None = None
        self.archiving: list[DeadLetter] = []
        self._maybe_available = False  # If False, no offset below the next offset is available.

    # Reading.

    @property
    def size(self) -> int:
        """The number of offsets in flight, including finished offsets that follow an unfinished one."""
        return self.next_offset - self.start_offset if self.batches else 0

    @property
    def next_fetch_offset(self) -> int:
        """The offset at which the next acquisition starts reading the log: the first offset that is available or has
        not been considered yet."""
        if not self._maybe_available:
            return self.next_offset
        gap_start = self.gap_start
        for batch in self.batches:
            if gap_start is not None:
                if batch.first_offset > gap_start:
                    return max(gap_start, self.start_offset)
                gap_start = max(gap_start, batch.last_offset + 1)
            for span in batch.spans:
                if span.is_available and span.last_offset >= self.start_offset:
                    return max(span.first_offset, self.start_offset)
        self._maybe_available = False
        return self.next_offset

    def floor(self, offset: int) -> int:
        """Returns the index of the last batch that begins at or before `offset`, or -1 if there is none."""
        return bisect_right(self.batches, offset, key=_FIRST_OFFSET) - 1

    def overlapping(self, first_offset: int, last_offset: int) -> list[TrackedBatch]:
        batches = self.batches
        at = self.floor(first_offset)
        start = at if at >= 0 and batches[at].last_offset >= first_offset else at + 1
        return batches[start : self.floor(last_offset) + 1]

    def spans(self) -> Iterator[Span]:
        for batch in self.batches:
            yield from batch.spans

    # Changes.

    def note_deadline(self, deadline_ms: int) -> None:
        if self.earliest_deadline_ms is None or deadline_ms < self.earliest_deadline_ms:
            self.earliest_deadline_ms = deadline_ms

    def found_available(self) -> None:
        self._maybe_available = True

    def add(self, batch: TrackedBatch) -> None:
        """Tracks a new batch. The batch begins at or beyond the next offset, or fills a gap between loaded batches."""
        at = self.floor(batch.first_offset) + 1
        is_first = at == 0 or self.batches[at - 1].last_offset < self.start_offset
        self.batches.insert(at, batch)
        if is_first and batch.first_offset > self.start_offset:
            self.start_offset = batch.first_offset
        if batch.last_offset >= self.next_offset:
            self.next_offset = batch.last_offset + 1
            self.gap_start = None
        elif self.gap_start is not None:
            self.gap_start = batch.last_offset + 1

    def set_state(self, span: Span, state: RecordState) -> None:
        """Changes a span's state and clears its member, lock and pending acknowledgement."""
        span.state = state
        span.in_transition = span.is_overdue = False
        span.member_id = NOBODY
        span.lock_deadline_ms = NO_DEADLINE
        span.pending = None
        if state in TERMINAL:
            self.complete_count += self._length_from_start(span)
        elif state is RecordState.ARCHIVING:
            self.archiving.append(DeadLetter(span.first_offset, span.last_offset, span.delivery_count, span.cause))
        else:
            self._maybe_available = True

    def take_archiving(self) -> Sequence[DeadLetter]:
        """Returns the offsets that have become ARCHIVING since the last call. Usually there are none."""
        if not self.archiving:
            return ()
        archived, self.archiving = self.archiving, []
        return archived

    def become_pending(self, span: Span) -> None:
        """Makes an acquired span TX_PENDING. The span keeps its member and lock in case the transaction is aborted."""
        span.state = RecordState.TX_PENDING
        span.in_transition = span.is_overdue = False
        self.note_deadline(span.lock_deadline_ms)

    def become_acquired_again(self, span: Span) -> None:
        span.state = RecordState.ACQUIRED
        span.in_transition = span.is_overdue = False
        span.pending = None
        self.note_deadline(span.lock_deadline_ms)

    def move_start_to(self, log_start_offset: int) -> None:
        """Moves the start offset after retention has removed the records below `log_start_offset`.

        These records are not delivered again. A member that has acquired such records keeps them until it acknowledges
        them or its lock expires.
        """
        if log_start_offset <= self.start_offset:
            return
        self.start_offset = log_start_offset
        self.next_offset = max(self.next_offset, log_start_offset)
        if self.gap_start is not None:
            self.gap_start = max(self.gap_start, log_start_offset)
        self.complete_count = sum(self._length_from_start(span) for span in self.spans() if span.is_finished)
        self._forget_finished()

    def advance(self) -> None:
        """Moves the start offset to the first unfinished offset."""
        start = self._first_unfinished()
        if start > self.start_offset:
            self.complete_count -= sum(
                self._length_from_start(span)
                for batch in self.overlapping(self.start_offset, start - 1)
                for span in batch.overlapping(self.start_offset, start - 1)
            )
            self.start_offset = start
        self._forget_finished()

    def _length_from_start(self, span: Span) -> int:
        return max(0, span.last_offset - max(span.first_offset, self.start_offset) + 1)

    def _first_unfinished(self) -> int:
        start, gap_start = self.start_offset, self.gap_start
        reached = start
        for batch in self.batches:
            if batch.last_offset < start:
                continue
            if gap_start is not None and (batch.last_offset >= gap_start or batch.first_offset > reached):
                return reached
            for span in batch.spans:
                if span.last_offset < start:
                    continue
                if not span.is_finished:
                    return max(span.first_offset, start)
                reached = span.last_offset + 1
        return self.next_offset if gap_start is None else reached

    def _forget_finished(self) -> None:
        """Stops tracking the finished offsets below the start offset. Offsets that members still hold are kept."""
        start, batches = self.start_offset, self.batches
        below = self.floor(start - 1) + 1
        if below == 0:
            return
        remaining = []
        for batch in batches[:below]:
            spans = batch.spans
            if spans[0].last_offset < start:
                spans = [each for each in spans if each.last_offset >= start or not each.is_finished]
                batch.spans = spans
            if spans:
                remaining.append(batch)
        if len(remaining) < below:
            batches[:below] = remaining


def state_after(flight: InFlight, span: Span, event: Event, limits: Limits) -> RecordState:
    """Returns the state that the grid defines for an event. If the new state is ARCHIVING, the cause is stored in the
    span."""
    cell = GRID[span.state][event]
    if isinstance(cell, RecordState):
        return cell
    if cell is Effect.DEAD_LETTER:
        return dead_letter_state(span, Cause.REJECTED, limits)
    assert cell is Effect.RETRY, (span.state, event)
    return state_after_release(flight, span, limits)


def state_after_release(flight: InFlight, span: Span, limits: Limits) -> RecordState:
    """Returns the new state of a record that is released before it is finished. The record becomes AVAILABLE again,
    unless it has reached the delivery count limit or is below the start offset."""
    if span.delivery_count >= limits.delivery_count_limit:
        return dead_letter_state(span, Cause.TOO_MANY_DELIVERIES, limits)
    return RecordState.ARCHIVED if span.last_offset < flight.start_offset else RecordState.AVAILABLE


def dead_letter_state(span: Span, cause: Cause, limits: Limits) -> RecordState:
    """Returns the state of a record that will never be delivered again. If the group has a dead-letter queue, the
    record must first be copied there, and the cause is stored in the span for use in the copy."""
    if not limits.has_dead_letter_queue:
        return RecordState.ARCHIVED
    span.cause = cause
    return RecordState.ARCHIVING


class SpanChange(NamedTuple):
    span: Span
    state: RecordState


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A change to a share partition's state, which the leader sends to the share coordinator.

    batches            ascending; adjacent batches with the same state are joined
    changes            applied when the coordinator responds; empty if already applied, for example after a lock expired
    pending, resolved  ranges that become pending in transactions, and ranges that are no longer pending
    archiving          offsets that are already ARCHIVING and are copied once the coordinator has responded
    """

    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]
    changes: tuple[SpanChange, ...] = ()
    pending: Sequence[PendingRange] = ()
    resolved: Sequence[ResolvedRange] = ()
    archiving: Sequence[DeadLetter] = ()


def complete_count(changes: Iterable[SpanChange]) -> int:
    return sum(len(span) for span, state in changes if state in TERMINAL)


def batches_to_store(changes: Iterable[tuple[Span, RecordState]]) -> tuple[StateBatch, ...]:
    """Returns the batches to store. Adjacent batches with the same state are joined. TX_PENDING is stored as AVAILABLE,
    and the pending acknowledgement is stored separately."""
    joined: list[StateBatch] = []
    for span, state in changes:
        value = RecordState.AVAILABLE.value if state is RecordState.TX_PENDING else state.value
        if joined:
            first, last, stored_state, count = joined[-1]
            if last + 1 == span.first_offset and stored_state == value and count == span.delivery_count:
                joined[-1] = StateBatch(first, span.last_offset, stored_state, count)
                continue
        joined.append(StateBatch(span.first_offset, span.last_offset, value, span.delivery_count))
    return tuple(joined)
