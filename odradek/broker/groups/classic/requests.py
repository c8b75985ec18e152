"""Handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup requests for a classic group, and JoinGroup for a group that
does not exist yet. Also replays, loads and unloads classic groups, and handles their timers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.join import NO_MEMBER_ID, Joiner, error_response, join
from odradek.broker.groups.classic.rebalance import (
    maybe_complete_join,
    on_join_timer,
    on_session_timer,
    on_sync_timer,
    prepare_rebalance,
    remove_member,
)
from odradek.broker.groups.classic.tables import HEARTBEAT, SYNC, GroupState, GroupVerdict
from odradek.broker.groups.classic.turn import ClassicTurn, empty_group_record, group_metadata_record, member_of
from odradek.broker.groups.common.group import CoordinatorRecord, Group, Timer, TimerKey, TimerKind
from odradek.broker.groups.common.outcome import COMPLETED_REBALANCES, Outcome, Reply, Token
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse


def join_classic_group(
    registry: GroupRegistry,
    group: ClassicGroup | None,
    joiner: Joiner,
    now_ms: int,
    replaced: Sequence[CoordinatorRecord] = (),
) -> Outcome[JoinGroupResponse]:
    """Handles a JoinGroup request.

    group     None if the group does not exist, or if it is an empty group of another type that becomes a classic group
    replaced  tombstones of that empty group
    """
    request = joiner.request
    if group is None and request.member_id != NO_MEMBER_ID:
        return Outcome(error_response(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    if group is None:
        draft = ClassicGroup(request.group_id, changed_ms=now_ms, generation=registry.first_epoch())
    else:
        draft = group.copy()
    turn = ClassicTurn(draft, registry.config, now_ms)
    turn.records += replaced
    if group is None:
        turn.records.append(empty_group_record(request.group_id, now_ms))
    return turn.outcome(join(turn, joiner))


def sync_classic_group(
    registry: GroupRegistry, group: ClassicGroup, request: SyncGroupRequest, token: Token, now_ms: int
) -> Outcome[SyncGroupResponse]:
    turn = ClassicTurn(group.copy(), registry.config, now_ms)
    return turn.outcome(sync_group(turn, request, token))


def heartbeat_classic_group(group: ClassicGroup, request: HeartbeatRequest) -> Outcome[HeartbeatResponse]:
    verdict = heartbeat_verdict(group, request)
    return Outcome(HeartbeatResponse(error_code=verdict.value), timers=(group.session_timer(request.member_id),))


def leave_classic_group(
    registry: GroupRegistry, group: ClassicGroup, request: LeaveGroupRequest, now_ms: int
) -> Outcome[LeaveGroupResponse]:
    turn = ClassicTurn(group.copy(), registry.config, now_ms)
    return turn.outcome(LeaveGroupResponse(members=leave_group(turn, request.members)))


def sync_group(turn: ClassicTurn, request: SyncGroupRequest, token: Token) -> SyncGroupResponse | None:
    """Handles a SyncGroup request and returns the response. Returns None if the request waits for the leader's
    assignment, or if its response is one of the turn's replies."""
    group = turn.group
    verdict = SYNC[group.state]
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        assert isinstance(verdict, ErrorCode)
        return SyncGroupResponse(error_code=verdict.value)
    refusal = sync_refusal(group, request)
    if refusal is not None:
        return SyncGroupResponse(error_code=refusal.value)
    match verdict:
        case ErrorCode() as code:
            return SyncGroupResponse(error_code=code.value)
        case GroupVerdict.PARK:
            wait_for_assignment(turn, request.member_id, token)
            if group.is_leader(request.member_id):
                settle_assignment(turn, request)
            return None
        case GroupVerdict.SAME_GENERATION:
            has_synced(turn, request.member_id)
            return sync_response(group, request.member_id)
        case other:
            raise RuntimeError(f"unknown kind of sync: {other}")


def sync_refusal(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode | None:
    try:
        group.require_member(request.member_id, request.group_instance_id)
        group.require_generation(request.generation_id)
    except KafkaError as error:
        return error.code
    # Older request versions contain neither the protocol type nor the protocol name.
    for requested, actual in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if requested is not None and actual is not None and requested != actual:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None


def wait_for_assignment(turn: ClassicTurn, member_id: str, token: Token) -> None:
    group = turn.group
    member = group.members[member_id]
    if member.awaiting_sync is not None:
        # The member has resent the request on another connection. Without this reply, the first request would never be
        # answered.
        turn.reply(member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS.value))
    group.put(replace(member, awaiting_sync=token))
    has_synced(turn, member_id)


def has_synced(turn: ClassicTurn, member_id: str) -> None:
    turn.group.pending_sync -= {member_id}
    if not turn.group.pending_sync:
        turn.disarm(TimerKind.SYNC)


def settle_assignment(turn: ClassicTurn, request: SyncGroupRequest) -> None:
    """Records the group with the leader's assignment and sends each waiting member its part of the assignment."""
    group = turn.group
    assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
    turn.records.append(group_metadata_record(group, assignments))
    for member in list(group.members.values()):
        group.put(replace(member, assignment=assignments.get(member.member_id, b""), awaiting_sync=None))
        if member.awaiting_sync is not None:
            turn.reply(member.awaiting_sync, sync_response(group, member.member_id))
            turn.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
    group.move_to(GroupState.STABLE, turn.now_ms)
    turn.counted.append((COMPLETED_REBALANCES, 1))


def sync_response(group: ClassicGroup, member_id: str) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=group.members[member_id].assignment,
    )


def heartbeat_verdict(group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
    """Returns the error code for the response to a heartbeat. Raises KafkaError if the client is not a member of the
    current generation; otherwise the caller restarts the member's session timer."""
    verdict = HEARTBEAT[group.state]
    if group.state is GroupState.DEAD:
        raise KafkaError(verdict)
    group.require_member(request.member_id, request.group_instance_id)
    group.require_generation(request.generation_id)
    return verdict


def leave_group(turn: ClassicTurn, leaving: list[MemberIdentity]) -> list[MemberResponse]:
    """Removes the listed members and returns one response for each. A rebalance begins only after all of them have
    left."""
    answers = [
        MemberResponse(
            member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=leave(turn, each).value
        )
        for each in leaving
    ]
    if any(answer.error_code == ErrorCode.NONE.value for answer in answers):
        match turn.group.state:
            case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
                prepare_rebalance(turn)
            case GroupState.PREPARING_REBALANCE:
                maybe_complete_join(turn)
            case GroupState.EMPTY | GroupState.DEAD:
                pass
    return answers


def leave(turn: ClassicTurn, identity: MemberIdentity) -> ErrorCode:
    group, member_id = turn.group, identity.member_id
    if member_id == "":
        # An administrator may remove a static member by its instance id alone.
        if identity.group_instance_id is None or identity.group_instance_id not in group.static_members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = group.static_members[identity.group_instance_id]
    elif member_id in group.pending_join:
        group.remove(member_id)
        turn.disarm(TimerKind.SESSION, member_id)
        return ErrorCode.NONE
    else:
        try:
            group.require_member(member_id, identity.group_instance_id)
        except KafkaError as error:
            return error.code
    remove_member(turn, group.members[member_id])
    return ErrorCode.NONE


def replay(registry: GroupRegistry, record: CoordinatorRecord) -> None:
    key, value = record.key, record.value
    assert isinstance(key, GroupMetadataKey)
    if isinstance(value, GroupMetadataValue):
        registry.groups[key.group] = ClassicGroup(
            key.group,
            changed_ms=None if value.current_state_timestamp == -1 else value.current_state_timestamp,
            generation=value.generation,
            protocol_type=value.protocol_type or None,
            protocol_name=value.protocol,
            leader_id=value.leader,
            members=[member_of(value, stored) for stored in value.members],
        )
    elif isinstance(registry.groups.get(key.group), ClassicGroup):
        del registry.groups[key.group]


def on_loaded(registry: GroupRegistry, group: Group, now_ms: int) -> Outcome[None]:
    """Starts the session timers after loading. Members keep their generation and have one session timeout to
    reconnect."""
    assert isinstance(group, ClassicGroup)
    timers = [
        Timer(TimerKey(TimerKind.SESSION, group.group_id, member.member_id), member.session_timeout_ms)
        for member in group.members.values()
    ]
    if len(group.members) <= registry.config.group_max_size:
        return Outcome(timers=timers)
    # The maximum size has been lowered. A rebalance allows only that many members to rejoin. Until the rebalance is
    # complete, the surplus members can still commit offsets.
    turn = ClassicTurn(group.copy(), registry.config, now_ms)
    turn.timers += timers
    prepare_rebalance(turn)
    return turn.outcome()


def on_timer(registry: GroupRegistry, group: Group, key: TimerKey, now_ms: int) -> Outcome[None]:
    assert isinstance(group, ClassicGroup)
    turn = ClassicTurn(group.copy(), registry.config, now_ms)
    match key.kind:
        case TimerKind.SESSION:
            on_session_timer(turn, key.member_id)
        case TimerKind.JOIN:
            on_join_timer(turn)
        case TimerKind.SYNC:
            on_sync_timer(turn)
        case _:
            return Outcome()  # a timer left over from when this group was a consumer group
    return turn.outcome()


def unload(group: Group, code: ErrorCode) -> list[Reply]:
    assert isinstance(group, ClassicGroup)
    replies: list[Reply] = []
    for member in group.members.values():
        if member.awaiting_join is not None:
            replies.append(Reply(member.awaiting_join, error_response(code, member.member_id)))
        if member.awaiting_sync is not None:
            replies.append(Reply(member.awaiting_sync, SyncGroupResponse(error_code=code.value)))
    return replies
