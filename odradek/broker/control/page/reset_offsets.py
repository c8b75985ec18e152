"""Where the offsets of a group are moved to, as `kafka-consumer-groups --reset-offsets --execute` does it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.broker.control.page.fields import Fields, refused
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse

if TYPE_CHECKING:
    from odradek.broker.control.page.in_process import Ask
    from odradek.broker.control.page.json_value import View

SHARE = "share"
WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
BY_NAME = 9  # the newest OffsetCommit that names topics
LATEST, EARLIEST = -1, -2  # what ListOffsets takes for a timestamp
NAMED: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}
NOT_FOUND = -1
GROUPS = 0  # a type of coordinator
NOT_YET = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE.value, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value})
RETRY_S = 0.02
RETRIES = 1000
Offsets = Mapping[int, int]  # by partition


async def reset_offsets(ask: Ask, fields: Fields) -> View:
    """`group`, `topic`, `partition` (every one of the topic if it is missing), and one of `to` (earliest, latest),
    `offset` and `timestamp` (ms: the first record since, or the end). Offsets stay within the log.

    A group that does not exist is created, as by Kafka's tool.
    """
    group, topic = fields.text("group"), fields.text("topic")
    if sum(name in fields for name in ("to", "offset", "timestamp")) != 1:
        raise refused("one of to, offset and timestamp is needed")
    partitions = await partitions_of(ask, topic)
    if "partition" in fields:
        partitions = [index for index in partitions if index == fields.number("partition", least=0)]
    if not partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no such partition.")
    wanted = await destinations(ask, fields, topic, partitions)
    found = await listed(ask, group)
    if found is not None and found.group_state not in WITHOUT_MEMBERS:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group} has members ({found.group_state}): stop them first.")
    if found is not None and found.group_type == SHARE:
        await alter(ask, group, topic, wanted)
    else:
        await commit(ask, group, topic, wanted)
    return {
        "done": f"{group} goes on in {topic} at "
        + ", ".join(f"offset {offset} of partition {index}" for index, offset in wanted.items())
        + ".",
        "offsets": {str(index): offset for index, offset in wanted.items()},
    }


async def destinations(ask: Ask, fields: Fields, topic: str, partitions: list[int]) -> Offsets:
    if "to" in fields:
        name = fields.text("to")
        if name not in NAMED:
            raise refused(f"to is {name}, and has to be one of {', '.join(NAMED)}")
        return await offsets_at(ask, topic, partitions, NAMED[name])
    ends = await offsets_at(ask, topic, partitions, LATEST)
    if "timestamp" in fields:
        since = await offsets_at(ask, topic, partitions, fields.number("timestamp", least=0))
        return {index: ends[index] if since[index] == NOT_FOUND else since[index] for index in partitions}
    offset = fields.number("offset", least=0)
    starts = await offsets_at(ask, topic, partitions, EARLIEST)
    return {index: min(max(offset, starts[index]), ends[index]) for index in partitions}


async def partitions_of(ask: Ask, topic: str) -> list[int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = (await ask(request, MetadataResponse)).topics
    check(found.error_code, f"topic {topic}")
    return sorted(each.partition_index for each in found.partitions)


async def listed(ask: Ask, group: str) -> ListedGroup | None:
    await coordinator_of(ask, group)
    answer = await ask(ListGroupsRequest(), ListGroupsResponse)
    check(answer.error_code, "the list of groups")
    return next((each for each in answer.groups if each.group_id == group), None)


async def coordinator_of(ask: Ask, group: str) -> None:
    """Until there is one: who asks first creates its topic."""
    request = FindCoordinatorRequest(key_type=GROUPS, coordinator_keys=[group])
    for _ in range(RETRIES):
        (found,) = (await ask(request, FindCoordinatorResponse)).coordinators
        if found.error_code not in NOT_YET:
            break
        await asyncio.sleep(RETRY_S)
    check(found.error_code, found.error_message or f"the coordinator of group {group}")


async def offsets_at(ask: Ask, topic: str, partitions: list[int], timestamp: int) -> Offsets:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in partitions]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
    (answer,) = (await ask(request, ListOffsetsResponse)).topics
    for each in answer.partitions:
        check(each.error_code, f"{topic}-{each.partition_index}")
    return {each.partition_index: each.offset for each in answer.partitions}


async def commit(ask: Ask, group: str, topic: str, offsets: Offsets) -> None:
    asked = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=asked)])
    answer = await ask(request, OffsetCommitResponse, max_version=BY_NAME)
    for of in answer.topics:
        for each in of.partitions:
            check(each.error_code, f"{topic}-{each.partition_index} of group {group}")


async def alter(ask: Ask, group: str, topic: str, offsets: Offsets) -> None:
    asked = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in offsets.items()
    ]
    named = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=asked)
    answer = await ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[named]), AlterShareGroupOffsetsResponse)
    check(answer.error_code, answer.error_message or f"group {group}")
    for of in answer.responses:
        for each in of.partitions:
            check(each.error_code, each.error_message or f"{topic}-{each.partition_index} of group {group}")


def check(code: int, what: str) -> None:
    if code != ErrorCode.NONE.value:
        raise KafkaError(ErrorCode(code), f"{what}.".replace("..", "."))
