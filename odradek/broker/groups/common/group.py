"""The interface of a group of any type, and the records and timers that its decisions produce.

Each type implements it in its own folder. Listing, offsets, deletion and expiry use only this interface. `protocols.py`
lists the other operations of a type.
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

    epoch    generation or member epoch; -1 if there is none
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
        """Returns the name for ListGroups, or None if it is not known yet."""

    @property
    def state_name(self) -> str:
        """Returns the name for ListGroups."""

    def subscription(self) -> Callable[[str], bool]:
        """Returns a function that decides whether the group is subscribed to a topic. Offsets of subscribed topics are
        neither deleted nor expired. Build the function once for many topics, because this may examine all members."""

    # Offsets. A type without committed offsets raises GROUP_ID_NOT_FOUND.

    def check_offset_commit(self, committer: Committer) -> Sequence[Timer]:
        """Checks a commit and returns the timers that it restarts. Raises KafkaError to refuse the whole commit."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises KafkaError to refuse the fetch. After GROUP_ID_NOT_FOUND the caller answers as for a group without
        offsets."""

    def check_offset_delete(self) -> None:
        """Raises KafkaError to refuse the deletion. Offsets of subscribed topics are kept in any case."""

    @property
    def keeps_offsets(self) -> bool:
        """Whether none of the group's offsets can expire in its current state."""

    @property
    def idle_since_ms(self) -> int | None:
        """The time from which the age of the offsets is measured, or None if each is measured from its commit."""

    # Deletion.

    def deletion_verdict(self) -> ErrorCode:
        """Returns NONE if DeleteGroups and expiry may remove the group, otherwise the error code."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Returns tombstones for all records of the group except its offsets. Replaying them removes the group."""

    def running_timers(self) -> list[TimerKey]:
        """Returns further timers that must be stopped when the group is deleted."""


class PreparedContent(Protocol):
    """A value as its group stores it. Only groups of that type know what it contains."""


class PreparedRecord(NamedTuple):
    """The work on a large record that was done before the decision that writes the record.

    key, value  the stored form
    content     the value as its group stores it, which is what replaying the stored form produces
    """

    key: bytes
    value: bytes
    content: PreparedContent


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A typed record of `__consumer_offsets`. It is a tombstone if it has no value.

    prepared  the encoded record, or None if it is encoded when it is written
    """

    key: Message
    value: Message | None
    value_version: int = 0
    prepared: PreparedRecord | None = field(default=None, compare=False)


class TimerKind(Enum):
    SESSION = auto()  # a member's session has expired
    JOIN = auto()  # classic: the time for joining is over
    SYNC = auto()  # classic: the time for sending SyncGroup is over
    REVOCATION = auto()  # consumer: a member's time for giving up partitions is over
    REJOIN = auto()  # consumer: a classic member's time for rejoining or syncing is over
    INITIAL_DELAY = auto()  # streams: the first target of a group no longer needs to wait for more members
    REGEX = auto()  # consumer: regular expressions must be resolved

    __hash__ = object.__hash__  # Enum's own __hash__ hashes the name, in Python code; every heartbeat arms a timer


class TimerKey(NamedTuple):
    """Identifies a timer; at most one timer runs for each key. `member_id` is set if the timer belongs to a member."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timer(NamedTuple):
    """Restarts the timer of this key, or stops it if `delay_ms` is None. Transactions have a `Timer` class of their
    own, whose key is a transactional id."""

    key: TimerKey
    delay_ms: int | None
