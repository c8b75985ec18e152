"""DescribeShareGroupOffsets (key 90), versions 0-1: where share groups stand. v1: lag (KIP-1226).

Needs DESCRIBE on each group and topic. A group that does not exist stands nowhere, which is no error.
Source: docs/spec/share-groups.md#s2-8
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import REFUSALS
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.member import Partitions
from odradek.broker.runtime.delayed import all_of
from odradek.broker.shares.core.state import UNDECIDED_START_OFFSET, UNKNOWN_COUNT, SharePartitionKey, StateSummary
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from odradek.protocol.struct import ZERO_UUID

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )

UNKNOWN_LAG = -1
Group = DescribeShareGroupOffsetsResponseGroup
Topic = DescribeShareGroupOffsetsResponseTopic
Position = DescribeShareGroupOffsetsResponsePartition


def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext, broker: Broker
) -> DescribeShareGroupOffsetsResponse | Deferred[DescribeShareGroupOffsetsResponse]:
    broker.shares.require_enabled()
    return all_of(
        [_group(group, context, broker) for group in request.groups],
        lambda index, error: _refused(request.groups[index].group_id, error),
        lambda groups: DescribeShareGroupOffsetsResponse(groups=groups),
    )


def _refused(group_id: str, error: KafkaError) -> Group:
    return Group(group_id=group_id, error_code=error.code.value, error_message=error.message)


def _group(
    asked: DescribeShareGroupOffsetsRequestGroup, context: RequestContext, broker: Broker
) -> Group | Deferred[Group]:
    topics: Sequence[tuple[str, Sequence[int]]]
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id)
        initialized = _initialized(asked.group_id, broker)
        if asked.topics is None:
            topics = _all_topics(initialized, context, broker)
        elif any(not topic.partitions for topic in asked.topics):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A topic is listed without partitions.")
        else:
            topics = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    except KafkaError as error:
        return _refused(asked.group_id, error)
    answers: list[Topic | Deferred[Topic]] = [
        _topic(asked.group_id, name, partitions, initialized, context, broker) for name, partitions in topics
    ]
    return all_of(
        answers,
        lambda index, error: Topic(topic_name=topics[index][0]),
        lambda described: Group(group_id=asked.group_id, topics=described),
    )


def _initialized(group_id: str, broker: Broker) -> Partitions:
    try:
        shard = broker.groups.shard_for(group_id)
    except KafkaError:
        return {}  # no group was ever coordinated
    group = shard.look(lambda core: core.registry.groups.get(group_id))
    return group.state.initialized if isinstance(group, ShareGroup) else {}


def _all_topics(initialized: Partitions, context: RequestContext, broker: Broker) -> list[tuple[str, Sequence[int]]]:
    """Those that the caller may not describe are left out."""
    by_id = broker.metadata.image.topics_by_id
    return [
        (by_id[topic_id].name, sorted(indexes))
        for topic_id, indexes in initialized.items()
        if topic_id in by_id and is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, by_id[topic_id].name)
    ]


def _topic(
    group_id: str,
    name: str,
    partitions: Sequence[int],
    initialized: Partitions,
    context: RequestContext,
    broker: Broker,
) -> Topic | Deferred[Topic]:
    try:
        context.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
    except KafkaError as refusal:
        refused = [
            Position(
                partition_index=index,
                start_offset=UNDECIDED_START_OFFSET,
                error_code=refusal.code.value,
                error_message=REFUSALS[ResourceType.TOPIC][1],
            )
            for index in partitions
        ]
        return Topic(topic_name=name, partitions=refused)
    topic = broker.metadata.image.topics.get(name)
    topic_id = ZERO_UUID if topic is None else topic.topic_id

    def summary(index: int) -> StateSummary | Deferred[StateSummary]:
        if index not in initialized.get(topic_id, ()):
            return StateSummary()
        return broker.shares.persister.summarize(SharePartitionKey(group_id, topic_id, index))

    return all_of(
        [summary(index) for index in partitions],
        lambda index, error: StateSummary(),
        lambda summaries: Topic(
            topic_name=name,
            topic_id=topic_id,
            partitions=[
                _position(name, index, each, broker) for index, each in zip(partitions, summaries, strict=True)
            ],
        ),
    )


def _position(topic: str, index: int, summary: StateSummary, broker: Broker) -> Position:
    lag = UNKNOWN_LAG
    if summary.start_offset != UNDECIDED_START_OFFSET and summary.delivery_complete_count != UNKNOWN_COUNT:
        log_end = broker.partitions.get(topic, index).log.log_end_offset
        lag = log_end - summary.start_offset - summary.delivery_complete_count
    return Position(
        partition_index=index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag
    )
