"""A member of a consumer group (KIP-848). It sends heartbeats in the background and changes its partitions only while
the application waits for records.

The coordinator computes the assignment. A member first gives up the partitions that are no longer assigned to it,
reports this in a heartbeat, and then takes over the new partitions. `ConsumerMembership` builds the heartbeats and
processes the responses, but sends nothing itself. Source: docs/spec/consumer-groups.md#s2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from odradek.client.common.values import ConsumerGroupMetadata, TopicPartition
from odradek.client.consuming.handover import GroupSettings, Handover, Interest
from odradek.client.consuming.heartbeats import JOIN_EPOCH, HeartbeatDecisions, Heartbeats
from odradek.client.network.cluster import Cluster
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # epoch that a static member sends to leave temporarily; its partitions remain reserved for it

PartitionsByTopicId = Mapping[bytes, frozenset[int]]  # partition indexes by topic id


@dataclass(slots=True)
class ConsumerMembership(HeartbeatDecisions[tuple[Interest, PartitionsByTopicId], ConsumerGroupHeartbeatResponse]):
    interest: Interest
    rebalance_timeout_ms: int
    instance_id: str | None = None
    rack_id: str | None = None
    server_assignor: str | None = None
    target: PartitionsByTopicId | None = None  # the latest assignment; None once the member has taken it over
    owned: PartitionsByTopicId = field(default_factory=dict)
    is_lost: bool = False  # True if the coordinator has reassigned this member's partitions
    incarnation: int = 0  # number of times that the member left the group or was removed from it

    def request(self) -> ConsumerGroupHeartbeatRequest:
        reported, is_full = self._reported_state, self._reported_state is None or self.epoch == JOIN_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if is_full:
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.rack_id = self.rack_id
            request.server_assignor = self.server_assignor
        if is_full or reported is None or reported[0] != self.interest:
            before = Interest() if reported is None else reported[0]
            topics, regex = self.interest.topics, self.interest.regex
            # Null means unchanged. A subscription without topics is sent as an empty list.
            request.subscribed_topic_names = sorted(topics) if topics or before.topics or regex is None else None
            request.subscribed_topic_regex = "" if regex is None and before.regex is not None else regex
        if is_full or reported is None or reported[1] != self.owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(self.owned.items())
            ]
        return request

    def current_state(self) -> tuple[Interest, PartitionsByTopicId]:
        return self.interest, self.owned

    def apply_answer(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.assignment is not None:
            self.target = {each.topic_id: frozenset(each.partitions) for each in answer.assignment.topic_partitions}

    def end_membership(self) -> None:
        """Prepares to rejoin without partitions, because the previous partitions are lost."""
        self.is_lost = True
        self.incarnation += 1
        self.epoch, self.owned, self.target, self._reported_state = JOIN_EPOCH, {}, None, None

    def set_owned(self, owned: PartitionsByTopicId) -> None:
        """Sets the partitions that the member now owns and that the next heartbeat reports. The caller leaves out
        partitions of the target whose topic names are unknown."""
        if self.target == owned:
            self.target = None
        self.owned = owned

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        epoch = LEAVE_EPOCH if self.instance_id is None else STATIC_LEAVE_EPOCH
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )


EXPELLED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class ConsumerMember:
    """A member that joins on the first call of `poll_coordinator` and rejoins if it was removed or was absent for too
    long."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        interest: Interest,
        *,
        progress: Callable[[], object],
        on_change: Callable[[], None],
    ) -> None:
        """Creates a member that has not joined yet.

        progress    see `GroupMember`
        on_change   called when `poll_coordinator` has work to do
        """
        from uuid import uuid4  # this import is slow, and few commands use groups

        self._cluster = cluster
        self._settings = settings
        self._on_change = on_change
        self._membership = ConsumerMembership(
            group_id=settings.group_id,
            member_id=str(uuid4()),
            interest=interest,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            instance_id=settings.group_instance_id,
            rack_id=settings.client_rack,
            server_assignor=settings.remote_assignor,
        )
        # The assigned partitions with their topic ids, until `poll_coordinator` has taken them over.
        self._offer: dict[TopicPartition, bytes] | None = None
        self._heartbeats = Heartbeats(
            cluster,
            self._membership,
            ConsumerGroupHeartbeatResponse,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            progress=progress,
            on_answer=self._offer_target,
            on_expelled=self._on_expelled,
            on_change=on_change,
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
        self._heartbeats.send_now()

    async def poll_coordinator(self, handover: Handover) -> None:
        """Takes over the partitions that the coordinator has assigned. Raises ClientError if the group does not accept
        this member."""
        if self._membership.is_lost:
            await handover.lose_all()
            self._membership.is_lost = False
        self._heartbeats.ensure_running()
        while (offer := self._offer) is not None and not self._membership.is_lost:
            incarnation = self._membership.incarnation
            await handover.revoke(handover.owned - offer.keys())
            if added := offer.keys() - handover.owned:
                await handover.assign(added)
            if self._offer is offer:
                self._offer = None
            if self._membership.incarnation == incarnation:
                self._membership.set_owned(_by_topic_id(offer))
                self._heartbeats.send_now()
                handover.on_rebalance()
        handover.release()

    def on_refused_commit(self, code: ErrorCode) -> None:
        """Handles a commit that the coordinator refused with this code."""
        if code in EXPELLED:
            self._membership.end_membership()
            self._heartbeats.send_now()
            self._on_change()

    async def leave(self) -> None:
        """Leaves the group immediately, so that the other members do not have to wait for the session to expire. The
        partitions of a static member remain reserved for it until it returns or its session expires."""
        await self._heartbeats.leave_group()

    # Background work.

    def _on_expelled(self) -> None:
        self._offer = None
        self._on_change()

    async def _offer_target(self) -> None:
        """Offers `poll_coordinator` the assigned partitions whose topic names are known. Unknown names are looked up
        again after each heartbeat."""
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
            self._membership.set_owned(assigned)
        else:
            self._offer = offer
            self._on_change()


def _by_topic_id(offer: dict[TopicPartition, bytes]) -> PartitionsByTopicId:
    found: dict[bytes, set[int]] = {}
    for partition, topic_id in offer.items():
        found.setdefault(topic_id, set()).add(partition.partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}
