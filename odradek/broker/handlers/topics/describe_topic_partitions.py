"""DescribeTopicPartitions (key 75), version 0: topics page by page, in the order of their names (KIP-966).

Needs DESCRIBE on each topic. An empty list of topics means all. A page holds `response_partition_limit` partitions, at
most what `max.request.partition.size.limit` allows and at least one; topics that cannot be described do not count. The
cursor names the first partition of the next page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import NOT_ASKED_FOR, authorized_operations, is_allowed
from odradek.broker.metadata.image import NO_LEADER
from odradek.broker.metadata.topic_names import is_valid_topic_name
from odradek.broker.runtime.slices import in_order, sliced
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.internal_topics import INTERNAL_TOPICS
from odradek.protocol.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.image import PartitionImage, TopicImage
    from odradek.broker.runtime.slices import Steps
    from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest


@sliced
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext, broker: Broker
) -> Steps[DescribeTopicPartitionsResponse]:
    image = broker.metadata.image
    first_topic, first_partition = "", 0
    names: set[str] = set()
    for topic_asked in request.topics:
        names.add(topic_asked.name)
        yield
    if not request.topics:
        names.update(image.topics)
    cursor = request.cursor
    if cursor is not None:
        first_topic, first_partition = cursor.topic_name, cursor.partition_index
        if first_partition < 0 or (request.topics and first_topic not in names):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
    limit = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))

    response = DescribeTopicPartitionsResponse()
    for name in (yield from in_order(name for name in names if name >= first_topic)):
        yield
        first = first_partition if name == first_topic else 0
        if not is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            if request.topics:
                response.topics.append(failed_topic(context, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        topic = image.topics.get(name)
        if topic is None:
            valid = is_valid_topic_name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(failed_topic(context, name, code))
            continue
        partitions = topic.partitions[first : first + limit]
        response.topics.append(described_topic(context, topic, partitions))
        limit -= len(partitions)
        if first + len(partitions) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(partitions))
            break
    return response


def failed_topic(context: RequestContext, name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    is_hidden = code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribeTopicPartitionsResponseTopic(
        error_code=code.value,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=NOT_ASKED_FOR
        if is_hidden
        else authorized_operations(context, ResourceType.TOPIC, name),
    )


def described_topic(
    context: RequestContext, topic: TopicImage, partitions: list[PartitionImage]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=(ErrorCode.LEADER_NOT_AVAILABLE if partition.leader is None else ErrorCode.NONE).value,
                partition_index=partition.partition_id,
                leader_id=NO_LEADER if partition.leader is None else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.eligible_leader_replicas,
                last_known_elr=partition.last_known_elr,
            )
            for partition in partitions
        ],
        topic_authorized_operations=authorized_operations(context, ResourceType.TOPIC, topic.name),
    )
