"""Settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from odradek.client.administration.requests import AdminRequests
from odradek.client.common.errors import check
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResponse, DescribeConfigsResult
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse


class ConfigType(Enum):
    """The kinds of resources that have settings. The values are protocol codes."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource with settings. `name` is the name of a topic or group, or the id of a broker; "" means all brokers."""

    type: ConfigType
    name: str


class AlterOperation(Enum):
    """The operation of a `ConfigChange`. APPEND adds entries to a list, and SUBTRACT removes them."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change to one setting. `value` is None for DELETE, which restores the default."""

    operation: AlterOperation
    name: str
    value: str | None = None


# The sources of a setting's value, keyed by protocol code.
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "CLIENT_METRICS_CONFIG",
    8: "GROUP_CONFIG",
}
DEFAULTS = frozenset({"DEFAULT_CONFIG", "STATIC_BROKER_CONFIG"})  # sources of values not set at run time
CONFIGS_OF_BROKERS = frozenset({ConfigType.BROKER, ConfigType.BROKER_LOGGER})


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting and its value. `value` is None if the setting is sensitive or unset. `source` is Kafka's name for the
    origin of the value, such as DEFAULT_CONFIG."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool

    @property
    def is_dynamic(self) -> bool:
        """True if the value was set at run time, so that `alter_configs` can remove it."""
        return self.source not in DEFAULTS


async def describe_configs(requests: AdminRequests, resource: ConfigResource) -> list[ConfigEntry]:
    request = DescribeConfigsRequest(resources=[_described_resource(resource)])
    node_id = _broker_id(resource)
    if node_id is None:
        answer = await requests.ask_any_broker(request, DescribeConfigsResponse)
    else:
        answer = await requests.ask_broker(node_id, request, DescribeConfigsResponse)
    (result,) = answer.results
    return _entries(resource, result)


async def describe_topic_configs(requests: AdminRequests, topics: Iterable[str]) -> dict[str, list[ConfigEntry]]:
    """Returns the settings of all these topics, fetched in one request. Raises ClientError for the first topic whose
    settings cannot be read."""
    resources = [ConfigResource(ConfigType.TOPIC, topic) for topic in topics]
    request = DescribeConfigsRequest(resources=[_described_resource(each) for each in resources])
    answer = await requests.ask_any_broker(request, DescribeConfigsResponse)
    return {
        result.resource_name: _entries(ConfigResource(ConfigType.TOPIC, result.resource_name), result)
        for result in answer.results
    }


def _described_resource(resource: ConfigResource) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=resource.type.value, resource_name=resource.name, configuration_keys=None
    )


def _entries(resource: ConfigResource, result: DescribeConfigsResult) -> list[ConfigEntry]:
    check(result.error_code, _resource_name(resource), result.error_message)
    return [
        ConfigEntry(
            each.name,
            each.value,
            SOURCES.get(each.config_source, f"UNKNOWN_{each.config_source}"),
            each.read_only,
            each.is_sensitive,
        )
        for each in sorted(result.configs, key=lambda config: config.name)
    ]


async def alter_configs(
    requests: AdminRequests, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool
) -> None:
    for resource, edits in changes.items():
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource.type.value,
                    resource_name=resource.name,
                    configs=[
                        AlterableConfig(name=name, config_operation=operation.value, value=value)
                        for operation, name, value in edits
                    ],
                )
            ],
            validate_only=validate_only,
        )
        node_id = _broker_id(resource)
        if node_id is None:
            answer = await requests.ask_any_broker(request, IncrementalAlterConfigsResponse)
        else:
            answer = await requests.ask_broker(node_id, request, IncrementalAlterConfigsResponse)
        for result in answer.responses:
            check(result.error_code, _resource_name(resource), result.error_message)


def _broker_id(resource: ConfigResource) -> int | None:
    """Returns the broker that must handle the request, or None if any broker can. Only the broker itself can return or
    change its own settings."""
    return int(resource.name) if resource.type in CONFIGS_OF_BROKERS and resource.name else None


def _resource_name(resource: ConfigResource) -> str:
    kind = resource.type.name.lower().replace("_", " ")
    return f"the settings of the {kind} {resource.name!r}" if resource.name else "the settings that all brokers share"
