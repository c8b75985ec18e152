"""A member of a classic group. It joins, receives its assignment, and sends heartbeats in the background.

`Membership` chooses the member's reaction to each of the coordinator's error codes. Kafka's own consumers react in the
same way (KIP-62, KIP-394, KIP-345).
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
    MemberSubscription,
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
    """How to continue after a response."""

    GO_ON = auto()
    REPEAT = auto()  # repeat the request after a pause
    FIND_COORDINATOR = auto()  # look the coordinator up, then repeat the request
    REJOIN = auto()  # rejoin as the same member, which keeps its partitions until it has rejoined
    # Rejoin as the same member. The group has continued without it, so its partitions are lost.
    REJOIN_EXPELLED = auto()
    JOIN_ANEW = auto()  # join as a new member: the old one was removed, so its partitions are lost
    GIVE_UP = auto()


_STEPS_FOR_ANY_REQUEST: Mapping[ErrorCode, GroupStep] = {
    ErrorCode.NONE: GroupStep.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: GroupStep.REPEAT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: GroupStep.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: GroupStep.FIND_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS: GroupStep.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: GroupStep.REJOIN_EXPELLED,
    ErrorCode.UNKNOWN_MEMBER_ID: GroupStep.JOIN_ANEW,
}
_STEPS_BY_REQUEST: Mapping[tuple[GroupRequest, ErrorCode], GroupStep] = {
    (GroupRequest.JOIN, ErrorCode.MEMBER_ID_REQUIRED): GroupStep.REJOIN,  # the response contains the member id to use
    # Retry, because the topic may have just been created and may not be known to the coordinator yet.
    (GroupRequest.COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): GroupStep.REPEAT,
    (GroupRequest.COMMIT, ErrorCode.REQUEST_TIMED_OUT): GroupStep.REPEAT,
    # Rejoin without a pause, because the rebalance may be waiting for this very member.
    (GroupRequest.SYNC, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): GroupStep.REJOIN,
}


@dataclass(slots=True)
class Membership:
    """The member's state in its group."""

    instance_id: str | None = None
    member_id: str = NO_MEMBER
    generation_id: int = NO_GENERATION
    last_generation_id: int = NO_GENERATION  # generation that assigned the member its partitions
    is_stable: bool = False  # True if the member has joined and no rebalance has begun since
    is_lost: bool = False  # True if the group has reassigned the member's partitions

    def set_generation(self, member_id: str, generation_id: int) -> None:
        self.member_id, self.generation_id, self.is_lost = member_id, generation_id, False

    def set_stable(self) -> None:
        self.is_stable, self.last_generation_id = True, self.generation_id

    def set_member_id(self, member_id: str) -> None:
        """Stores the member id that the next join must use (MEMBER_ID_REQUIRED)."""
        self.member_id = member_id

    def forget_membership(self) -> None:
        """Forgets the membership, because the member has left or was absent for too long."""
        self.member_id, self.generation_id = NO_MEMBER, NO_GENERATION
        self.is_stable, self.is_lost = False, True

    def handle_answer(self, request: GroupRequest, code: ErrorCode) -> GroupStep:
        """Updates the state after a response and returns how to continue."""
        following = _STEPS_BY_REQUEST.get((request, code)) or _STEPS_FOR_ANY_REQUEST.get(code, GroupStep.GIVE_UP)
        match following:
            case GroupStep.REJOIN:
                self.is_stable = False
            case GroupStep.REJOIN_EXPELLED:
                self.is_stable, self.is_lost, self.generation_id = False, True, NO_GENERATION
            case GroupStep.JOIN_ANEW:
                self.forget_membership()
            case GroupStep.GO_ON | GroupStep.REPEAT | GroupStep.FIND_COORDINATOR | GroupStep.GIVE_UP:
                pass
        return following


CHANNEL = "group"  # a separate connection, because JoinGroup and SyncGroup wait for the other members
JOIN_EXTRA_MS = 5_000  # how long after the rebalance timeout the coordinator's response may arrive


class GroupMember:
    """Joins on the first call of `poll_coordinator`, sends heartbeats, and rejoins whenever the group rebalances.

    With an eager assignor, the member gives up all partitions before it joins. With a cooperative assignor, it keeps
    its partitions, lists them when it joins, and gives up only the partitions that the new assignment takes away. It
    then joins once more, so that other members receive these partitions (KIP-429). If the settings name assignors of
    both kinds, all assignors are used eagerly.
    """

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

        progress    returns a value that changes whenever the application takes records or waits for them. If it stays
                    the same for `max_poll_interval_ms`, the member leaves, and other members get its partitions.
        on_change   called when the member needs to rejoin
        """
        self._topics = interest.topics
        self._cluster = cluster
        self._settings = settings
        self._progress = progress
        self._on_change = on_change
        self._membership = Membership(instance_id=settings.group_instance_id)
        self._heartbeats: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[frozenset[TopicPartition] | None] | None = None
        self._join_error: ClientError | None = None  # a permanent error from a heartbeat, such as FENCED_INSTANCE_ID
        self._is_cooperative = all(ASSIGNORS[name].is_cooperative for name in settings.assignors)
        self.metadata = ConsumerGroupMetadata(settings.group_id, group_instance_id=settings.group_instance_id)
        # Each topic's number of partitions when this member, as leader, computed the assignment.
        self._last_counts: dict[str, int] = {}

    @property
    def _needs_to_join(self) -> bool:
        return not self._membership.is_stable or self._last_counts != self._partition_counts(self._last_counts)

    @property
    def has_lost_its_partitions(self) -> bool:
        """True if the group has reassigned this member's partitions, so that their offsets can no longer be
        committed."""
        return self._membership.is_lost

    @property
    def _watched_topics(self) -> frozenset[str]:
        """The topics that cause a rejoin when they appear or gain partitions."""
        return self._topics | self._last_counts.keys()

    def subscribe(self, interest: Interest) -> None:
        """Replaces the subscription. The member then needs to rejoin."""
        self._topics = interest.topics
        self._membership.is_stable = False
        self._on_change()

    async def poll_coordinator(self, handover: Handover) -> None:
        """Starts joining the group if necessary, without waiting for the join to finish. `on_change` is called when
        this method has to run again.

        Raises ClientError once if the group does not accept this member.
        """
        refused, self._join_error = self._join_error, None
        if refused is not None:
            raise refused
        while self._joining is None or self._joining.done():
            if self._joining is not None:
                joining, self._joining = self._joining, None
                assignment = joining.result()
                if assignment is not None:
                    await self._apply_assignment(assignment, handover)
            if not self._needs_to_join:
                break
            if self.has_lost_its_partitions:
                await handover.lose_all()
            elif self._is_cooperative:
                await handover.revoke([each for each in handover.owned if each.topic not in self._topics])
            else:
                await handover.revoke(handover.owned)
            self._joining = asyncio.get_running_loop().create_task(self._join(handover.owned))
            self._joining.add_done_callback(lambda _: self._on_change())
        if self._joining is None or self._is_cooperative:
            handover.release()

    async def _apply_assignment(self, assignment: frozenset[TopicPartition], handover: Handover) -> None:
        handover.watch(self._watched_topics)
        # With an eager assignor, `revoked` is empty because the member gave up all partitions before it joined.
        if revoked := handover.owned - assignment:
            self._membership.is_stable = False
            await handover.revoke(revoked)
        await handover.assign(assignment - handover.owned)
        handover.on_rebalance()

    async def _join(self, owned: frozenset[TopicPartition]) -> frozenset[TopicPartition] | None:
        """Retries the join until it succeeds and returns the assigned partitions. Returns None if the `owned`
        partitions were lost in the meantime. Raises ClientError for permanent errors."""
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
        self._membership.set_stable()
        # The metadata remains set after the membership is lost. The coordinator then refuses commits from this member,
        # whereas it would accept commits without a member id.
        member = self._membership
        self.metadata = replace(self.metadata, generation_id=member.generation_id, member_id=member.member_id)
        self._heartbeats = asyncio.get_running_loop().create_task(self._run_heartbeats())
        return frozenset(assignment)

    def on_refused_commit(self, code: ErrorCode) -> None:
        """Handles a commit that the coordinator refused with this code."""
        self._membership.handle_answer(GroupRequest.COMMIT, code)
        if self._needs_to_join:
            self._on_change()

    async def stop_joining(self) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    async def leave(self) -> None:
        """Leaves the group immediately, so that the other members do not have to wait for the session to expire. A
        static member does not leave: its partitions remain reserved until it returns or its session expires."""
        await self.stop_joining()
        await self._stop_heartbeats()
        member_id = self._membership.member_id
        self._membership.forget_membership()
        if not member_id or self._membership.instance_id is not None:
            return
        request = LeaveGroupRequest(group_id=self._settings.group_id, members=[MemberIdentity(member_id=member_id)])
        with suppress(ClientError):  # if the coordinator cannot be reached, it removes the member later
            group_id = self._settings.group_id
            node_id = await self._cluster.coordinator(group_id, CoordinatorType.GROUP, timeout_ms=0)
            await self._cluster.ask(request, LeaveGroupResponse, node_id=node_id, timeout_ms=LEAVE_TIMEOUT_MS)

    # Joining.

    async def _join_once(self, owned: frozenset[TopicPartition]) -> list[TopicPartition] | None:
        """Makes one attempt to join. Returns the assigned partitions, or None if the next attempt should be made now.
        Raises RetriableError if the next attempt should be made after a pause."""
        settings, member = self._settings, self._membership
        metadata = subscription_bytes(MemberSubscription(self._topics, owned, member.last_generation_id))
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
            member.set_member_id(answer.member_id)
        if not self._is_accepted(GroupRequest.JOIN, answer.error_code):
            return None
        member.set_generation(answer.member_id, answer.generation_id)
        self._last_counts = {}
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
                assignments=await self._assign_members(answer) if is_leader else [],
            ),
            SyncGroupResponse,
            timeout_ms=settings.max_poll_interval_ms + JOIN_EXTRA_MS,
            channel=CHANNEL,
        )
        if not self._is_accepted(GroupRequest.SYNC, synced.error_code):
            return None
        try:
            return assigned_partitions(bytes(synced.assignment))
        except MalformedMessage as error:
            raise ClientError(f"the assignment of the group {settings.group_id!r} cannot be read: {error}") from None

    def _is_accepted(self, request: GroupRequest, error_code: int) -> bool:
        """Applies a response's error code. Returns True if the request succeeded, and False if the member must rejoin
        now.

        Raises RetriableError if the request must be retried after a pause, and ClientError for a permanent refusal.
        """
        code = code_of(error_code)
        refused = refusal(code, f"{request.value} of the group {self._settings.group_id!r}")
        match self._membership.handle_answer(request, code):
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

    async def _assign_members(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Computes the assignment of all members. Called if this member is the leader."""
        try:
            subscriptions = {each.member_id: subscription_of(bytes(each.metadata)) for each in answer.members}
        except MalformedMessage as error:
            raise ClientError(
                f"a subscription in the group {self._settings.group_id!r} cannot be read: {error}"
            ) from None
        topics = frozenset().union(*(each.topics for each in subscriptions.values()))
        await self._cluster.refresh(topics)
        self._last_counts = self._partition_counts(topics)
        assignor = ASSIGNORS[answer.protocol_name or self._settings.assignors[0]]
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_bytes(partitions))
            for member_id, partitions in assignor.assign(subscriptions, self._last_counts).items()
        ]

    def _partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Returns the number of partitions of each topic according to the current metadata."""
        metadata = {topic: self._cluster.known_topic(topic) for topic in topics}
        return {topic: 0 if found is None else len(found.leaders) for topic, found in metadata.items()}

    # Heartbeats.

    async def _run_heartbeats(self) -> None:
        """Sends heartbeats, even while a rebalance is waiting for the application to fetch records, because the
        application may still be processing earlier records."""
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
                while not await self._send_heartbeat():
                    failures += 1
                    await self._cluster.pause(failures)
                failures = 0
            except ClientError as error:
                # As in Kafka's own client, the application receives this error before anything else.
                self._membership.is_stable, self._join_error = False, error
                break
            if self._needs_to_join:
                self._on_change()
        self._on_change()

    async def _send_heartbeat(self) -> bool:
        """Sends one heartbeat. Returns False if it should be retried soon, possibly with another coordinator. Raises
        ClientError for permanent errors."""
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
            self._is_accepted(GroupRequest.HEARTBEAT, answer.error_code)
        except RetriableError:
            return False
        return True

    async def _stop_heartbeats(self) -> None:
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
