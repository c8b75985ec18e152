"""A member of a consumer group (KIP-848): heartbeats in the background, partitions while records are asked for."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress

from odradek.client.consuming.consumer_membership import Assigned, ConsumerMembership, Interest, Step
from odradek.client.consuming.group_settings import LEAVE_TIMEOUT_MS, GroupSettings
from odradek.client.consuming.handover import Handover
from odradek.client.errors import ClientError, RetriableError, code_of, refusal
from odradek.client.network.cluster import Cluster, CoordinatorType
from odradek.client.values import ConsumerGroupMetadata, TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

MEMBER_IDS_OF_CLIENTS = 1  # the version of ConsumerGroupHeartbeat in which members name themselves

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
        self._cluster = cluster
        self._settings = settings
        self._progress = progress
        self._news = news
        self._membership = ConsumerMembership(
            group_id=settings.group_id,
            member_id=str(uuid.uuid4()),
            interest=interest,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            instance_id=settings.group_instance_id,
            rack_id=settings.client_rack,
            server_assignor=settings.remote_assignor,
        )
        self._heartbeats: asyncio.Task[None] | None = None
        self._is_due = asyncio.Event()  # a heartbeat, before its time
        self._offer: dict[TopicPartition, bytes] | None = None  # what it may own from now on, with topic ids
        self._error: ClientError | None = None

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
        self._is_due.set()

    async def keep_up(self, handover: Handover) -> None:
        """Take over what the coordinator has assigned. Raises ClientError when the group does not take this member."""
        if self._membership.is_lost:
            await handover.lose_all()
            self._membership.is_lost = False
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._heartbeats is None:
            self._heartbeats = asyncio.get_running_loop().create_task(self._keep_alive())
        while (offer := self._offer) is not None and not self._membership.is_lost:
            incarnation = self._membership.incarnation
            await handover.revoke(handover.owned - offer.keys())
            if added := offer.keys() - handover.owned:
                await handover.assign(added)
            if self._offer is offer:
                self._offer = None
            if self._membership.incarnation == incarnation:
                self._membership.taken_over(_by_topic_id(offer))
                self._is_due.set()
        handover.release()

    def refused_commit(self, code: ErrorCode) -> None:
        """The coordinator refused a commit so."""
        if code in EXPELLED:
            self._membership.expelled()
            self._is_due.set()
            self._news()

    async def leave(self) -> None:
        """At once, so that others need not wait for the session to run out; a static member is waited for."""
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if task is not None and self._membership.epoch > 0:
            await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        request, group_id = self._membership.leave_request(), self._settings.group_id
        self._membership.expelled()
        with suppress(ClientError):  # a coordinator that is away finds out by itself
            node_id = await self._cluster.coordinator(group_id, CoordinatorType.GROUP, timeout_ms=0)
            await self._cluster.ask(
                request, ConsumerGroupHeartbeatResponse, node_id=node_id, timeout_ms=LEAVE_TIMEOUT_MS
            )

    # In the background.

    async def _keep_alive(self) -> None:
        """Until the coordinator refuses the member, or the application has stopped asking for records."""
        loop = asyncio.get_running_loop()
        progress, progressed_at = self._progress(), loop.time()
        failures = 0
        while True:
            if (now := self._progress()) != progress:
                progress, progressed_at = now, loop.time()
            elif (loop.time() - progressed_at) * 1000 > self._settings.max_poll_interval_ms:
                await self._say_goodbye()
                break
            self._is_due.clear()
            try:
                goes_on = await self._beat()
                failures = 0
            except RetriableError:
                failures += 1
                await self._cluster.pause(failures)
                continue
            except ClientError as error:
                self._error = error
                break
            if goes_on and not self._membership.has_news:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._membership.heartbeat_interval_ms / 1000):
                        await self._is_due.wait()
        self._heartbeats = None
        self._news()

    async def _beat(self) -> bool:
        """False: the next one is to follow at once. Raises RetriableError for after a pause, ClientError for never."""
        member, group_id = self._membership, self._settings.group_id
        request, said = member.request(), member.said()
        try:
            answer = await self._cluster.ask_coordinator(
                group_id,
                CoordinatorType.GROUP,
                request,
                ConsumerGroupHeartbeatResponse,
                min_version=MEMBER_IDS_OF_CLIENTS,
            )
        except RetriableError:
            member.unanswered()
            raise
        refused = refusal(code_of(answer.error_code), f"the heartbeat of the group {group_id!r}", answer.error_message)
        match member.answered(said, answer):
            case Step.GO_ON:
                await self._offer_target()
                return True
            case Step.JOIN_ANEW:
                self._offer = None
                self._news()
                return False
            case Step.REPEAT:
                raise RetriableError(str(refused), refused.code)
            case Step.FIND_COORDINATOR:
                self._cluster.forget_coordinator(group_id, CoordinatorType.GROUP)
                raise RetriableError(str(refused), refused.code)
            case Step.GIVE_UP:
                raise refused

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
