"""JoinGroup (key 11), versions 0-9: join a classic group, or rejoin for its next generation.

v1: rebalance timeout. v4: a dynamic member first gets a member id and rejoins with it (MEMBER_ID_REQUIRED).
v5: static members. v6: flexible. v7: protocol type in the answer; a missing protocol name is null. v8: reason.
v9: a static leader that rejoined is told to skip the assignment. Needs READ on the group.
Answered when all members have joined, or the time for it is over.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.groups.classic.join import Joiner, join_refusal
from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.messages.join_group_response import JoinGroupResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.join_group_request import JoinGroupRequest

NULL_PROTOCOL_NAME_SINCE: Final = 7


def join_group(
    request: JoinGroupRequest, context: RequestContext, broker: Broker
) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    version, client_id = context.api_version, context.client_id or ""
    refusal = join_refusal(request, broker.groups.settings.groups)
    if refusal is not None:
        return in_version(refusal, version)
    parked = JoinAnswer(version)
    joiner = Joiner(
        request=request,
        version=version,
        client_id=client_id,
        client_host=f"/{context.client_host}",
        new_member_id=broker.groups.new_member_id(client_id, request.group_instance_id),
        plain_member_id=broker.groups.plain_member_id(),
        token=parked,
    )
    shard = broker.groups.shard_for(request.group_id)
    return shard.submit(
        lambda core, now_ms: core.join_group(joiner, now_ms), parked, finish=partial(in_version, version=version)
    )


class JoinAnswer(Deferred[JoinGroupResponse]):
    """Knows the version it will be written in: it may be resolved in the course of another client's request."""

    __slots__ = ("_version",)

    def __init__(self, version: int) -> None:
        super().__init__()
        self._version = version

    def resolve(self, message: JoinGroupResponse) -> None:
        super().resolve(in_version(message, self._version) if isinstance(message, JoinGroupResponse) else message)


def in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if version < NULL_PROTOCOL_NAME_SINCE:
        response.protocol_name = response.protocol_name or ""
    elif response.protocol_name == "":
        response.protocol_name = None
    return response
