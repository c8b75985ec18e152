"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of a classic group, or of a group that does not exist yet."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.join import NO_MEMBER_ID, Joiner, join, refused
from odradek.broker.groups.classic.membership import heartbeat_verdict, leave_group, sync_group
from odradek.broker.groups.classic.records import empty_group_record
from odradek.broker.groups.classic.turn import Turn
from odradek.broker.groups.common.effects import CoordinatorRecord
from odradek.broker.groups.common.outcome import Outcome, Token
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse


def join_classic_group(
    registry: GroupRegistry,
    group: ClassicGroup | None,
    joiner: Joiner,
    now_ms: int,
    replaced: Sequence[CoordinatorRecord] = (),
) -> Outcome[JoinGroupResponse]:
    """
    group     None: there is none, or one of another type that has no members and becomes a classic one
    replaced  tombstones of the latter
    """
    request = joiner.request
    if group is None and request.member_id != NO_MEMBER_ID:
        return Outcome(refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    draft = ClassicGroup(request.group_id, changed_ms=now_ms) if group is None else group.copy()
    turn = Turn(draft, registry.config, now_ms)
    turn.records += replaced
    if group is None:
        turn.records.append(empty_group_record(request.group_id, now_ms))
    return turn.outcome(join(turn, joiner))


def sync_classic_group(
    registry: GroupRegistry, group: ClassicGroup, request: SyncGroupRequest, token: Token, now_ms: int
) -> Outcome[SyncGroupResponse]:
    turn = Turn(group.copy(), registry.config, now_ms)
    return turn.outcome(sync_group(turn, request, token))


def heartbeat_classic_group(group: ClassicGroup, request: HeartbeatRequest) -> Outcome[HeartbeatResponse]:
    verdict = heartbeat_verdict(group, request)
    return Outcome(HeartbeatResponse(error_code=verdict.value), timers=(group.session_timer(request.member_id),))


def leave_classic_group(
    registry: GroupRegistry, group: ClassicGroup, request: LeaveGroupRequest, now_ms: int
) -> Outcome[LeaveGroupResponse]:
    turn = Turn(group.copy(), registry.config, now_ms)
    return turn.outcome(LeaveGroupResponse(members=leave_group(turn, request.members)))
