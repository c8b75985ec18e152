"""The base classes of consumer groups and streams groups. Members of these groups may be static, and a member gives up
partitions or tasks before another member receives them.

As in Kafka, the coordinator identifies dynamic members by member id and static members by instance id.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from odradek.broker.groups.common.epochs import EpochGroup, EpochMemory
from odradek.broker.groups.common.group import Committer, Timer
from odradek.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_WITH_MEMBER_EPOCHS = 9  # the first version of OffsetCommit with member epochs
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
TEMPORARY_LEAVE_EPOCH = -2  # the member epoch sent by a static member that leaves temporarily
UNCHANGED_MS = -1  # the RebalanceTimeoutMs of a heartbeat that leaves the timeout unchanged


def is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


class ReconciledMember(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def epoch(self) -> int: ...
    @property
    def previous_epoch(self) -> int: ...
    @property
    def is_stable(self) -> bool:
        """True if the member has received its complete target and has nothing left to give up."""

    def require_epoch(self, epoch: int) -> None:
        """Raises KafkaError unless this is the member's epoch."""


def is_away(member: ReconciledMember) -> bool:
    """Returns whether this is a static member that has left temporarily. Its assignment remains reserved for it."""
    return member.epoch == TEMPORARY_LEAVE_EPOCH


M = TypeVar("M", bound=ReconciledMember)
S = TypeVar("S", bound=EpochMemory)
T = TypeVar("T")


class ReconciledGroup(EpochGroup[M, S, T]):
    FIELDS: ClassVar[tuple[str, ...]] = (*EpochGroup.FIELDS, "static_members")
    __slots__ = ("static_members",)

    def __init__(self, group_id: str, memory: S) -> None:
        super().__init__(group_id, memory)
        self.static_members: dict[str, str] = {}  # group instance id → member id

    @property
    @abstractmethod
    def protocol_type(self) -> str: ...

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_settled = all(member.is_stable and member.epoch == self.assignment_epoch for member in self.members.values())
        return "Stable" if is_settled else "Reconciling"

    # Members.

    def check_room(self, member_id: str, max_size: int) -> None:
        """Raises GROUP_MAX_SIZE_REACHED if the group is full and the client is not one of its members."""
        if len(self.members) >= max_size and member_id not in self.members:
            what = f"The {self.protocol_type} group has reached its maximum capacity of {max_size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, what)

    def require_member(self, member_id: str, instance_id: str | None) -> M:
        """Returns the member with this id. Raises UNKNOWN_MEMBER_ID if no member has this id, or FENCED_INSTANCE_ID if
        the instance id belongs to a different member id."""
        if instance_id is not None:
            holder_id = self.static_members.get(instance_id)
            if holder_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            if holder_id != member_id:
                what = f"Static member {member_id} with instance id {instance_id} was fenced by member {holder_id}."
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, what)
        member = self.members.get(member_id)
        if member is None:
            what = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, what)
        return member

    def check_epoch(self, member: M, epoch: int, *, owns_only_assigned: bool) -> None:
        """Raises FENCED_MEMBER_EPOCH unless the epoch is valid for this member.

        The previous epoch is also valid if the member owns only partitions that are assigned to it, because the
        response with its new epoch may have been lost. Source: docs/spec/consumer-groups.md#s2-3,
        docs/spec/streams-groups.md#s2-4
        """
        if epoch == member.epoch or (epoch < member.epoch and epoch == member.previous_epoch and owns_only_assigned):
            return
        compared = "greater" if epoch > member.epoch else "smaller"
        what = f"The {self.protocol_type} group member has a {compared} member epoch ({epoch}) than the one known by"
        what = f"{what} the group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, what)

    def not_released(self, member_id: str, instance_id: str, holder_id: str) -> KafkaError:
        """Returns the error for a member that joins with an instance id whose current member has not left.

        As in Kafka, even a request with the current member's own member id is refused. A request without the instance
        id is accepted.

        The error is raised in `consumer/membership.py` and `streams/heartbeat.py`. Source:
        docs/spec/consumer-groups.md#s1-3, docs/spec/streams-groups.md#s2-5
        """
        what = f"Static member {member_id} with instance id {instance_id} cannot join the group"
        what = f"{what} because the instance id is owned by {holder_id} member."
        return KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, what)

    # Offset requests. The rules are in docs/spec/consumer-groups.md#s9 and docs/spec/streams-groups.md#s7.

    def check_offset_commit(self, committer: Committer) -> Sequence[Timer]:
        """Raises KafkaError if the member id or the epoch is wrong. A transactional commit may omit the member id and
        the epoch. Any commit may omit the epoch if the group has no members."""
        if committer.epoch < 0 and (not self.members or (committer.is_transactional and committer.is_anonymous)):
            return ()
        member = self.members.get(committer.member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if (
            committer.version is not None
            and committer.version < FIRST_VERSION_WITH_MEMBER_EPOCHS
            and self.knows_epochs(member)
        ):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not self._may_be_late(member, committer):
            member.require_epoch(committer.epoch)
        return ()

    def knows_epochs(self, member: M) -> bool:
        """Returns whether the member must send its member epoch with a commit."""
        return True

    def _may_be_late(self, member: M, committer: Committer) -> bool:
        """Returns whether the commit may use an older epoch (KIP-1251). The member must have held all of the committed
        partitions since that epoch."""
        if not 0 <= committer.epoch < member.epoch:
            return False
        held_since = self.held_since(member)
        for topic, partition in committer.partitions:
            since = held_since(topic, partition)
            if since is None or since > committer.epoch:
                return False
        return True

    @abstractmethod
    def held_since(self, member: M) -> Callable[[str, int], int | None]:
        """Returns a function that takes a topic and a partition. The function returns the epoch at which the member
        received the partition, or None if the member does not hold the partition."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.members.get(member_id or "")
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member.require_epoch(member_epoch)

    def check_offset_delete(self) -> None:
        return None

    @property
    def keeps_offsets(self) -> bool:
        return False

    # Replay.

    def _replay_member(self, key: Any, value: Any) -> None:
        existing = self.members.get(key.member_id)
        if value is None:
            if existing is not None:
                self._forget_instance(existing)
                del self.members[key.member_id]
            return
        member = self.stored_member(existing, key.member_id, value)
        if existing is not None and existing.instance_id != member.instance_id:
            self._forget_instance(existing)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = key.member_id
        self.members[key.member_id] = member

    @abstractmethod
    def stored_member(self, existing: M | None, member_id: str, value: Any) -> M:
        """Returns the member with the fields from its subscription record. The fields from its assignment record are
        unchanged."""

    def _forget_instance(self, member: M) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
