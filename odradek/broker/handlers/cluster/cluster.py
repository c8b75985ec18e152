"""Handlers for the cluster and its quorum: DescribeCluster, DescribeQuorum and UnregisterController."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.api.authorized_operations import NOT_ASKED_FOR, cluster_operations
from odradek.broker.metadata.supported_features import METADATA_VERSION, METADATA_VERSION_UNREGISTERS_CONTROLLERS
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse
from odradek.protocol.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from odradek.protocol.messages.unregister_controller_response import UnregisterControllerResponse
from odradek.protocol.topic_partition import CLUSTER_METADATA

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
    from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
    from odradek.protocol.messages.unregister_controller_request import UnregisterControllerRequest

BROKERS, CONTROLLERS = 1, 2  # endpoint types
FIRST_VERSION_WITH_NODES = 2
UNKNOWN: Final = "This server does not host this topic-partition."


def describe_cluster(
    request: DescribeClusterRequest, context: RequestContext, broker: HandlerBroker
) -> DescribeClusterResponse:
    """Handles DescribeCluster (key 60), versions 0-2, which returns the brokers with their addresses on the client's
    listener.

    v0 is flexible. v1 adds the endpoint type (brokers or controllers). v2 can include fenced brokers. DESCRIBE on the
    cluster is only needed for the cluster's authorized operations.
    """
    if request.endpoint_type == CONTROLLERS:
        what = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, what)
    if request.endpoint_type != BROKERS:
        what = f"Unsupported endpoint type {request.endpoint_type}"
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, what)
    operations = NOT_ASKED_FOR
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(context)
    brokers = [
        DescribeClusterBroker(
            broker_id=image.broker_id, host=endpoint[0], port=endpoint[1], rack=image.rack, is_fenced=image.is_fenced
        )
        for image in broker.metadata.image.brokers.values()
        if (request.include_fenced_brokers or not image.is_fenced)
        and (endpoint := context.connection.endpoint(image.endpoints)) is not None
    ]
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.image.controller_for_clients(broker.metadata.node.node_id),
        brokers=brokers,
        cluster_authorized_operations=operations,
    )


def describe_quorum(
    request: DescribeQuorumRequest, context: RequestContext, broker: HandlerBroker
) -> DescribeQuorumResponse:
    """Handles DescribeQuorum (key 55), versions 0-2, which returns the metadata log's only voter, its leader.

    v1 adds the time of each voter's last fetch, which for the leader is the current time. v2 adds error messages,
    directory ids and the voters' listeners. Needs DESCRIBE on the cluster. If a request names any other partition, all
    of its partitions are reported as unknown.
    """
    context.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    requested = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in request.topics]
    if requested == [(CLUSTER_METADATA, [0])]:
        topics = [TopicData(topic_name=CLUSTER_METADATA, partitions=[_metadata_log(context, broker)])]
        # The response contains no listeners, because the quorum has no other node, and no directory id, because
        # directory ids are not recorded at kraft.version 0.
        nodes = [Node(node_id=broker.metadata.node.node_id)] if context.api_version >= FIRST_VERSION_WITH_NODES else []
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
            for name, indexes in requested
        ]
    )


def _metadata_log(context: RequestContext, broker: HandlerBroker) -> PartitionData:
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


def unregister_controller(
    request: UnregisterControllerRequest, context: RequestContext, broker: HandlerBroker
) -> UnregisterControllerResponse:
    """Handles UnregisterController (key 94), version 0, which removes a controller that has left the quorum
    permanently.

    Every request is refused, because this node is the only controller and therefore the active one. An active
    controller cannot unregister itself, and no controller is registered under any other id. Needs ALTER on the cluster.
    Source: docs/spec/kafka-4.4.md#s3-2.
    """
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    if request.controller_id == broker.metadata.node.node_id:
        what = "Controller cannot unregister itself while it is active."
        raise KafkaError(ErrorCode.INVALID_REQUEST, what)
    if broker.metadata.image.features.get(METADATA_VERSION, 0) < METADATA_VERSION_UNREGISTERS_CONTROLLERS:
        what = "The current MetadataVersion is too old to support controller unregistration."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, what)
    what = f"Controller ID {request.controller_id} is not currently registered."
    raise KafkaError(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, what)
