"""The share session of a member at one broker: which epoch its next request carries, and which partitions it names.

ShareFetch and ShareAcknowledge count the same epoch, so one request is under way at a time. Source:
docs/spec/share-groups.md#s1-10, #s6-1 (P1 to P4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicIdPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
FIRST_EPOCH, LAST_EPOCH = 1, 2**31 - 1

# The broker has no session that the request would belong to.
SESSION_IS_GONE = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class Named(NamedTuple):
    """The partitions that a ShareFetch names beside those with acknowledgements."""

    added: frozenset[TopicIdPartition]
    forgotten: frozenset[TopicIdPartition]


@dataclass(slots=True)
class ShareSession:
    epoch: int = INITIAL_EPOCH  # of the next request
    partitions: frozenset[TopicIdPartition] = field(default_factory=frozenset)  # what the broker remembers

    @property
    def is_open(self) -> bool:
        """Acknowledgements can be sent only then."""
        return self.epoch != INITIAL_EPOCH

    def fetches(self, wanted: frozenset[TopicIdPartition], acknowledged: Iterable[TopicIdPartition]) -> Named:
        """What a ShareFetch of `wanted` has to name, if it carries acknowledgements of these partitions.

        A partition that is named, for whatever reason, stays in the session unless the same request forgets it.
        """
        return Named(wanted - self.partitions, (self.partitions | set(acknowledged)) - wanted)

    def fetched(self, wanted: frozenset[TopicIdPartition], code: ErrorCode) -> None:
        """The answer to a ShareFetch: its top-level error."""
        self._count(code)
        self.partitions = wanted if self.is_open else frozenset()

    def acknowledged(self, partitions: Iterable[TopicIdPartition], code: ErrorCode) -> None:
        """The answer to a ShareAcknowledge."""
        self._count(code)
        self.partitions = self.partitions | set(partitions) if self.is_open else frozenset()

    def lost(self) -> None:
        """Nobody knows whether the last request arrived, or the broker has closed the session with the connection."""
        self.epoch, self.partitions = INITIAL_EPOCH, frozenset()

    def _count(self, code: ErrorCode) -> None:
        if code in SESSION_IS_GONE:
            self.epoch = INITIAL_EPOCH
        else:
            self.epoch = FIRST_EPOCH if self.epoch == LAST_EPOCH else self.epoch + 1
