"""Handlers for configs: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import RequestContext, authorization_error
from odradek.broker.api.long_requests import AnswerEntries
from odradek.broker.configuration.config_description import (
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
    select_settings,
)
from odradek.broker.configuration.resources import (
    ConfigOperation,
    ConfigResourceType,
    PythonLoggers,
    SettingChange,
    alter_levels,
    level_name,
)
from odradek.broker.configuration.settings import InvalidSetting, Setting
from odradek.broker.metadata import config_changes
from odradek.broker.metadata.config_changes import ResourceChanges, Result, check_changes, this_node
from odradek.broker.metadata.config_rules import settings_of
from odradek.broker.metadata.records import Decision
from odradek.broker.metadata.topic_names import check_topic_name
from odradek.broker.runtime.slices import Steps, done_in_slices, made_of_each, sliced
from odradek.broker.security.tls.settings import UnusableTls
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError, without_traceback
from odradek.protocol.messages import alter_configs_response, incremental_alter_configs_response
from odradek.protocol.messages.alter_configs_response import AlterConfigsResponse
from odradek.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.list_config_resources_response import ConfigResource, ListConfigResourcesResponse

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.security.tls.certificates import ListenerCertificates
    from odradek.protocol.messages.alter_configs_request import AlterConfigsRequest
    from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
    from odradek.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
    from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest

CLUSTER_RESOURCES = frozenset(
    kind.value
    for kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS)
)
FIRST_VERSION_WITH_TYPES = 1
ALL = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)
UNKNOWN_KIND = 0
R = TypeVar(
    "R",
    alter_configs_response.AlterConfigsResourceResponse,
    incremental_alter_configs_response.AlterConfigsResourceResponse,
)
NO_DOCUMENTATION = ""  # loggers have no documentation


@sliced
def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[DescribeConfigsResponse]:
    """Handles DescribeConfigs (key 32), versions 1-4, which returns the settings of topics, brokers, loggers, groups
    and client metrics subscriptions.

    v1 adds sources and synonyms. v3 adds documentation and types. v4 is flexible. Needs DESCRIBE_CONFIGS on the topic,
    the group or the cluster. A group or subscription can be described even if it does not exist.
    """
    known_types = {one.value for one in ConfigResourceType}
    unknown = [resource.resource_type for resource in request.resources if resource.resource_type not in known_types]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown[0]}")
    results, entries = [], AnswerEntries()
    for one in request.resources:
        result = _result(one, request, context, broker)
        results.append(result)
        entries.add(1 + len(result.configs))
        for _ in result.configs or (None,):
            yield
    return DescribeConfigsResponse(results=results)


def _result(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext, broker: HandlerBroker
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        described = _describe(ConfigResourceType(resource.resource_type), resource.resource_name, context, broker)
    except KafkaError as error:
        result.error_code = error.code.value
        result.error_message = error.message or ""
        return result
    is_logger = resource.resource_type == ConfigResourceType.BROKER_LOGGER.value
    rows: Mapping[str, Setting] = {}
    if request.include_documentation:
        rows = settings_of(ConfigResourceType(resource.resource_type))
    result.configs = [
        DescribeConfigsResourceResult(
            name=one.name,
            value=one.value,
            read_only=one.is_read_only,
            config_source=one.source.value,
            is_sensitive=one.is_sensitive,
            synonyms=_synonyms(one) if request.include_synonyms else [],
            config_type=UNKNOWN_KIND if one.kind is None else one.kind.value,
            documentation=NO_DOCUMENTATION if is_logger else rows[one.name].text if one.name in rows else None,
        )
        for one in select_settings(described, resource.configuration_keys)
    ]
    return result


def _synonyms(described: DescribedConfig) -> list[DescribeConfigsSynonym]:
    return [
        DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source.value) for one in described.synonyms
    ]


def _describe(
    resource_type: ConfigResourceType, name: str, context: RequestContext, broker: HandlerBroker
) -> Iterable[DescribedConfig]:
    image, config, node_id = broker.metadata.image, broker.config, broker.node_id
    match resource_type:
        case ConfigResourceType.TOPIC:
            context.require(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
            try:
                check_topic_name(name)
            except InvalidSetting as error:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
            if name not in image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(config, image.topic_configs(name), broker.rules)
        case ConfigResourceType.BROKER:
            context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
            if not name:
                return describe_broker_defaults(config, broker.rules)
            _check_this_broker(name, node_id, f"expected {node_id} or empty string,")
            if node_id != config.node_id:
                config = config.of_node(node_id, image.configs.get((resource_type, str(node_id)), {}), broker.rules)
            return describe_broker(config, broker.rules)
        case ConfigResourceType.BROKER_LOGGER:
            context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_this_broker(name, node_id, f"expected {node_id}")
            levels = PythonLoggers().levels()
            return [
                DescribedConfig(logger, level_name(level), ConfigSource.BROKER_LOGGER, None)
                for logger, level in levels.items()
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
            return describe_group(config, image.configs.get((resource_type, name), {}), broker.rules)


def _check_this_broker(name: str, node_id: int, expected: str) -> None:
    try:
        number = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if number != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {expected} but received {name}")


async def alter_configs(
    request: AlterConfigsRequest, context: RequestContext, broker: HandlerBroker
) -> AlterConfigsResponse:
    """Handles AlterConfigs (key 33), versions 0-2, which replaces all settings of a resource.

    v2 is flexible. The API has been superseded by IncrementalAlterConfigs, but is still used. Needs ALTER_CONFIGS on
    the topic, the group or the cluster. The response is sent once the settings are in effect.
    """
    resources = (
        ResourceChanges(
            one.resource_type,
            one.resource_name,
            [SettingChange(config.name, ConfigOperation.SET.value, config.value) for config in one.configs],
        )
        for one in request.resources
    )
    entry = alter_configs_response.AlterConfigsResourceResponse
    entries = await _alter(resources, context, broker, entry, is_incremental=False, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=entries)


async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext, broker: HandlerBroker
) -> IncrementalAlterConfigsResponse:
    """Handles IncrementalAlterConfigs (key 44), versions 0-1, which sets, removes and extends individual settings
    (KIP-339).

    v1 is flexible. Needs ALTER_CONFIGS on the topic, the group or the cluster. The response is sent once the settings
    are in effect.
    """
    resources = (
        ResourceChanges(
            one.resource_type,
            one.resource_name,
            [SettingChange(config.name, config.config_operation, config.value) for config in one.configs],
        )
        for one in request.resources
    )
    entry = incremental_alter_configs_response.AlterConfigsResourceResponse
    entries = await _alter(resources, context, broker, entry, is_incremental=True, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=entries)


async def _alter(
    resources: Iterable[ResourceChanges],
    context: RequestContext,
    broker: HandlerBroker,
    entry: type[R],
    *,
    is_incremental: bool,
    validate_only: bool,
) -> list[R]:
    """Alters configs, and returns once all changes have taken effect. Results of changes that need not be recorded come
    first."""
    config, certificates, node_id = broker.config, broker.certificates, broker.node_id
    at_once, to_record = await done_in_slices(
        _decided_immediately(resources, context, broker, is_incremental, validate_only)
    )

    def turn(image: MetadataImage) -> Steps[Decision[list[Result]]]:
        decision = yield from config_changes.alter_configs(
            image, config, to_record, node_id=node_id, is_incremental=is_incremental, rules=broker.rules
        )
        return Decision(decision.response) if validate_only else decision

    results = await broker.metadata.submit(turn)
    if certificates is not None and not validate_only:
        certificates.refresh()  # needed even if no setting has changed, because the files may have changed
    return await done_in_slices(made_of_each(at_once + results, partial(_entry, entry)))


def _decided_immediately(
    resources: Iterable[ResourceChanges],
    context: RequestContext,
    broker: HandlerBroker,
    is_incremental: bool,
    validate_only: bool,
) -> Steps[tuple[list[Result], list[ResourceChanges]]]:
    """Refuses invalid changes and sets logger levels. Returns the results for these resources, and the changes that
    have to be recorded."""
    at_once: list[Result] = []
    to_record: list[ResourceChanges] = []
    config, certificates, node_id = broker.config, broker.certificates, broker.node_id
    for resource in resources:
        yield
        key: tuple[int, str] = (resource.resource_type, resource.resource_name)
        try:
            _require(context, *key, is_incremental=is_incremental)
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER.value and is_incremental:
                this_node(resource.resource_name, node_id, "node")
                check_changes(resource.changes)
                alter_levels(PythonLoggers(), resource.changes, validate_only=validate_only)
                at_once.append((*key, None))
            else:
                if certificates is not None and resource.resource_type == ConfigResourceType.BROKER.value:
                    _check_stores(certificates, config, resource, is_incremental)
                to_record.append(resource)
        except KafkaError as error:
            at_once.append((*key, without_traceback(error)))
    return at_once, to_record


def _check_stores(
    certificates: ListenerCertificates, config: BrokerConfig, resource: ResourceChanges, is_incremental: bool
) -> None:
    """Raises INVALID_REQUEST if the listeners cannot use the new keys and certificates."""
    if not resource.resource_name:
        return
    changed: dict[str, str | None] = {} if is_incremental else dict.fromkeys(config.recorded_broker)
    for change in resource.changes:
        changed[change.name] = change.value if change.operation == ConfigOperation.SET.value else None
    # As in Kafka, settings whose text does not change are not checked. See docs/spec/security.md#s1-4.
    changed = {name: text for name, text in changed.items() if config.current_text(name) != text}
    try:
        certificates.check(changed)
    except UnusableTls as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _require(context: RequestContext, resource_type: int, name: str, *, is_incremental: bool) -> None:
    if resource_type == ConfigResourceType.TOPIC.value:
        context.require(Operation.ALTER_CONFIGS, ResourceType.TOPIC, name)
    elif resource_type == ConfigResourceType.GROUP.value:
        context.require(Operation.ALTER_CONFIGS, ResourceType.GROUP, name)
    elif resource_type not in CLUSTER_RESOURCES or (
        resource_type == ConfigResourceType.BROKER_LOGGER.value and not is_incremental
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    elif not is_allowed(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        error = authorization_error(ResourceType.CLUSTER, context.api_key)
        # As in Kafka, the refusal has no message if the resource is a logger.
        raise KafkaError(error.code) if resource_type == ConfigResourceType.BROKER_LOGGER.value else error


def _entry(entry: type[R], result: Result) -> R:
    resource_type, resource_name, error = result
    return entry(
        error_code=0 if error is None else error.code.value,
        error_message=None if error is None else error.message,
        resource_type=resource_type,
        resource_name=resource_name,
    )


def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext, broker: HandlerBroker
) -> ListConfigResourcesResponse:
    """Handles ListConfigResources (key 74), versions 0-1, which returns the names of all topics and brokers, and of the
    groups and client metrics subscriptions that have settings.

    v0, which was called ListClientMetricsResources, lists only client metrics subscriptions. v1 adds a filter by type;
    the default is all types. Needs DESCRIBE_CONFIGS on the cluster.
    """
    context.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    image = broker.metadata.image
    requested_types = set(request.resource_types)
    if context.api_version < FIRST_VERSION_WITH_TYPES:
        requested_types = {ConfigResourceType.CLIENT_METRICS.value}
    if not requested_types:
        requested_types = {one.value for one in ALL}
    if not requested_types <= {one.value for one in ALL}:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type.value)
            for resource_type in ALL
            if resource_type.value in requested_types
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
