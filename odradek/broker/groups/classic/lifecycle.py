"""The life of a classic group outside of requests: replay, loading, timers, unloading."""

from __future__ import annotations

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.join import refused
from odradek.broker.groups.classic.rebalance import on_join_timer, on_session_timer, on_sync_timer, prepare_rebalance
from odradek.broker.groups.classic.records import member_of
from odradek.broker.groups.classic.turn import Turn
from odradek.broker.groups.common.effects import CoordinatorRecord, Timer, TimerKey, TimerKind
from odradek.broker.groups.common.group import Group
from odradek.broker.groups.common.outcome import Outcome, Reply
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue
from odradek.protocol.messages.sync_group_response import SyncGroupResponse


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
    """Members keep their generation; each has one session timeout to be heard of again."""
    assert isinstance(group, ClassicGroup)
    timers = [
        Timer(TimerKey(TimerKind.SESSION, group.group_id, member.member_id), member.session_timeout_ms)
        for member in group.members.values()
    ]
    if len(group.members) <= registry.config.group_max_size:
        return Outcome(timers=timers)
    # The limit was lowered: a rebalance lets in as many as may stay, and the others can commit before.
    turn = Turn(group.copy(), registry.config, now_ms)
    turn.timers += timers
    prepare_rebalance(turn)
    return turn.outcome()


def on_timer(registry: GroupRegistry, group: Group, key: TimerKey, now_ms: int) -> Outcome[None]:
    assert isinstance(group, ClassicGroup)
    turn = Turn(group.copy(), registry.config, now_ms)
    match key.kind:
        case TimerKind.SESSION:
            on_session_timer(turn, key.member_id)
        case TimerKind.JOIN:
            on_join_timer(turn)
        case TimerKind.SYNC:
            on_sync_timer(turn)
        case _:
            return Outcome()  # of the consumer group that it was
    return turn.outcome()


def unload(group: Group, code: ErrorCode) -> list[Reply]:
    assert isinstance(group, ClassicGroup)
    replies: list[Reply] = []
    for member in group.members.values():
        if member.awaiting_join is not None:
            replies.append(Reply(member.awaiting_join, refused(code, member.member_id)))
        if member.awaiting_sync is not None:
            replies.append(Reply(member.awaiting_sync, SyncGroupResponse(error_code=code.value)))
    return replies
