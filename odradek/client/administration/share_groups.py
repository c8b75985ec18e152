"""The start offsets of share groups: where delivery of a partition's records has come to (KIP-932, KIP-1240)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.client.administration.asking import Asking
from odradek.client.common.errors import check
from odradek.client.common.values import TopicPartition
from odradek.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from odradek.protocol.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from odradek.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from odradek.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse


@dataclass(frozen=True, slots=True)
class SharePartitionOffset:
    """`start_offset` is None before the first delivery, `lag` where the broker does not know it."""

    start_offset: int | None
    leader_epoch: int
    lag: int | None


async def list_share_group_offsets(asking: Asking, group_id: str) -> dict[TopicPartition, SharePartitionOffset]:
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)]
    )

    async def ask() -> dict[TopicPartition, SharePartitionOffset]:
        answer = await asking.group_coordinator(group_id, request, DescribeShareGroupOffsetsResponse)
        (told,) = answer.groups
        asking.check_group(group_id, told.error_code, told.error_message)
        found = {}
        for topic in told.topics:
            for each in topic.partitions:
                name = f"the share partition {topic.topic_name}-{each.partition_index}"
                check(each.error_code, name, each.error_message)
                found[TopicPartition(topic.topic_name, each.partition_index)] = SharePartitionOffset(
                    each.start_offset if each.start_offset >= 0 else None,
                    each.leader_epoch,
                    each.lag if each.lag >= 0 else None,
                )
        return dict(sorted(found.items()))

    return await asking.patiently(ask)


async def alter_share_group_offsets(asking: Asking, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        )
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=each) for name, each in topics.items()],
    )

    async def ask() -> None:
        answer = await asking.group_coordinator(group_id, request, AlterShareGroupOffsetsResponse)
        asking.check_group(group_id, answer.error_code, answer.error_message)
        for topic in answer.responses:
            for each in topic.partitions:
                name = f"the share partition {topic.topic_name}-{each.partition_index}"
                check(each.error_code, name, each.error_message)

    await asking.patiently(ask)


async def delete_share_group_offsets(asking: Asking, group_id: str, topics: Iterable[str]) -> None:
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    )

    async def ask() -> None:
        answer = await asking.group_coordinator(group_id, request, DeleteShareGroupOffsetsResponse)
        asking.check_group(group_id, answer.error_code, answer.error_message)
        for each in answer.responses:
            check(each.error_code, f"the topic {each.topic_name!r} of {group_id!r}", each.error_message)

    await asking.patiently(ask)
