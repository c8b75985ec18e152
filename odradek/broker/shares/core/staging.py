"""Acknowledgements staged in a producer's transaction (KIP-1289): what is kept of them, and which marker ends them.

A marker carries the epoch after that of the transaction that it ends, since the coordinator raises the epoch with its
decision (KIP-890): one with the staged epoch itself belongs to the transaction before. Source:
docs/spec/share-groups.md#s5-7, #s5-12.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

ACCEPT, REJECT = 1, 3  # the types that can be staged
MAX_EPOCH = 2**15 - 1
EPOCH_TELLS_SINCE = 2  # transaction.version


class Resolution(Enum):
    """How a staged acknowledgement ended; the values are bytes on disk."""

    ABORTED = 0
    COMMITTED = 1
    LOCK_EXPIRED = 2


class StagedTransaction(NamedTuple):
    """The transaction in which something is staged, as the transaction coordinator is asked about it.

    transactional_id  None where the record does not name it
    """

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class StagedRange(NamedTuple):
    """Offsets, both inclusive, whose acknowledgement waits for a marker.

    ack_type          ACCEPT or REJECT
    member_id         who had acquired them; so the epoch of that member, and when its lock runs out (wall clock)
    """

    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    ack_type: int
    delivery_count: int
    member_id: str
    member_epoch: int
    lock_deadline_ms: int
    transactional_id: str | None = None

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def transaction(self) -> StagedTransaction:
        return StagedTransaction(self.transactional_id, self.producer_id, self.producer_epoch)


class ResolvedRange(NamedTuple):
    """Offsets that are staged no longer; takes away only what the same producer id and epoch have staged."""

    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    resolution: Resolution
    decided_at_ms: int = -1

    @classmethod
    def of(cls, staged: StagedRange, resolution: Resolution, now_ms: int) -> ResolvedRange:
        return cls(
            staged.first_offset, staged.last_offset, staged.producer_id, staged.producer_epoch, resolution, now_ms
        )


class Ending(NamedTuple):
    """What a marker says. transaction_version: of WriteTxnMarkers v2; in a log there is none, and 2 is assumed."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int = EPOCH_TELLS_SINCE


def resolution_by(ending: Ending, producer_id: int, producer_epoch: int) -> Resolution | None:
    """What the marker makes of an acknowledgement staged by this producer id and epoch; None: it ends another
    transaction.

    An epoch further on says that the transaction is long over, and that nobody told us how: aborted.
    """
    if ending.producer_id != producer_id:
        return None
    result = Resolution.COMMITTED if ending.is_commit else Resolution.ABORTED
    own_epoch = producer_epoch if ending.transaction_version < EPOCH_TELLS_SINCE else producer_epoch + 1
    if ending.producer_epoch == own_epoch:
        return result
    if ending.producer_epoch > own_epoch:
        return Resolution.ABORTED
    if ending.producer_epoch == producer_epoch == MAX_EPOCH and not ending.is_commit:
        return Resolution.ABORTED
    return None


class Overlay:
    """The staged ranges of one share partition as they are stored: ascending, without overlaps."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[StagedRange] = ()) -> None:
        self.ranges: list[StagedRange] = []
        self.stage(ranges)

    def stage(self, added: Iterable[StagedRange]) -> None:
        """What was staged later takes the place of what was staged before."""
        for one in added:
            if one.first_offset > one.last_offset:
                continue  # says nothing
            if not self.ranges:
                self.ranges.append(one)
                continue
            self._cut(one.first_offset, one.last_offset, None)
            self.ranges.append(one)
            self.ranges.sort()

    def resolve(self, resolved: Iterable[ResolvedRange]) -> list[tuple[StagedRange, Resolution]]:
        """Take out what these ranges name; returned as far as it was there."""
        return [
            (staged, each.resolution)
            for each in resolved
            for staged in self._cut(each.first_offset, each.last_offset, (each.producer_id, each.producer_epoch))
        ]

    def ended_by(self, ending: Ending) -> list[tuple[StagedRange, Resolution]]:
        return [
            (each, resolution)
            for each in self.ranges
            if (resolution := resolution_by(ending, each.producer_id, each.producer_epoch)) is not None
        ]

    def take_ended(self, ending: Ending) -> list[tuple[StagedRange, Resolution]]:
        """Take out what this marker ends."""
        ended = self.ended_by(ending)
        if ended:
            gone = {id(staged) for staged, _ in ended}
            self.ranges = [each for each in self.ranges if id(each) not in gone]
        return ended

    @property
    def record_count(self) -> int:
        return sum(each.record_count for each in self.ranges)

    def _cut(self, first_offset: int, last_offset: int, by: tuple[int, int] | None) -> list[StagedRange]:
        """by: the producer id and epoch of what is meant; None: all of it."""
        kept, cut = [], []
        for each in self.ranges:
            is_meant = by is None or by == (each.producer_id, each.producer_epoch)
            if each.last_offset < first_offset or each.first_offset > last_offset or not is_meant:
                kept.append(each)
                continue
            first, last = max(each.first_offset, first_offset), min(each.last_offset, last_offset)
            cut.append(each._replace(first_offset=first, last_offset=last))
            if each.first_offset < first:
                kept.append(each._replace(last_offset=first - 1))
            if each.last_offset > last:
                kept.append(each._replace(first_offset=last + 1))
        self.ranges = sorted(kept)
        return cut
