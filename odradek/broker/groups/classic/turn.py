"""A decision about a classic group, made in response to a request or a timer, and the group's records.

Source: docs/formats/consumer-offsets.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.member import ClassicMember
from odradek.broker.groups.common.group import CoordinatorRecord, Timer, TimerKey, TimerKind
from odradek.broker.groups.common.outcome import GroupConfig, Outcome, Reply, Token
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

R = TypeVar("R")


class ClassicTurn:
    """A decision in progress. `group` is a copy that only this turn changes. The copy is discarded if the records
    cannot be written."""

    __slots__ = ("config", "counted", "group", "now_ms", "records", "replies", "timers")

    def __init__(self, group: ClassicGroup, config: GroupConfig, now_ms: int) -> None:
        self.group = group
        self.config = config
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []
        self.counted: list[tuple[str, int]] = []

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
            counted=tuple(self.counted),
        )


GROUP_METADATA_VERSION = 3


def empty_group_record(group_id: str, now_ms: int) -> CoordinatorRecord:
    """Returns the first record of a new group. The group has no protocol type yet."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group_id),
        GroupMetadataValue(protocol_type="", protocol=None, leader=None, current_state_timestamp=now_ms),
        GROUP_METADATA_VERSION,
    )


def group_metadata_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """Returns a record of the group's current state. `assignments` contains the members' assignments by member id.
    Members missing from `assignments` have no assignment."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=-1 if group.changed_ms is None else group.changed_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol_name or ""),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in group.members.values()
            ],
        ),
        GROUP_METADATA_VERSION,
    )


def member_of(value: GroupMetadataValue, stored: MemberMetadata) -> ClassicMember:
    return ClassicMember(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        # Record version 0 does not contain the rebalance timeout.
        rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
        session_timeout_ms=stored.session_timeout,
        protocols=((value.protocol or "", stored.subscription),),
        assignment=stored.assignment,
    )
