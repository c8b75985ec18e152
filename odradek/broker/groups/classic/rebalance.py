"""How a classic group gets from one generation to the next: which members are awaited, how long, and which are removed.

All functions work on a `Turn`. A generation begins when all members have joined or the JOIN timer fires
(`complete_join`); it is complete when the leader's assignment is recorded (`membership.sync_group`).
"""

from __future__ import annotations

from dataclasses import replace

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.member import Member
from odradek.broker.groups.classic.tables import NEXT, GroupState
from odradek.broker.groups.classic.turn import Turn, group_metadata_record
from odradek.broker.groups.common.group import TimerKind
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.sync_group_response import SyncGroupResponse


def rebalance(turn: Turn) -> None:
    """The members must agree anew: begin a rebalance, or see whether the running one is done."""
    if GroupState.PREPARING_REBALANCE in NEXT[turn.group.state]:
        prepare_rebalance(turn)
    else:
        maybe_complete_join(turn)


def prepare_rebalance(turn: Turn) -> None:
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


def begin_initial_delay(turn: Turn) -> None:
    """The first member of an empty group waits for company, so that starting ten consumers is not ten rebalances."""
    group, delay_ms = turn.group, turn.config.group_initial_rebalance_delay_ms
    group.initial_delay_ms = delay_ms
    group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    turn.arm(TimerKind.JOIN, delay_ms)


def maybe_complete_join(turn: Turn) -> None:
    """The initial delay is waited out even if all known members have joined: others may still come."""
    group = turn.group
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_have_joined:
        complete_join(turn)


def on_join_timer(turn: Turn) -> None:
    group = turn.group
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.initial_delay_ms is None or not group.member_joined_in_delay or group.initial_delay_left_ms == 0:
        complete_join(turn)
        return
    # Somebody came: wait once more, within the rebalance timeout.
    group.member_joined_in_delay = False
    waited_ms = group.initial_delay_ms
    group.initial_delay_ms = min(turn.config.group_initial_rebalance_delay_ms, group.initial_delay_left_ms)
    group.initial_delay_left_ms = max(group.initial_delay_left_ms - waited_ms, 0)
    turn.arm(TimerKind.JOIN, group.initial_delay_ms)


def complete_join(turn: Turn) -> None:
    """Ends the phase of joining: drops the dynamic members that did not come, begins the next generation."""
    group = turn.group
    turn.disarm(TimerKind.JOIN)
    group.initial_delay_ms = None
    group.member_joined_in_delay = False
    for member in list(group.members.values()):
        if member.awaiting_join is None and not member.is_static:
            group.remove(member.member_id)
            turn.disarm(TimerKind.SESSION, member.member_id)
    if group.members and not elect_leader_among_joined(group):
        # Only static members are left, and none of them is here: they have until their session ends.
        turn.arm(TimerKind.JOIN, group.rebalance_timeout_ms)
        return
    group.begin_generation(turn.now_ms)
    if group.state is GroupState.EMPTY:
        turn.records.append(group_metadata_record(group, {}))
        return
    for member in list(group.members.values()):
        if member.awaiting_join is not None:
            turn.reply(member.awaiting_join, joined(group, member.member_id))
        group.put(replace(member, awaiting_join=None, is_new=False))
        turn.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
    turn.arm(TimerKind.SYNC, group.rebalance_timeout_ms)


def elect_leader_among_joined(group: ClassicGroup) -> bool:
    """Replaces a leader that did not rejoin, which cannot assign anything. False if no member is there to lead."""
    leader = group.members[group.leader_id] if group.leader_id is not None else None
    if leader is not None and leader.awaiting_join is not None:
        return True
    for member in group.members.values():
        if member.awaiting_join is not None:
            group.leader_id = member.member_id
            return True
    return False


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """Tells a member about the generation; the leader also gets all members' metadata, to assign by."""
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


def abandon_assignment(turn: Turn) -> None:
    """Members that wait for the assignment of this generation are told that there will be none."""
    for member in list(turn.group.members.values()):
        if member.awaiting_sync is not None:
            turn.reply(member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS.value))
            turn.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
        turn.group.put(replace(member, assignment=b"", awaiting_sync=None))


def remove_member(turn: Turn, member: Member) -> None:
    """The member left or was not heard of: what it waited for will not come. The caller sees to the rebalance."""
    group = turn.group
    turn.disarm(TimerKind.SESSION, member.member_id)
    if member.awaiting_join is not None:
        turn.reply(member.awaiting_join, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID.value))
    if member.awaiting_sync is not None:
        turn.reply(member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID.value))
    group.remove(member.member_id)


def on_session_timer(turn: Turn, member_id: str) -> None:
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


def on_sync_timer(turn: Turn) -> None:
    """Members that know of the generation and never asked what it assigns to them are taken for dead."""
    group = turn.group
    if group.state not in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE) or not group.pending_sync:
        return
    for member_id in group.pending_sync:
        group.remove(member_id)
        turn.disarm(TimerKind.SESSION, member_id)
    prepare_rebalance(turn)
