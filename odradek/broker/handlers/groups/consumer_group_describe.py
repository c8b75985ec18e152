"""ConsumerGroupDescribe (key 69), versions 0-1: epochs, members and assignments of consumer groups (KIP-848).

v1: whether a member speaks the classic or the consumer protocol. Needs DESCRIBE on each group and on all topics that
its members are subscribed to or assigned. Source: docs/spec/consumer-groups.md#s1-2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import authorized_operations, is_allowed
from odradek.broker.groups.consumer.describe import describe_consumer_group
from odradek.broker.handlers.groups.consumer_group_heartbeat import require_consumer_protocol
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext, broker: Broker
) -> ConsumerGroupDescribeResponse:
    require_consumer_protocol(broker)
    groups = [_described(group_id, context, broker) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE.value:
                group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=groups)


def _described(group_id: str, context: RequestContext, broker: Broker) -> DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = broker.groups.shard_for(group_id).look(lambda core: describe_consumer_group(core.registry, group_id))
        _require_topics(group, context)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code.value, error_message=error.message)
    return group


def _require_topics(group: DescribedGroup, context: RequestContext) -> None:
    names = {
        name
        for member in group.members
        for name in (
            *member.subscribed_topic_names,
            *(topic.topic_name for topic in member.assignment.topic_partitions),
            *(topic.topic_name for topic in member.target_assignment.topic_partitions),
        )
    }
    if not all(is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
        what = "The group has described topic(s) that the client is not authorized to describe."
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, what)
