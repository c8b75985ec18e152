"""AlterShareGroupOffsets (key 91), version 0: where a share group without members begins again.

Needs READ on the group and on each topic. What was stored of the partitions is replaced. A group that does not exist is
created. Source: docs/spec/share-groups.md#s2-8
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.groups.share.state import Pair, StateRequest, alter_offsets, require_empty
from odradek.broker.shares.leader import group_state
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from odradek.protocol.struct import ZERO_UUID

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.broker.shares.leader.group_state import Refusals
    from odradek.protocol.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest


def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: RequestContext, broker: Broker
) -> AlterShareGroupOffsetsResponse | Deferred[AlterShareGroupOffsetsResponse]:
    broker.shares.require_enabled()
    group_id = request.group_id
    context.require(Operation.READ, ResourceType.GROUP, group_id)
    if group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    shard = broker.groups.shard_for(group_id)
    shard.look(lambda core: require_empty(core.registry, group_id, may_be_missing=True))
    refused: dict[str, KafkaError] = {}
    wanted: dict[Pair, int] = {}
    image = broker.metadata.image
    for topic in request.topics:
        try:
            context.require(Operation.READ, ResourceType.TOPIC, topic.topic_name)
        except KafkaError as error:
            refused[topic.topic_name] = error
            continue
        known = image.topics.get(topic.topic_name)
        for partition in topic.partitions:
            if known is not None and 0 <= partition.partition_index < len(known.partitions):
                wanted[known.topic_id, partition.partition_index] = partition.start_offset

    def code_of(name: str, topic_id: bytes, index: int, refusals: Refusals) -> tuple[ErrorCode, str | None]:
        if name in refused:
            return refused[name].code, refused[name].message
        if (topic_id, index) not in wanted:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        error = refusals.get((topic_id, index))
        return (ErrorCode.NONE, None) if error is None else (error.code, error.message)

    def response(refusals: Refusals) -> AlterShareGroupOffsetsResponse:
        topics = []
        for topic in request.topics:
            known = image.topics.get(topic.topic_name)
            topic_id = ZERO_UUID if known is None or topic.topic_name in refused else known.topic_id
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

    if not wanted:
        return response({})

    def recorded(asked: StateRequest) -> AlterShareGroupOffsetsResponse | Deferred[AlterShareGroupOffsetsResponse]:
        return group_state.once_recorded(group_state.begin(broker, group_id, asked), response)

    return group_state.once_recorded(
        shard.submit(lambda core, now_ms: alter_offsets(core.registry, group_id, wanted, now_ms)), recorded
    )
