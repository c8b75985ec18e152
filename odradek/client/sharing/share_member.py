"""A member of a share group. It sends heartbeats in the background and holds the partitions that it may fetch from.

The coordinator computes the assignment. Members never wait for one another: an assignment applies immediately.
`ShareMembership` builds the heartbeats and processes the responses, but sends nothing itself. Source:
docs/spec/share-groups.md#s2, #s6-1 (P8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from odradek.client.common.values import ShareGroupMetadata, TopicPartition
from odradek.client.consuming.heartbeats import JOIN_EPOCH, HeartbeatDecisions, Heartbeats
from odradek.client.network.cluster import Cluster
from odradek.client.network.connected import is_set_by
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.topic_partition import TopicIdPartition

LEAVE_EPOCH = -1
# The coordinator initialises the state of new partitions after the first heartbeat and assigns them about a second
# later. Until a member has an assignment, it sends heartbeats more often than required.
FIRST_INTERVAL_MS = 1_000
MAX_EARLY_HEARTBEATS = 10


@dataclass(slots=True)
class ShareMembership(HeartbeatDecisions[frozenset[str], ShareGroupHeartbeatResponse]):
    """The member's state. `member_id` never changes, because records are acquired under this id."""

    topics: frozenset[str]
    rack_id: str | None = None
    assigned: frozenset[TopicIdPartition] = field(default_factory=frozenset)
    _early_heartbeats_left: int = MAX_EARLY_HEARTBEATS

    @property
    def heartbeat_interval_ms(self) -> int:
        return min(self._interval_ms, FIRST_INTERVAL_MS) if self._early_heartbeats_left else self._interval_ms

    def request(self) -> ShareGroupHeartbeatRequest:
        is_full = self._reported_state is None or self.epoch == JOIN_EPOCH
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rack_id=self.rack_id if is_full else None,
            subscribed_topic_names=sorted(self.topics) if is_full or self._reported_state != self.topics else None,
        )

    def current_state(self) -> frozenset[str]:
        return self.topics

    def apply_answer(self, answer: ShareGroupHeartbeatResponse) -> None:
        self._early_heartbeats_left = max(0, self._early_heartbeats_left - 1)
        if answer.assignment is not None:
            self.assigned = frozenset(
                TopicIdPartition(topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            )
        if self.assigned:
            self._early_heartbeats_left = 0

    def end_membership(self) -> None:
        """Ends the membership. Acquired records remain locked until their locks expire."""
        self.epoch, self.assigned, self._reported_state, self._early_heartbeats_left = (
            JOIN_EPOCH,
            frozenset(),
            None,
            MAX_EARLY_HEARTBEATS,
        )

    def leave_request(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH, subscribed_topic_names=[]
        )


class ShareMember:
    """A member that joins on the first call of `poll_coordinator` and rejoins if it was removed or was absent for too
    long."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        rack_id: str | None,
        max_poll_interval_ms: float,
        progress: Callable[[], object],
        on_change: Callable[[], None],
        on_rebalance: Callable[[], None],
    ) -> None:
        """Creates a member that has not joined yet.

        progress      see `Heartbeats`
        on_change     called when `assigned` has changed, or when `poll_coordinator` will raise an error
        on_rebalance  called when `assigned` has changed
        """
        self._on_rebalance = on_rebalance
        from uuid import uuid4  # this import is slow, and few commands use groups

        self._cluster = cluster
        self._on_change = on_change
        self._has_changed = asyncio.Event()  # wakes `wait_until_joined` when the membership changes
        self._membership = ShareMembership(group_id, str(uuid4()), frozenset(), rack_id)
        self._heartbeats = Heartbeats(
            cluster,
            self._membership,
            ShareGroupHeartbeatResponse,
            max_poll_interval_ms=max_poll_interval_ms,
            progress=progress,
            on_answer=self._on_answer,
            on_expelled=self._on_expelled,
            on_change=self._notify,
        )
        self.assigned: Mapping[TopicIdPartition, TopicPartition] = {}  # only partitions whose topic name is known

    @property
    def metadata(self) -> ShareGroupMetadata:
        """Metadata that identifies the member. The epoch is 0 while the member is not in the group."""
        member = self._membership
        return ShareGroupMetadata(member.group_id, member.member_id, member.epoch)

    async def wait_until_joined(self, ends_at: float) -> ShareGroupMetadata | None:
        """Waits until the group has accepted the member and returns the member's metadata. Returns None if the group
        has not accepted the member by `ends_at`, on the loop's clock. Raises ClientError if the group refuses the
        member."""
        while self._membership.epoch <= JOIN_EPOCH:
            self._has_changed.clear()
            self.poll_coordinator()
            if not await is_set_by(self._has_changed, ends_at):
                return None
        return self.metadata

    @property
    def topics(self) -> frozenset[str]:
        return self._membership.topics

    def subscribe(self, topics: frozenset[str]) -> None:
        self._membership.topics = topics
        self._heartbeats.send_now()

    def poll_coordinator(self) -> None:
        """Starts the heartbeats if necessary. Raises ClientError if the group does not accept this member."""
        if self.topics:
            self._heartbeats.ensure_running()

    async def leave(self) -> None:
        await self._heartbeats.leave_group()
        self._membership.topics = frozenset()
        self.assigned = {}

    def _notify(self) -> None:
        self._has_changed.set()
        self._on_change()

    async def _on_answer(self) -> None:
        self._has_changed.set()
        await self._look_up_names()

    async def _look_up_names(self) -> None:
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
            self._on_rebalance()
            self._notify()

    def _on_expelled(self) -> None:
        self.assigned = {}
        self._notify()
