"""The life of a consumer group outside of requests: replay, loading, timers.

Source: docs/spec/consumer-groups.md#s8-1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.groups.common.effects import CoordinatorRecord, TimerKey, TimerKind
from odradek.broker.groups.common.group import Group
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.heartbeat import remove_members
from odradek.broker.groups.consumer.member import MemberState
from odradek.broker.groups.consumer.regexes import resolve
from odradek.broker.groups.consumer.turn import ConsumerTurn

GROUP_EPOCH = 3


def replay(registry: GroupRegistry, record: CoordinatorRecord) -> None:
    key: Any = record.key
    group = registry.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if record.value is None:
            return  # of a group that is gone, or has become a classic one
        # Its offsets may have been met before it: they made it look like a group without a protocol.
        group = registry.groups[key.group_id] = ConsumerGroup(key.group_id, registry.topic_id_of)
    if record.value is None and key.API_KEY == GROUP_EPOCH:
        del registry.groups[key.group_id]
    else:
        group.replay(record)


def on_loaded(registry: GroupRegistry, group: Group, now_ms: int) -> Outcome[None]:
    """Members go on at their epochs; each has one session to be heard of, and one timeout for what it must give up."""
    assert isinstance(group, ConsumerGroup)
    turn = ConsumerTurn(registry, group, now_ms)
    for member in group.members.values():
        turn.begin_session(member)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            turn.arm(TimerKind.REVOCATION, max(member.rebalance_timeout_ms, 0), member.member_id)
    return turn.outcome()


def on_timer(registry: GroupRegistry, group: Group, key: TimerKey, now_ms: int) -> Outcome[None]:
    assert isinstance(group, ConsumerGroup)
    turn = ConsumerTurn(registry, group, now_ms)
    act = ON_TIMER.get(key.kind)
    if act is not None:
        act(turn, key.member_id)
    return turn.outcome()


def _not_heard_of(turn: ConsumerTurn, member_id: str) -> None:
    member = turn.group.members.get(member_id)
    if member is not None:
        remove_members(turn, [member])


def _has_not_revoked(turn: ConsumerTurn, member_id: str) -> None:
    member = turn.group.members.get(member_id)
    if member is not None and member.state is MemberState.UNREVOKED_PARTITIONS:
        remove_members(turn, [member])


ON_TIMER: Mapping[TimerKind, Callable[[ConsumerTurn, str], None]] = {
    TimerKind.SESSION: _not_heard_of,
    TimerKind.REVOCATION: _has_not_revoked,
    TimerKind.REJOIN: _not_heard_of,
    TimerKind.REGEX: lambda turn, _: resolve(turn),
}
