"""DescribeGroups (key 15), versions 0-6: state, protocol and members of classic groups.

v3: authorized operations. v4: static members. v5: flexible. v6: GROUP_ID_NOT_FOUND with a message, where there was a
group in state Dead. Needs DESCRIBE on each group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.authorization import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.context import RequestContext
    from protocol.messages.describe_groups_request import DescribeGroupsRequest

OPERATIONS_ON_GROUPS = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)


def describe_groups(request: DescribeGroupsRequest, context: RequestContext, broker: Broker) -> DescribeGroupsResponse:
    groups = [describe(group_id, context, broker) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE.value:
                group.authorized_operations = authorized_operations(group.group_id, context)
    return DescribeGroupsResponse(groups=groups)


def describe(group_id: str, context: RequestContext, broker: Broker) -> DescribedGroup:
    version = context.api_version
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        return broker.groups.shard_for(group_id).look(lambda core: core.describe_group(group_id, version=version))
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code.value)


def authorized_operations(group_id: str, context: RequestContext) -> int:
    """A bit for each operation that the client may do on the group, at the operation's number."""
    bits = 0
    for operation in OPERATIONS_ON_GROUPS:
        try:
            context.require(operation, ResourceType.GROUP, group_id)
        except KafkaError:
            continue
        bits |= 1 << operation.value
    return bits
