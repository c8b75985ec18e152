"""The group coordinator on real partitions. Tests send requests through its handlers, and `restarted` returns a new
broker on the same disk."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.coordinators.cluster_view import ImageView
from odradek.broker.coordinators.group_coordinator import CoordinatorSettings, GroupCoordinator, OffsetsTopic
from odradek.broker.groups.common.outcome import GroupConfig
from odradek.broker.groups.common.registry import ClusterView
from odradek.broker.handlers.groups.classic_groups import heartbeat, join_group, leave_group, sync_group
from odradek.broker.handlers.groups.group_administration import delete_groups, describe_groups, list_groups
from odradek.broker.handlers.groups.group_offsets import offset_commit, offset_delete
from odradek.broker.handlers.groups.offset_fetch import offset_fetch
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.partitions.partition import CoordinatorLog
from odradek.broker.runtime.waiting import start_coroutine
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
)
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.support.broker_scene import BrokerScene, answer_of
from tests.support.fake_disk import FakeDisk

SETTINGS = CoordinatorSettings(
    groups=GroupConfig(group_initial_rebalance_delay_ms=0),
    topic=OffsetsTopic(partition_count=3, replication_factor=1, configs={}),
    compression=Compression.NONE,
    offsets_retention_check_interval_ms=600_000,
)
HANDLERS: dict[type[Message], tuple[ApiKey, Any]] = {
    JoinGroupRequest: (ApiKey.JOIN_GROUP, join_group),
    SyncGroupRequest: (ApiKey.SYNC_GROUP, sync_group),
    HeartbeatRequest: (ApiKey.HEARTBEAT, heartbeat),
    LeaveGroupRequest: (ApiKey.LEAVE_GROUP, leave_group),
    OffsetCommitRequest: (ApiKey.OFFSET_COMMIT, offset_commit),
    OffsetFetchRequest: (ApiKey.OFFSET_FETCH, offset_fetch),
    OffsetDeleteRequest: (ApiKey.OFFSET_DELETE, offset_delete),
    ListGroupsRequest: (ApiKey.LIST_GROUPS, list_groups),
    DescribeGroupsRequest: (ApiKey.DESCRIBE_GROUPS, describe_groups),
    DeleteGroupsRequest: (ApiKey.DELETE_GROUPS, delete_groups),
}


class Scene:
    """A broker with a topic `t` of two partitions. It can start with the offsets topic of an earlier broker."""

    def __init__(
        self, disk: FakeDisk | None = None, image: MetadataImage | None = None, cluster: ClusterView | None = None
    ) -> None:
        self.disk = disk or FakeDisk()
        self.scene = BrokerScene(self.disk, "/data")
        self._tasks: list[asyncio.Task[None]] = []
        self._members = 0
        if image is not None:
            self.scene.image.topics.update(image.topics)
            self.scene.image.topics_by_id.update(image.topics_by_id)
            self.scene.partitions.open_all()
        else:
            self.scene.topic("t", 2)
        self.groups = GroupCoordinator(
            SETTINGS,
            self.scene.clock,
            self.scene.timers,
            open_log=lambda index: CoordinatorLog(self.scene.partition(GROUP_OFFSETS, index), self.scene.workers),
            spawn=lambda work: self._tasks.append(asyncio.ensure_future(work)),
            new_uuid=self._new_uuid,
            cluster=cluster or ImageView(self.scene.image, BrokerConfig({}).current_text),
        )
        self.scene.broker.groups = self.groups
        topic = self.scene.image.topics.get(GROUP_OFFSETS)
        self.groups.start(None if topic is None else len(topic.partitions))

    def _new_uuid(self) -> bytes:
        self._members += 1
        return self._members.to_bytes(16, "big")

    async def make_offsets_topic(self, **settings: Any) -> None:
        self.scene.topic(GROUP_OFFSETS, 3, **settings)
        self.groups.offsets_topic_created(3)
        await self.loaded()

    async def loaded(self) -> None:
        while any(not task.done() for task in self._tasks):
            self.scene.workers.finish_all()
            await asyncio.sleep(0)

    def restarting(self, *, after: FakeDisk | None = None) -> Scene:
        """Returns a broker on the same disk, before it loads the offsets topic."""
        return Scene(after or self.disk.after_kill(), self.scene.image)

    async def restarted(self, *, after: FakeDisk | None = None) -> Scene:
        other = self.restarting(after=after)
        await other.loaded()
        return other

    def ask(self, request: Message, version: int, client_id: str | None = "app") -> Any:
        api_key, handler = HANDLERS[type(request)]
        answer = handler(request, self.scene.context(api_key, version, client_id), self.scene.broker)
        return start_coroutine(answer) if handler is delete_groups else answer

    def commit(self, offset: int, *, version: int = 9, group: str = "g", **of: Any) -> Any:
        topic = OffsetCommitRequestTopic(
            name=of.get("topic", "t"),
            topic_id=of.get("topic_id", bytes(16)),
            partitions=[OffsetCommitRequestPartition(partition_index=of.get("partition", 0), committed_offset=offset)],
        )
        return self.ask(OffsetCommitRequest(group_id=group, topics=[topic]), version)

    def committed(self, group: str = "g") -> dict[tuple[str, int], int]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        (found,) = answer_of(self.ask(request, 9)).groups
        assert found.error_code == 0, found
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in found.topics
            for each in topic.partitions
        }

    def join(self, version: int, member_id: str = "", client_id: str | None = "app") -> Any:
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        return self.ask(request, version, client_id)


def code_of_commit(answer: Any) -> ErrorCode:
    return ErrorCode(answer_of(answer).topics[0].partitions[0].error_code)
