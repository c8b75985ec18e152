"""Acknowledgements as requests carry them: their types, and the form that a partition's batches must have.

Source: docs/spec/share-groups.md#s1-13.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from odradek.broker.shares.core.state import ACCEPT, REJECT
from odradek.broker.shares.core.tables import Event
from odradek.protocol.errors import ErrorCode, KafkaError

RENEW = 4
PENDING_TYPES = frozenset({ACCEPT, REJECT})

EVENTS: Mapping[int, Event] = {
    0: Event.GAP,
    1: Event.ACCEPT,
    2: Event.RELEASE,
    3: Event.REJECT,
    RENEW: Event.RENEW,
}


class Acknowledgement(NamedTuple):
    """What a member says of neighbouring offsets, both inclusive: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def runs(self) -> Iterator[tuple[int, int, Event]]:
        """(first offset, last offset, event), joined where neighbours have the same type."""
        types = self.types
        if types.count(types[0]) == len(types):  # nearly always, and counted without an object for each record
            yield self.first_offset, self.last_offset, EVENTS[types[0]]
            return
        offset = self.first_offset
        for kind, alike in groupby(types):
            count = sum(1 for _ in alike)
            yield offset, offset + count - 1, EVENTS[kind]
            offset += count


def check(acknowledgements: Sequence[Acknowledgement], *, may_renew: bool) -> None:
    """Raises INVALID_REQUEST for batches that no partition could make sense of.

    may_renew: the request says that it renews (IsRenewAck, from version 2 on)
    """
    reached = -1
    for each in acknowledgements:
        if each.first_offset > each.last_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if each.first_offset < reached:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        reached = each.last_offset
        if len(each.types) != 1 and len(each.types) != each.last_offset - each.first_offset + 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        kinds = set(each.types)
        if not kinds <= EVENTS.keys() or (RENEW in kinds and not may_renew):
            raise KafkaError(ErrorCode.INVALID_REQUEST)


def check_txn_form(acknowledgements: Sequence[Acknowledgement]) -> None:
    """Raises INVALID_REQUEST for batches that no partition could make sense of, INVALID_RECORD_STATE for types that
    cannot wait for a transaction (docs/spec/share-groups.md#s5-3, rows 8 and 9)."""
    reached = -1
    for each in acknowledgements:
        if each.first_offset <= reached or each.first_offset > each.last_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The batches are not in ascending order, or overlap.")
        reached = each.last_offset
        if len(each.types) != 1 and len(each.types) != each.last_offset - each.first_offset + 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There is neither one type nor one for each offset.")
        if not set(each.types) <= EVENTS.keys():
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There is no such acknowledgement type.")
    if not all(PENDING_TYPES.issuperset(each.types) for each in acknowledgements):
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Only ACCEPT and REJECT are possible inside a transaction.")
