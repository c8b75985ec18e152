"""ListConfigResources (key 74), versions 0-1: the names of resources that can have settings of their own.

v0: client metrics subscriptions only (it was called ListClientMetricsResources). v1: types to choose from, all by
default. Needs DESCRIBE_CONFIGS on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_config_resources_response import ConfigResource, ListConfigResourcesResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest

TYPES_SINCE = 1
ALL = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)


def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext, broker: Broker
) -> ListConfigResourcesResponse:
    context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    image = broker.metadata.image
    wanted = set(request.resource_types)
    if context.api_version < TYPES_SINCE:
        wanted = {ConfigResourceType.CLIENT_METRICS.value}
    if not wanted:
        wanted = {one.value for one in ALL}
    if not wanted <= {one.value for one in ALL}:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type.value)
            for resource_type in ALL
            if resource_type.value in wanted
            for name in _names(image, resource_type)
        ]
    )


def _names(image: MetadataImage, resource_type: ConfigResourceType) -> list[str]:
    match resource_type:
        case ConfigResourceType.TOPIC:
            return list(image.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in image.brokers]
        case _:
            return [name for of_type, name in image.configs if of_type is resource_type]
