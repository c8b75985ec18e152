"""The interface of a group, whatever its type, with the records and timers that its decisions write and arm.

Each type implements it in a folder of its own. Listing, offsets, deletion and expiry use only this interface;
`protocols.py` has what else a type contributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from odradek.protocol.errors import ErrorCode
from odradek.protocol.struct import Message


class GroupType(Enum):
    """The value is the name that ListGroups shows."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Committer(NamedTuple):
    """The sender of an OffsetCommit or TxnOffsetCommit, and the partitions that it names.

    epoch    generation or member epoch; -1: none
    version  of OffsetCommit; None: the commit is transactional
    """

    member_id: str
    group_instance_id: str | None
    epoch: int
    version: int | None
    partitions: Iterable[tuple[str, int]] = ()

    @property
    def is_transactional(self) -> bool:
        return self.version is None

    @property
    def is_anonymous(self) -> bool:
        return self.member_id == "" and self.group_instance_id is None


class Group(Protocol):
    group_id: str

    @property
    def group_type(self) -> GroupType: ...

    @property
    def protocol_type(self) -> str | None:
        """Returns the name that ListGroups shows; None: not known yet."""

    @property
    def state_name(self) -> str:
        """Returns the name that ListGroups shows."""

    def subscription(self) -> Callable[[str], bool]:
        """Returns a function that says whether the group is subscribed to a topic, whose offsets are then neither
        deleted nor expired. Made once for many topics, since it may look at all members."""

    # Offsets. A type without committed offsets refuses with GROUP_ID_NOT_FOUND.

    def check_offset_commit(self, committer: Committer) -> Sequence[Timer]:
        """The timers that the commit begins anew. Raises KafkaError, which refuses the whole commit."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError. GROUP_ID_NOT_FOUND: the answer is that of a group without offsets."""

    def check_offset_delete(self) -> None:
        """Raises KafkaError. What the group is subscribed to stays all the same."""

    @property
    def keeps_offsets(self) -> bool:
        """None of its offsets expire as it is now."""

    @property
    def idle_since_ms(self) -> int | None:
        """Since when its offsets grow old; None: each since it was committed."""

    # Its end.

    def deletion_verdict(self) -> ErrorCode:
        """NONE: DeleteGroups and expiry may remove it."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """For all its records but the offsets; replayed, they remove it."""

    def running_timers(self) -> list[TimerKey]:
        """Names what else is to be stopped when the group is deleted."""


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of `__consumer_offsets`: typed, not yet bytes. No value means a tombstone."""

    key: Message
    value: Message | None
    value_version: int = 0


class TimerKind(Enum):
    SESSION = auto()  # a member was not heard of
    JOIN = auto()  # classic: the members had their time to join
    SYNC = auto()  # classic: the members had their time to ask for their assignment
    REVOCATION = auto()  # consumer: a member had its time to give up partitions
    REJOIN = auto()  # consumer: a member of the classic protocol had its time to join again, or to sync
    REGEX = auto()  # consumer: regular expressions are to be resolved

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python; every heartbeat arms a timer


class TimerKey(NamedTuple):
    """At most one timer runs per key; `member_id` where the timer is that of a member."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timer(NamedTuple):
    """Arm the key's timer anew, or with no delay given, disarm it."""

    key: TimerKey
    delay_ms: int | None
