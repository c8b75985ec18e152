"""Bit fields in responses that list the operations that a client may perform. Bit n represents the operation with
number n."""

from collections.abc import Mapping
from typing import Final

from odradek.broker.api.context import Audit, RequestContext
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType

NOT_ASKED_FOR: Final = -(2**31)  # value of a bit field that the client has not requested

# The operations that apply to each type of resource. Source: Kafka 4.3.1, which returns the bit fields 3576, 3400 and
# 8096.
OPERATIONS_ON: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
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
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
}


def authorized_operations(context: RequestContext, resource: ResourceType, name: str) -> int:
    """Returns the bit field for a resource, whose type must be in OPERATIONS_ON."""
    return sum(
        1 << operation.value
        for operation in OPERATIONS_ON[resource]
        if is_allowed(context, operation, resource, name, Audit.QUIET)
    )


def cluster_operations(context: RequestContext) -> int:
    """Returns the bit field for the cluster, or 0 if the client lacks DESCRIBE (docs/spec/security.md#s3-3, 128)."""
    if not is_allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


def is_allowed(
    context: RequestContext, operation: Operation, resource: ResourceType, name: str, audit: Audit = Audit.CHECK
) -> bool:
    return context.authorizer.allows(context, operation, resource, name, audit=audit)
