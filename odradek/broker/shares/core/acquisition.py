"""Selects the records that a member acquires in a share partition: released records, records in the gaps between loaded
batches, or new records.

    mode               new records                                      released records
    batch optimised    whole log batches, so MaxRecords may be          whole tracked batches, so MaxRecords
                       exceeded by less than one log batch              may be exceeded
    record limit       never more than MaxRecords; the rest of the      never more than MaxRecords
                       log batch stays available

A batch that has already been delivered many times is delivered in ever smaller parts, in order to isolate a record that
no consumer can process.

Source: docs/spec/share-groups.md#s3-6.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import Enum
from operator import itemgetter
from typing import NamedTuple

from odradek.broker.shares.core.in_flight import NO_DEADLINE, NOBODY, InFlight, Limits, Span, TrackedBatch
from odradek.broker.shares.core.tables import GRID, Event, RecordState

LogBatches = Sequence[tuple[int, int]]
_LAST = itemgetter(1)


class AcquireMode(Enum):
    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class Acquisition(NamedTuple):
    """A member's request for records from one partition.

    fetch_offset  offset at which reading the log began
    batch_size    minimum number of offsets in an acquired range, if the log batches allow it
    """

    member_id: str
    fetch_offset: int
    max_records: int
    batch_size: int = 1
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class AcquiredOffsets(NamedTuple):
    """An inclusive range of offsets that the member may process. The delivery count includes the current delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


def acquire(
    flight: InFlight, acquisition: Acquisition, log_batches: LogBatches, limits: Limits, deadline_ms: int
) -> list[AcquiredOffsets]:
    if not log_batches or acquisition.max_records <= 0:
        return []
    last_offset = log_batches[-1][1]
    budget = min(acquisition.max_records, limits.max_record_locks - flight.size)
    if budget <= 0:  # the window is full, so only released records can be acquired
        if acquisition.fetch_offset >= flight.next_offset:
            return []
        budget = min(acquisition.max_records, flight.next_offset - acquisition.fetch_offset)
        last_offset = min(last_offset, flight.next_offset - 1)
    turn = _RecordAcquirer(flight, acquisition, log_batches, limits, deadline_ms, budget)
    turn.archive_vanished(log_batches[0][0] - 1)
    turn.run(max(log_batches[0][0], flight.start_offset), last_offset)
    return turn.acquired


class _RecordAcquirer:
    """Acquires records for one request. `_budget` is the number of records that can still be acquired."""

    def __init__(
        self,
        flight: InFlight,
        acquisition: Acquisition,
        log_batches: LogBatches,
        limits: Limits,
        deadline_ms: int,
        budget: int,
    ) -> None:
        self._flight = flight
        self._acquisition = acquisition
        self._log_batches = log_batches
        self._limits = limits
        self._deadline_ms = deadline_ms
        self._budget = budget
        self._has_record_limit = acquisition.mode is AcquireMode.RECORD_LIMIT
        self.acquired: list[AcquiredOffsets] = []

    def archive_vanished(self, last_offset: int) -> None:
        """Archives the available records between the fetch offset and the first offset that the log returned, because
        compaction has removed them."""
        flight, first_offset = self._flight, self._acquisition.fetch_offset
        for batch in flight.overlapping(first_offset, last_offset):
            for span in batch.overlapping(first_offset, last_offset):
                if span.is_available and GRID[span.state][Event.DATA_GONE] is RecordState.ARCHIVED:
                    removed = (max(span.first_offset, first_offset), min(span.last_offset, last_offset))
                    for part in batch.cut(*removed):
                        flight.set_state(part, RecordState.ARCHIVED)

    def run(self, first_offset: int, last_offset: int) -> None:
        flight = self._flight
        reached = first_offset  # every offset below `reached` that was read from the log has been considered
        for batch in flight.overlapping(first_offset, last_offset):
            if self._budget <= 0:
                return
            if flight.gap_start is not None and self._has_data(reached, batch.first_offset - 1):
                self._acquire_new(reached, batch.first_offset - 1)
                if self._budget <= 0:
                    return
            reached = max(reached, batch.last_offset + 1)
            if self._is_throttled(batch, first_offset, last_offset):
                if not self.acquired:
                    self._acquire_few(batch, first_offset, last_offset)
                return
            self._acquire_again(batch, first_offset, last_offset)
        if self._budget > 0 and reached <= last_offset:
            self._acquire_new(reached, last_offset)

    # Released records.

    def _available(self, batch: TrackedBatch, first_offset: int, last_offset: int) -> Iterator[Span]:
        for span in batch.overlapping(first_offset, last_offset):
            if span.is_available and GRID[span.state][Event.ACQUIRE] is RecordState.ACQUIRED:
                yield span

    def _is_throttled(self, batch: TrackedBatch, first_offset: int, last_offset: int) -> bool:
        throttled_from = self._limits.throttled_from
        return any(span.delivery_count >= throttled_from for span in self._available(batch, first_offset, last_offset))

    def _acquire_again(self, batch: TrackedBatch, first_offset: int, last_offset: int) -> None:
        for span in list(self._available(batch, first_offset, last_offset)):
            first, last = max(span.first_offset, first_offset), min(span.last_offset, last_offset)
            if self._has_record_limit:
                if self._budget <= 0:
                    return
                last = min(last, first + self._budget - 1)
            self._acquire_from(batch, first, last)

    def _acquire_few(self, batch: TrackedBatch, first_offset: int, last_offset: int) -> None:
        """Acquires only a few records of a batch that has been delivered many times: half of the batch at first, a
        quarter at the next delivery, and so on down to a single record."""
        limits = self._limits
        at_most = self._budget if self._has_record_limit else len(batch)
        took_others = False
        for span in list(self._available(batch, first_offset, last_offset)):
            count = span.delivery_count
            if count >= limits.throttled_from:
                if took_others or (count == limits.last_attempt and self.acquired):
                    return
                few = 1 if count == limits.last_attempt else len(batch) >> (count - limits.throttled_from + 1)
                at_most = min(at_most, max(1, few) - sum(each.record_count for each in self.acquired))
            else:
                took_others = True
            first = max(span.first_offset, first_offset)
            last = min(span.last_offset, last_offset, first + at_most - 1)
            if last < first:
                return
            self._acquire_from(batch, first, last)
            at_most -= last - first + 1

    def _acquire_from(self, batch: TrackedBatch, first_offset: int, last_offset: int) -> None:
        """Acquires a range of available offsets in one batch. Adjacent spans with the same delivery count are reported
        as one range."""
        for span in batch.cut(first_offset, last_offset):
            span.state = RecordState.ACQUIRED
            span.delivery_count += 1
            span.member_id = self._acquisition.member_id
            span.lock_deadline_ms = self._deadline_ms
            self._budget -= len(span)
            offsets = AcquiredOffsets(span.first_offset, span.last_offset, span.delivery_count)
            if self.acquired and batch.first_offset <= self.acquired[-1].first_offset:
                before = self.acquired[-1]
                if before.last_offset + 1 == offsets.first_offset and before.delivery_count == offsets.delivery_count:
                    self.acquired[-1] = AcquiredOffsets(
                        before.first_offset, offsets.last_offset, offsets.delivery_count
                    )
                    continue
            self.acquired.append(offsets)

    # New records.

    def _has_data(self, first_offset: int, last_offset: int) -> bool:
        if first_offset > last_offset:
            return False
        at = bisect_left(self._log_batches, first_offset, key=_LAST)
        return at < len(self._log_batches) and self._log_batches[at][0] <= last_offset

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        """Acquires offsets that are not tracked yet, including offsets whose records compaction has removed."""
        last = last_offset
        if last - first_offset + 1 > self._budget:
            last = first_offset + self._budget - 1
            if self._has_record_limit:
                rest_last = min(self._log_batch_end(last), last_offset)
                self._track(first_offset, last, rest_last)
                return
            last = min(self._log_batch_end(last), last_offset)
        if self._has_record_limit:
            self._track(first_offset, last, last)
            return
        for first, piece_last in self._pieces(first_offset, last):
            self._track(first, piece_last, piece_last)

    def _pieces(self, first_offset: int, last_offset: int) -> Iterator[tuple[int, int]]:
        """Splits the range at log batch boundaries into pieces of at least `batch_size` offsets; only the last piece
        may be smaller."""
        batch_size = max(1, self._acquisition.batch_size)
        first = first_offset
        for base_offset, _ in self._log_batches:
            if base_offset > last_offset:
                break
            if base_offset - first >= batch_size:
                yield first, base_offset - 1
                first = base_offset
        yield first, last_offset

    def _track(self, first_offset: int, last_offset: int, rest_last_offset: int) -> None:
        """Tracks the offsets up to `last_offset` as acquired, and the rest, up to `rest_last_offset`, as available. The
        rest may be empty."""
        span = Span(first_offset, last_offset, RecordState.ACQUIRED, 1, self._acquisition.member_id, self._deadline_ms)
        spans = [span]
        if rest_last_offset > last_offset:
            spans.append(Span(last_offset + 1, rest_last_offset, RecordState.AVAILABLE, 0, NOBODY, NO_DEADLINE))
            self._flight.found_available()
        self._flight.add(TrackedBatch(spans))
        self._budget -= len(span)
        self.acquired.append(AcquiredOffsets(first_offset, last_offset, 1))

    def _log_batch_end(self, offset: int) -> int:
        return self._log_batches[bisect_left(self._log_batches, offset, key=_LAST)][1]


def archive_aborted(
    flight: InFlight, acquired: Sequence[AcquiredOffsets], aborted: Sequence[tuple[int, int]]
) -> list[AcquiredOffsets]:
    """Archives the acquired offsets that belong to aborted transactions and returns the remaining ranges. The ranges
    in `aborted` must be in ascending order and must not overlap."""
    left: list[AcquiredOffsets] = []
    for each in acquired:
        first = each.first_offset
        for aborted_first, aborted_last in aborted:
            gone_first, gone_last = max(aborted_first, first), min(aborted_last, each.last_offset)
            if gone_first > gone_last:
                continue
            for batch in flight.overlapping(gone_first, gone_last):
                for span in batch.cut(gone_first, gone_last):
                    if GRID[span.state][Event.TXN_ABORTED] is RecordState.ARCHIVED and not span.in_transition:
                        flight.set_state(span, RecordState.ARCHIVED)
            if gone_first > first:
                left.append(AcquiredOffsets(first, gone_first - 1, each.delivery_count))
            first = gone_last + 1
        if first <= each.last_offset:
            left.append(AcquiredOffsets(first, each.last_offset, each.delivery_count))
    return left
