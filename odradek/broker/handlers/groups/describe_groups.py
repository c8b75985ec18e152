"""DescribeGroups (key 15), versions 0-6: state, protocol and members of classic groups.

v3: authorized operations. v4: static members. v5: flexible. v6: GROUP_ID_NOT_FOUND with a message, where there was a
group in state Dead. Needs DESCRIBE on each group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import authorized_operations
from odradek.broker.runtime.slices import sliced
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.slices import Steps
    from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest


@sliced
def describe_groups(
    request: DescribeGroupsRequest, context: RequestContext, broker: Broker
) -> Steps[DescribeGroupsResponse]:
    groups = []
    for group_id in request.groups:
        group = describe(group_id, context, broker)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE.value:
            group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group_id)
        groups.append(group)
        yield
    return DescribeGroupsResponse(groups=groups)


def describe(group_id: str, context: RequestContext, broker: Broker) -> DescribedGroup:
    version = context.api_version
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        return broker.groups.shard_for(group_id).look(lambda core: core.describe_group(group_id, version=version))
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code.value)
