"""The records in flight of one share partition, kept as ranges: what is tracked, and where the window begins and ends.

    start offset     first offset that is not finished; everything below it is done
    next offset      first offset not considered yet; with nothing tracked it is the start offset

A range acquired together is a `TrackedBatch` of one `Span`; spans are split where their offsets get different states,
and never joined. So 500 records acquired and acknowledged together cost one batch and one span.
Source: docs/spec/share-groups.md#s3-5, #s3-7, #s3-8.
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
from odradek.broker.shares.core.tables import TERMINAL, Event, RecordState

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


class Acknowledgement(NamedTuple):
    """Types for neighbouring offsets, both inclusive: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def runs(self) -> Iterator[tuple[int, int, Event]]:
        """Yields (first offset, last offset, event), joined where neighbours have the same type."""
        types = self.types
        if types.count(types[0]) == len(types):  # nearly always, and counted without an object for each record
            yield self.first_offset, self.last_offset, EVENTS[types[0]]
            return
        offset = self.first_offset
        for each, alike in groupby(types):
            count = sum(1 for _ in alike)
            yield offset, offset + count - 1, EVENTS[each]
            offset += count


class PendingAcknowledgement(NamedTuple):
    """How offsets were acknowledged in a transaction, and by which member at which epoch.

    ack_type  ACCEPT, REJECT, or DEAD_LETTER: rejected while the group had a dead-letter queue
    """

    transaction: PendingTransaction
    ack_type: int
    member_id: str
    member_epoch: int


class Span:
    """Neighbouring offsets, both ends included, that are alike in every respect.

    member_id         who has acquired them; NOBODY unless they are ACQUIRED or TX_PENDING
    lock_deadline_ms  when they are taken away from that member
    in_transition     a state write that will change them has not been answered; until then nothing else may
    is_overdue        the lock ran out during that write, or during the transaction in which they are acknowledged
    pending           the transaction; only while they are TX_PENDING, or on their way there
    cause             why they are ARCHIVING, or on their way there; None for what was loaded so
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
        """Keeps what lies below `offset`, and returns the rest."""
        rest = Span(offset, self.last_offset, self.state, self.delivery_count, self.member_id, self.lock_deadline_ms)
        rest.in_transition = self.in_transition
        rest.is_overdue = self.is_overdue
        rest.pending = self.pending
        rest.cause = self.cause
        self.last_offset = offset - 1
        return rest


class TrackedBatch:
    """Offsets that were acquired, or loaded, together. Its spans cover it without a gap, but for finished ones below
    the start offset, which are forgotten."""

    __slots__ = ("first_offset", "last_offset", "spans")

    def __init__(self, spans: list[Span]) -> None:
        self.first_offset = spans[0].first_offset
        self.last_offset = spans[-1].last_offset
        self.spans = spans

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    def overlapping(self, first_offset: int, last_offset: int) -> list[Span]:
        begin = bisect_left(self.spans, first_offset, key=_LAST_OFFSET)
        return self.spans[begin : bisect_right(self.spans, last_offset, key=_FIRST_OFFSET)]

    def cut(self, first_offset: int, last_offset: int) -> list[Span]:
        """The spans that hold exactly these offsets, as far as the batch holds them."""
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
    """The tracked batches, in ascending order.

    complete_count        the finished offsets at or above the start offset (KIP-1226)
    earliest_deadline_ms  when a lock may have run out; None while nothing is locked
    gap_start             where offsets may still have to be read between what was loaded; None once none can be left:
                          with the first acquisition beyond the loaded end the holes are known to hold no data
    archiving             what has become ARCHIVING, and has not been taken for its copy yet
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
        self._maybe_available = False  # False: nothing below the next offset is there to be acquired

    # Looking.

    @property
    def size(self) -> int:
        """Offsets in flight, finished ones behind an unfinished one included."""
        return self.next_offset - self.start_offset if self.batches else 0

    @property
    def next_fetch_offset(self) -> int:
        """Where the log is to be read for the next acquisition: the first offset that is available, or unexplored."""
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
        """Index of the last batch that begins at or before `offset`; -1 if there is none."""
        return bisect_right(self.batches, offset, key=_FIRST_OFFSET) - 1

    def overlapping(self, first_offset: int, last_offset: int) -> list[TrackedBatch]:
        batches = self.batches
        at = self.floor(first_offset)
        begin = at if at >= 0 and batches[at].last_offset >= first_offset else at + 1
        return batches[begin : self.floor(last_offset) + 1]

    def spans(self) -> Iterator[Span]:
        for batch in self.batches:
            yield from batch.spans

    # Changing.

    def note_deadline(self, deadline_ms: int) -> None:
        if self.earliest_deadline_ms is None or deadline_ms < self.earliest_deadline_ms:
            self.earliest_deadline_ms = deadline_ms

    def found_available(self) -> None:
        self._maybe_available = True

    def add(self, batch: TrackedBatch) -> None:
        """Offsets that are new here: beyond the next offset, or in a hole between what was loaded."""
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

    def become(self, span: Span, state: RecordState) -> None:
        """A change that needs no answer any more."""
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
        """Returns what has become ARCHIVING since the last call. Nearly always there is nothing."""
        if not self.archiving:
            return ()
        taken, self.archiving = self.archiving, []
        return taken

    def become_pending(self, span: Span) -> None:
        """Member and lock stay, for the case that the transaction is aborted."""
        span.state = RecordState.TX_PENDING
        span.in_transition = span.is_overdue = False
        self.note_deadline(span.lock_deadline_ms)

    def become_acquired_again(self, span: Span) -> None:
        span.state = RecordState.ACQUIRED
        span.in_transition = span.is_overdue = False
        span.pending = None
        self.note_deadline(span.lock_deadline_ms)

    def move_start_to(self, log_start_offset: int) -> None:
        """Retention went past the start offset. Nothing is read below it any more; what members hold there is left to
        them until they are done or late."""
        if log_start_offset <= self.start_offset:
            return
        self.start_offset = log_start_offset
        self.next_offset = max(self.next_offset, log_start_offset)
        if self.gap_start is not None:
            self.gap_start = max(self.gap_start, log_start_offset)
        self.complete_count = sum(self._length_from_start(span) for span in self.spans() if span.is_finished)
        self._forget_finished()

    def advance(self) -> None:
        """Move the start offset over what is finished, to the first offset that is not."""
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
        """Forgets what lies below the start offset, but for what members still hold."""
        start, batches = self.start_offset, self.batches
        below = self.floor(start - 1) + 1
        if below == 0:
            return
        kept = []
        for batch in batches[:below]:
            spans = batch.spans
            if spans[0].last_offset < start:
                spans = [each for each in spans if each.last_offset >= start or not each.is_finished]
                batch.spans = spans
            if spans:
                kept.append(batch)
        if len(kept) < below:
            batches[:below] = kept


class Change(NamedTuple):
    span: Span
    state: RecordState


@dataclass(frozen=True, slots=True)
class StateWrite:
    """State of a share partition that its leader has the share coordinator store.

    batches            ascending, joined
    changes            become true with the answer; empty where they have already happened (a lock ran out)
    pending, resolved  what is added to the acknowledgements pending in transactions, and what is taken out of them
    archiving          what has become ARCHIVING already: it is copied once the write has been answered
    """

    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]
    changes: tuple[Change, ...] = ()
    pending: Sequence[PendingRange] = ()
    resolved: Sequence[ResolvedRange] = ()
    archiving: Sequence[DeadLetter] = ()


def complete_count(changes: Iterable[Change]) -> int:
    return sum(len(span) for span, state in changes if state in TERMINAL)


def stored(changes: Iterable[tuple[Span, RecordState]]) -> tuple[StateBatch, ...]:
    """Joined where neighbours are alike. TX_PENDING is stored as available, and what is pending beside it."""
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
