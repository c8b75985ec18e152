"""Merges overlapping batches of stored state: for each offset the larger delivery count wins, then the larger state.

The order of writes does not matter, and no value can decrease. Adjacent equal batches are joined.
Source: docs/spec/share-groups.md#s4-3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from odradek.broker.shares.core.state_batch import StateBatch

_FIRST, _LAST = attrgetter("first_offset"), attrgetter("last_offset")


def merge(stored: list[StateBatch], added: Iterable[StateBatch], start_offset: int) -> None:
    """Merge `added` into `stored`, which is ascending without overlaps and stays so; cut both off at the start offset.

    A batch whose last offset lies below its first says nothing and is left out.
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
    gone = bisect_left(stored, start_offset, key=_LAST)
    del stored[:gone]
    if stored and stored[0].first_offset < start_offset:
        stored[0] = _part(stored[0], start_offset, stored[0].last_offset)


def _merge_one(stored: list[StateBatch], batch: StateBatch) -> None:
    # Neighbours that only touch are taken along, so that they are joined where they are alike.
    begin = bisect_left(stored, batch.first_offset - 1, key=_LAST)
    end = bisect_right(stored, batch.last_offset + 1, key=_FIRST)
    if begin == end:
        stored.insert(begin, batch)
        return
    pieces: list[StateBatch] = []
    first = batch.first_offset  # of what is left of the new batch
    for old in stored[begin:end]:
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
    stored[begin:end] = pieces


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
