"""OffsetForLeaderEpoch (key 23), versions 2-4: the end of a leader epoch, from which a reader finds where logs diverge.

v3: replica id. v4: flexible. Needs DESCRIBE on each topic. An unknown epoch is answered with -1, -1 and no error.
Source: KIP-101, KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.partitions.reading import NO_EPOCH, check_leader_epoch
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.offset_for_leader_epoch_request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )


def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext, broker: Broker
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[epoch_end(context, broker, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def epoch_end(context: RequestContext, broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    known_epoch = asked.current_leader_epoch
    try:
        context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        partition = broker.partitions.get(topic, asked.partition)
        check_leader_epoch(partition, None if known_epoch == NO_EPOCH else known_epoch)
    except KafkaError as refusal:
        answer.error_code = refusal.code.value
        return answer
    if asked.leader_epoch >= 0:
        end = partition.log.end_offset_for_epoch(asked.leader_epoch)
        if end is not None:
            answer.leader_epoch, answer.end_offset = end
    return answer
