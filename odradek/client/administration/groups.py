"""Groups of every type, the committed offsets of consumer groups, and the start offsets of share groups. The start
offset of a share partition is the offset at which delivery of its records begins (KIP-932, KIP-1240)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from odradek.client.administration.requests import AdminRequests
from odradek.client.common.errors import ClientError, check
from odradek.client.common.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, blocks, grouped
from odradek.client.consuming.assignors import assigned_partitions
from odradek.client.consuming.group_offsets import GroupOffsets
from odradek.client.network.cluster import CoordinatorType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_describe_response import Assignment as ConsumerAssignment
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_groups_response import DeleteGroupsResponse
from odradek.protocol.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_groups_response import DescribeGroupsResponse
from odradek.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from odradek.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListGroupsResponse
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_delete_response import OffsetDeleteResponse
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from odradek.protocol.messages.share_group_describe_response import Assignment as ShareAssignment
from odradek.protocol.messages.share_group_describe_response import ShareGroupDescribeResponse
from odradek.protocol.struct import Message

D = TypeVar("D", ConsumerGroupDescribeResponse, DescribeGroupsResponse, ShareGroupDescribeResponse)

CONSUMER_PROTOCOL = "consumer"  # protocol type of classic groups whose members are consumers
FETCH_OF_ONE_GROUP = 7
DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group. `type` is Classic, Consumer, Share or Streams, or "" if the broker does not report the type. `state` is
    spelt as in the broker's response."""

    group_id: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. `group_instance_id` is None unless the member is static. `assignment` holds the partitions
    that the member reads."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members. `epoch` is None for classic groups, which have no group epoch."""

    group_id: str
    type: str
    state: str
    assignor: str
    coordinator: int
    epoch: int | None
    members: tuple[MemberDescription, ...]


async def list_groups(requests: AdminRequests, *, states: Iterable[str], types: Iterable[str]) -> list[GroupListing]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    async def ask(node_id: int) -> list[GroupListing]:
        async def ask_once() -> ListGroupsResponse:
            answer = await requests.cluster.ask(request, ListGroupsResponse, node_id=node_id)
            check(answer.error_code, f"the groups of broker {node_id}")
            return answer

        return [
            GroupListing(each.group_id, each.group_type, each.protocol_type, each.group_state, node_id)
            for each in (await requests.retry(ask_once)).groups
        ]

    found = await asyncio.gather(*(ask(node_id) for node_id in await requests.node_ids()))
    # While a group moves to another coordinator, both brokers may list it.
    by_id = {each.group_id: each for listed in found for each in listed}
    return [by_id[group_id] for group_id in sorted(by_id)]


async def describe_group(requests: AdminRequests, group_id: str) -> GroupDescription:
    """Describes a consumer or a classic group. Raises ClientError (GROUP_ID_NOT_FOUND)."""
    for describe in (_describe_consumer_group, _describe_classic_group):
        try:
            return await describe(requests, group_id)
        except ClientError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
            missing = error
    raise missing


async def _describe_consumer_group(requests: AdminRequests, group_id: str) -> GroupDescription:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    described = (await _ask_about(requests, group_id, request, ConsumerGroupDescribeResponse)).groups[0]
    members = tuple(
        MemberDescription(
            each.member_id, each.instance_id, each.client_id, each.client_host, _assigned_partitions(each.assignment)
        )
        for each in described.members
    )
    return await _description(
        requests, group_id, "Consumer", described.group_state, described.assignor_name, described.group_epoch, members
    )


async def describe_share_group(requests: AdminRequests, group_id: str) -> GroupDescription:
    request = ShareGroupDescribeRequest(group_ids=[group_id])
    described = (await _ask_about(requests, group_id, request, ShareGroupDescribeResponse)).groups[0]
    members = tuple(
        MemberDescription(each.member_id, None, each.client_id, each.client_host, _assigned_partitions(each.assignment))
        for each in described.members
    )
    return await _description(
        requests, group_id, "Share", described.group_state, described.assignor_name, described.group_epoch, members
    )


async def _describe_classic_group(requests: AdminRequests, group_id: str) -> GroupDescription:
    request = DescribeGroupsRequest(groups=[group_id])
    described = (await _ask_about(requests, group_id, request, DescribeGroupsResponse)).groups[0]
    if described.group_state == DEAD:  # up to version 5, brokers report this state for a group that does not exist
        raise ClientError(f"the group {group_id!r} does not exist", ErrorCode.GROUP_ID_NOT_FOUND)
    has_assignments = described.protocol_type == CONSUMER_PROTOCOL
    members = tuple(
        MemberDescription(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            tuple(assigned_partitions(each.member_assignment)) if has_assignments else (),
        )
        for each in described.members
    )
    return await _description(
        requests, group_id, "Classic", described.group_state, described.protocol_data, None, members
    )


async def _ask_about(requests: AdminRequests, group_id: str, request: Message, answer: type[D]) -> D:
    def read(found: D) -> D:
        (described,) = found.groups
        requests.check_group(group_id, described.error_code, described.error_message)
        return found

    return await requests.ask_group_coordinator(group_id, request, answer, read)


async def _description(
    requests: AdminRequests,
    group_id: str,
    kind: str,
    state: str,
    assignor: str,
    epoch: int | None,
    members: tuple[MemberDescription, ...],
) -> GroupDescription:
    coordinator = await requests.cluster.coordinator(group_id, CoordinatorType.GROUP)
    return GroupDescription(group_id, kind, state, assignor, coordinator, epoch, members)


def _assigned_partitions(assignment: ConsumerAssignment | ShareAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )


async def delete_group(requests: AdminRequests, group_id: str) -> None:
    request = DeleteGroupsRequest(groups_names=[group_id])

    def read(answer: DeleteGroupsResponse) -> None:
        requests.check_group(group_id, answer.results[0].error_code)

    await requests.ask_group_coordinator(group_id, request, DeleteGroupsResponse, read)


# Committed offsets.


async def list_group_offsets(requests: AdminRequests, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    request = OffsetFetchRequest(group_id=group_id, topics=None)

    def read(answer: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
        requests.check_group(group_id, answer.error_code)
        found = {}
        for topic in answer.topics:
            for each in topic.partitions:
                requests.check_group(group_id, each.error_code)
                if each.committed_offset >= 0:
                    epoch = each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None
                    committed = OffsetAndMetadata(each.committed_offset, each.metadata or "", epoch)
                    found[TopicPartition(topic.name, each.partition_index)] = committed
        return dict(sorted(found.items()))

    return await requests.ask_group_coordinator(group_id, request, OffsetFetchResponse, read, FETCH_OF_ONE_GROUP)


async def alter_group_offsets(
    requests: AdminRequests, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
) -> None:
    committed = GroupOffsets(requests.cluster, group_id, timeout_ms=requests.timeout_s * 1000)
    new_offsets = {
        partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for partition, offset in offsets.items()
    }
    for some in blocks(new_offsets.items()):
        await committed.commit(dict(some), lambda: ConsumerGroupMetadata(group_id))


async def delete_group_offsets(requests: AdminRequests, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    for some in blocks(partitions):
        await _delete_offsets(requests, group_id, some)


async def _delete_offsets(requests: AdminRequests, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in grouped(partitions).items()
        ],
    )

    def read(answer: OffsetDeleteResponse) -> None:
        requests.check_group(group_id, answer.error_code)
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, f"the offset of {group_id!r} in {topic.name}-{each.partition_index}")

    await requests.ask_group_coordinator(group_id, request, OffsetDeleteResponse, read)


@dataclass(frozen=True, slots=True)
class SharePartitionOffset:
    """A share partition. `start_offset` is None before the first delivery. `lag` is None if the broker does not report
    it."""

    start_offset: int | None
    leader_epoch: int
    lag: int | None


async def list_share_group_offsets(
    requests: AdminRequests, group_id: str
) -> dict[TopicPartition, SharePartitionOffset]:
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
    )

    def read(answer: DescribeShareGroupOffsetsResponse) -> dict[TopicPartition, SharePartitionOffset]:
        (described,) = answer.groups
        requests.check_group(group_id, described.error_code, described.error_message)
        found = {}
        for topic in described.topics:
            for each in topic.partitions:
                name = f"the share partition {topic.topic_name}-{each.partition_index}"
                check(each.error_code, name, each.error_message)
                found[TopicPartition(topic.topic_name, each.partition_index)] = SharePartitionOffset(
                    each.start_offset if each.start_offset >= 0 else None,
                    each.leader_epoch,
                    each.lag if each.lag >= 0 else None,
                )
        return dict(sorted(found.items()))

    return await requests.ask_group_coordinator(group_id, request, DescribeShareGroupOffsetsResponse, read)


async def alter_share_group_offsets(
    requests: AdminRequests, group_id: str, offsets: Mapping[TopicPartition, int]
) -> None:
    topics = grouped(
        (topic, AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset))
        for (topic, index), offset in offsets.items()
    )
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=each) for name, each in topics.items()],
    )

    def read(answer: AlterShareGroupOffsetsResponse) -> None:
        requests.check_group(group_id, answer.error_code, answer.error_message)
        for topic in answer.responses:
            for each in topic.partitions:
                name = f"the share partition {topic.topic_name}-{each.partition_index}"
                check(each.error_code, name, each.error_message)

    await requests.ask_group_coordinator(group_id, request, AlterShareGroupOffsetsResponse, read)


async def delete_share_group_offsets(requests: AdminRequests, group_id: str, topics: Iterable[str]) -> None:
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    )

    def read(answer: DeleteShareGroupOffsetsResponse) -> None:
        requests.check_group(group_id, answer.error_code, answer.error_message)
        for each in answer.responses:
            check(each.error_code, f"the topic {each.topic_name!r} of {group_id!r}", each.error_message)

    await requests.ask_group_coordinator(group_id, request, DeleteShareGroupOffsetsResponse, read)
