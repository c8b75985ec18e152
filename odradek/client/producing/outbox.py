"""The unanswered batches of one partition (`Outbox`), and the backlog of all partitions with the calls waiting for it
(`Backlog`).

`Outbox` decides which batch may be sent and how a response affects the other batches. It sends nothing and reads no
clock. Its rules:

* A batch gets its sequence when it is first sent, and keeps it, so that the broker recognises a retry.
* If a batch has to be sent again, nothing else is sent until everything in flight has been answered. Then the batches
are sent again in order. New batches wait until the retried batches have been answered, because the broker recognises
only the last five batches.
* If a batch is too large for the broker, it is sent in halves, which keep its sequences.
* If the sequences cannot continue, the waiting batches are numbered from 0 in a new producer epoch. Once that epoch is
in use, the broker refuses everything from the old epoch that is still in transit. A new epoch is necessary after a
batch was refused permanently while later batches had already been sent, because the gap prevents the broker from
writing the later batches. A new epoch may also be necessary after a batch timed out and will not be sent again. The
response to the next batch shows whether the batch that timed out was written.
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
# Distance between the orders of consecutive batches. It exceeds the number of records in a batch, so that a batch's
# halves have lower orders than the next batch.
MAX_RECORDS = 2**31
SEQUENCE_LOST = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Gap(Enum):
    """Why the broker refused a batch's sequence number."""

    SENT_TOO_EARLY = auto()  # an earlier batch is still missing: send this batch again
    WRITTEN_BEFORE = auto()  # a later batch has been written, so this batch has been written too
    REAL = auto()  # the broker and this client disagree about which batches were written


class Outbox:
    """The unanswered batches of one partition, oldest first: the batches in `in_flight`, followed by the batches in
    `waiting`. Only the last batch may be open."""

    def __init__(self, partition: TopicPartition, *, is_idempotent: bool, first_alone: Callable[[], bool]) -> None:
        """Creates an empty outbox.

        first_alone   returns whether the first batch of each producer identity must be answered before the second batch
                      is sent. A partition without state about the producer accepts any sequence, so the second batch
                      might be written even though the first was not. With transaction.version 2 the broker prevents
                      this.
        """
        self.partition = partition
        self.in_flight: deque[ProducerBatch] = deque()
        self.waiting: deque[ProducerBatch] = deque()
        self.identity = NO_IDENTITY
        self.retry_at = 0.0  # seconds on the loop's clock
        self._is_idempotent = is_idempotent
        self._first_alone = first_alone
        self._orders = 0
        self._next_sequence = 0
        self._written_to = 0  # sequence after the last batch that is known to have been written
        self._last_written = NONE  # order of the last batch that is known to have been written
        self._is_known = False  # True if the broker has accepted a batch with this identity
        self._is_halted = False  # True if a batch has to be sent again
        self._unresolved = NONE  # order of the last batch that was given up without a known outcome
        self._broken = NONE  # order of the first batch that the broker cannot accept in this epoch

    def open_batch(self, created_at: float, timestamp_ms: int) -> ProducerBatch:
        if self.waiting:
            self.waiting[-1].is_closed = True
        batch = ProducerBatch(self._orders, created_at, timestamp_ms)
        self._orders += MAX_RECORDS
        self.waiting.append(batch)
        return batch

    def needs_new_epoch(self, identity: ProducerIdentity) -> bool:
        """Returns whether nothing is in flight and the waiting batches cannot continue the broker's sequence.

        If so, `begin_epoch` is necessary. If only the identity has changed, the result is False: batches without a
        sequence start at 0 anyway.
        """
        has_sequence = bool(self.waiting) and self.waiting[0].has_sequence
        if self.in_flight or (identity != self.identity and not has_sequence):
            return False
        # A batch with a sequence must be tried first. Its sequence is right if the batch that was given up has been
        # written.
        return self._broken != NONE or (self._unresolved != NONE and not has_sequence)

    def next_to_send(self, identity: ProducerIdentity) -> ProducerBatch | None:
        """Returns the oldest batch if it may be sent now. The batch remains queued until `mark_sent` is called.

        The caller decides whether the batch has lingered long enough.
        """
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
        if identity != self.identity:  # a transaction has ended, or another partition has bumped the epoch
            return None if self.in_flight else batch
        goes_again = any(other.attempts > 1 for other in self.in_flight)
        return None if goes_again or self._unresolved != NONE else batch

    def mark_sent(self, batch: ProducerBatch, identity: ProducerIdentity) -> None:
        """Moves a batch that `next_to_send` has returned to the batches in flight. Gives it a sequence if it has
        none."""
        self.waiting.popleft()
        if self._is_idempotent and not batch.has_sequence:
            if identity != self.identity:
                self._restart(identity)
            batch.number(identity, self._next_sequence)
            self._next_sequence = batch.end_sequence
        batch.is_closed = True
        batch.attempts += 1
        self.in_flight.append(batch)

    def remove_written(self, batch: ProducerBatch) -> None:
        self.in_flight.remove(batch)
        self.retry_at = 0.0
        self._is_known = True
        if batch.order > self._last_written:
            self._last_written = batch.order
            self._written_to = batch.end_sequence
        # The broker accepts a batch only if it has all earlier batches, so their outcome is now known.
        if batch.order > self._unresolved:
            self._unresolved = NONE
        if batch.order > self._broken:
            self._broken = NONE

    def requeue(self, batch: ProducerBatch, retry_at: float, *, was_lost: bool = False) -> None:
        """Queues an in-flight batch to be sent again, no earlier than `retry_at`. If the batch was given up in the
        meantime, only removes it.

        was_lost   True if the connection was lost, so that the batch may still arrive at any time
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
        """Replaces a batch that is too large for the broker with its two halves, which are sent before anything
        else."""
        self.in_flight.remove(batch)
        self._is_halted = True
        halves = batch.split()
        for half in halves:
            self._insert(half)
        return halves

    def remove_refused(self, batch: ProducerBatch) -> None:
        """Removes a batch that the broker has refused and that will not be sent again."""
        self.in_flight.remove(batch)
        if not batch.has_sequence:
            return
        if batch.attempts > 1:  # an earlier attempt may have been written
            self._leave_unresolved(batch)
        elif batch.end_sequence == self._next_sequence:
            self._next_sequence = batch.base_sequence
        else:
            self._break(batch)

    def give_up(self, batch: ProducerBatch) -> None:
        """Removes a batch whose futures have failed. A batch in flight is kept until its response arrives."""
        if batch in self.in_flight:
            return
        self.waiting.remove(batch)
        self._leave_unresolved(batch)

    def requeue_from(self, batch: ProducerBatch, retry_at: float) -> None:
        """Queues this batch and all later batches for a new epoch. Called after `classify_gap` has returned REAL."""
        self.requeue(batch, retry_at)
        self._break(batch)

    def discard_waiting(self) -> list[ProducerBatch]:
        """Removes and returns all batches that are not in flight. Batches that had already been sent may have been
        written."""
        discarded = list(self.waiting)
        self.waiting.clear()
        for batch in discarded:
            self._leave_unresolved(batch)
        return discarded

    def classify_gap(self, batch: ProducerBatch) -> Gap:
        """Determines why the broker refused the sequence of this in-flight batch."""
        if batch.order < self._last_written:
            return Gap.WRITTEN_BEFORE
        if batch.base_sequence == self._written_to:
            return Gap.REAL
        earlier_is_missing = self._broken != NONE or any(
            other.order < batch.order for others in (self.in_flight, self.waiting) for other in others
        )
        return Gap.SENT_TOO_EARLY if earlier_is_missing else Gap.REAL

    def begin_epoch(self, identity: ProducerIdentity) -> list[ProducerBatch]:
        """Numbers the waiting batches from 0 in a new epoch. May be called only while nothing is in flight.

        Returns the batches that must not be sent again, because an earlier copy of each may still arrive. The broker
        would write that copy if an abandoned batch arrived first and closed the gap in the sequence. If the batch were
        also sent in the new epoch, its records would be written twice.
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
    """All batches that are not yet both done and settled, and the calls waiting for them.

    A batch is *done* when its futures are resolved, and *settled* when its outcome is known. A batch that is given up
    while in flight is done first. It is settled when its response arrives or its connection is lost.
    """

    def __init__(self) -> None:
        self.buffered_bytes = 0  # total size of the records in batches that are not done
        self._by_age: deque[tuple[Outbox, ProducerBatch]] = deque()
        self._flushes: list[tuple[set[ProducerBatch], asyncio.Future[None]]] = []
        self._room_wanted: deque[asyncio.Future[None]] = deque()

    @property
    def waiting_for_room(self) -> int:
        """The number of calls that are waiting in `wait_for_room`."""
        return len(self._room_wanted)

    @property
    def is_flushing(self) -> bool:
        return bool(self._flushes)

    def add(self, outbox: Outbox, batch: ProducerBatch) -> None:
        self.buffered_bytes += batch.size_bytes
        self._by_age.append((outbox, batch))

    def oldest_batch(self) -> tuple[Outbox, ProducerBatch] | None:
        """Returns the oldest batch that is not done."""
        by_age = self._by_age
        while by_age and by_age[0][1].is_done:
            by_age.popleft()
        return by_age[0] if by_age else None

    def split(self, outbox: Outbox, batch: ProducerBatch, halves: tuple[ProducerBatch, ProducerBatch]) -> None:
        """Replaces a batch with its halves, including in the calls waiting for the batch."""
        at = self._by_age.index((outbox, batch))
        self._by_age[at] = (outbox, halves[0])
        self._by_age.insert(at + 1, (outbox, halves[1]))
        self.buffered_bytes += sum(half.size_bytes for half in halves) - batch.size_bytes
        for unsettled, _ in self._flushes:
            if batch in unsettled:
                unsettled.remove(batch)
                unsettled.update(halves)

    def mark_done(self, batch: ProducerBatch) -> None:
        self.buffered_bytes -= batch.size_bytes
        while self._room_wanted:
            waiter = self._room_wanted.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def mark_settled(self, batch: ProducerBatch) -> None:
        for unsettled, finished in self._flushes:
            unsettled.discard(batch)
            if not unsettled and not finished.done():
                finished.set_result(None)

    def unsettled_batches(self, under_way: Iterable[ProducerBatch]) -> set[ProducerBatch]:
        """Returns the batches that are not done, plus the batches in flight, including any that have been given up."""
        return {batch for _, batch in self._by_age if not batch.is_done}.union(under_way)

    def flush(self, unsettled: set[ProducerBatch]) -> asyncio.Future[None]:
        """Returns a future that resolves when all these batches are settled. `is_flushing` is true until then, or until
        the future is cancelled."""
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (unsettled, finished)
        self._flushes.append(entry)
        finished.add_done_callback(lambda _: self._flushes.remove(entry))
        return finished

    async def wait_for_room(self, timeout_s: float) -> None:
        """Waits until a batch is done, which may free enough room. Raises RetriableError if no batch is done in
        time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room_wanted.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            raise RetriableError(f"the buffer has been full for {timeout_s:g} s") from None
