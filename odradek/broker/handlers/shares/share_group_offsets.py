"""Handlers that describe, alter and delete the offsets of share groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import REFUSALS, RequestContext
from odradek.broker.api.long_requests import AnswerEntries
from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.share.state import Pair
from odradek.broker.runtime.slices import Steps, made_of_each, sliced
from odradek.broker.runtime.waiting import NowOrLater, start_coroutine, wait_for_all, wait_for_answer
from odradek.broker.shares.core.state import UNDECIDED_START_OFFSET, UNKNOWN_COUNT, SharePartitionKey, StateSummary
from odradek.broker.shares.leader import group_state
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from odradek.protocol.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from odradek.protocol.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from odradek.protocol.struct import ZERO_UUID
from odradek.protocol.topic_partition import GROUP_OFFSETS

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.shares.leader.group_state import Refusals
    from odradek.protocol.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
    from odradek.protocol.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
    from odradek.protocol.messages.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )


UNKNOWN_LAG = -1
Group = DescribeShareGroupOffsetsResponseGroup
Topic = DescribeShareGroupOffsetsResponseTopic
Position = DescribeShareGroupOffsetsResponsePartition


@sliced
def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[NowOrLater[DescribeShareGroupOffsetsResponse]]:
    """Handles DescribeShareGroupOffsets (key 90), versions 0-1, which returns the start offsets of share groups. v1
    adds the lag (KIP-1226).

    Needs DESCRIBE on each group and topic. A group that does not exist is reported as having no offsets, without an
    error. Source: docs/spec/share-groups.md#s2-8
    """
    broker.shares.require_enabled()
    entries = AnswerEntries()
    groups = yield from made_of_each(
        request.groups, lambda group: start_coroutine(_group(group, context, broker, entries))
    )
    return start_coroutine(_describe_response(groups))


async def _describe_response(groups: Sequence[NowOrLater[Group]]) -> DescribeShareGroupOffsetsResponse:
    response = DescribeShareGroupOffsetsResponse()
    for group in groups:
        response.groups.append(await wait_for_answer(group))
    return response


def _refused_group(group_id: str, error: KafkaError) -> Group:
    return Group(group_id=group_id, error_code=error.code.value, error_message=error.message)


async def _group(
    requested: DescribeShareGroupOffsetsRequestGroup,
    context: RequestContext,
    broker: HandlerBroker,
    entries: AnswerEntries,
) -> Group:
    topics: Sequence[tuple[str, Sequence[int]]]
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, requested.group_id)
        initialized = _initialized_partitions(requested.group_id, broker)
        if requested.topics is None:
            topics = _all_topics(initialized, context, broker)
        elif any(not topic.partitions for topic in requested.topics):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A topic is listed without partitions.")
        else:
            topics = [(topic.topic_name, topic.partitions) for topic in requested.topics]
    except KafkaError as error:
        return _refused_group(requested.group_id, error)
    entries.add(sum(1 + len(partitions) for _, partitions in topics))
    answers = [
        start_coroutine(_topic(requested.group_id, name, partitions, initialized, context, broker))
        for name, partitions in topics
    ]
    described = Group(group_id=requested.group_id)
    for answer in answers:
        described.topics.append(await wait_for_answer(answer))
    return described


def _initialized_partitions(group_id: str, broker: HandlerBroker) -> Partitions:
    """Returns the group's share partitions that have offsets. Raises NOT_COORDINATOR if another broker coordinates the
    group."""
    try:
        shard = broker.groups.shard_for(group_id)
    except KafkaError:
        if GROUP_OFFSETS in broker.metadata.image.topics:
            raise
        return {}  # no group has ever existed
    group = shard.read_state(lambda core: core.share_group(group_id))
    return {} if group is None else group.state.initialized


def _all_topics(
    initialized: Partitions, context: RequestContext, broker: HandlerBroker
) -> list[tuple[str, Sequence[int]]]:
    """Returns all topics of the group that the client may DESCRIBE."""
    by_id = broker.metadata.image.topics_by_id
    return [
        (by_id[topic_id].name, sorted(indexes))
        for topic_id, indexes in initialized.items()
        if topic_id in by_id and is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, by_id[topic_id].name)
    ]


async def _topic(
    group_id: str,
    name: str,
    partitions: Sequence[int],
    initialized: Partitions,
    context: RequestContext,
    broker: HandlerBroker,
) -> Topic:
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

    def summary(index: int) -> NowOrLater[StateSummary]:
        if index not in initialized.get(topic_id, ()):
            return StateSummary()
        return broker.shares.persister.summarize(SharePartitionKey(group_id, topic_id, index))

    summaries = await wait_for_all([summary(index) for index in partitions])
    positions = [
        _position(name, index, StateSummary() if isinstance(each, KafkaError) else each, broker)
        for index, each in zip(partitions, summaries, strict=True)
    ]
    return Topic(topic_name=name, topic_id=topic_id, partitions=positions)


def _position(topic: str, index: int, summary: StateSummary, broker: HandlerBroker) -> Position:
    """Describes a share partition. If the lag depends on the log end offset but that offset is not available, the
    result is an error without a start offset, as in Kafka 4.4.0."""
    lag = UNKNOWN_LAG
    if summary.start_offset != UNDECIDED_START_OFFSET and summary.delivery_complete_count != UNKNOWN_COUNT:
        try:
            log_end = broker.partitions.get(topic, index).log.log_end_offset
        except KafkaError as error:
            return Position(partition_index=index, error_code=error.code.value, error_message=error.message)
        lag = log_end - summary.start_offset - summary.delivery_complete_count
    return Position(
        partition_index=index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag
    )


async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: RequestContext, broker: HandlerBroker
) -> AlterShareGroupOffsetsResponse:
    """Handles AlterShareGroupOffsets (key 91), version 0, which sets the start offsets of a share group that has no
    members.

    Needs READ on the group and on each topic. Replaces the partitions' stored state. Creates the group if it does not
    exist. Source: docs/spec/share-groups.md#s2-8
    """
    broker.shares.require_enabled()
    group_id = request.group_id
    context.require(Operation.READ, ResourceType.GROUP, group_id)
    if group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    shard = broker.groups.shard_for(group_id)
    shard.read_state(lambda core: core.require_empty_share_group(group_id, may_be_missing=True))
    refused: dict[str, KafkaError] = {}
    selected: dict[Pair, int] = {}
    image = broker.metadata.image
    for topic in request.topics:
        try:
            context.require(Operation.READ, ResourceType.TOPIC, topic.topic_name)
        except KafkaError as error:
            refused[topic.topic_name] = error
            continue
        topic_image = image.topics.get(topic.topic_name)
        for partition in topic.partitions:
            if topic_image is not None and 0 <= partition.partition_index < len(topic_image.partitions):
                selected[topic_image.topic_id, partition.partition_index] = partition.start_offset

    def code_of(name: str, topic_id: bytes, index: int, refusals: Refusals) -> tuple[ErrorCode, str | None]:
        if name in refused:
            return refused[name].code, refused[name].message
        if (topic_id, index) not in selected:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        error = refusals.get((topic_id, index))
        return (ErrorCode.NONE, None) if error is None else (error.code, error.message)

    def response(refusals: Refusals) -> AlterShareGroupOffsetsResponse:
        topics = []
        for topic in request.topics:
            topic_image = image.topics.get(topic.topic_name)
            topic_id = ZERO_UUID if topic_image is None or topic.topic_name in refused else topic_image.topic_id
            results = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id)
            for partition in topic.partitions:
                index = partition.partition_index
                code, message = code_of(topic.topic_name, topic_id, index, refusals)
                results.partitions.append(
                    AlterShareGroupOffsetsResponsePartition(
                        partition_index=index, error_code=code.value, error_message=message
                    )
                )
            topics.append(results)
        return AlterShareGroupOffsetsResponse(responses=topics)

    if not selected:
        return response({})
    requested = await wait_for_answer(
        shard.submit(lambda core, now_ms: core.alter_share_offsets(group_id, selected, now_ms))
    )
    return response(await group_state.initialize_state(broker, group_id, requested))


async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext, broker: HandlerBroker
) -> DeleteShareGroupOffsetsResponse:
    """Handles DeleteShareGroupOffsets (key 92), version 0, which deletes the offsets for some topics of a share group
    that has no members.

    Needs DELETE on the group and READ on each topic. Source: docs/spec/share-groups.md#s2-8
    """
    broker.shares.require_enabled()
    group_id = request.group_id
    context.require(Operation.DELETE, ResourceType.GROUP, group_id)
    if group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    shard = broker.groups.shard_for(group_id)
    shard.read_state(lambda core: core.require_empty_share_group(group_id, may_be_missing=False))
    refused: dict[str, KafkaError] = {}
    for topic in request.topics:
        try:
            context.require(Operation.READ, ResourceType.TOPIC, topic.topic_name)
        except KafkaError as error:
            refused[topic.topic_name] = error
    selected = [topic.topic_name for topic in request.topics if topic.topic_name not in refused]

    def result(
        name: str, deleted: Partitions, refusals: Mapping[bytes, KafkaError]
    ) -> DeleteShareGroupOffsetsResponseTopic:
        topic_image = broker.metadata.image.topics.get(name)
        if name in refused:
            error = refused[name]
        elif topic_image is None:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        elif topic_image.topic_id not in deleted:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
        elif topic_image.topic_id in refusals:
            error = refusals[topic_image.topic_id]
        else:
            return DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_image.topic_id)
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, error_code=error.code.value, error_message=error.message
        )

    deleted = await wait_for_answer(
        shard.submit(lambda core, now_ms: core.begin_share_deletion(group_id, selected, now_ms))
    )
    first: dict[bytes, KafkaError] = {}  # each topic's first error
    refusals = await group_state.delete_state(broker, group_id, deleted)
    for (topic_id, _), refusal in refusals.items():
        first.setdefault(topic_id, refusal)
    return DeleteShareGroupOffsetsResponse(
        responses=[result(topic.topic_name, deleted, first) for topic in request.topics]
    )
