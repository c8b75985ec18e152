"""Merges overlapping batches of stored state: for each offset the larger delivery count wins, then the larger state.

The order of writes does not matter, and no value can decrease. Adjacent equal batches are joined.
Source: docs/spec/share-groups.md#s4-3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter

from odradek.broker.shares.state_batch import StateBatch

_FIRST, _LAST = attrgetter("first_offset"), attrgetter("last_offset")


def merge(stored: list[StateBatch], added: Iterable[StateBatch], start_offset: int) -> None:
    """Merge `added` into `stored`, which is ascending without overlaps and stays so; cut both off at the start offset.

    A batch whose last offset lies below its first says nothing and is left out.
    """
    cut_below(stored, start_offset)
    for batch in added:
        if batch.first_offset < start_offset:
            batch = batch._replace(first_offset=start_offset)
        if batch.first_offset <= batch.last_offset:
            _merge_one(stored, batch)


def merged(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    result: list[StateBatch] = []
    merge(result, batches, start_offset)
    return tuple(result)


def cut_below(stored: list[StateBatch], start_offset: int) -> None:
    gone = bisect_left(stored, start_offset, key=_LAST)
    del stored[:gone]
    if stored and stored[0].first_offset < start_offset:
        stored[0] = stored[0]._replace(first_offset=start_offset)


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
            _append(
                pieces, batch._replace(first_offset=first, last_offset=min(batch.last_offset, old.first_offset - 1))
            )
        if _rank(old) >= _rank(batch):
            _append(pieces, old)
        else:
            _append(pieces, old._replace(last_offset=min(old.last_offset, batch.first_offset - 1)))
            overlap = (max(old.first_offset, batch.first_offset), min(old.last_offset, batch.last_offset))
            _append(pieces, batch._replace(first_offset=overlap[0], last_offset=overlap[1]))
            _append(pieces, old._replace(first_offset=max(old.first_offset, batch.last_offset + 1)))
        first = max(first, old.last_offset + 1)
    _append(pieces, batch if first == batch.first_offset else batch._replace(first_offset=first))
    stored[begin:end] = pieces


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _append(pieces: list[StateBatch], piece: StateBatch) -> None:
    if piece.first_offset > piece.last_offset:
        return
    if pieces:
        before = pieces[-1]
        if before.last_offset + 1 == piece.first_offset and _rank(before) == _rank(piece):
            pieces[-1] = before._replace(last_offset=piece.last_offset)
            return
    pieces.append(piece)
