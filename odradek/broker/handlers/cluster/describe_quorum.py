"""DescribeQuorum (key 55), versions 0-2: the one voter of the metadata log, which leads it.

v1: when a voter fetched last; for the leader that is now. v2: messages, directory ids and the voters' listeners.
Needs DESCRIBE on the cluster. Any other partition, also beside the one of the metadata log, is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest

NODES_SINCE = 2
UNKNOWN: Final = "This server does not host this topic-partition."


def describe_quorum(request: DescribeQuorumRequest, context: RequestContext, broker: Broker) -> DescribeQuorumResponse:
    context.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    asked = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in request.topics]
    if asked == [(CLUSTER_METADATA, [0])]:
        topics = [TopicData(topic_name=CLUSTER_METADATA, partitions=[_metadata_log(context, broker)])]
        # No listener: nobody else takes part in the quorum, and directories are not recorded at kraft.version 0.
        nodes = [Node(node_id=broker.metadata.node.node_id)] if context.api_version >= NODES_SINCE else []
        return DescribeQuorumResponse(topics=topics, nodes=nodes)
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=name,
                partitions=[
                    PartitionData(
                        partition_index=index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value,
                        error_message=UNKNOWN,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in asked
        ]
    )


def _metadata_log(context: RequestContext, broker: Broker) -> PartitionData:
    metadata = broker.metadata
    end_offset = metadata.image.next_offset
    leader = ReplicaState(
        replica_id=metadata.node.node_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=context.now_ms,
        last_caught_up_timestamp=context.now_ms,
    )
    return PartitionData(
        leader_id=metadata.node.node_id,
        leader_epoch=metadata.leader_epoch,
        high_watermark=end_offset,
        current_voters=[leader],
    )
