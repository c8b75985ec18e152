"""DescribeConfigs (key 32), versions 1-4: settings of topics, brokers, loggers, groups, client metrics subscriptions.

v1: sources and synonyms. v3: documentation and types. v4: flexible. Needs DESCRIBE_CONFIGS on the topic, the group or
the cluster. A group or subscription need not exist to be described.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.broker.configuration.config_description import (
    Described,
    Source,
    chosen,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from odradek.broker.configuration.loggers import PythonLoggers, level_name
from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.configuration.settings import InvalidSetting
from odradek.broker.metadata.topic_names import check_topic_name
from odradek.broker.runtime.slices import sliced
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.slices import Steps
    from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource

UNKNOWN_KIND = 0
NOT_TOLD = ""  # what the documentation is where nobody may ask for it


@sliced
def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext, broker: Broker
) -> Steps[DescribeConfigsResponse]:
    known = {one.value for one in ConfigResourceType}
    unknown = [resource.resource_type for resource in request.resources if resource.resource_type not in known]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown[0]}")
    results = []
    for one in request.resources:
        result = _result(one, request, context, broker)
        results.append(result)
        for _ in result.configs or (None,):
            yield
    return DescribeConfigsResponse(results=results)


def _result(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext, broker: Broker
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        described = _describe(ConfigResourceType(resource.resource_type), resource.resource_name, context, broker)
    except KafkaError as error:
        result.error_code = error.code.value
        result.error_message = error.message or ""
        return result
    is_logger = resource.resource_type == ConfigResourceType.BROKER_LOGGER.value
    documentation: dict[str, str] = {}
    if request.include_documentation and not is_logger:
        from odradek.broker.configuration.settings_documentation import documentation_of

        documentation = documentation_of(ConfigResourceType(resource.resource_type))
    result.configs = [
        DescribeConfigsResourceResult(
            name=one.name,
            value=one.value,
            read_only=one.is_read_only,
            config_source=one.source.value,
            is_sensitive=one.is_sensitive,
            synonyms=_synonyms(one) if request.include_synonyms else [],
            config_type=UNKNOWN_KIND if one.kind is None else one.kind.value,
            documentation=NOT_TOLD if is_logger else documentation.get(one.name),
        )
        for one in chosen(described, resource.configuration_keys)
    ]
    return result


def _synonyms(described: Described) -> list[DescribeConfigsSynonym]:
    return [
        DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source.value) for one in described.synonyms
    ]


def _describe(
    resource_type: ConfigResourceType, name: str, context: RequestContext, broker: Broker
) -> Iterable[Described]:
    image, config, node_id = broker.metadata.image, broker.config, broker.metadata.node.node_id
    match resource_type:
        case ConfigResourceType.TOPIC:
            context.require(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
            try:
                check_topic_name(name)
            except InvalidSetting as error:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
            if name not in image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(config, image.topic_configs(name))
        case ConfigResourceType.BROKER:
            context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
            if not name:
                return describe_broker_defaults(config)
            _check_this_broker(name, node_id, f"expected {node_id} or empty string,")
            return describe_broker(config)
        case ConfigResourceType.BROKER_LOGGER:
            context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_this_broker(name, node_id, f"expected {node_id}")
            levels = PythonLoggers().levels()
            return [
                Described(logger, level_name(level), Source.BROKER_LOGGER, None) for logger, level in levels.items()
            ]
        case ConfigResourceType.CLIENT_METRICS:
            context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
            if not name:
                what = "Client metrics subscription name must not be empty"
                raise KafkaError(ErrorCode.INVALID_REQUEST, what)
            return describe_client_metrics(image.configs.get((resource_type, name), {}))
        case ConfigResourceType.GROUP:
            context.require(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, name)
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return describe_group(config, image.configs.get((resource_type, name), {}))


def _check_this_broker(name: str, node_id: int, expected: str) -> None:
    try:
        number = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if number != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {expected} but received {name}")
