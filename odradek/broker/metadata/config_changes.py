"""Decides on AlterConfigs and IncrementalAlterConfigs requests based on the metadata image, with Kafka's error codes
and messages.

A change maps setting names to new values. The value None removes a setting. Only settings whose value changes are
recorded. Source: Kafka 4.3.1's responses to the requests in tests/spec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.configuration.resources import (
    ConfigOperation,
    ConfigResourceType,
    SettingChange,
)
from odradek.broker.configuration.settings import ValueType
from odradek.broker.metadata.config_rules import (
    check_broker_change,
    check_client_metrics,
    check_group,
    check_min_isr_under_elr,
    check_topic,
    settings_of,
)
from odradek.broker.metadata.image import ConfigResource, MetadataImage
from odradek.broker.metadata.records import Decision, require_one_batch
from odradek.protocol.errors import ErrorCode, KafkaError, without_traceback
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.broker.runtime.slices import Steps

Result = tuple[int, str, KafkaError | None]  # resource type, resource name, error
RESOURCES_WITH_LISTS: Final = frozenset({ConfigResourceType.BROKER, ConfigResourceType.TOPIC})


@dataclass(frozen=True, slots=True)
class ResourceChanges:
    """The requested changes to one resource. `resource_type` is the number in the request, and may be an unknown
    type."""

    resource_type: int
    resource_name: str
    changes: Sequence[SettingChange]


def alter_configs(
    image: MetadataImage,
    config: BrokerConfig,
    resources: Sequence[ResourceChanges],
    *,
    node_id: int,
    is_incremental: bool,
    rules: KafkaRules = NEWEST,
) -> Steps[Decision[list[Result]]]:
    """Decides on the changes to each resource separately. Unless `is_incremental` is set, the changes replace all
    settings of the resource.

    Raises POLICY_VIOLATION if the changes need too many records. As in Kafka, this error refuses the whole request.

    rules  the rules of the emulated release; settings that this release does not have are refused
    """
    seen = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results: list[Result] = []
    records: list[Message] = []
    for resource in resources:
        yield
        key = resource.resource_type, resource.resource_name
        try:
            if seen[key] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            records += _alter(image, config, resource, node_id, is_incremental, rules)
        except KafkaError as error:
            results.append((*key, without_traceback(error)))
        else:
            results.append((*key, None))
        require_one_batch(records)
    return Decision(results, tuple(records))


def check_changes(changes: Sequence[SettingChange]) -> None:
    """Raises KafkaError if a change is invalid for every type of resource."""
    nulls = [one.name for one in changes if one.value is None and one.operation != ConfigOperation.DELETE.value]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    if len({one.name for one in changes}) < len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    known = {operation.value for operation in ConfigOperation}
    if any(one.operation not in known for one in changes):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka 4.3.1 returns the same error


def _alter(
    image: MetadataImage,
    config: BrokerConfig,
    resource: ResourceChanges,
    node_id: int,
    is_incremental: bool,
    rules: KafkaRules,
) -> list[Message]:
    key = _resource(resource, node_id, is_incremental)
    check_changes(resource.changes)
    current = image.configs.get(key, {})
    if is_incremental:
        changed = _incremental(config, key, current, resource.changes)
    else:
        given = {one.name: one.value for one in resource.changes}
        changed = dict.fromkeys(current.keys() - given.keys()) | given
    after: dict[str, str] = {**current}
    for name, value in changed.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    match key[0]:
        case ConfigResourceType.TOPIC:
            check_topic(image, key[1], after, rules)
        case ConfigResourceType.BROKER:
            check_broker_change(config, changed, is_default=not key[1])
            check_min_isr_under_elr(image, changed, is_default=not key[1])
        case ConfigResourceType.GROUP:
            check_group(config, key[1], after, rules)
        case ConfigResourceType.CLIENT_METRICS:
            check_client_metrics(key[1], after)
    return [
        ConfigRecord(resource_type=key[0].value, resource_name=key[1], name=name, value=value)
        for name, value in changed.items()
        if value != current.get(name)
    ]


def _resource(resource: ResourceChanges, node_id: int, is_incremental: bool) -> ConfigResource:
    """Returns the requested resource's key. Raises INVALID_REQUEST."""
    name = resource.resource_name
    match resource.resource_type:
        case ConfigResourceType.TOPIC.value:
            return ConfigResourceType.TOPIC, name
        case ConfigResourceType.BROKER.value:
            return ConfigResourceType.BROKER, str(this_node(name, node_id, "broker")) if name else ""
        case ConfigResourceType.CLIENT_METRICS.value:
            return ConfigResourceType.CLIENT_METRICS, name
        case ConfigResourceType.GROUP.value:
            return ConfigResourceType.GROUP, name
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def this_node(name: str, node_id: int, what: str) -> int:
    """Returns the node id in `name`. Raises INVALID_REQUEST unless it is this node's id. `what` selects the error
    message."""
    try:
        number = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if number != node_id:
        words = (
            f"Unexpected broker id, expected {node_id},"
            if what == "broker"
            else f"Unexpected node id. Expected {node_id},"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{words} but received {number}")
    return number


def _incremental(
    config: BrokerConfig, key: ConfigResource, current: Mapping[str, str], changes: Sequence[SettingChange]
) -> dict[str, str | None]:
    changed: dict[str, str | None] = {}
    for change in changes:
        operation = ConfigOperation(change.operation)
        if operation is ConfigOperation.SET:
            changed[change.name] = change.value
        elif operation is ConfigOperation.DELETE:
            changed[change.name] = None
        else:
            changed[change.name] = _list_with(config, key, current, change, operation)
    return changed


def _list_with(
    config: BrokerConfig,
    key: ConfigResource,
    current: Mapping[str, str],
    change: SettingChange,
    operation: ConfigOperation,
) -> str:
    """Returns the value of a list setting with the change's values added or removed. If the setting has no value, the
    change is applied to its default.

    As in Kafka, only settings of brokers and topics can be changed in this way, because Kafka's controller does not
    know other settings' types. Raises INVALID_CONFIG for other settings.
    """
    setting = settings_of(key[0]).get(change.name)
    if setting is None or setting.kind is not ValueType.LIST or key[0] not in RESOURCES_WITH_LISTS:
        if key[0] is ConfigResourceType.BROKER:
            what = f"Config value {operation.name.lower()} is not allowed for config key: {change.name}"
        else:
            what = f"Can't {operation.name} to key {change.name} because its type is not LIST."
        raise KafkaError(ErrorCode.INVALID_CONFIG, what)
    text = current.get(change.name)
    if text is None:
        is_topic = key[0] is ConfigResourceType.TOPIC
        text = (
            config.topic_defaults().get(change.name)
            if is_topic
            else config.given_settings.get(change.name, setting.default)
        )
    values = [value for value in (text or "").split(",") if value]
    for value in (change.value or "").split(","):
        if operation is ConfigOperation.SUBTRACT:
            values = [one for one in values if one != value]
        elif value not in values:
            values.append(value)
    return ",".join(values)
