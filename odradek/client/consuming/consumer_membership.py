"""What a member of a consumer group (KIP-848) tells the coordinator and does about its answers: decisions, no requests.

The coordinator computes the assignment. A member gives up first what is no longer its own, then says so in a heartbeat,
and takes what it is given. Source: docs/spec/consumer-groups.md#s2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.client.common.errors import code_of
from odradek.client.consuming.heartbeats import Step
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # the member comes back: its partitions wait for it

Assigned = Mapping[bytes, frozenset[int]]  # partitions by topic id


_STEPS: Mapping[ErrorCode, Step] = {
    ErrorCode.NONE: Step.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Step.REPEAT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Step.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Step.FIND_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID: Step.JOIN_ANEW,
    ErrorCode.FENCED_MEMBER_EPOCH: Step.JOIN_ANEW,
    ErrorCode.GROUP_ID_NOT_FOUND: Step.JOIN_ANEW,
}


@dataclass(frozen=True, slots=True)
class Interest:
    """What the member wants to read: topics by name, or all whose names match (RE2), or both."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


@dataclass(slots=True)
class ConsumerMembership:
    group_id: str
    member_id: str
    interest: Interest
    rebalance_timeout_ms: int
    instance_id: str | None = None
    rack_id: str | None = None
    server_assignor: str | None = None
    epoch: int = JOIN_EPOCH
    heartbeat_interval_ms: int = 0
    target: Assigned | None = None  # what it was given last and has not taken over yet
    owned: Assigned = field(default_factory=dict)
    is_lost: bool = False  # others have what it had
    incarnation: int = 0  # how often it was expelled, or left
    _told: tuple[Interest, Assigned] | None = None  # what the coordinator knows; None: it has to be told everything

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat: everything after a loss, else what has changed."""
        told, is_full = self._told, self._told is None or self.epoch == JOIN_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
        )
        if is_full:
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.rack_id = self.rack_id
            request.server_assignor = self.server_assignor
        if is_full or told is None or told[0] != self.interest:
            before = Interest() if told is None else told[0]
            topics, regex = self.interest.topics, self.interest.regex
            # Null means: as before. A subscription to nothing names no topics.
            request.subscribed_topic_names = sorted(topics) if topics or before.topics or regex is None else None
            request.subscribed_topic_regex = "" if regex is None and before.regex is not None else regex
        if is_full or told is None or told[1] != self.owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(self.owned.items())
            ]
        return request

    def said(self) -> tuple[Interest, Assigned]:
        """What the coordinator knows when the request just made has arrived; `answered` takes it."""
        return self.interest, self.owned

    def answered(self, said: tuple[Interest, Assigned], answer: ConsumerGroupHeartbeatResponse) -> Step:
        """said   what the request said; more may have changed since"""
        code = code_of(answer.error_code)
        step = _STEPS.get(code, Step.GIVE_UP)
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.epoch == JOIN_EPOCH:
            step = Step.GIVE_UP  # a group of another type has this id
        match step:
            case Step.GO_ON:
                self.epoch = answer.member_epoch
                self.heartbeat_interval_ms = answer.heartbeat_interval_ms
                self._told = said
                if answer.assignment is not None:
                    self.target = {
                        each.topic_id: frozenset(each.partitions) for each in answer.assignment.topic_partitions
                    }
            case Step.JOIN_ANEW | Step.GIVE_UP:
                self.expelled()
            case Step.REPEAT | Step.FIND_COORDINATOR:
                self._told = None
        return step

    def unanswered(self) -> None:
        """It is not known whether the last heartbeat arrived: the next one tells everything."""
        self._told = None

    def expelled(self) -> None:
        """It is no member now; what it had is lost, and it may join again."""
        self.is_lost = True
        self.incarnation += 1
        self.epoch, self.owned, self.target, self._told = JOIN_EPOCH, {}, None, None

    def taken_over(self, owned: Assigned) -> None:
        """It owns just these now, of its target those whose topic is known. The next heartbeat says so."""
        if self.target == owned:
            self.target = None
        self.owned = owned

    @property
    def has_news(self) -> bool:
        """The coordinator ought to hear something before the next heartbeat is due."""
        return self._told is not None and self._told != (self.interest, self.owned)

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        epoch = LEAVE_EPOCH if self.instance_id is None else STATIC_LEAVE_EPOCH
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
