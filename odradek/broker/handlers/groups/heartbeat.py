"""Heartbeat (key 12), versions 0-4: keeps a member of a classic group alive; the answer tells it of a rebalance.

v3: static members. v4: flexible. Needs READ on the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.heartbeat_request import HeartbeatRequest


def heartbeat(
    request: HeartbeatRequest, context: RequestContext, broker: Broker
) -> HeartbeatResponse | Deferred[HeartbeatResponse]:
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    try:
        return broker.groups.shard_for(request.group_id).submit(lambda core, now_ms: core.heartbeat(request, now_ms))
    except KafkaError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()  # it will be known once the group is loaded; until then nobody's time runs out
        raise
