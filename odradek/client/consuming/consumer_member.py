"""A member of a consumer group (KIP-848): heartbeats in the background, partitions while records are asked for."""

from __future__ import annotations

from collections.abc import Callable

from odradek.client.common.values import ConsumerGroupMetadata, TopicPartition
from odradek.client.consuming.consumer_membership import Assigned, ConsumerMembership, Interest
from odradek.client.consuming.group_settings import GroupSettings
from odradek.client.consuming.handover import Handover
from odradek.client.consuming.heartbeats import Heartbeats
from odradek.client.network.cluster import Cluster
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

EXPELLED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class ConsumerMember:
    """Joins with the first `keep_up`, and again after it was expelled or stayed away for too long."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        interest: Interest,
        *,
        progress: Callable[[], object],
        news: Callable[[], None],
    ) -> None:
        """progress   see GroupMember
        news       called when `keep_up` has something to do
        """
        from uuid import uuid4  # slow to import, and few commands have groups

        self._cluster = cluster
        self._settings = settings
        self._news = news
        self._membership = ConsumerMembership(
            group_id=settings.group_id,
            member_id=str(uuid4()),
            interest=interest,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            instance_id=settings.group_instance_id,
            rack_id=settings.client_rack,
            server_assignor=settings.remote_assignor,
        )
        self._offer: dict[TopicPartition, bytes] | None = None  # what it may own from now on, with topic ids
        self._heartbeats = Heartbeats(
            cluster,
            self._membership,
            ConsumerGroupHeartbeatResponse,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            progress=progress,
            on_answer=self._offer_target,
            on_expelled=self._expelled,
            news=news,
        )

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        member = self._membership
        return ConsumerGroupMetadata(
            self._settings.group_id, member.epoch, member.member_id, self._settings.group_instance_id
        )

    @property
    def has_lost_its_partitions(self) -> bool:
        return self._membership.is_lost

    def subscribe(self, interest: Interest) -> None:
        self._membership.interest = interest
        self._heartbeats.hasten()

    async def keep_up(self, handover: Handover) -> None:
        """Take over what the coordinator has assigned. Raises ClientError when the group does not take this member."""
        if self._membership.is_lost:
            await handover.lose_all()
            self._membership.is_lost = False
        self._heartbeats.keep_up()
        while (offer := self._offer) is not None and not self._membership.is_lost:
            incarnation = self._membership.incarnation
            await handover.revoke(handover.owned - offer.keys())
            if added := offer.keys() - handover.owned:
                await handover.assign(added)
            if self._offer is offer:
                self._offer = None
            if self._membership.incarnation == incarnation:
                self._membership.taken_over(_by_topic_id(offer))
                self._heartbeats.hasten()
        handover.release()

    def refused_commit(self, code: ErrorCode) -> None:
        """The coordinator refused a commit so."""
        if code in EXPELLED:
            self._membership.expelled()
            self._heartbeats.hasten()
            self._news()

    async def leave(self) -> None:
        """At once, so that others need not wait for the session to run out; a static member is waited for."""
        await self._heartbeats.leave()

    # In the background.

    def _expelled(self) -> None:
        self._offer = None
        self._news()

    async def _offer_target(self) -> None:
        """What was assigned, as far as the names of the topics are known; the rest is looked for at each heartbeat."""
        target = self._membership.target
        if target is None:
            return
        names = await self._cluster.topic_names(target)
        offer = {
            TopicPartition(names[topic_id], partition): topic_id
            for topic_id, partitions in target.items()
            if topic_id in names
            for partition in partitions
        }
        if target is not self._membership.target:
            return
        assigned = _by_topic_id(offer)
        if assigned == self._membership.owned:
            self._membership.taken_over(assigned)
        else:
            self._offer = offer
            self._news()


def _by_topic_id(offer: dict[TopicPartition, bytes]) -> Assigned:
    found: dict[bytes, set[int]] = {}
    for partition, topic_id in offer.items():
        found.setdefault(topic_id, set()).add(partition.partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}
