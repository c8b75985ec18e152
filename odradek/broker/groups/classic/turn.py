"""One decision about a classic group, by a request or a timer, while it is being made."""

from __future__ import annotations

from typing import TypeVar

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.common.effects import CoordinatorRecord, Timer, TimerKey, TimerKind
from odradek.broker.groups.common.outcome import GroupConfig, Outcome, Reply, Token
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

R = TypeVar("R")


class Turn:
    """`group` is a copy of its own: it may be changed freely, and is forgotten if the records cannot be written."""

    __slots__ = ("config", "group", "now_ms", "records", "replies", "timers")

    def __init__(self, group: ClassicGroup, config: GroupConfig, now_ms: int) -> None:
        self.group = group
        self.config = config
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []

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
        )
