"""What a decision consists of. Nothing in an `Outcome` has happened yet: the shell appends its records, replays them,
lets the core settle the rest, arms the timers and releases the replies, in this order and in one turn of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeVar

from broker.groups.member import Token
from protocol.messages.join_group_response import JoinGroupResponse
from protocol.messages.sync_group_response import SyncGroupResponse
from protocol.struct import Message

if TYPE_CHECKING:
    from broker.groups.classic import ClassicGroup

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings that decisions depend on; the names are Kafka's property names, `.` as `_`, units said."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096  # Kafka counts UTF-16 units all the same
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    # Not a setting in Kafka either: a member that joins a rebalance in progress has no heartbeats yet, so its
    # session timeout would be too short to measure it by.
    new_member_join_timeout_ms: int = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of `__consumer_offsets`: typed, not yet bytes. No value means a tombstone."""

    key: Message
    value: Message | None
    value_version: int = 0


class TimerKind(Enum):
    SESSION = auto()  # a member was not heard of
    JOIN = auto()  # the members had their time to join
    SYNC = auto()  # the members had their time to ask for their assignment


@dataclass(frozen=True, slots=True)
class TimerKey:
    """At most one timer runs per key; `member_id` only for SESSION."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Timer:
    """Arm the key's timer anew, or with no delay given, disarm it."""

    key: TimerKey
    delay_ms: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to somebody who was waiting, or, if the token is the asker's own, to the request itself."""

    token: Token
    message: JoinGroupResponse | SyncGroupResponse


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R_co]):
    """A decision.

    response   the answer; None where the asker's token was kept (parked) or stands in `replies`
    records    to append all or none, unless `may_split`; then to replay in order
    groups     what the records do not tell: groups as they are afterwards, in memory (who waits, who is expected …)
    must_sync  whether the answer waits for an fdatasync whatever the settings say: never on account of a group
    """

    response: R_co | None = None
    records: Sequence[CoordinatorRecord] = ()
    groups: Sequence[ClassicGroup] = ()
    replies: Sequence[Reply] = ()
    timers: Sequence[Timer] = ()
    may_split: bool = False
    must_sync: bool = False


class Turn:
    """What one request or one timer is about to do to one classic group.

    `group` is a copy of its own: it may be changed freely, and is forgotten if the records cannot be written.
    """

    __slots__ = ("config", "group", "now_ms", "records", "replies", "timers")

    def __init__(self, group: ClassicGroup, config: GroupConfig, now_ms: int) -> None:
        self.group = group
        self.config = config
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []

    def reply(self, token: Token, message: JoinGroupResponse | SyncGroupResponse) -> None:
        self.replies.append(Reply(token, message))

    def arm(self, kind: TimerKind, delay_ms: int, member_id: str = "") -> None:
        self.timers.append(Timer(TimerKey(kind, self.group.group_id, member_id), delay_ms))

    def disarm(self, kind: TimerKind, member_id: str = "") -> None:
        self.timers.append(Timer(TimerKey(kind, self.group.group_id, member_id), None))

    def outcome(self, response: R | None = None) -> Outcome[R]:
        return Outcome(
            response=response,
            records=tuple(self.records),
            groups=(self.group,),
            replies=tuple(self.replies),
            timers=tuple(self.timers),
        )
