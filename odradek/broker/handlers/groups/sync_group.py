"""SyncGroup (key 14), versions 0-5: the leader sends the assignment of its generation, every member receives its part.

v3: static members. v4: flexible. v5: protocol type and name, which must be the group's. Needs READ on the group.
Answered when the leader's assignment is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.sync_group_request import SyncGroupRequest

NAMES_PROTOCOL_SINCE = 5


def sync_group(
    request: SyncGroupRequest, context: RequestContext, broker: Broker
) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    if context.api_version >= NAMES_PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    parked: Deferred[SyncGroupResponse] = Deferred()
    shard = broker.groups.shard_for(request.group_id)
    return shard.submit(lambda core, now_ms: core.sync_group(request, parked, now_ms), parked)
