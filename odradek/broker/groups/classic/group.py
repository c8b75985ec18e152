"""A classic group, with its members and its state.

A `GroupMetadata` record stores the protocol type and name, the generation, the leader, the time of the last state
change, and for each member its ids, client, timeouts, subscription and assignment. A restart restores these fields.
Everything else exists only in memory and is recomputed after a restart: a group with members is STABLE, and a group
without members is EMPTY. Members that were joining or waiting for an assignment lose their connection when the broker
stops and will resend the request. For each member, only the metadata of the chosen protocol is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from odradek.broker.groups.classic.member import ClassicMember, Protocols, subscribed_topics
from odradek.broker.groups.classic.tables import (
    DELETE_GROUP,
    NEXT,
    OFFSET_DELETE,
    GroupState,
    GroupVerdict,
    offset_commit_verdict,
)
from odradek.broker.groups.common.group import Committer, CoordinatorRecord, GroupType, Timer, TimerKey, TimerKind
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicGroup:
    """A classic group. A decision changes a `copy` of the group. The core replaces the group with that copy once the
    records have been written."""

    FIELDS: ClassVar = (
        "changed_ms",
        "generation",
        "group_id",
        "initial_delay_left_ms",
        "initial_delay_ms",
        "leader_id",
        "member_joined_in_delay",
        "members",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "subscribed_topics",
        "supporters",
    )
    __slots__ = FIELDS

    def __init__(
        self,
        group_id: str,
        *,
        changed_ms: int | None,
        generation: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
        members: Iterable[ClassicMember] = (),
    ) -> None:
        self.group_id = group_id
        self.changed_ms = changed_ms  # time of the last state change; None if an old record version did not store it
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.members: dict[str, ClassicMember] = {member.member_id: member for member in members}
        # These fields exist only in memory, or are computed from the fields above.
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.static_members: dict[str, str] = {}  # group instance id → member id
        self.supporters: dict[str, int] = {}  # protocol name → number of members that support it
        for member in self.members.values():
            if member.group_instance_id is not None:
                self.static_members[member.group_instance_id] = member.member_id
            self._count(member.protocols, 1)
        if self.members and leader_id is None:
            self.leader_id = next(iter(self.members))
        # Clients that have received a member id (MEMBER_ID_REQUIRED) but have not used it yet.
        self.pending_join: frozenset[str] = frozenset()
        # Members that have received the current generation but have not sent SyncGroup yet.
        self.pending_sync: frozenset[str] = frozenset()
        self.initial_delay_ms: int | None = None  # current initial delay, at most group.initial.rebalance.delay.ms
        self.initial_delay_left_ms = 0  # remaining time that can be added to the initial delay
        self.member_joined_in_delay = False
        self.subscribed_topics = subscribed_topics(self.protocol_type, self.protocol_name, self.members.values())

    def copy(self) -> ClassicGroup:
        twin = ClassicGroup.__new__(ClassicGroup)
        for name in self.FIELDS:
            setattr(twin, name, getattr(self, name))
        twin.members = self.members.copy()
        twin.static_members = self.static_members.copy()
        twin.supporters = self.supporters.copy()
        return twin

    # Properties.

    @property
    def group_type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_initial_rebalance(self) -> bool:
        return self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY

    @property
    def waiting_to_join(self) -> int:
        return sum(member.awaiting_join is not None for member in self.members.values())

    @property
    def all_have_joined(self) -> bool:
        return not self.pending_join and self.waiting_to_join == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def subscription(self) -> Callable[[str], bool]:
        return self.is_subscribed_to

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether the group is subscribed to a topic. A group of consumers whose subscriptions cannot be read
        is treated as subscribed to every topic."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Returns whether the joining client has at least one protocol that all members support. An EMPTY group accepts
        any protocol."""
        if self.state is GroupState.EMPTY:
            return protocol_type != "" and len(protocols) > 0
        return self.protocol_type == protocol_type and any(
            self.supporters.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def require_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """Returns the member with this id. Raises UNKNOWN_MEMBER_ID if no member has this id, or FENCED_INSTANCE_ID if
        the instance id now belongs to a different member id."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def require_generation(self, generation: int) -> None:
        """Raises ILLEGAL_GENERATION unless this is the group's current generation. A member with another generation has
        missed a rebalance.

        Source: docs/spec/client-rules.md#grp-10; for transactional commits docs/spec/transactions.md#s2-7, row 7c
        """
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def session_timer(self, member_id: str) -> Timer:
        key = TimerKey(TimerKind.SESSION, self.group_id, member_id)
        return Timer(key, self.members[member_id].session_timeout_ms)

    # Offsets.

    def check_offset_commit(self, committer: Committer) -> Sequence[Timer]:
        is_transactional = committer.is_transactional
        verdict = offset_commit_verdict(
            self.state, generation=committer.epoch, is_anonymous=committer.is_anonymous, transactional=is_transactional
        )
        if isinstance(verdict, ErrorCode):
            raise KafkaError(verdict)
        if verdict is GroupVerdict.ACCEPT:
            return ()
        self.require_member(committer.member_id, committer.group_instance_id)
        self.require_generation(committer.epoch)
        if verdict is GroupVerdict.MEMBER_WAITS:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        is_settled = self.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        return () if is_transactional or not is_settled else (self.session_timer(committer.member_id),)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        return None

    def check_offset_delete(self) -> None:
        of_consumers, of_others = OFFSET_DELETE[self.state]
        verdict = of_consumers if self.uses_consumer_protocol else of_others
        if isinstance(verdict, ErrorCode):
            raise KafkaError(verdict)

    @property
    def keeps_offsets(self) -> bool:
        if self.protocol_type is None or self.state is GroupState.EMPTY:
            return False
        return self.state is not GroupState.STABLE or self.subscribed_topics is None

    @property
    def idle_since_ms(self) -> int | None:
        return self.changed_ms if self.protocol_type is not None and self.state is GroupState.EMPTY else None

    # Deletion.

    def deletion_verdict(self) -> ErrorCode:
        return DELETE_GROUP[self.state]

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    def running_timers(self) -> list[TimerKey]:
        return [TimerKey(TimerKind.SESSION, self.group_id, member_id) for member_id in self.pending_join]

    # Changes.

    def move_to(self, state: GroupState, now_ms: int) -> None:
        if state not in NEXT[self.state]:
            raise RuntimeError(f"group {self.group_id} cannot change from {self.state} to {state}")
        self.previous_state, self.state, self.changed_ms = self.state, state, now_ms

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.pending_join -= {member.member_id}

    def put(self, member: ClassicMember) -> None:
        """Replaces the member with the same id."""
        self._count(self.members[member.member_id].protocols, -1)
        self._count(member.protocols, 1)
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        """Removes a member, or a client that has only received a member id. If the leader is removed, the remaining
        member that joined first becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join -= {member_id}
        self.pending_sync -= {member_id}

    def rename_static(self, old_member_id: str, new_member_id: str) -> ClassicMember:
        """Gives a returning static member its new member id. The member keeps its position, its assignment and, if it
        was the leader, its leadership."""
        renamed = replace(
            self.members[old_member_id], member_id=new_member_id, is_new=False, awaiting_join=None, awaiting_sync=None
        )
        # The order of the members determines the next leader, so a restarted member keeps its position.
        self.members = {
            renamed.member_id if member_id == old_member_id else member_id: (
                renamed if member_id == old_member_id else member
            )
            for member_id, member in self.members.items()
        }
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        assert renamed.group_instance_id is not None
        self.static_members[renamed.group_instance_id] = new_member_id
        self.pending_sync = frozenset(
            new_member_id if member_id == old_member_id else member_id for member_id in self.pending_sync
        )
        return renamed

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes among those that all members support. A tie goes to the protocol
        that received its first vote earliest."""
        candidates = {name for name, count in self.supporters.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def choose_protocol(self) -> None:
        """Chooses the protocol of a group whose members have not joined through a rebalance, because the group used to
        be a consumer group."""
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = subscribed_topics(self.protocol_type, self.protocol_name, self.members.values())

    def begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = subscribed_topics(self.protocol_type, self.protocol_name, self.members.values())
        self.move_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.pending_sync = frozenset(self.members)

    def _count(self, protocols: Protocols, by: int) -> None:
        for name, _ in protocols:
            count = self.supporters.get(name, 0) + by
            if count:
                self.supporters[name] = count
            else:
                self.supporters.pop(name, None)
