"""Classic groups for tests: a core, its log in memory, a clock, and clients with pending requests, without sockets or
an event loop.

`Scene` does the work of `odradek.broker.coordinators.shard.Shard` step by step: it appends, replays, settles, arms
timers and releases replies. It encodes and decodes each record, so every scene also tests the state that a restart
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from odradek.broker.groups.classic.join import Joiner, join_refusal
from odradek.broker.groups.common.group import CoordinatorRecord, TimerKey
from odradek.broker.groups.common.outcome import GroupConfig, Outcome
from odradek.broker.groups.core import GroupCore
from odradek.broker.groups.records import decode_record, encode_record
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.describe_groups_response import DescribedGroup
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.protocol.struct import ZERO_UUID
from tests.support.fake_cluster import FakeCluster

R = TypeVar("R")
A = TypeVar("A", JoinGroupResponse, SyncGroupResponse)

GROUP = "billing"
TOPIC_ID = bytes(range(16))
NOT_WRITTEN = ErrorCode.NOT_COORDINATOR


class PendingRequest(Generic[A]):
    """A JoinGroup or SyncGroup request, and its response after it has arrived."""

    def __init__(self) -> None:
        self._answer: A | None = None

    @property
    def is_parked(self) -> bool:
        return self._answer is None

    @property
    def answer(self) -> A:
        assert self._answer is not None, "not answered yet"
        return self._answer

    @property
    def code(self) -> ErrorCode:
        return ErrorCode(self.answer.error_code)

    def resolve(self, answer: A) -> None:
        assert self._answer is None, "answered twice"
        self._answer = answer


def subscription(*topics: str) -> bytes:
    """Returns consumer protocol metadata at version 0."""
    return bytes(2) + encode(ConsumerProtocolSubscription(topics=list(topics), user_data=None), 0)


def offsets_of(core: GroupCore, group: str) -> dict[tuple[str, int], int]:
    request = OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = core.fetch_offsets(request, require_stable=False).response
    assert answer is not None
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


class Scene:
    def __init__(
        self,
        config: GroupConfig | None = None,
        *,
        now_ms: int = 1_000_000,
        records: Iterable[CoordinatorRecord] = (),
        cluster: FakeCluster | None = None,
    ) -> None:
        self.config = config or GroupConfig(group_initial_rebalance_delay_ms=0)
        self.cluster = cluster or FakeCluster()
        self.now_ms = now_ms
        self.log: list[tuple[bytes, bytes | None]] = [encode_record(record) for record in records]
        self.due: dict[TimerKey, int] = {}
        self.writes_fail = False
        self._member_count = 0
        self.core = GroupCore(self.config, self.cluster)
        self.restart()

    # Client requests.

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        client: str = "c",
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        version: int = 3,
    ) -> PendingRequest[JoinGroupResponse]:
        """Sends JoinGroup, by default at version 3, which lets a new member join in a single request. `come` also
        settles the rebalance."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in ({"range": subscription("t")} if protocols is None else protocols).items()
            ],
        )
        pending: PendingRequest[JoinGroupResponse] = PendingRequest()
        refusal = join_refusal(request, self.config)
        if refusal is not None:
            pending.resolve(refusal)
            return pending
        self._member_count += 1
        joiner = Joiner(
            request=request,
            version=version,
            client_id=client,
            client_host="/127.0.0.1",
            new_member_id=f"{client if instance is None else instance}-{self._member_count}",
            plain_member_id=f"plain-{self._member_count}",
            token=pending,
        )
        answer = self.turn(lambda core: core.join_group(joiner, self.now_ms))
        if answer is not None:
            pending.resolve(answer)
        return pending

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> PendingRequest[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        pending: PendingRequest[SyncGroupResponse] = PendingRequest()
        answer = self.turn(lambda core: core.sync_group(request, pending, self.now_ms))
        if answer is not None:
            pending.resolve(answer)
        return pending

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, member_id=member_id, generation_id=generation, group_instance_id=instance
        )
        try:
            answer = self.turn(lambda core: core.heartbeat(request, self.now_ms))
        except KafkaError as error:
            return error.code
        assert answer is not None
        return ErrorCode(answer.error_code)

    def leave(self, *members: str | MemberIdentity, group: str = GROUP) -> list[ErrorCode]:
        request = LeaveGroupRequest(
            group_id=group,
            members=[MemberIdentity(member_id=each) if isinstance(each, str) else each for each in members],
        )
        answer = self.turn(lambda core: core.leave_group(request, self.now_ms))
        assert answer is not None
        return [ErrorCode(each.error_code) for each in answer.members]

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        group: str = GROUP,
        topic: str = "t",
        topic_id: bytes = TOPIC_ID,
        partition: int = 0,
        metadata: str | None = "",
        retention_time_ms: int = -1,
        version: int = 9,
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            retention_time_ms=retention_time_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )
        try:
            answer = self.turn(lambda core: core.commit_offsets(request, version=version, now_ms=self.now_ms))
        except KafkaError as error:
            return error.code
        assert answer is not None
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def fetch(
        self,
        topic: str = "t",
        partition: int = 0,
        *,
        group: str = GROUP,
        topic_id: bytes = ZERO_UUID,
        require_stable: bool = False,
    ) -> int | ErrorCode:
        """Returns the committed offset, -1 if there is none, or the partition's error."""
        request = OffsetFetchRequestGroup(
            group_id=group,
            topics=[OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[partition])],
        )
        answer = self.turn(lambda core: core.fetch_offsets(request, require_stable=require_stable))
        assert answer is not None
        found = answer.topics[0].partitions[0]
        return ErrorCode(found.error_code) if found.error_code else found.committed_offset

    def fetch_all(self, *, group: str = GROUP) -> dict[tuple[str, int], int]:
        return offsets_of(self.core, group)

    def delete_offset(self, topic: str = "t", partition: int = 0, *, group: str = GROUP) -> ErrorCode:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                )
            ],
        )
        try:
            answer = self.turn(lambda core: core.delete_offsets(request))
        except KafkaError as error:
            return error.code
        assert answer is not None
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def delete_group(self, group: str = GROUP) -> ErrorCode:
        answer = self.turn(lambda core: core.delete_group(group))
        assert answer is not None
        return ErrorCode(answer.error_code)

    def describe(self, group: str = GROUP, *, version: int = 6) -> DescribedGroup:
        return self.core.describe_group(group, version=version)

    def groups(self) -> dict[str, str]:
        """Returns the state of each group, as ListGroups shows it."""
        return {listed.group_id: listed.group_state for listed in self.core.list_groups((), ())}

    def shown(self) -> list[tuple[DescribedGroup, dict[tuple[str, int], int]]]:
        """Returns everything that requests can show about all groups."""
        return [(self.describe(group_id), offsets_of(self.core, group_id)) for group_id in sorted(self.groups())]

    # Several steps in one call.

    def come(self, *clients: str, group: str = GROUP, **how: object) -> list[str]:
        """Adds dynamic members in one rebalance and settles it. Returns their member ids, starting with the
        leader's."""
        replies = [self.join(client=client, group=group, **how) for client in clients]  # type: ignore[arg-type]
        self.advance(0)
        return self.settle([each.answer for each in replies], group=group)

    def settle(self, joined: list[JoinGroupResponse], *, group: str = GROUP) -> list[str]:
        """Sends SyncGroup for all members, assigning each member its own id as bytes. Returns the member ids, starting
        with the leader's."""
        leader = joined[0].leader
        members = [each.member_id for each in joined]
        assignments = {member: member.encode() for member in members}
        for member in members:
            if member != leader:
                self.sync(member, joined[0].generation_id, group=group)
        self.sync(leader, joined[0].generation_id, assignments, group=group)
        return [leader, *(member for member in members if member != leader)]

    # Events that are not requests.

    def advance(self, ms: int) -> None:
        """Advances the clock. Each timer fires at its due time."""
        end_ms = self.now_ms + ms
        while self.due:
            key = min(self.due, key=lambda each: self.due[each])
            if self.due[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.due.pop(key))
            self.fire(key)
        self.now_ms = end_ms

    def fire(self, key: TimerKey) -> None:
        now_ms = self.now_ms
        try:
            self.turn(lambda core: core.on_timer(key, now_ms))
        except KafkaError:
            self.due[key] = now_ms + 1_000

    def expire(self) -> None:
        self.turn(lambda core: core.expire(self.now_ms))

    def restart(self) -> None:
        """Restarts the broker: all state in memory and the connections of pending requests are lost."""
        self.due.clear()
        self.core = GroupCore(self.config, self.cluster)
        for record_offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            self.core.replay(record, record_offset)
        self.turn(lambda core: core.on_loaded(self.now_ms))

    def turn(self, decide: Callable[[GroupCore], Outcome[R]]) -> R | None:
        before = self.shown() if self.writes_fail else None
        outcome = decide(self.core)
        if outcome.records and self.writes_fail:
            assert self.shown() == before, "a decision that was not written has changed something"
            raise KafkaError(NOT_WRITTEN)
        for record in outcome.records:
            stored = encode_record(record)
            self.log.append(stored)
            replayed = decode_record(*stored)
            assert replayed is not None
            self.core.replay(replayed, len(self.log) - 1)
        self.core.settle(outcome)
        for timer in outcome.timers:
            self.due.pop(timer.key, None)
            if timer.delay_ms is not None:
                self.due[timer.key] = self.now_ms + timer.delay_ms
        for reply in outcome.replies:
            assert isinstance(reply.token, PendingRequest)
            reply.token.resolve(reply.message)
        return outcome.response
