"""What a member of a classic group does about each answer of the coordinator: a table, no requests.

Source: how Kafka's own consumers react to the coordinator's error codes (KIP-62, KIP-394, KIP-345).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from odradek.protocol.errors import ErrorCode

NO_GENERATION = -1
NO_MEMBER = ""


class Asked(Enum):
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    COMMIT = "OffsetCommit"


class Next(Enum):
    """What to do after an answer."""

    GO_ON = auto()
    REPEAT = auto()  # after a pause
    FIND_COORDINATOR = auto()  # then repeat
    REJOIN = auto()  # as the same member; until it has joined, its partitions are its own
    REJOIN_EXPELLED = auto()  # the same, but the generation went on without it: its partitions are lost
    JOIN_ANEW = auto()  # the group knows no such member: as a new one, its partitions are lost
    GIVE_UP = auto()


_WHEREVER: Mapping[ErrorCode, Next] = {
    ErrorCode.NONE: Next.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Next.REPEAT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Next.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Next.FIND_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS: Next.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Next.REJOIN_EXPELLED,
    ErrorCode.UNKNOWN_MEMBER_ID: Next.JOIN_ANEW,
}
_SPECIALLY: Mapping[tuple[Asked, ErrorCode], Next] = {
    (Asked.JOIN, ErrorCode.MEMBER_ID_REQUIRED): Next.REJOIN,  # it has been given an id to come back with
    (Asked.COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): Next.REPEAT,  # it may just have been created
    (Asked.COMMIT, ErrorCode.REQUEST_TIMED_OUT): Next.REPEAT,
    # The rebalance may be waiting for this very member: its pause in polling must not grow.
    (Asked.SYNC, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): Next.REJOIN,
}


@dataclass(slots=True)
class Membership:
    """Who the member is, as far as the group knows it."""

    instance_id: str | None = None
    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    last_generation_id: int = NO_GENERATION  # in which it was given what it owns
    is_stable: bool = False  # joined, and no rebalance heard of since
    is_lost: bool = False  # what it had is no longer its own

    def joined(self, member_id: str, generation_id: int) -> None:
        self.member_id, self.generation_id, self.is_lost = member_id, generation_id, False

    def synced(self) -> None:
        self.is_stable, self.last_generation_id = True, self.generation_id

    def named(self, member_id: str) -> None:
        """The id to come back with (MEMBER_ID_REQUIRED)."""
        self.member_id = member_id

    def left(self) -> None:
        """Nothing is known of it any more: it left, or stayed away for too long."""
        self.member_id, self.generation_id = NO_MEMBER, NO_GENERATION
        self.is_stable, self.is_lost = False, True

    def answered(self, asked: Asked, code: ErrorCode) -> Next:
        """What follows from an answer; it is noted here what the member no longer is."""
        following = _SPECIALLY.get((asked, code)) or _WHEREVER.get(code, Next.GIVE_UP)
        match following:
            case Next.REJOIN:
                self.is_stable = False
            case Next.REJOIN_EXPELLED:
                self.is_stable, self.is_lost, self.generation_id = False, True, NO_GENERATION
            case Next.JOIN_ANEW:
                self.left()
            case Next.GO_ON | Next.REPEAT | Next.FIND_COORDINATOR | Next.GIVE_UP:
                pass
        return following
