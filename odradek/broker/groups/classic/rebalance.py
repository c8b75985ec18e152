"""Moves a classic group from one generation to the next, waits for its members, and removes those that do not respond.

All functions change a `ClassicTurn`. A generation begins when all members have joined or when the JOIN timer fires
(`complete_join`). The rebalance is complete when the leader's assignment is recorded (`requests.sync_group`).
"""

from __future__ import annotations

from dataclasses import replace

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.member import ClassicMember
from odradek.broker.groups.classic.tables import NEXT, GroupState
from odradek.broker.groups.classic.turn import ClassicTurn, group_metadata_record
from odradek.broker.groups.common.group import TimerKind
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.sync_group_response import SyncGroupResponse


def rebalance(turn: ClassicTurn) -> None:
    """Begins a rebalance, or completes the current one if all members have joined."""
    if GroupState.PREPARING_REBALANCE in NEXT[turn.group.state]:
        prepare_rebalance(turn)
    else:
        maybe_complete_join(turn)


def prepare_rebalance(turn: ClassicTurn) -> None:
    group = turn.group
    if group.state is GroupState.COMPLETING_REBALANCE:
        abandon_assignment(turn)
    group.pending_sync = frozenset()
    turn.disarm(TimerKind.SYNC)
    if group.state is GroupState.EMPTY:
        begin_initial_delay(turn)
        group.move_to(GroupState.PREPARING_REBALANCE, turn.now_ms)
        return
    group.move_to(GroupState.PREPARING_REBALANCE, turn.now_ms)
    if group.all_have_joined:
        complete_join(turn)
    else:
        turn.arm(TimerKind.JOIN, group.rebalance_timeout_ms)


def begin_initial_delay(turn: ClassicTurn) -> None:
    """Delays the first rebalance of an empty group, so that starting ten consumers at the same time does not cause ten
    rebalances."""
    group, delay_ms = turn.group, turn.config.group_initial_rebalance_delay_ms
    group.initial_delay_ms = delay_ms
    group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    turn.arm(TimerKind.JOIN, delay_ms)


def maybe_complete_join(turn: ClassicTurn) -> None:
    """Completes the join phase if all members have joined. Does nothing during the initial delay, because more clients
    may join until the delay ends."""
    group = turn.group
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_have_joined:
        complete_join(turn)


def on_join_timer(turn: ClassicTurn) -> None:
    group = turn.group
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.initial_delay_ms is None or not group.member_joined_in_delay or group.initial_delay_left_ms == 0:
        complete_join(turn)
        return
    # If another member has joined during the delay, wait again, but no longer than the rebalance timeout in total.
    group.member_joined_in_delay = False
    waited_ms = group.initial_delay_ms
    group.initial_delay_ms = min(turn.config.group_initial_rebalance_delay_ms, group.initial_delay_left_ms)
    group.initial_delay_left_ms = max(group.initial_delay_left_ms - waited_ms, 0)
    turn.arm(TimerKind.JOIN, group.initial_delay_ms)


def complete_join(turn: ClassicTurn) -> None:
    """Ends the join phase by removing dynamic members that did not rejoin, then begins the next generation."""
    group = turn.group
    turn.disarm(TimerKind.JOIN)
    group.initial_delay_ms = None
    group.member_joined_in_delay = False
    for member in list(group.members.values()):
        if member.awaiting_join is None and not member.is_static:
            group.remove(member.member_id)
            turn.disarm(TimerKind.SESSION, member.member_id)
    if group.members and not elect_leader_among_joined(group):
        # Only static members are left, and none of them has rejoined. They remain members until their sessions expire.
        turn.arm(TimerKind.JOIN, group.rebalance_timeout_ms)
        return
    group.begin_generation(turn.now_ms)
    if group.state is GroupState.EMPTY:
        turn.records.append(group_metadata_record(group, {}))
        return
    for member in list(group.members.values()):
        if member.awaiting_join is not None:
            turn.reply(member.awaiting_join, join_response(group, member.member_id))
        group.put(replace(member, awaiting_join=None, is_new=False))
        turn.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
    turn.arm(TimerKind.SYNC, group.rebalance_timeout_ms)


def elect_leader_among_joined(group: ClassicGroup) -> bool:
    """Ensures that the leader has rejoined, because only then can it assign partitions. If the leader has not rejoined,
    another member becomes the leader. Returns False if no member has rejoined."""
    leader = group.members[group.leader_id] if group.leader_id is not None else None
    if leader is not None and leader.awaiting_join is not None:
        return True
    for member in group.members.values():
        if member.awaiting_join is not None:
            group.leader_id = member.member_id
            return True
    return False


def join_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """Returns the JoinGroup response for a member. The leader also receives the metadata of all members, so that it can
    compute the assignment."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=leader_view(group) if group.is_leader(member_id) else [],
    )


def leader_view(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    assert group.protocol_name is not None
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def abandon_assignment(turn: ClassicTurn) -> None:
    """Responds with REBALANCE_IN_PROGRESS to the members that are waiting for this generation's assignment."""
    for member in list(turn.group.members.values()):
        if member.awaiting_sync is not None:
            turn.reply(member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS.value))
            turn.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
        turn.group.put(replace(member, assignment=b"", awaiting_sync=None))


def remove_member(turn: ClassicTurn, member: ClassicMember) -> None:
    """Removes a member that left or whose session expired and answers its waiting requests. The caller must start or
    complete the rebalance."""
    group = turn.group
    turn.disarm(TimerKind.SESSION, member.member_id)
    if member.awaiting_join is not None:
        turn.reply(member.awaiting_join, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID.value))
    if member.awaiting_sync is not None:
        turn.reply(member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID.value))
    group.remove(member.member_id)


def on_session_timer(turn: ClassicTurn, member_id: str) -> None:
    group = turn.group
    if member_id in group.pending_join:
        group.remove(member_id)
        if group.state is GroupState.PREPARING_REBALANCE and group.all_have_joined:
            complete_join(turn)
        return
    member = group.members.get(member_id)
    if member is None or member.shows_life_by_waiting:
        return
    remove_member(turn, member)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(turn)
    elif group.state is GroupState.PREPARING_REBALANCE and group.all_have_joined:
        complete_join(turn)


def on_sync_timer(turn: ClassicTurn) -> None:
    """Removes members that received the current generation but never sent SyncGroup and begins a rebalance."""
    group = turn.group
    if group.state not in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE) or not group.pending_sync:
        return
    for member_id in group.pending_sync:
        group.remove(member_id)
        turn.disarm(TimerKind.SESSION, member_id)
    prepare_rebalance(turn)
