"""What AlterConfigs and IncrementalAlterConfigs share: permissions, loggers, the turn, the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import refused
from odradek.broker.configuration.loggers import PythonLoggers, alter_levels
from odradek.broker.configuration.resources import ConfigOperation, ConfigResourceType
from odradek.broker.metadata.config_changes import ResourceChanges, Result, alter_configs, check_changes, this_node
from odradek.broker.metadata.decision import Decision
from odradek.broker.runtime.delayed import Deferred
from odradek.broker.security.tls.settings import UnusableTls
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.metadata.cluster_metadata import ClusterMetadata
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.security.tls.certificates import ListenerCertificates

M = TypeVar("M")
OF_THE_CLUSTER = frozenset(
    kind.value
    for kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS)
)


def alter(
    resources: Sequence[ResourceChanges],
    context: RequestContext,
    metadata: ClusterMetadata,
    config: BrokerConfig,
    certificates: ListenerCertificates | None,
    *,
    is_incremental: bool,
    validate_only: bool,
    response_of: Callable[[list[Result]], M],
) -> Deferred[M]:
    """Answers once everything has taken effect: results of what was decided at once first, then the recorded ones."""
    at_once: list[Result] = []
    to_record: list[ResourceChanges] = []
    for resource in resources:
        key = resource.resource_type, resource.resource_name
        try:
            _require(context, *key, is_incremental=is_incremental)
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER.value and is_incremental:
                this_node(resource.resource_name, metadata.node.node_id, "node")
                check_changes(resource.changes)
                alter_levels(PythonLoggers(), resource.changes, validate_only=validate_only)
                at_once.append((*key, None))
            else:
                if certificates is not None and resource.resource_type == ConfigResourceType.BROKER.value:
                    _check_stores(certificates, config, resource, is_incremental)
                to_record.append(resource)
        except KafkaError as error:
            at_once.append((*key, error))

    def turn(image: MetadataImage) -> Decision[list[Result]]:
        node_id = metadata.node.node_id
        decision = alter_configs(image, config, to_record, node_id=node_id, is_incremental=is_incremental)
        return Decision(decision.response) if validate_only else decision

    def altered(results: list[Result]) -> M:
        if certificates is not None and not validate_only:
            certificates.refresh()  # also where the settings say what they said: the files may be others
        return response_of(at_once + results)

    return metadata.submit(turn).then(altered)


def _check_stores(
    certificates: ListenerCertificates, config: BrokerConfig, resource: ResourceChanges, is_incremental: bool
) -> None:
    """Raises INVALID_REQUEST for keys and certificates that listeners could not use."""
    if not resource.resource_name:
        return
    changed: dict[str, str | None] = {} if is_incremental else dict.fromkeys(config.recorded_broker)
    for change in resource.changes:
        changed[change.name] = change.value if change.operation == ConfigOperation.SET.value else None
    # As in Kafka, what stays as it is said is not looked at: docs/spec/security.md#s1-4
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
    elif resource_type not in OF_THE_CLUSTER or (
        resource_type == ConfigResourceType.BROKER_LOGGER.value and not is_incremental
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    elif not is_allowed(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        error = refused(ResourceType.CLUSTER, context.api_key)
        raise KafkaError(error.code) if resource_type == ConfigResourceType.BROKER_LOGGER.value else error  # as Kafka
