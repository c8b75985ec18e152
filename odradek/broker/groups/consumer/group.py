"""A consumer group (KIP-848): its members, epochs and target assignment, as restored from its records.

Source: docs/spec/consumer-groups.md#s3, docs/spec/consumer-groups.md#s12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from odradek.broker.groups.common.epochs import EpochGroup, EpochMemory
from odradek.broker.groups.common.group import Committer, CoordinatorRecord, GroupType, Timer, TimerKey, TimerKind
from odradek.broker.groups.consumer.member import LEAVE_FOR_A_WHILE_EPOCH, ConsumerMember, MemberState
from odradek.broker.groups.consumer.records import (
    assigned_of,
    group_tombstones,
    state_of,
    subscribed,
)
from odradek.protocol.errors import ErrorCode, KafkaError

MEMBER_EPOCHS_SINCE = 9  # version of OffsetCommit


class ResolvedRegex(NamedTuple):
    """The topics that match a regular expression, with the version of the topics and the time of the resolution."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


@dataclass(frozen=True, slots=True)
class GroupMemory(EpochMemory):
    """State of a consumer group that is not recorded.

    refreshed_ms       when regular expressions were last resolved
    refreshed_version  the cluster's version at that time
    rejoining          members of the classic protocol that were told to rejoin and have not done so yet
    may_see            whether the client that caused the pending resolution may see a topic; None if none is pending
    """

    refreshed_ms: int | None = None
    refreshed_version: int | None = None
    rejoining: frozenset[str] = frozenset()
    may_see: Callable[[str], bool] | None = None


class ConsumerGroup(EpochGroup[ConsumerMember, GroupMemory]):
    FIELDS: ClassVar = (*EpochGroup.FIELDS, "regexes", "static_members", "topic_id_of")
    __slots__ = ("regexes", "static_members", "topic_id_of")

    def __init__(self, group_id: str, topic_id_of: Callable[[str], bytes | None]) -> None:
        """`topic_id_of` returns the id of the topic with a name, or None if it does not exist."""
        super().__init__(group_id, GroupMemory())
        self.static_members: dict[str, str] = {}  # group instance id → member id
        self.regexes: dict[str, ResolvedRegex] = {}
        self.topic_id_of = topic_id_of

    # Properties.

    @property
    def group_type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_settled = all(
            member.state is MemberState.STABLE and member.epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return "Stable" if is_settled else "Reconciling"

    @property
    def has_consumer_protocol_member(self) -> bool:
        return any(member.classic is None for member in self.members.values())

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Returns the member's topics, by name and by resolved regular expression; they need not exist."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscribers_of_regex(self, regex: str) -> int:
        return sum(member.regex == regex for member in self.members.values())

    def wanted_regexes(self) -> set[str]:
        return {member.regex for member in self.members.values() if member.regex}

    def preferred_assignor(self, assignors: Sequence[str]) -> str:
        """Returns the assignor that most members ask for; on a tie, the one that is configured first."""
        votes: dict[str, int] = dict.fromkeys(assignors, 0)
        for member in self.members.values():
            if member.server_assignor in votes:
                votes[member.server_assignor] += 1
        return max(assignors, key=lambda name: votes[name])

    # Offsets: docs/spec/consumer-groups.md#s9.

    def check_offset_commit(self, committer: Committer) -> Sequence[Timer]:
        """Refuses the commit if the member or its epoch is wrong. A producer may omit the member, but what it sends
        must be correct."""
        if committer.epoch < 0 and (not self.members or (committer.is_transactional and committer.is_anonymous)):
            return ()
        member = self.members.get(committer.member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.classic is None and committer.version is not None and committer.version < MEMBER_EPOCHS_SINCE:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not self._may_be_late(member, committer):
            member.require_epoch(committer.epoch)
        return ()

    def _may_be_late(self, member: ConsumerMember, committer: Committer) -> bool:
        """Whether an older epoch is valid (KIP-1251): the member has held all these partitions since then or longer."""
        if not 0 <= committer.epoch < member.epoch:
            return False
        for topic, partition in committer.partitions:
            topic_id = self.topic_id_of(topic)
            if topic_id is None:
                return False
            since = member.assigned.get(topic_id, {}).get(partition)
            if since is None:
                since = member.revoking.get(topic_id, {}).get(partition)
            if since is None or since > committer.epoch:
                return False
        return True

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

    # Deletion.

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id)

    def running_timers(self) -> list[TimerKey]:
        return [TimerKey(TimerKind.REGEX, self.group_id)]

    # Replay: docs/spec/consumer-groups.md#s12-3.

    def replay(self, record: CoordinatorRecord) -> None:
        """Applies one of the records with keys 3 to 8 and 16. Compaction may have removed any overwritten record."""
        REPLAYS[record.key.API_KEY](self, record.key, record.value)

    def _replay_partition_metadata(self, key: Any, value: Any) -> None:
        """Ignores a record type of Kafka 4.0, which the metadata hash in the epoch record has replaced."""

    def _replay_member(self, key: Any, value: Any) -> None:
        member_id: str = key.member_id
        known = self.members.get(member_id)
        if value is None:
            self._remove(known)
            return
        member = subscribed(known or ConsumerMember(member_id), value)
        if known is not None and known.instance_id != member.instance_id:
            self._forget_instance(known)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        self.members[member_id] = member

    def _remove(self, member: ConsumerMember | None) -> None:
        if member is not None:
            self._forget_instance(member)
            del self.members[member.member_id]

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _replay_assignment(self, key: Any, value: Any) -> None:
        member = self.members.get(key.member_id)
        if value is None:
            if member is not None:
                self.members[key.member_id] = replace(
                    member, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned={}, revoking={}
                )
            return
        self.members[key.member_id] = replace(
            member or ConsumerMember(key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=state_of(value),
            assigned=assigned_of(value.assigned_partitions, value.member_epoch),
            revoking=assigned_of(value.partitions_pending_revocation, value.member_epoch),
        )

    def _replay_regex(self, key: Any, value: Any) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )


REPLAYS: Mapping[int, Callable[[ConsumerGroup, Any, Any], None]] = {
    3: ConsumerGroup._replay_epoch,
    4: ConsumerGroup._replay_partition_metadata,
    5: ConsumerGroup._replay_member,
    6: ConsumerGroup._replay_target_epoch,
    7: ConsumerGroup._replay_target,
    8: ConsumerGroup._replay_assignment,
    16: ConsumerGroup._replay_regex,
}


def is_away(member: ConsumerMember) -> bool:
    """Whether a static member has left temporarily; its partitions are reserved for it."""
    return member.epoch == LEAVE_FOR_A_WHILE_EPOCH
