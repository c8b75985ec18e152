"""ShareAcknowledge (key 79), versions 1-2: a member of a share group accepts, releases or rejects its records.

v1: the first stable version. v2: renewal of locks (KIP-1222), lock timeout in the answer. Needs READ on the group and
on each topic. Answered when everything is stored. Source: docs/spec/share-groups.md#s1-6, #s1-11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.fetch.request import node_endpoints
from odradek.broker.handlers.shares.share_fetch import session_key
from odradek.broker.runtime.delayed import Deferred, all_of
from odradek.broker.shares.core.sessions import FINAL_EPOCH
from odradek.broker.shares.leader.acknowledging import AcknowledgedPartition, Result, acknowledge
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from odradek.protocol.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.share_acknowledge_request import ShareAcknowledgeRequest


def share_acknowledge(
    request: ShareAcknowledgeRequest, context: RequestContext, broker: Broker
) -> ShareAcknowledgeResponse | Deferred[ShareAcknowledgeResponse]:
    shares = broker.shares
    shares.require_enabled()
    key = session_key(request.group_id, request.member_id, context)
    session = shares.sessions.acknowledge(key, request.share_session_epoch)
    named = [
        AcknowledgedPartition(
            TopicIdPartition(topic.topic_id, partition.partition_index), partition.acknowledgement_batches
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    results = acknowledge(named, key, may_renew=request.is_renew_ack, context=context, broker=broker)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.end_session(session)

    def failed(index: int, error: KafkaError) -> Result:
        return Result(error.code, error.message)

    def response(given: Sequence[Result]) -> ShareAcknowledgeResponse:
        topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
        leaders: dict[int, None] = {}
        for partition, result in zip(results, given, strict=True):
            leader = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
            if result.leader is not None:
                leader_id = -1 if result.leader.leader is None else result.leader.leader
                leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=result.leader.leader_epoch)
                leaders[leader_id] = None
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = ShareAcknowledgeTopicResponse(topic_id=partition.topic_id)
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.partition,
                    error_code=result.code.value,
                    error_message=result.message,
                    current_leader=leader,
                )
            )
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=shares.settings.lock_duration_ms(key.group_id)
            if context.api_version >= 2
            else 0,
            responses=list(topics.values()),
            node_endpoints=(
                node_endpoints(NodeEndpoint, broker.metadata.image, leaders, context.connection) if leaders else []
            ),
        )

    return all_of(list(results.values()), failed, response)
