"""A member of a classic group: joins, receives its assignment, and sends heartbeats in the background.

`Membership` is a table of the coordinator's answers and what the member does about each. Source: how Kafka's own
consumers react to the coordinator's error codes (KIP-62, KIP-394, KIP-345).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

from odradek.client.common.errors import ClientError, RetriableError, code_of, refusal
from odradek.client.common.values import ConsumerGroupMetadata, TopicPartition
from odradek.client.consuming.assignors import (
    ASSIGNORS,
    PROTOCOL_TYPE,
    Subscribed,
    assigned_partitions,
    assignment_bytes,
    subscription_bytes,
    subscription_of,
)
from odradek.client.consuming.handover import LEAVE_TIMEOUT_MS, GroupSettings, Handover, Interest
from odradek.client.network.cluster import Cluster, CoordinatorType
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

NO_GENERATION = -1
NO_MEMBER = ""


class GroupRequest(Enum):
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    COMMIT = "OffsetCommit"


class GroupStep(Enum):
    """The consequence of an answer."""

    GO_ON = auto()
    REPEAT = auto()  # after a pause
    FIND_COORDINATOR = auto()  # then repeat
    REJOIN = auto()  # as the same member; until it has joined, its partitions are its own
    REJOIN_EXPELLED = auto()  # the same, but the generation went on without it: its partitions are lost
    JOIN_ANEW = auto()  # the group knows no such member: as a new one, its partitions are lost
    GIVE_UP = auto()


_WHEREVER: Mapping[ErrorCode, GroupStep] = {
    ErrorCode.NONE: GroupStep.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: GroupStep.REPEAT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: GroupStep.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: GroupStep.FIND_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS: GroupStep.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: GroupStep.REJOIN_EXPELLED,
    ErrorCode.UNKNOWN_MEMBER_ID: GroupStep.JOIN_ANEW,
}
_SPECIALLY: Mapping[tuple[GroupRequest, ErrorCode], GroupStep] = {
    (GroupRequest.JOIN, ErrorCode.MEMBER_ID_REQUIRED): GroupStep.REJOIN,  # it has been given an id to come back with
    (GroupRequest.COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): GroupStep.REPEAT,  # it may just have been created
    (GroupRequest.COMMIT, ErrorCode.REQUEST_TIMED_OUT): GroupStep.REPEAT,
    # The rebalance may be waiting for this very member: its pause in polling must not grow.
    (GroupRequest.SYNC, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): GroupStep.REJOIN,
}


@dataclass(slots=True)
class Membership:
    """The member, as far as the group knows it."""

    instance_id: str | None = None
    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    last_generation_id: int = NO_GENERATION  # in which it was given what it owns
    is_stable: bool = False  # joined, and no rebalance heard of since
    is_lost: bool = False  # what it had is no longer its own

    def joined(self, member_id: str, generation_id: int) -> None:
        self.member_id, self.generation_id, self.is_lost = member_id, generation_id, False

    def synced(self) -> None:
        self.is_stable, self.last_generation_id = True, self.generation_id

    def named(self, member_id: str) -> None:
        """The id to come back with (MEMBER_ID_REQUIRED)."""
        self.member_id = member_id

    def left(self) -> None:
        """Nothing is known of it any more: it left, or stayed away for too long."""
        self.member_id, self.generation_id = NO_MEMBER, NO_GENERATION
        self.is_stable, self.is_lost = False, True

    def answered(self, asked: GroupRequest, code: ErrorCode) -> GroupStep:
        """Decides what follows from an answer, and notes what the member no longer is."""
        following = _SPECIALLY.get((asked, code)) or _WHEREVER.get(code, GroupStep.GIVE_UP)
        match following:
            case GroupStep.REJOIN:
                self.is_stable = False
            case GroupStep.REJOIN_EXPELLED:
                self.is_stable, self.is_lost, self.generation_id = False, True, NO_GENERATION
            case GroupStep.JOIN_ANEW:
                self.left()
            case GroupStep.GO_ON | GroupStep.REPEAT | GroupStep.FIND_COORDINATOR | GroupStep.GIVE_UP:
                pass
        return following


CHANNEL = "group"  # JoinGroup and SyncGroup wait for the other members
JOIN_EXTRA_MS = 5_000  # the coordinator answers when the rebalance timeout is over at the latest


class GroupMember:
    """Joins with the first `keep_up`, and again whenever the group rebalances; in between it sends heartbeats.

    With an eager assignor it gives up all its partitions before it joins. With a cooperative one it keeps them, says so
    when it joins, and gives up only what the new assignment takes away; then it joins once more, so that others get
    that (KIP-429). Assignors of both kinds together are used eagerly.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        interest: Interest,
        *,
        progress: Callable[[], object],
        news: Callable[[], None],
    ) -> None:
        """progress   anything that changes while the application takes records or waits for them: where it stays the
                   same for `max_poll_interval_ms`, the member leaves, so that others get its partitions
        news       called when the member needs to join again
        """
        self._topics = interest.topics
        self._cluster = cluster
        self._settings = settings
        self._progress = progress
        self._news = news
        self._membership = Membership(instance_id=settings.group_instance_id)
        self._heartbeats: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[frozenset[TopicPartition] | None] | None = None
        self._refused: ClientError | None = None  # a heartbeat, for good: FENCED_INSTANCE_ID
        self._is_cooperative = all(ASSIGNORS[name].is_cooperative for name in settings.assignors)
        self.metadata = ConsumerGroupMetadata(settings.group_id, group_instance_id=settings.group_instance_id)
        self._counted: dict[str, int] = {}  # partitions of each topic, when this member, as leader, shared them out

    @property
    def _needs_to_join(self) -> bool:
        return not self._membership.is_stable or self._counted != self._count(self._counted)

    @property
    def has_lost_its_partitions(self) -> bool:
        """The group has given them to others already: nothing can be committed for them any more."""
        return self._membership.is_lost

    @property
    def _watched_topics(self) -> frozenset[str]:
        """Topics whose partitions matter: when some are added, or such a topic comes into being, all join again."""
        return self._topics | self._counted.keys()

    def subscribe(self, interest: Interest) -> None:
        """Others than before: it needs to join again."""
        self._topics = interest.topics
        self._membership.is_stable = False
        self._news()

    async def keep_up(self, handover: Handover) -> None:
        """Join when that is needed, without waiting for it; `news` comes when there is more to do here.

        Raises ClientError when the group does not take this member, once.
        """
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused
        while self._joining is None or self._joining.done():
            if self._joining is not None:
                joining, self._joining = self._joining, None
                assignment = joining.result()
                if assignment is not None:
                    await self._take_over(assignment, handover)
            if not self._needs_to_join:
                break
            if self.has_lost_its_partitions:
                await handover.lose_all()
            elif self._is_cooperative:
                await handover.revoke([each for each in handover.owned if each.topic not in self._topics])
            else:
                await handover.revoke(handover.owned)
            self._joining = asyncio.get_running_loop().create_task(self._join(handover.owned))
            self._joining.add_done_callback(lambda _: self._news())
        if self._joining is None or self._is_cooperative:
            handover.release()

    async def _take_over(self, assignment: frozenset[TopicPartition], handover: Handover) -> None:
        handover.watch(self._watched_topics)
        if revoked := handover.owned - assignment:  # only where it is cooperative
            self._membership.is_stable = False
            await handover.revoke(revoked)
        await handover.assign(assignment - handover.owned)
        handover.rebalanced()

    async def _join(self, owned: frozenset[TopicPartition]) -> frozenset[TopicPartition] | None:
        """Its partitions, once all members have joined; None when meanwhile it has lost those that it `owned`.

        Goes on trying; raises ClientError for what does not pass.
        """
        await self._stop_heartbeats()
        self._membership.is_stable = False
        failures = 0
        while True:
            try:
                assignment = await self._join_once(owned)
            except RetriableError:
                assignment = None
                failures += 1
                await self._cluster.pause(failures)
            if assignment is not None:
                break
            if owned and self.has_lost_its_partitions:
                return None
        self._membership.synced()
        # Kept when the membership is lost, so that commits in its name are refused: without a member they are not.
        member = self._membership
        self.metadata = replace(self.metadata, generation_id=member.generation_id, member_id=member.member_id)
        self._heartbeats = asyncio.get_running_loop().create_task(self._keep_alive())
        return frozenset(assignment)

    def refused_commit(self, code: ErrorCode) -> None:
        """The coordinator refused a commit so."""
        self._membership.answered(GroupRequest.COMMIT, code)
        if self._needs_to_join:
            self._news()

    async def stop_joining(self) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    async def leave(self) -> None:
        """At once, so that the others need not wait for the session to run out; a static member is waited for."""
        await self.stop_joining()
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

    async def _join_once(self, owned: frozenset[TopicPartition]) -> list[TopicPartition] | None:
        """None: to be tried again. Raises RetriableError where a pause should come before that."""
        settings, member = self._settings, self._membership
        metadata = subscription_bytes(Subscribed(self._topics, owned, member.last_generation_id))
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
        if not self._goes_on(GroupRequest.JOIN, answer.error_code):
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
        if not self._goes_on(GroupRequest.SYNC, synced.error_code):
            return None
        try:
            return assigned_partitions(bytes(synced.assignment))
        except MalformedMessage as error:
            raise ClientError(f"the assignment of the group {settings.group_id!r}: {error}") from None

    def _goes_on(self, asked: GroupRequest, error_code: int) -> bool:
        """False: to be tried again at once. Raises RetriableError for after a pause, ClientError for never."""
        code = code_of(error_code)
        refused = refusal(code, f"{asked.value} of the group {self._settings.group_id!r}")
        match self._membership.answered(asked, code):
            case GroupStep.GO_ON:
                return True
            case GroupStep.REJOIN | GroupStep.REJOIN_EXPELLED | GroupStep.JOIN_ANEW:
                return False
            case GroupStep.REPEAT:
                raise RetriableError(str(refused), code)
            case GroupStep.FIND_COORDINATOR:
                self._cluster.forget_coordinator(self._settings.group_id, CoordinatorType.GROUP)
                raise RetriableError(str(refused), code)
            case GroupStep.GIVE_UP:
                raise refused

    async def _share_out(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The leader's part: what every member gets."""
        try:
            wanted = {each.member_id: subscription_of(bytes(each.metadata)) for each in answer.members}
        except MalformedMessage as error:
            raise ClientError(f"a subscription in the group {self._settings.group_id!r}: {error}") from None
        topics = frozenset().union(*(each.topics for each in wanted.values()))
        await self._cluster.refresh(topics)
        self._counted = self._count(topics)
        assignor = ASSIGNORS[answer.protocol_name or self._settings.assignors[0]]
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_bytes(partitions))
            for member_id, partitions in assignor.assign(wanted, self._counted).items()
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
            except ClientError as error:  # as of Kafka's own client, the application sees it before anything else comes
                self._membership.is_stable, self._refused = False, error
                break
            if self._needs_to_join:
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
            self._goes_on(GroupRequest.HEARTBEAT, answer.error_code)
        except RetriableError:
            return False
        return True

    async def _stop_heartbeats(self) -> None:
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
