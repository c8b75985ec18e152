"""Handlers of consumer groups (KIP-848): heartbeats, and descriptions for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, RequestContext, authorization_error
from odradek.broker.groups.consumer.heartbeat import ConsumerHeartbeat, check_heartbeat
from odradek.broker.handlers.groups.group_administration import describe_groups_in_steps
from odradek.broker.metadata.supported_features import GROUP_VERSION
from odradek.broker.runtime.slices import Steps, sliced
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.runtime.waiting import NowOrLater
    from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
    from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


CONSUMER_PROTOCOL = "consumer"


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[ConsumerGroupHeartbeatResponse]:
    """Answers ConsumerGroupHeartbeat (key 68), versions 0-1: members of a consumer group (KIP-848) join, stay and
    leave.

    v1: regular expressions, and member ids that the client generates. Needs READ on the group and DESCRIBE on the named
    topics; topics that match a regular expression are omitted if the member lacks DESCRIBE. The response is sent when
    the decision is recorded. Not served below `group.version` 1, or without the protocol in
    `group.coordinator.rebalance.protocols`. Source: docs/spec/consumer-groups.md#s2
    """
    require_consumer_protocol(broker)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    names = dict.fromkeys(request.subscribed_topic_names or ())
    if False in [is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names]:
        raise authorization_error(ResourceType.TOPIC, context.api_key)
    check_heartbeat(request, context.api_version, broker.groups.settings.groups.consumer.assignors)
    beat = ConsumerHeartbeat(
        request=request,
        member_id=request.member_id or broker.groups.plain_member_id(),
        client_id=context.client_id or "",
        client_host=f"/{context.connection.client_host}",
        may_see=lambda name: is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name, Audit.PROBE),
    )
    return broker.groups.shard_for(request.group_id).submit(lambda core, now_ms: core.consumer_heartbeat(beat, now_ms))


def require_consumer_protocol(broker: HandlerBroker) -> None:
    """Raises UNSUPPORTED_VERSION if consumer groups are not enabled in the cluster."""
    is_finalised = broker.metadata.image.features.get(GROUP_VERSION, 0) >= 1
    if not is_finalised or CONSUMER_PROTOCOL not in broker.config.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


@sliced
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[ConsumerGroupDescribeResponse]:
    """Answers ConsumerGroupDescribe (key 69), versions 0-1: epochs, members and assignments of consumer groups
    (KIP-848).

    v1: whether a member uses the classic or the consumer protocol. Needs DESCRIBE on each group and on all topics to
    which its members are subscribed or which they are assigned. Source: docs/spec/consumer-groups.md#s1-2
    """
    require_consumer_protocol(broker)
    include = request.include_authorized_operations
    groups = yield from describe_groups_in_steps(request.group_ids, _describe_group, include, context, broker)
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe_group(group_id: str, context: RequestContext, broker: HandlerBroker) -> DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = broker.groups.shard_for(group_id).read_state(lambda core: core.describe_consumer_group(group_id))
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
