"""The interface implemented by groups of every type, and the records and timers produced by decisions about groups.

Each group type has its own folder. Listing, offsets, deletion and expiry use only this interface. The other operations
of a type are listed in `protocols.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, Protocol

from odradek.protocol.errors import ErrorCode
from odradek.protocol.struct import Message


class GroupType(Enum):
    """The type of a group. The value is the name that ListGroups returns."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Committer(NamedTuple):
    """The sender of an OffsetCommit or TxnOffsetCommit, and the partitions in the request.

    epoch    generation or member epoch; -1 if the request has none
    version  version of OffsetCommit; None for a transactional commit
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
        """The protocol type that ListGroups reports, or None if it is not known yet."""

    @property
    def state_name(self) -> str:
        """The name of the state that ListGroups reports."""

    def subscription(self) -> Callable[[str], bool]:
        """Returns a function that reports whether the group is subscribed to a topic. Offsets of subscribed topics are
        neither deleted nor expired.

        Creating the function may examine all members, so create it once and call it for every topic.
        """

    # Offsets. A group type without committed offsets raises GROUP_ID_NOT_FOUND.

    def check_offset_commit(self, committer: Committer) -> Sequence[Timer]:
        """Checks a commit and returns the timers that the commit restarts. Raises KafkaError if the whole commit is
        refused."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError if the fetch is refused. If the error is GROUP_ID_NOT_FOUND, the caller responds as it
        would for a group without offsets."""

    def check_offset_delete(self) -> None:
        """Raises KafkaError if the whole deletion is refused. The caller checks each topic against `subscription`,
        because offsets of subscribed topics must not be deleted."""

    @property
    def keeps_offsets(self) -> bool:
        """True if the group's current state prevents all of its offsets from expiring."""

    @property
    def idle_since_ms(self) -> int | None:
        """The time from which the age of all offsets is measured, or None if the age of each offset is measured from
        its commit."""

    # Deletion.

    def deletion_verdict(self) -> ErrorCode:
        """Returns NONE if DeleteGroups and expiry may remove the group; otherwise returns the error code."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Returns tombstones for all of the group's records except its offsets. Replaying them removes the group."""

    def running_timers(self) -> list[TimerKey]:
        """Returns the timers that must be stopped when the group is deleted, except for timers of members."""


class PreparedContent(Protocol):
    """The decoded value of a record, as a group stores it. Only the group type's own code can read the value."""


class PreparedRecord(NamedTuple):
    """A large record that was encoded and decoded before the decision that writes it.

    key, value  the encoded record
    content     the decoded value, equal to the result of replaying the encoded record
    """

    key: bytes
    value: bytes
    content: PreparedContent


@dataclass(slots=True)
class CoordinatorRecord:
    """A typed record of `__consumer_offsets`. A record without a value is a tombstone. Like outcomes, records are not
    frozen, so that they are created faster.

    prepared  the record in encoded form, or None to encode the record when it is written
    """

    key: Message
    value: Message | None
    value_version: int = 0
    prepared: PreparedRecord | None = field(default=None, compare=False)


class TimerKind(Enum):
    SESSION = auto()  # a member's session timeout expires
    JOIN = auto()  # classic: the time limit for joining expires
    SYNC = auto()  # classic: the time limit for sending SyncGroup expires
    REVOCATION = auto()  # consumer, streams: a member's time limit for giving up partitions or tasks expires
    REJOIN = auto()  # consumer: a classic member's time limit for rejoining or syncing expires
    INITIAL_DELAY = auto()  # streams: a group's initial rebalance delay is over
    REGEX = auto()  # consumer: regular expressions must be resolved, or the result is available

    __hash__ = object.__hash__  # faster than Enum's own __hash__, which is Python code; every heartbeat sets a timer


class TimerKey(NamedTuple):
    """The identity of a timer. Each key has at most one running timer. `member_id` is set if the timer belongs to a
    member."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timer(NamedTuple):
    """A request to restart the timer with this key, or to stop it if `delay_ms` is None. Transactions have their own
    `Timer` class, whose key is a transactional id."""

    key: TimerKey
    delay_ms: int | None
