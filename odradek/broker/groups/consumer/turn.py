"""One decision about a consumer group, by a request, timer or resolution, while it is being made.

`ConsumerTurn.group` is the group as it will be: each record is applied to it as it is made, and it becomes a copy with
the first of them. Nothing else has happened when the turn is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from odradek.broker.groups.common.group import CoordinatorRecord, Group, Timer, TimerKey, TimerKind
from odradek.broker.groups.common.metadata_hash import metadata_hash as hash_of_topics
from odradek.broker.groups.common.outcome import Outcome, Reply
from odradek.broker.groups.common.registry import GroupRegistry, TopicView
from odradek.broker.groups.consumer.group import ConsumerGroup, GroupMemory
from odradek.broker.groups.consumer.member import ConsumerMember, MemberState
from odradek.broker.groups.consumer.records import (
    assignment_record,
    assignment_tombstone,
    group_epoch_record,
    member_tombstone,
    regex_tombstone,
    target_tombstone,
)

R = TypeVar("R")

AT_ONCE_MS = 0


class ConsumerTurn:
    def __init__(self, registry: GroupRegistry, group: ConsumerGroup, now_ms: int, *, is_new: bool = False) -> None:
        """is_new: the group is the turn's own already."""
        self.registry = registry
        self.cluster = registry.cluster
        self.config = registry.config.consumer
        self.group = group
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []
        self.classic_group: Group | None = None  # what the group has become
        self._owns_group = is_new

    # Records and timers.

    def write(self, *records: CoordinatorRecord) -> None:
        group = self._own_group()
        for record in records:
            group.replay(record)
            self.records.append(record)

    def remember(self, memory: GroupMemory) -> None:
        self._own_group().memory = memory

    def arm(self, kind: TimerKind, delay_ms: int, member_id: str = "") -> None:
        self.timers.append(Timer(TimerKey(kind, self.group.group_id, member_id), delay_ms))

    def disarm(self, kind: TimerKind, member_id: str = "") -> None:
        self.timers.append(Timer(TimerKey(kind, self.group.group_id, member_id), None))

    def outcome(self, response: R | None = None) -> Outcome[R]:
        after: tuple[Group, ...] = ()
        if self.classic_group is not None:
            after = (self.classic_group,)
        elif self._owns_group:
            after = (self.group,)
        return Outcome(
            response=response,
            records=tuple(self.records),
            groups=after,
            replies=tuple(self.replies),
            timers=tuple(self.timers),
        )

    def _own_group(self) -> ConsumerGroup:
        if not self._owns_group:
            self.group, self._owns_group = self.group.copy(), True
        return self.group

    # Epochs: docs/spec/consumer-groups.md#s3.

    def bump_epoch(self) -> None:
        """Something that a target assignment depends on has changed."""
        group = self.group
        self.write(group_epoch_record(group.group_id, group.epoch + 1, self.metadata_hash()))
        self.remember(replace(self.group.memory, checked_version=self.cluster.version))

    def follow_topics(self) -> None:
        """Bump the epoch if subscribed topics came, went or grew since somebody looked."""
        group = self.group
        if group.memory.checked_version == self.cluster.version:
            return
        if self.metadata_hash() != group.metadata_hash:
            self.bump_epoch()
        else:
            self.remember(replace(group.memory, checked_version=self.cluster.version))

    def metadata_hash(self) -> int:
        return hash_of_topics(self.topics_of(self.group.subscribed_topics()))

    def topics_of(self, names: Iterable[str]) -> list[TopicView]:
        """Returns those that exist."""
        return [topic for name in names if (topic := self.cluster.topic(name)) is not None]

    # Members.

    def begin_session(self, member: ConsumerMember) -> None:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self.cluster.group_setting(self.group.group_id, "consumer.session.timeout.ms")
        self.arm(TimerKind.SESSION, timeout_ms, member.member_id)

    def put_assignment(self, before: ConsumerMember, member: ConsumerMember) -> None:
        """Record what reconciliation made of a member, and time the revocation that it may have to make."""
        if member == before:
            return
        self.write(assignment_record(self.group.group_id, member))
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.arm(TimerKind.REVOCATION, max(member.rebalance_timeout_ms, AT_ONCE_MS), member.member_id)
        elif before.state is MemberState.UNREVOKED_PARTITIONS:
            self.disarm(TimerKind.REVOCATION, member.member_id)

    def remove(self, members: Iterable[ConsumerMember]) -> None:
        """They left, or were not heard of: their partitions are free at once."""
        group_id = self.group.group_id
        for member in members:
            self.write(*tombstones_of(group_id, member))
            self.drop_regex_of(member)
            for kind in (TimerKind.SESSION, TimerKind.REVOCATION, TimerKind.REJOIN):
                self.disarm(kind, member.member_id)
        self.bump_epoch()

    def drop_regex_of(self, member: ConsumerMember) -> None:
        """After the member no longer has it: a regular expression that nobody has left is forgotten."""
        if member.regex in self.group.regexes and self.group.subscribers_of_regex(member.regex) == 0:
            self.write(regex_tombstone(self.group.group_id, member.regex))


def tombstones_of(group_id: str, member: ConsumerMember) -> list[CoordinatorRecord]:
    return [
        assignment_tombstone(group_id, member.member_id),
        target_tombstone(group_id, member.member_id),
        member_tombstone(group_id, member.member_id),
    ]
