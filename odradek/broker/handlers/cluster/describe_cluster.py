"""DescribeCluster (key 60), versions 0-2: the brokers, at their addresses for the listener that the client used.

v0: flexible. v1: endpoint type (brokers or controllers). v2: fenced brokers on demand. Needs DESCRIBE on the cluster
for the cluster's authorized operations only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import NOT_ASKED_FOR, cluster_operations
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest

BROKERS, CONTROLLERS = 1, 2


def describe_cluster(
    request: DescribeClusterRequest, context: RequestContext, broker: Broker
) -> DescribeClusterResponse:
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
            broker_id=image.broker_id,
            host=endpoint[0],
            port=endpoint[1],
            rack=image.rack,
            is_fenced=image.is_fenced,
        )
        for image in broker.metadata.image.brokers.values()
        if (request.include_fenced_brokers or not image.is_fenced)
        and (endpoint := context.connection.endpoint(image.endpoints)) is not None
    ]
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.node.node_id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )
