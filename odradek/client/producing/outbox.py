"""The batches of one partition, from the first record until the broker has answered, in the order of their records; and
the backlog of all of them, with the calls that wait for it.

`Outbox` decides what may be sent and what an answer means for the other batches; it sends nothing
and knows no clock. The rules:

* A batch gets its sequence when it is first sent, and keeps it, so that the broker recognises a retry.
* When a batch has to be sent again, nothing more is sent until everything in flight has been answered. Then the batches
  are sent again in their order, and new ones wait until these are answered: the broker recognises only the last five.
* A batch that is too large for the broker is sent in halves, which keep its sequences.
* Where sequences cannot continue, the waiting batches are numbered from 0 in a new producer epoch, under which the
  broker refuses anything of the old epoch that is still on its way. That is so after a batch that was refused for good
  while others had already followed it: there is a gap, so none of them is written. It may also be so after a batch that
  timed out, will not be sent again and may or may not have been written: the answer to the next one tells.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto

from odradek.client.common.errors import RetriableError
from odradek.client.common.values import TopicPartition
from odradek.client.producing.producer_batch import NO_IDENTITY, ProducerBatch, ProducerIdentity
from odradek.protocol.errors import ErrorCode

NONE = -1
MOST_RECORDS = 2**31  # of a batch: its halves have orders of their own before the next batch's
SEQUENCE_LOST = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Gap(Enum):
    """The meaning of the broker's complaint about a sequence."""

    SENT_TOO_EARLY = auto()  # something before it is yet to come: send it again
    WRITTEN_BEFORE = auto()  # something behind it is written, so it is as well
    REAL = auto()  # the broker and this client do not agree any more on what was written


class Outbox:
    """`in_flight` and `waiting` together are all unanswered batches, oldest first; only the last may be open."""

    def __init__(self, partition: TopicPartition, *, is_idempotent: bool, first_alone: Callable[[], bool]) -> None:
        """first_alone: whether to wait for the first answer of each identity before there are two batches under way. A
        partition that knows nothing of a producer takes any sequence from it, so a second batch might be written
        although the first was not. With transaction.version 2 the broker prevents it."""
        self.partition = partition
        self.in_flight: deque[ProducerBatch] = deque()
        self.waiting: deque[ProducerBatch] = deque()
        self.identity = NO_IDENTITY
        self.retry_at = 0.0  # seconds on the loop's clock
        self._is_idempotent = is_idempotent
        self._first_alone = first_alone
        self._orders = 0
        self._next_sequence = 0
        self._written_to = 0  # the sequence behind the last batch that is known to be written
        self._last_written = NONE  # the order of that batch
        self._is_known = False  # whether the broker has taken a batch of this identity
        self._is_halted = False  # something has to go again
        self._unresolved = NONE  # the order of the last batch that was given up without its fate being known
        self._broken = NONE  # the order of the first batch that the broker will not take in this epoch

    def open_batch(self, created_at: float, timestamp_ms: int) -> ProducerBatch:
        if self.waiting:
            self.waiting[-1].is_closed = True
        batch = ProducerBatch(self._orders, created_at, timestamp_ms)
        self._orders += MOST_RECORDS
        self.waiting.append(batch)
        return batch

    def needs_new_epoch(self, identity: ProducerIdentity) -> bool:
        """Nothing is under way, and what waits cannot follow on what the broker has: see `begin_epoch`. Under another
        identity than before, what has no sequence yet begins anew by itself."""
        has_sequence = bool(self.waiting) and self.waiting[0].has_sequence
        if self.in_flight or (identity != self.identity and not has_sequence):
            return False
        # A batch with a sequence has to try: if what was given up was written, its sequence is right.
        return self._broken != NONE or (self._unresolved != NONE and not has_sequence)

    def next_to_send(self, identity: ProducerIdentity) -> ProducerBatch | None:
        """The oldest batch if it may go now, without taking it: see `sent`. Whether it has waited long enough to be
        sent is the caller's to decide."""
        if not self.waiting or self.needs_new_epoch(identity):
            return None
        if self.in_flight:
            if (
                self._is_halted
                or self._broken != NONE
                or (not self._is_known and self._is_idempotent and self._first_alone())
            ):
                return None
        else:
            self._is_halted = False
        batch = self.waiting[0]
        if batch.has_sequence or not self._is_idempotent:
            return batch
        if identity != self.identity:  # a transaction has ended, or the epoch was bumped for another partition
            return None if self.in_flight else batch
        goes_again = any(other.attempts > 1 for other in self.in_flight)
        return None if goes_again or self._unresolved != NONE else batch

    def sent(self, batch: ProducerBatch, identity: ProducerIdentity) -> None:
        """It is the one that `next_to_send` gave."""
        self.waiting.popleft()
        if self._is_idempotent and not batch.has_sequence:
            if identity != self.identity:
                self._restart(identity)
            batch.number(identity, self._next_sequence)
            self._next_sequence = batch.end_sequence
        batch.is_closed = True
        batch.attempts += 1
        self.in_flight.append(batch)

    def written(self, batch: ProducerBatch) -> None:
        self.in_flight.remove(batch)
        self.retry_at = 0.0
        self._is_known = True
        if batch.order > self._last_written:
            self._last_written = batch.order
            self._written_to = batch.end_sequence
        # The broker takes no batch without those before it.
        if batch.order > self._unresolved:
            self._unresolved = NONE
        if batch.order > self._broken:
            self._broken = NONE

    def returned(self, batch: ProducerBatch, retry_at: float, *, was_lost: bool = False) -> None:
        """It has to go again, not before `retry_at`; one that was given up meanwhile does not.

        was_lost   with its connection: it may still arrive, at any time
        """
        self.in_flight.remove(batch)
        self._is_halted = True
        if batch.is_done:
            self._leave_unresolved(batch)
            return
        batch.may_come_late = batch.may_come_late or was_lost
        self.retry_at = max(self.retry_at, retry_at)
        self._insert(batch)

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """The broker refuses the batch as too large: its halves take its place, and go before anything else."""
        self.in_flight.remove(batch)
        self._is_halted = True
        halves = batch.split()
        for half in halves:
            self._insert(half)
        return halves

    def refused(self, batch: ProducerBatch) -> None:
        """The broker has not written it now, and it will not be sent again."""
        self.in_flight.remove(batch)
        if not batch.has_sequence:
            return
        if batch.attempts > 1:  # it may have been written the first time
            self._leave_unresolved(batch)
        elif batch.end_sequence == self._next_sequence:
            self._next_sequence = batch.base_sequence
        else:
            self._break(batch)

    def given_up(self, batch: ProducerBatch) -> None:
        """Its futures have failed. One that is under way stays until it is answered."""
        if batch in self.in_flight:
            return
        self.waiting.remove(batch)
        self._leave_unresolved(batch)

    def broken_at(self, batch: ProducerBatch, retry_at: float) -> None:
        """`gap` found that it is real: the batch, and all behind it, is to be sent in a new epoch."""
        self.returned(batch, retry_at)
        self._break(batch)

    def discard_waiting(self) -> list[ProducerBatch]:
        """Take out all that is not under way; what was sent before may have been written."""
        discarded = list(self.waiting)
        self.waiting.clear()
        for batch in discarded:
            self._leave_unresolved(batch)
        return discarded

    def gap(self, batch: ProducerBatch) -> Gap:
        """Decides what it means that the broker calls the sequence of this batch (in flight) wrong."""
        if batch.order < self._last_written:
            return Gap.WRITTEN_BEFORE
        if batch.base_sequence == self._written_to:
            return Gap.REAL
        earlier_is_missing = self._broken != NONE or any(
            other.order < batch.order for others in (self.in_flight, self.waiting) for other in others
        )
        return Gap.SENT_TOO_EARLY if earlier_is_missing else Gap.REAL

    def begin_epoch(self, identity: ProducerIdentity) -> list[ProducerBatch]:
        """Number what waits from 0 in a new epoch; only when nothing is under way.

        Returns batches that are not to be sent again: should one that was given up arrive after all, and a copy of
        theirs behind it, they would be written before the new epoch begins.
        """
        assert not self.in_flight
        lost = []
        if self._unresolved != NONE:
            lost = [batch for batch in self.waiting if batch.may_come_late]
            self.waiting = deque(batch for batch in self.waiting if not batch.may_come_late)
        self._restart(identity)
        for batch in self.waiting:
            if batch.has_sequence:
                batch.number(identity, self._next_sequence)
                self._next_sequence = batch.end_sequence
        return lost

    def _insert(self, batch: ProducerBatch) -> None:
        at = 0
        while at < len(self.waiting) and self.waiting[at].order < batch.order:
            at += 1
        self.waiting.insert(at, batch)

    def _restart(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self._next_sequence = self._written_to = 0
        self._is_known = False
        self._unresolved = self._last_written = self._broken = NONE

    def _break(self, batch: ProducerBatch) -> None:
        self._broken = batch.order if self._broken == NONE else min(self._broken, batch.order)

    def _leave_unresolved(self, batch: ProducerBatch) -> None:
        if batch.has_sequence:
            self._unresolved = max(self._unresolved, batch.order)


class Backlog:
    """A batch is *done* when its futures are resolved, which may be before its fate is *settled*: one that was given up
    under way still gets its answer, or loses it."""

    def __init__(self) -> None:
        self.buffered_bytes = 0  # of records in batches that are not done
        self._by_age: deque[tuple[Outbox, ProducerBatch]] = deque()
        self._flushes: list[tuple[set[ProducerBatch], asyncio.Future[None]]] = []
        self._room_wanted: deque[asyncio.Future[None]] = deque()

    @property
    def waiting_for_room(self) -> int:
        """How many calls wait for `room`."""
        return len(self._room_wanted)

    @property
    def is_flushing(self) -> bool:
        return bool(self._flushes)

    def opened(self, outbox: Outbox, batch: ProducerBatch) -> None:
        self.buffered_bytes += batch.size_bytes
        self._by_age.append((outbox, batch))

    def oldest(self) -> tuple[Outbox, ProducerBatch] | None:
        """Returns the oldest batch that is not done."""
        by_age = self._by_age
        while by_age and by_age[0][1].is_done:
            by_age.popleft()
        return by_age[0] if by_age else None

    def split(self, outbox: Outbox, batch: ProducerBatch, halves: tuple[ProducerBatch, ProducerBatch]) -> None:
        """The halves take the place of the batch, which is not done, for whoever waits for it."""
        at = self._by_age.index((outbox, batch))
        self._by_age[at] = (outbox, halves[0])
        self._by_age.insert(at + 1, (outbox, halves[1]))
        self.buffered_bytes += sum(half.size_bytes for half in halves) - batch.size_bytes
        for unsettled, _ in self._flushes:
            if batch in unsettled:
                unsettled.remove(batch)
                unsettled.update(halves)

    def done(self, batch: ProducerBatch) -> None:
        self.buffered_bytes -= batch.size_bytes
        while self._room_wanted:
            waiter = self._room_wanted.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def settled(self, batch: ProducerBatch) -> None:
        for unsettled, finished in self._flushes:
            unsettled.discard(batch)
            if not unsettled and not finished.done():
                finished.set_result(None)

    def unsettled(self, under_way: Iterable[ProducerBatch]) -> set[ProducerBatch]:
        """Collects batches that are not done, and those under way, which may have been given up."""
        return {batch for _, batch in self._by_age if not batch.is_done}.union(under_way)

    def flush(self, unsettled: set[ProducerBatch]) -> asyncio.Future[None]:
        """Resolved when all of these are settled. Until it is done, or cancelled, `is_flushing`."""
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (unsettled, finished)
        self._flushes.append(entry)
        finished.add_done_callback(lambda _: self._flushes.remove(entry))
        return finished

    async def room(self, timeout_s: float) -> None:
        """Wait until a batch is done, which may give enough room. Raises RetriableError when none is in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room_wanted.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            raise RetriableError(f"the buffer has been full for {timeout_s:g} s") from None
