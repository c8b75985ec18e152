"""ShareGroupDescribe (key 77), version 1: epochs, members and assignments of share groups.

Needs DESCRIBE on each group and on all topics that its members are assigned. Source: docs/spec/share-groups.md#s2-5
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import authorized_operations, is_allowed
from odradek.broker.groups.share.describe import describe_share_group
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest


def share_group_describe(
    request: ShareGroupDescribeRequest, context: RequestContext, broker: Broker
) -> ShareGroupDescribeResponse:
    broker.shares.require_enabled()
    groups = [_described(group_id, context, broker) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE.value:
                group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group.group_id)
    return ShareGroupDescribeResponse(groups=groups)


def _described(group_id: str, context: RequestContext, broker: Broker) -> DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = broker.groups.shard_for(group_id).look(lambda core: describe_share_group(core.registry, group_id))
        names = {each.topic_name for member in group.members for each in member.assignment.topic_partitions}
        if not all(is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
            what = "The group has described topic(s) that the client is not authorized to describe."
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, what)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code.value, error_message=error.message)
    return group
