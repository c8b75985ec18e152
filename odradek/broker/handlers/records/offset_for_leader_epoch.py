"""OffsetForLeaderEpoch (key 23), versions 2-4: the end of a leader epoch, from which a reader finds where logs diverge.

v3: replica id. v4: flexible. Needs CLUSTER_ACTION on the cluster, or DESCRIBE on each topic. An unknown epoch is
answered with -1, -1 and no error.
Source: KIP-101, KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit
from odradek.broker.partitions.reading import NO_EPOCH, check_leader_epoch
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
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
    may_all = is_allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    epoch_end(context, broker, topic.topic, partition, may_all=may_all)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def epoch_end(
    context: RequestContext, broker: Broker, topic: str, asked: OffsetForLeaderPartition, *, may_all: bool
) -> EpochEndOffset:
    """may_all: whether the right to each topic need not be looked at"""
    answer = EpochEndOffset(partition=asked.partition)
    known_epoch = asked.current_leader_epoch
    try:
        if not may_all:
            context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        partition = broker.partitions.get(topic, asked.partition)
        check_leader_epoch(partition, None if known_epoch == NO_EPOCH else known_epoch)
    except KafkaError as refusal:
        answer.error_code = refusal.code.value
        return answer
    if asked.leader_epoch != NO_EPOCH:
        end = partition.log.end_offset_for_epoch(asked.leader_epoch)
        if end is not None:
            answer.leader_epoch, answer.end_offset = end
    return answer
