"""What a share partition has to have stored, and what becomes true with the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from odradek.broker.shares.core.in_flight import Span
from odradek.broker.shares.core.staging import ResolvedRange, StagedRange
from odradek.broker.shares.core.state_batch import StateBatch
from odradek.broker.shares.core.tables import TERMINAL, RecordState


class Change(NamedTuple):
    span: Span
    state: RecordState


@dataclass(frozen=True, slots=True)
class StateWrite:
    """What the share coordinator is to store.

    changes           become true with its answer; empty where they have already happened (a lock ran out)
    staged, resolved  what is added to the acknowledgements staged in transactions, and what is taken out of them
    """

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    changes: tuple[Change, ...] = ()
    staged: tuple[StagedRange, ...] = ()
    resolved: tuple[ResolvedRange, ...] = ()


def complete_count(changes: Iterable[Change]) -> int:
    return sum(len(span) for span, state in changes if state in TERMINAL)


def stored(changes: Iterable[tuple[Span, RecordState]]) -> tuple[StateBatch, ...]:
    """Joined where neighbours are alike. What is staged is stored as available, with its staging beside it."""
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
