"""A member of a share group: heartbeats in the background, and the partitions that it may fetch.

`ShareMembership` decides and sends nothing. The coordinator computes the assignment, and members never wait for one
another: an assignment holds at once. Source: docs/spec/share-groups.md#s2, #s6-1 (P8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from odradek.client.common.errors import code_of
from odradek.client.common.values import ShareGroupMetadata, TopicPartition
from odradek.client.consuming.heartbeats import Heartbeats, Step
from odradek.client.network.cluster import Cluster
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.topic_partition import TopicIdPartition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# The coordinator initialises the state of new partitions after the first heartbeat, and assigns them about a second
# later: until there is an assignment, a member asks sooner than it would have to.
FIRST_INTERVAL_MS = 1_000
HASTY_HEARTBEATS = 10

_STEPS: Mapping[ErrorCode, Step] = {
    ErrorCode.NONE: Step.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Step.REPEAT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Step.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Step.FIND_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID: Step.JOIN_ANEW,
    ErrorCode.FENCED_MEMBER_EPOCH: Step.JOIN_ANEW,
}


@dataclass(slots=True)
class ShareMembership:
    """`member_id` is kept for life: records are acquired in its name."""

    group_id: str
    member_id: str
    topics: frozenset[str]
    rack_id: str | None = None
    epoch: int = JOIN_EPOCH
    assigned: frozenset[TopicIdPartition] = field(default_factory=frozenset)
    _interval_ms: int = 0
    _hasty: int = HASTY_HEARTBEATS
    _told: frozenset[str] | None = None  # the topics that the coordinator knows of; None: it has to be told everything

    @property
    def heartbeat_interval_ms(self) -> int:
        return min(self._interval_ms, FIRST_INTERVAL_MS) if self._hasty else self._interval_ms

    @property
    def has_news(self) -> bool:
        return self._told is not None and self._told != self.topics

    def request(self) -> ShareGroupHeartbeatRequest:
        """The next heartbeat: everything after a loss, else what has changed."""
        is_full = self._told is None or self.epoch == JOIN_EPOCH
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rack_id=self.rack_id if is_full else None,
            subscribed_topic_names=sorted(self.topics) if is_full or self._told != self.topics else None,
        )

    def said(self) -> frozenset[str]:
        return self.topics

    def answered(self, said: frozenset[str], answer: ShareGroupHeartbeatResponse) -> Step:
        """said   the topics of the request; they may be others by now"""
        code = code_of(answer.error_code)
        step = _STEPS.get(code, Step.GIVE_UP)
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.epoch != JOIN_EPOCH:
            step = Step.JOIN_ANEW  # it was deleted; to one who joins it says that the group is of another type
        match step:
            case Step.GO_ON:
                self.epoch = answer.member_epoch
                self._interval_ms = answer.heartbeat_interval_ms
                self._told = said
                self._hasty = max(0, self._hasty - 1)
                if answer.assignment is not None:
                    self.assigned = frozenset(
                        TopicIdPartition(topic.topic_id, partition)
                        for topic in answer.assignment.topic_partitions
                        for partition in topic.partitions
                    )
                if self.assigned:
                    self._hasty = 0
            case Step.JOIN_ANEW | Step.GIVE_UP:
                self.expelled()
            case Step.REPEAT | Step.FIND_COORDINATOR:
                self._told = None
        return step

    def unanswered(self) -> None:
        """It is not known whether the last heartbeat arrived: the next one tells everything."""
        self._told = None

    def expelled(self) -> None:
        """It is no member now, and may join again. What it has acquired stays acquired until the locks expire."""
        self.epoch, self.assigned, self._told, self._hasty = JOIN_EPOCH, frozenset(), None, HASTY_HEARTBEATS

    def leave_request(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH, subscribed_topic_names=[]
        )


class ShareMember:
    """Joins with the first `keep_up`, and again after it was expelled or stayed away for too long."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        rack_id: str | None,
        max_poll_interval_ms: float,
        progress: Callable[[], object],
        news: Callable[[], None],
    ) -> None:
        """progress   see Heartbeats
        news       called when `assigned` has changed, or `keep_up` raises
        """
        from uuid import uuid4  # slow to import, and few commands have groups

        self._cluster = cluster
        self._news = news
        self._membership = ShareMembership(group_id, str(uuid4()), frozenset(), rack_id)
        self._heartbeats = Heartbeats(
            cluster,
            self._membership,
            ShareGroupHeartbeatResponse,
            max_poll_interval_ms=max_poll_interval_ms,
            progress=progress,
            on_answer=self._learn_names,
            on_expelled=self._expelled,
            news=news,
        )
        self.assigned: Mapping[TopicIdPartition, TopicPartition] = {}  # as far as the names of the topics are known

    @property
    def metadata(self) -> ShareGroupMetadata:
        member = self._membership
        return ShareGroupMetadata(member.group_id, member.member_id, member.epoch)

    @property
    def topics(self) -> frozenset[str]:
        return self._membership.topics

    def subscribe(self, topics: frozenset[str]) -> None:
        self._membership.topics = topics
        self._heartbeats.hasten()

    def keep_up(self) -> None:
        """Raises ClientError when the group does not take this member."""
        if self.topics:
            self._heartbeats.keep_up()

    async def leave(self) -> None:
        await self._heartbeats.leave()
        self._membership.topics = frozenset()
        self.assigned = {}

    async def _learn_names(self) -> None:
        assigned = self._membership.assigned
        if assigned == self.assigned.keys():
            return
        names = await self._cluster.topic_names({each.topic_id for each in assigned})
        if assigned is self._membership.assigned:
            self.assigned = {
                each: TopicPartition(names[each.topic_id], each.partition)
                for each in assigned
                if each.topic_id in names
            }
            self._news()

    def _expelled(self) -> None:
        self.assigned = {}
        self._news()
