"""A share group from its records to its end: replay, loading, timers."""

from __future__ import annotations

from typing import Any

from odradek.broker.groups.common.effects import CoordinatorRecord, TimerKey
from odradek.broker.groups.common.group import Group
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.turn import ShareTurn

GROUP_EPOCH = 11


def replay(registry: GroupRegistry, record: CoordinatorRecord) -> None:
    key: Any = record.key
    group = registry.groups.get(key.group_id)
    if not isinstance(group, ShareGroup):
        if record.value is None:
            return  # of a group that is gone
        group = registry.groups[key.group_id] = ShareGroup(key.group_id)
    if record.value is None and key.API_KEY == GROUP_EPOCH:
        del registry.groups[key.group_id]
    else:
        group.replay(record)


def on_loaded(registry: GroupRegistry, group: Group, now_ms: int) -> Outcome[None]:
    """Members go on at their epochs, and have one session to be heard of."""
    assert isinstance(group, ShareGroup)
    turn = ShareTurn(registry, group, now_ms)
    for member in group.members.values():
        turn.begin_session(member)
    return turn.outcome()


def on_timer(registry: GroupRegistry, group: Group, key: TimerKey, now_ms: int) -> Outcome[None]:
    """A member was not heard of."""
    assert isinstance(group, ShareGroup)
    turn = ShareTurn(registry, group, now_ms)
    member = group.members.get(key.member_id)
    if member is not None:
        turn.remove([member])
    return turn.outcome()
