"""A member of a classic group: joins, receives its assignment, and sends heartbeats in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from odradek.client.consuming.assignors import (
    ASSIGNORS,
    PROTOCOL_TYPE,
    assigned_partitions,
    assignment_bytes,
    subscribed_topics,
    subscription_bytes,
)
from odradek.client.consuming.membership import Asked, Membership, Next
from odradek.client.errors import ClientError, RetriableError, code_of, refusal
from odradek.client.network.cluster import Cluster, CoordinatorType
from odradek.client.values import ConsumerGroupMetadata, TopicPartition
from protocol.errors import ErrorCode, MalformedMessage
from protocol.messages.heartbeat_request import HeartbeatRequest
from protocol.messages.heartbeat_response import HeartbeatResponse
from protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.join_group_response import JoinGroupResponse
from protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from protocol.messages.leave_group_response import LeaveGroupResponse
from protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.messages.sync_group_response import SyncGroupResponse

CHANNEL = "group"  # JoinGroup and SyncGroup wait for the other members
LEAVE_TIMEOUT_MS = 5_000
JOIN_EXTRA_MS = 5_000  # the coordinator answers when the rebalance timeout is over at the latest


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """By Kafka's names. `assignors` by preference."""

    group_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: float
    max_poll_interval_ms: int
    assignors: tuple[str, ...]


class GroupMember:
    """`join` until it returns; then heartbeats go on by themselves, until `needs_to_join` says that it is over."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        topics: Collection[str],
        *,
        progress: Callable[[], object],
        news: Callable[[], None],
    ) -> None:
        """progress   anything that changes while the application takes records or waits for them: where it stays the
                   same for `max_poll_interval_ms`, the member leaves, so that others get its partitions
        news       called when the member needs to join again
        """
        self._topics = frozenset(topics)
        self._cluster = cluster
        self._settings = settings
        self._progress = progress
        self._news = news
        self._membership = Membership(instance_id=settings.group_instance_id)
        self._heartbeats: asyncio.Task[None] | None = None
        self.metadata = ConsumerGroupMetadata(settings.group_id, group_instance_id=settings.group_instance_id)
        self._counted: dict[str, int] = {}  # partitions of each topic, when this member, as leader, shared them out

    @property
    def needs_to_join(self) -> bool:
        return not self._membership.is_stable or self._counted != self._count(self._counted)

    @property
    def has_lost_its_partitions(self) -> bool:
        """The group has given them to others already: nothing can be committed for them any more."""
        return self._membership.is_lost

    @property
    def watched_topics(self) -> frozenset[str]:
        """Topics whose partitions matter: when some are added, or such a topic comes into being, all join again."""
        return self._topics | self._counted.keys()

    def subscribe(self, topics: Collection[str]) -> None:
        """Others than before: it needs to join again."""
        self._topics = frozenset(topics)
        self._membership.is_stable = False
        self._news()

    async def join(self) -> list[TopicPartition]:
        """Its partitions, once all members have joined. Goes on trying; raises ClientError for what does not pass."""
        await self._stop_heartbeats()
        self._membership.is_stable = False
        failures = 0
        while True:
            try:
                assignment = await self._join_once()
            except RetriableError:
                assignment = None
                failures += 1
                await self._cluster.pause(failures)
            if assignment is not None:
                break
        self._membership.synced()
        # Kept when the membership is lost, so that commits in its name are refused: without a member they are not.
        member = self._membership
        self.metadata = replace(self.metadata, generation_id=member.generation_id, member_id=member.member_id)
        self._heartbeats = asyncio.get_running_loop().create_task(self._keep_alive())
        return assignment

    def refused_commit(self, code: ErrorCode) -> None:
        """The coordinator refused a commit so."""
        self._membership.answered(Asked.COMMIT, code)
        if self.needs_to_join:
            self._news()

    async def leave(self) -> None:
        """At once, so that the others need not wait for the session to run out; a static member is waited for."""
        await self._stop_heartbeats()
        member_id = self._membership.member_id
        self._membership.left()
        if not member_id or self._membership.instance_id is not None:
            return
        request = LeaveGroupRequest(group_id=self._settings.group_id, members=[MemberIdentity(member_id=member_id)])
        with suppress(ClientError):  # a coordinator that is away finds out by itself
            group_id = self._settings.group_id
            node_id = await self._cluster.coordinator(group_id, CoordinatorType.GROUP, timeout_ms=0)
            await self._cluster.ask(request, LeaveGroupResponse, node_id=node_id, timeout_ms=LEAVE_TIMEOUT_MS)

    # Joining.

    async def _join_once(self) -> list[TopicPartition] | None:
        """None: to be tried again. Raises RetriableError where a pause should come before that."""
        settings, member = self._settings, self._membership
        metadata = subscription_bytes(self._topics)
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in settings.assignors],
        )
        answer = await self._cluster.ask_coordinator(
            settings.group_id,
            CoordinatorType.GROUP,
            request,
            JoinGroupResponse,
            timeout_ms=settings.max_poll_interval_ms + JOIN_EXTRA_MS,
            channel=CHANNEL,
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED.value:
            member.named(answer.member_id)
        if not self._goes_on(Asked.JOIN, answer.error_code):
            return None
        member.joined(answer.member_id, answer.generation_id)
        self._counted = {}
        is_leader = answer.leader == answer.member_id and not answer.skip_assignment
        synced = await self._cluster.ask_coordinator(
            settings.group_id,
            CoordinatorType.GROUP,
            SyncGroupRequest(
                group_id=settings.group_id,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                group_instance_id=member.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=answer.protocol_name,
                assignments=await self._share_out(answer) if is_leader else [],
            ),
            SyncGroupResponse,
            timeout_ms=settings.max_poll_interval_ms + JOIN_EXTRA_MS,
            channel=CHANNEL,
        )
        if not self._goes_on(Asked.SYNC, synced.error_code):
            return None
        try:
            return assigned_partitions(bytes(synced.assignment))
        except MalformedMessage as error:
            raise ClientError(f"the assignment of the group {settings.group_id!r}: {error}") from None

    def _goes_on(self, asked: Asked, error_code: int) -> bool:
        """False: to be tried again at once. Raises RetriableError for after a pause, ClientError for never."""
        code = code_of(error_code)
        refused = refusal(code, f"{asked.value} of the group {self._settings.group_id!r}")
        match self._membership.answered(asked, code):
            case Next.GO_ON:
                return True
            case Next.REJOIN | Next.REJOIN_EXPELLED | Next.JOIN_ANEW:
                return False
            case Next.REPEAT:
                raise RetriableError(str(refused), code)
            case Next.FIND_COORDINATOR:
                self._cluster.forget_coordinator(self._settings.group_id, CoordinatorType.GROUP)
                raise RetriableError(str(refused), code)
            case Next.GIVE_UP:
                raise refused

    async def _share_out(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The leader's part: what every member gets."""
        try:
            wanted = {each.member_id: subscribed_topics(bytes(each.metadata)) for each in answer.members}
        except MalformedMessage as error:
            raise ClientError(f"a subscription in the group {self._settings.group_id!r}: {error}") from None
        topics = frozenset().union(*wanted.values())
        await self._cluster.refresh(topics)
        self._counted = self._count(topics)
        assign = ASSIGNORS[answer.protocol_name or self._settings.assignors[0]]
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_bytes(partitions))
            for member_id, partitions in assign(wanted, self._counted).items()
        ]

    def _count(self, topics: Collection[str]) -> dict[str, int]:
        """Partitions of each, by what is known of them."""
        known = {topic: self._cluster.known_topic(topic) for topic in topics}
        return {topic: 0 if found is None else len(found.leaders) for topic, found in known.items()}

    # Living.

    async def _keep_alive(self) -> None:
        """Also while a rebalance waits for the application to ask for records: it may be busy with what it has."""
        loop = asyncio.get_running_loop()
        progress, progressed_at = self._progress(), loop.time()
        failures = 0
        while not self._membership.is_lost:
            await asyncio.sleep(self._settings.heartbeat_interval_ms / 1000)
            if (now := self._progress()) != progress:
                progress, progressed_at = now, loop.time()
            elif (loop.time() - progressed_at) * 1000 > self._settings.max_poll_interval_ms:
                self._heartbeats = None
                await self.leave()
                break
            try:
                while not await self._beat():
                    failures += 1
                    await self._cluster.pause(failures)
                failures = 0
            except ClientError:  # the next JoinGroup will be refused with it, which the application gets to see
                self._membership.is_stable = False
                break
            if self.needs_to_join:
                self._news()
        self._news()

    async def _beat(self) -> bool:
        """False: to be repeated soon, maybe at another coordinator. Raises ClientError for what does not pass."""
        member = self._membership
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        try:
            answer = await self._cluster.ask_coordinator(
                self._settings.group_id, CoordinatorType.GROUP, request, HeartbeatResponse
            )
            self._goes_on(Asked.HEARTBEAT, answer.error_code)
        except RetriableError:
            return False
        return True

    async def _stop_heartbeats(self) -> None:
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
