"""A decision about a consumer group, made in response to a request, a timer or a resolution of regular expressions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from odradek.broker.groups.common.epochs import EpochTurn
from odradek.broker.groups.common.group import CoordinatorRecord, Group, TimerKind
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer.group import ConsumerGroup, GroupMemory
from odradek.broker.groups.consumer.member import ConsumerMember, MemberState
from odradek.broker.groups.consumer.records import (
    assignment_record,
    assignment_tombstone,
    group_epoch_record,
    member_tombstone,
    regex_tombstone,
    target_epoch_record,
    target_tombstone,
)

R = TypeVar("R")

AT_ONCE_MS = 0


class ConsumerTurn(EpochTurn[ConsumerGroup, GroupMemory]):
    def __init__(self, registry: GroupRegistry, group: ConsumerGroup, now_ms: int, *, is_new: bool = False) -> None:
        """Creates a turn. `is_new` means that this turn has created the group, so it need not copy the group before a
        change."""
        super().__init__(registry, group, now_ms, is_new=is_new)
        self.config = registry.config.consumer
        self.classic_group: Group | None = None  # the classic group that replaces this group, if this turn converts it

    def epoch_record(self, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        return group_epoch_record(self.group.group_id, epoch, metadata_hash)

    def target_epoch_record(self, epoch: int, computed_ms: int) -> CoordinatorRecord:
        return target_epoch_record(self.group.group_id, epoch, computed_ms)

    def _groups_after(self) -> tuple[Group, ...]:
        return super()._groups_after() if self.classic_group is None else (self.classic_group,)

    # Members.

    def begin_session(self, member: ConsumerMember) -> None:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self.cluster.group_setting(self.group.group_id, "consumer.session.timeout.ms")
        self.arm(TimerKind.SESSION, timeout_ms, member.member_id)

    def put_assignment(self, before: ConsumerMember, member: ConsumerMember) -> None:
        """Records the result of the reconciliation and starts or stops the member's revocation timer."""
        if member == before:
            return
        self.write(assignment_record(self.group.group_id, member))
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.arm(TimerKind.REVOCATION, max(member.rebalance_timeout_ms, AT_ONCE_MS), member.member_id)
        elif before.state is MemberState.UNREVOKED_PARTITIONS:
            self.disarm(TimerKind.REVOCATION, member.member_id)

    def remove(self, members: Iterable[ConsumerMember]) -> None:
        """Removes members that have left or whose sessions have expired. Their partitions become free immediately."""
        group_id = self.group.group_id
        for member in members:
            self.write(*tombstones_of(group_id, member))
            self.drop_regex_of(member)
            for kind in (TimerKind.SESSION, TimerKind.REVOCATION, TimerKind.REJOIN):
                self.disarm(kind, member.member_id)
        self.members_left()

    def drop_regex_of(self, member: ConsumerMember) -> None:
        """Removes the member's previous regular expression from the group if no other member uses it."""
        if member.regex in self.group.regexes and self.group.subscribers_of_regex(member.regex) == 0:
            self.write(regex_tombstone(self.group.group_id, member.regex))


def tombstones_of(group_id: str, member: ConsumerMember) -> list[CoordinatorRecord]:
    return [
        assignment_tombstone(group_id, member.member_id),
        target_tombstone(group_id, member.member_id),
        member_tombstone(group_id, member.member_id),
    ]
