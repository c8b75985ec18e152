"""Handlers for share groups: member heartbeats, and descriptions for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import RequestContext, authorization_error
from odradek.broker.groups.share.heartbeat import ShareHeartbeat, check_heartbeat
from odradek.broker.handlers.groups.group_administration import describe_groups_in_steps
from odradek.broker.handlers.shares.share_session import MAX_MEMBER_ID_LENGTH
from odradek.broker.runtime.slices import Steps, sliced
from odradek.broker.runtime.waiting import start_unattended, wait_for_answer
from odradek.broker.shares.leader import group_state
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
    from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
    from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse


async def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, context: RequestContext, broker: HandlerBroker
) -> ShareGroupHeartbeatResponse:
    """Handles ShareGroupHeartbeat (key 76), version 1, which members send to join, stay in and leave a share group
    (KIP-932).

    Needs READ on the group and DESCRIBE on the named topics. The response is sent once the decision is recorded. After
    that, the share coordinator initialises the state of new partitions, which later heartbeats assign. Source:
    docs/spec/share-groups.md#s2-1
    """
    broker.shares.require_enabled()
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if not 1 <= len(request.member_id) <= MAX_MEMBER_ID_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST)  # without a message, as in Kafka
    names = dict.fromkeys(request.subscribed_topic_names or ())
    if False in [is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names]:
        raise authorization_error(ResourceType.TOPIC, context.api_key)
    check_heartbeat(request)
    beat = ShareHeartbeat(request, context.client_id or "", f"/{context.connection.client_host}")
    shard = broker.groups.shard_for(request.group_id)
    heard = await wait_for_answer(shard.submit(lambda core, now_ms: core.share_heartbeat(beat, now_ms)))
    if heard.state is not None:
        start_unattended(group_state.initialize_state(broker, request.group_id, heard.state))
    return heard.response


@sliced
def share_group_describe(
    request: ShareGroupDescribeRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[ShareGroupDescribeResponse]:
    """Handles ShareGroupDescribe (key 77), version 1, which returns the epochs, members and assignments of share
    groups.

    Needs DESCRIBE on each group and on all topics assigned to its members. Source: docs/spec/share-groups.md#s2-5
    """
    broker.shares.require_enabled()
    include = request.include_authorized_operations
    groups = yield from describe_groups_in_steps(request.group_ids, _describe_group, include, context, broker)
    return ShareGroupDescribeResponse(groups=groups)


def _describe_group(group_id: str, context: RequestContext, broker: HandlerBroker) -> DescribedGroup:
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = broker.groups.shard_for(group_id).read_state(lambda core: core.describe_share_group(group_id))
        names = {each.topic_name for member in group.members for each in member.assignment.topic_partitions}
        if not all(is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
            what = "The group has described topic(s) that the client is not authorized to describe."
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, what)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code.value, error_message=error.message)
    return group
