"""A member of a share group: heartbeats in the background, and the partitions that it may fetch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.client.common.values import ShareGroupMetadata, TopicPartition
from odradek.client.consuming.heartbeats import Heartbeats
from odradek.client.network.cluster import Cluster
from odradek.client.sharing.share_membership import ShareMembership
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.topic_partition import TopicIdPartition


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
