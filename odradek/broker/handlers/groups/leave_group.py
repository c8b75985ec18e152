"""LeaveGroup (key 13), versions 0-5: members leave a classic group, or an administrator removes them.

v3: several members, static ones by their instance id. v4: flexible. v5: reason. Needs READ on the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred

SEVERAL_MEMBERS_SINCE = 3


def leave_group(
    request: LeaveGroupRequest, context: RequestContext, broker: Broker
) -> LeaveGroupResponse | Deferred[LeaveGroupResponse]:
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    of_one = context.api_version < SEVERAL_MEMBERS_SINCE
    if of_one:
        request = LeaveGroupRequest(group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)])
    shard = broker.groups.shard_for(request.group_id)
    if of_one:
        return shard.submit(lambda core, now_ms: core.leave_group(request, now_ms), finish=of_one_member)
    return shard.submit(lambda core, now_ms: core.leave_group(request, now_ms))


def of_one_member(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Before version 3 the one member's code is the whole answer."""
    return LeaveGroupResponse(error_code=response.members[0].error_code)
