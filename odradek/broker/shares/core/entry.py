"""The state of a share partition as the share coordinator stores it, and the records that change the state.

Each record is computed from the current state. The `take_…` methods apply a record to the state, both when it is
written and when it is replayed. An update contains only changes; after a configured number of updates, the next record
is a snapshot of the complete state. The first record after a transaction marker also repeats the states that the marker
committed, for readers that do not understand markers (ADR 21). Where batches overlap, each offset gets the state with
the larger delivery count or, if the counts are equal, the larger state, so the order of writes does not matter. Source:
docs/spec/share-groups.md#s4-1, #s4-2, #s4-3, #s5-12.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter

from odradek.broker.shares.core.state import (
    ACCEPT,
    DEAD_LETTER,
    REJECT,
    UNDECIDED_START_OFFSET,
    UNKNOWN_COUNT,
    PendingRange,
    PendingTransaction,
    Resolution,
    ResolvedRange,
    SharePartitionKey,
    ShareSnapshot,
    ShareUpdate,
    StateBatch,
    StoredState,
    TransactionEnd,
    resolution_by,
)
from odradek.broker.shares.core.tables import RecordState


class PendingRanges:
    """The stored pending ranges of a share partition, in ascending order and without overlaps.

    record_count  the number of offsets in these ranges; updated by every change, so that reading it is cheap
    """

    __slots__ = ("ranges", "record_count")

    def __init__(self, ranges: Iterable[PendingRange] = ()) -> None:
        self.ranges: list[PendingRange] = []
        self.record_count = 0
        self.add(ranges)

    def add(self, added: Iterable[PendingRange]) -> None:
        """Adds ranges. A new range replaces any part of an earlier range that it overlaps."""
        for one in added:
            if one.first_offset > one.last_offset:
                continue  # the range is empty
            self.record_count += one.last_offset - one.first_offset + 1
            # Ranges usually arrive in order.
            if not self.ranges or self.ranges[-1].last_offset < one.first_offset:
                self.ranges.append(one)
                continue
            self._cut(one.first_offset, one.last_offset, None)
            self.ranges.insert(bisect_left(self.ranges, one.first_offset, key=_FIRST), one)

    def resolve(self, resolved: Iterable[ResolvedRange]) -> list[tuple[PendingRange, Resolution]]:
        """Removes the resolved ranges. Returns the parts that were pending, each with its resolution."""
        return [
            (pending, each.resolution)
            for each in resolved
            for pending in self._cut(each.first_offset, each.last_offset, (each.producer_id, each.producer_epoch))
        ]

    def ended_by(self, ending: TransactionEnd) -> list[tuple[PendingRange, Resolution]]:
        return [
            (each, resolution)
            for each in self.ranges
            if (resolution := resolution_by(ending, each.producer_id, each.producer_epoch)) is not None
        ]

    def take_ended(self, ending: TransactionEnd) -> list[tuple[PendingRange, Resolution]]:
        """Removes the ranges that a marker ends and returns them with their resolutions."""
        ended = self.ended_by(ending)
        if ended:
            removed = {id(pending) for pending, _ in ended}
            self.ranges = [each for each in self.ranges if id(each) not in removed]
            self.record_count -= sum(each.last_offset - each.first_offset + 1 for each, _ in ended)
        return ended

    def by_transaction(self) -> Counter[PendingTransaction]:
        """Returns the number of pending records of each transaction."""
        found: Counter[PendingTransaction] = Counter()
        for each in self.ranges:
            found[each.transaction] += each.last_offset - each.first_offset + 1
        return found

    def _cut(self, first_offset: int, last_offset: int, by: tuple[int, int] | None) -> list[PendingRange]:
        """Removes the offsets from `first_offset` to `last_offset` and returns them as ranges.

        by  the producer id and epoch whose offsets are removed; None removes the offsets of every producer
        """
        start = bisect_left(self.ranges, first_offset, key=_LAST)
        end = bisect_right(self.ranges, last_offset, key=_FIRST)
        if start >= end:
            return []
        remaining, cut = [], []
        for each in self.ranges[start:end]:
            if by is not None and by != (each.producer_id, each.producer_epoch):
                remaining.append(each)
                continue
            first, last = max(each.first_offset, first_offset), min(each.last_offset, last_offset)
            cut.append(each._replace(first_offset=first, last_offset=last))
            self.record_count -= last - first + 1
            if each.first_offset < first:
                remaining.append(each._replace(last_offset=first - 1))
            if each.last_offset > last:
                remaining.append(each._replace(first_offset=last + 1))
        self.ranges[start:end] = remaining
        return cut


class StateEntry:
    """One share partition's stored state.

    snapshot_at   the last snapshot's record offset; earlier records of this entry are obsolete
    fence         the highest leader epoch of any read; resetting the state does not lower it
    update_count  number of updates since the last snapshot that was due; other snapshots do not reset it
    overlay       the pending ranges
    unrepeated    states that markers have given to pending offsets and that no record has repeated yet
    """

    __slots__ = (
        "batches",
        "created_ms",
        "delivery_complete_count",
        "fence",
        "key",
        "leader_epoch",
        "overlay",
        "snapshot_at",
        "snapshot_epoch",
        "start_offset",
        "state_epoch",
        "unrepeated",
        "update_count",
        "written_ms",
    )

    def __init__(self, key: SharePartitionKey, record_offset: int) -> None:
        self.key = key
        self.snapshot_at = record_offset
        self.snapshot_epoch = self.state_epoch = self.leader_epoch = self.fence = 0
        self.start_offset = UNDECIDED_START_OFFSET
        self.delivery_complete_count = UNKNOWN_COUNT
        self.batches: list[StateBatch] = []
        self.created_ms = self.written_ms = 0
        self.update_count = 0
        self.overlay = PendingRanges()
        self.unrepeated: list[StateBatch] = []

    # Replaying.

    def take_snapshot(self, snapshot: ShareSnapshot, record_offset: int, updates_per_snapshot: int) -> None:
        self.snapshot_at = record_offset
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        self.fence = max(self.fence, snapshot.leader_epoch)
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        self.created_ms = snapshot.created_ms
        self.written_ms = snapshot.written_ms
        self.batches = list(merged(snapshot.batches, snapshot.start_offset))
        self.overlay = PendingRanges(snapshot.pending)
        self.unrepeated = []
        # As in Kafka, a snapshot written for another reason does not reset the count.
        if self.update_count >= updates_per_snapshot:
            self.update_count = 0

    def take_update(self, update: ShareUpdate) -> None:
        self.leader_epoch = update.leader_epoch
        self.fence = max(self.fence, update.leader_epoch)
        if update.start_offset != UNDECIDED_START_OFFSET:
            self.start_offset = update.start_offset
        self.delivery_complete_count = update.delivery_complete_count
        merge(self.batches, update.batches, self.start_offset)
        self.written_ms = max(self.written_ms, update.written_ms)
        self.update_count += 1
        if self.unrepeated:
            self.unrepeated = _still_unrepeated(self.unrepeated, update)
        if update.resolved:
            self.overlay.resolve(update.resolved)
        if update.pending:
            self.overlay.add(update.pending)

    def take_marker(self, ending: TransactionEnd) -> None:
        ended = self.overlay.take_ended(ending)
        batches = _batches_of(ended)
        if batches:
            merge(self.batches, batches, self.start_offset)
            self.delivery_complete_count = self._count_with(batches)
            self.unrepeated += batches

    # Reading.

    def to_stored_state(self) -> StoredState:
        """Returns an immutable copy of the state, which later records do not change."""
        return StoredState(self.state_epoch, self.start_offset, tuple(self.batches), tuple(self.overlay.ranges))

    def has_pending(self, producer_id: int) -> bool:
        return any(each.producer_id == producer_id for each in self.overlay.ranges)

    def _count_with(self, finished: Sequence[StateBatch]) -> int:
        """Returns the delivery complete count that applies once these batches are finished."""
        count, start = self.delivery_complete_count, self.start_offset
        if count < 0:
            return UNKNOWN_COUNT
        return count + sum(
            max(0, each.last_offset - max(each.first_offset, start) + 1)
            for each in finished
            if each.delivery_state != RecordState.ARCHIVING.value
        )

    # The next record.

    def next_record(
        self,
        updates_per_snapshot: int,
        now_ms: int,
        *,
        leader_epoch: int | None = None,
        start_offset: int | None = None,
        delivery_complete_count: int | None = None,
        batches: Sequence[StateBatch] = (),
        pending: Sequence[PendingRange] = (),
        resolved: Sequence[ResolvedRange] = (),
    ) -> ShareSnapshot | ShareUpdate:
        """Returns a record that stores these changes. The record is a snapshot if enough updates have been written
        since the last snapshot, and an update otherwise.

        If a parameter is None, the stored value is kept. A start offset of -1 also keeps the stored value.
        """
        leader_epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        start_offset = self.start_offset if start_offset is None else start_offset
        count = self.delivery_complete_count if delivery_complete_count is None else delivery_complete_count
        if self.update_count < updates_per_snapshot:
            added = merged((*self.unrepeated, *batches) if self.unrepeated else batches, start_offset)
            return ShareUpdate(
                self.key,
                self.snapshot_epoch,
                leader_epoch,
                start_offset,
                count,
                added,
                now_ms,
                tuple(pending),
                tuple(resolved),
            )
        if start_offset == UNDECIDED_START_OFFSET:
            start_offset = self.start_offset
        everything = list(self.batches)
        merge(everything, batches, start_offset)
        overlay = PendingRanges(self.overlay.ranges)
        overlay.resolve(resolved)
        overlay.add(pending)
        return self.snapshot(now_ms)._replace(
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=count,
            batches=everything,
            pending=tuple(overlay.ranges),
        )

    def snapshot(self, now_ms: int) -> ShareSnapshot:
        """Returns a snapshot of the current state."""
        return ShareSnapshot(
            self.key,
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            created_ms=self.created_ms,
            written_ms=now_ms,
            batches=list(self.batches),
            pending=tuple(self.overlay.ranges),
        )

    def resolution_record(
        self, ended: Sequence[tuple[PendingRange, Resolution]], updates_per_snapshot: int, now_ms: int
    ) -> ShareSnapshot | ShareUpdate:
        """Returns a record that stores the resolution of these ranges. The record is needed if the marker ends the
        ranges only because of its transaction version, which the log does not contain."""
        batches = _batches_of(ended)
        return self.next_record(
            updates_per_snapshot,
            now_ms,
            delivery_complete_count=self._count_with(batches),
            batches=batches,
            resolved=[ResolvedRange.of(pending, resolution, now_ms) for pending, resolution in ended],
        )


COMMITTED_STATES: Mapping[int, RecordState] = {
    ACCEPT: RecordState.ACKNOWLEDGED,
    REJECT: RecordState.ARCHIVED,
    DEAD_LETTER: RecordState.ARCHIVING,
}


def _batches_of(ended: Sequence[tuple[PendingRange, Resolution]]) -> list[StateBatch]:
    """Returns the committed ranges with their new states. Aborted ranges need no change, because they are stored as
    available."""
    return [
        StateBatch(
            pending.first_offset,
            pending.last_offset,
            COMMITTED_STATES[pending.ack_type].value,
            pending.delivery_count,
        )
        for pending, resolution in ended
        if resolution is Resolution.COMMITTED
    ]


def _still_unrepeated(batches: Sequence[StateBatch], update: ShareUpdate) -> list[StateBatch]:
    """Returns the batches that the update does not repeat. An update repeats a batch if it overlaps the batch or moves
    the start offset past it."""
    repeated = sorted(update.batches)
    # For each index, the highest last offset of all batches up to that index.
    reached = list(accumulate((each.last_offset for each in repeated), max))
    left = []
    for batch in batches:
        # The last batch of the update that begins before this batch ends.
        at = bisect_right(repeated, batch.last_offset, key=_FIRST) - 1
        if batch.last_offset >= update.start_offset and (at < 0 or reached[at] < batch.first_offset):
            left.append(batch)
    return left


_FIRST, _LAST = attrgetter("first_offset"), attrgetter("last_offset")


def merge(stored: list[StateBatch], added: Iterable[StateBatch], start_offset: int) -> None:
    """Merges `added` into `stored` and removes all offsets below the start offset. `stored` is in ascending order and
    without overlaps, both before and after the merge.

    Batches whose last offset is lower than their first are ignored.
    """
    cut_below(stored, start_offset)
    for batch in added:
        if batch.first_offset < start_offset:
            batch = _part(batch, start_offset, batch.last_offset)
        if batch.first_offset <= batch.last_offset:
            _merge_one(stored, batch)


def merged(batches: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    if len(batches) == 1 and start_offset <= batches[0].first_offset <= batches[0].last_offset:
        return tuple(batches)
    result: list[StateBatch] = []
    merge(result, batches, start_offset)
    return tuple(result)


def cut_below(stored: list[StateBatch], start_offset: int) -> None:
    removed = bisect_left(stored, start_offset, key=_LAST)
    del stored[:removed]
    if stored and stored[0].first_offset < start_offset:
        stored[0] = _part(stored[0], start_offset, stored[0].last_offset)


def _merge_one(stored: list[StateBatch], batch: StateBatch) -> None:
    # Batches adjacent to the new batch are included, so that they are joined with it if the states are equal.
    start = bisect_left(stored, batch.first_offset - 1, key=_LAST)
    end = bisect_right(stored, batch.last_offset + 1, key=_FIRST)
    if start == end:
        stored.insert(start, batch)
        return
    pieces: list[StateBatch] = []
    first = batch.first_offset  # the new batch's first offset that has not been merged yet
    for old in stored[start:end]:
        if old.first_offset > first:
            _append(pieces, _part(batch, first, min(batch.last_offset, old.first_offset - 1)))
        if _rank(old) >= _rank(batch):
            _append(pieces, old)
        else:
            overlap_first = max(old.first_offset, batch.first_offset)
            overlap_last = min(old.last_offset, batch.last_offset)
            _append(pieces, _part(old, old.first_offset, min(old.last_offset, batch.first_offset - 1)))
            _append(pieces, _part(batch, overlap_first, overlap_last))
            _append(pieces, _part(old, max(old.first_offset, batch.last_offset + 1), old.last_offset))
        first = max(first, old.last_offset + 1)
    _append(pieces, batch if first == batch.first_offset else _part(batch, first, batch.last_offset))
    stored[start:end] = pieces


def _part(batch: StateBatch, first_offset: int, last_offset: int) -> StateBatch:
    return StateBatch(first_offset, last_offset, batch.delivery_state, batch.delivery_count)


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _append(pieces: list[StateBatch], piece: StateBatch) -> None:
    if piece.first_offset > piece.last_offset:
        return
    if pieces:
        before = pieces[-1]
        if before.last_offset + 1 == piece.first_offset and _rank(before) == _rank(piece):
            pieces[-1] = _part(before, before.first_offset, piece.last_offset)
            return
    pieces.append(piece)
