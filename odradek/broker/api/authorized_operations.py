"""The bit sets in which responses list the operations that a client may perform: bit n is the operation numbered n."""

from collections.abc import Mapping

from odradek.broker.api.authorization import Operation, ResourceType
from odradek.broker.api.context import RequestContext
from odradek.protocol.errors import KafkaError

NOT_ASKED_FOR = -(2**31)  # what the fields hold when the request did not want them

# The operations that mean anything for a kind of resource. Source: Kafka 4.3.1, observed (3576, 3400, 8096).
OPERATIONS_ON: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def authorized_operations(context: RequestContext, resource: ResourceType, name: str) -> int:
    """For a resource of a kind that OPERATIONS_ON knows."""
    return sum(
        1 << operation.value for operation in OPERATIONS_ON[resource] if is_allowed(context, operation, resource, name)
    )


def is_allowed(context: RequestContext, operation: Operation, resource: ResourceType, name: str) -> bool:
    try:
        context.require(operation, resource, name)
    except KafkaError:
        return False
    return True
