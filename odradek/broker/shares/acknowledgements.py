"""Acknowledgements as requests carry them: their types, and the form that a partition's batches must have.

Source: docs/spec/share-groups.md#s1-13.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from odradek.broker.shares.partition.tables import Event
from odradek.broker.shares.staging import ACCEPT, REJECT
from odradek.protocol.errors import ErrorCode, KafkaError

RENEW = 4
STAGED_TYPES = frozenset({ACCEPT, REJECT})

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
        if len(self.types) == 1:
            yield self.first_offset, self.last_offset, EVENTS[self.types[0]]
            return
        offset = self.first_offset
        for kind, alike in groupby(self.types):
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
        if any(kind not in EVENTS or (kind == RENEW and not may_renew) for kind in each.types):
            raise KafkaError(ErrorCode.INVALID_REQUEST)


def check_staged(acknowledgements: Sequence[Acknowledgement]) -> None:
    """Raises INVALID_REQUEST for batches that no partition could make sense of, INVALID_RECORD_STATE for types that
    cannot wait for a transaction (docs/spec/share-groups.md#s5-3, rows 8 and 9)."""
    reached = -1
    for each in acknowledgements:
        if each.first_offset <= reached or each.first_offset > each.last_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The batches are not in ascending order, or overlap.")
        reached = each.last_offset
        if len(each.types) != 1 and len(each.types) != each.last_offset - each.first_offset + 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There is neither one type nor one for each offset.")
        if any(kind not in EVENTS for kind in each.types):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There is no such acknowledgement type.")
    if any(kind not in STAGED_TYPES for each in acknowledgements for kind in each.types):
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Only ACCEPT and REJECT are possible inside a transaction.")
