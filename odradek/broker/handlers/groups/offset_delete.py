"""OffsetDelete (key 47), version 0: deletes a group's offsets of some partitions.

Needs DELETE on the group and READ on each topic. For a consumer group with members, offsets of subscribed topics stay
(GROUP_SUBSCRIBED_TO_TOPIC). Answered when the tombstones are recorded.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from odradek.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred


def offset_delete(
    request: OffsetDeleteRequest, context: RequestContext, broker: Broker
) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
    context.require(Operation.DELETE, ResourceType.GROUP, request.group_id)
    accepted = OffsetDeleteRequest(group_id=request.group_id)
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in request.topics:
        image = broker.metadata.image.topics.get(topic.name)
        count = 0 if image is None else len(image.partitions)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            context.require(Operation.READ, ResourceType.TOPIC, topic.name)
        except KafkaError as error:
            count, code = 0, error.code
        existing = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
        missing = [
            OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code.value)
            for partition in topic.partitions
            if not 0 <= partition.partition_index < count
        ]
        if missing:
            refused.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name)).partitions += missing
        if existing:
            accepted.topics.append(OffsetDeleteRequestTopic(name=topic.name, partitions=existing))
    # Asked even when nothing is left: the group may be at fault, which then is the whole answer.
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return broker.groups.shard_for(request.group_id).submit(
        lambda core, _: core.delete_offsets(accepted), finish=partial(merged, refused)
    )


def merged(refused: dict[str, OffsetDeleteResponseTopic], answered: OffsetDeleteResponse) -> OffsetDeleteResponse:
    """As Kafka answers: one entry per topic, what was refused first; if nothing was, one per entry of the request."""
    if not refused:
        return answered
    for topic in answered.topics:
        known = refused.get(topic.name)
        if known is None:
            refused[topic.name] = topic
        else:
            known.partitions += topic.partitions
    return OffsetDeleteResponse(error_code=answered.error_code, topics=list(refused.values()))
