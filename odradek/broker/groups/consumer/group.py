"""A consumer group (KIP-848), with the members, epochs and target assignment that its records store.

Source: docs/spec/consumer-groups.md#s3, docs/spec/consumer-groups.md#s12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from odradek.broker.groups.common.epochs import EpochMemory, Partitions
from odradek.broker.groups.common.group import CoordinatorRecord, GroupType, TimerKey, TimerKind
from odradek.broker.groups.common.members import ReconciledGroup
from odradek.broker.groups.consumer.member import ConsumerMember, MemberState
from odradek.broker.groups.consumer.records import (
    assigned_of,
    group_tombstones,
    state_of,
    with_subscription,
)


class ResolvedRegex(NamedTuple):
    """The topics that match a regular expression, with the cluster metadata version and the time of the search."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


@dataclass(frozen=True, slots=True)
class GroupMemory(EpochMemory):
    """The part of a consumer group's state that is not recorded.

    refreshed_ms       time at which the group's regular expressions were last resolved
    refreshed_version  the version of the cluster metadata at that time
    rejoining          members that use the classic protocol and were asked to rejoin, but have not rejoined yet
    may_see            returns whether the client that requested the pending resolution may see a topic; None if no
                       resolution is pending
    """

    refreshed_ms: int | None = None
    refreshed_version: int | None = None
    rejoining: frozenset[str] = frozenset()
    may_see: Callable[[str], bool] | None = None


class ConsumerGroup(ReconciledGroup[ConsumerMember, GroupMemory, Partitions]):
    FIELDS: ClassVar = (*ReconciledGroup.FIELDS, "regexes", "topic_id_of")
    __slots__ = ("regexes", "topic_id_of")

    def __init__(self, group_id: str, topic_id_of: Callable[[str], bytes | None]) -> None:
        """Creates an empty group. `topic_id_of` returns the id of the topic with the given name, or None if the topic
        does not exist."""
        super().__init__(group_id, GroupMemory())
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
    def has_consumer_protocol_member(self) -> bool:
        return any(member.classic is None for member in self.members.values())

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Returns the topics that the member subscribes to by name or by a resolved regular expression, including
        topics that do not exist."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscribers_of_regex(self, regex: str) -> int:
        return sum(member.regex == regex for member in self.members.values())

    def subscribed_regexes(self) -> set[str]:
        return {member.regex for member in self.members.values() if member.regex}

    def preferred_assignor(self, assignors: Sequence[str]) -> str:
        """Returns the assignor that most members prefer. A tie goes to the assignor that is configured first."""
        votes: dict[str, int] = dict.fromkeys(assignors, 0)
        for member in self.members.values():
            if member.server_assignor in votes:
                votes[member.server_assignor] += 1
        return max(assignors, key=lambda name: votes[name])

    # Offsets.

    def knows_epochs(self, member: ConsumerMember) -> bool:
        return member.classic is None

    def held_since(self, member: ConsumerMember) -> Callable[[str, int], int | None]:
        def since(topic: str, partition: int) -> int | None:
            topic_id = self.topic_id_of(topic)
            if topic_id is None:
                return None
            epoch = member.assigned.get(topic_id, {}).get(partition)
            return member.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch

        return since

    # Deletion.

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id)

    def running_timers(self) -> list[TimerKey]:
        return [TimerKey(TimerKind.REGEX, self.group_id)]

    # Replay: docs/spec/consumer-groups.md#s12-3.

    def replay(self, record: CoordinatorRecord) -> None:
        """Applies a record of type 3 to 8 or 16. Earlier records can be missing, because compaction removes a record
        once a later record with the same key exists."""
        REPLAYS[record.key.API_KEY](self, record.key, record.value)

    def _replay_partition_metadata(self, key: Any, value: Any) -> None:
        """Ignores the partition metadata that Kafka 4.0 recorded, because the metadata hash in the epoch record has
        replaced it."""

    def stored_member(self, existing: ConsumerMember | None, member_id: str, value: Any) -> ConsumerMember:
        return with_subscription(existing or ConsumerMember(member_id), value)

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
