"""Handlers for members of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.groups.classic.join import Joiner, join_refusal
from odradek.broker.runtime.waiting import Deferred, NowOrLater
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
    from odradek.protocol.messages.join_group_request import JoinGroupRequest
    from odradek.protocol.messages.sync_group_request import SyncGroupRequest


FIRST_VERSION_WITH_NULL_PROTOCOL_NAME: Final = 7


def join_group(
    request: JoinGroupRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[JoinGroupResponse]:
    """Handles JoinGroup (key 11), versions 0-9, which a member sends to join a classic group, or to rejoin it for the
    next generation.

    v1 adds the rebalance timeout. Since v4, a dynamic member first receives a member id (MEMBER_ID_REQUIRED), and then
    rejoins with it. v5 adds static members. v6 is flexible. v7 adds the protocol type to the response, and returns null
    for a missing protocol name. v8 adds the reason. Since v9, the response can instruct a rejoining static leader to
    skip the assignment. Needs READ on the group. The response is sent when all members have joined or the time limit
    for joining has passed.
    """
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
        client_host=f"/{context.connection.client_host}",
        new_member_id=broker.groups.new_member_id(client_id, request.group_instance_id),
        plain_member_id=broker.groups.plain_member_id(),
        token=parked,
    )
    shard = broker.groups.shard_for(request.group_id)
    return shard.submit(
        lambda core, now_ms: core.join_group(joiner, now_ms), parked, finish=partial(in_version, version=version)
    )


class JoinAnswer(Deferred[JoinGroupResponse]):
    """A pending JoinGroup response. It stores the version of its request, because another client's request may resolve
    it."""

    __slots__ = ("_version",)

    def __init__(self, version: int) -> None:
        super().__init__()
        self._version = version

    def resolve(self, message: JoinGroupResponse) -> None:
        super().resolve(in_version(message, self._version) if isinstance(message, JoinGroupResponse) else message)


def in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if version < FIRST_VERSION_WITH_NULL_PROTOCOL_NAME:
        response.protocol_name = response.protocol_name or ""
    elif response.protocol_name == "":
        response.protocol_name = None
    return response


FIRST_VERSION_WITH_PROTOCOL_NAME = 5


def sync_group(
    request: SyncGroupRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[SyncGroupResponse]:
    """Handles SyncGroup (key 14), versions 0-5. The leader sends the generation's assignment, and every member receives
    its part.

    v3 adds static members. v4 is flexible. v5 adds the protocol type and name, which must match the group's protocol
    type and name. Needs READ on the group. The response is sent once the leader's assignment is recorded.
    """
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL_NAME and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    parked: Deferred[SyncGroupResponse] = Deferred()
    shard = broker.groups.shard_for(request.group_id)
    return shard.submit(lambda core, now_ms: core.sync_group(request, parked, now_ms), parked)


def heartbeat(
    request: HeartbeatRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[HeartbeatResponse]:
    """Handles Heartbeat (key 12), versions 0-4, which keeps a member of a classic group alive. The response notifies
    the member of a rebalance.

    v3 adds static members. v4 is flexible. Needs READ on the group.
    """
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    try:
        return broker.groups.shard_for(request.group_id).submit(lambda core, now_ms: core.heartbeat(request, now_ms))
    except KafkaError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()  # no session expires while the group is loading
        raise


FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3


def leave_group(
    request: LeaveGroupRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[LeaveGroupResponse]:
    """Handles LeaveGroup (key 13), versions 0-5, which removes members from a classic group. Sent by the members
    themselves or by an administrator.

    v3 allows several members in one request, and identifies static members by their instance id. v4 is flexible. v5
    adds the reason. Needs READ on the group.
    """
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    of_one = context.api_version < FIRST_VERSION_WITH_SEVERAL_MEMBERS
    if of_one:
        request = LeaveGroupRequest(group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)])
    shard = broker.groups.shard_for(request.group_id)
    if of_one:
        return shard.submit(lambda core, now_ms: core.leave_group(request, now_ms), finish=of_one_member)
    return shard.submit(lambda core, now_ms: core.leave_group(request, now_ms))


def of_one_member(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Converts a response to the format of version 2 and earlier, which contains only a single member's error code."""
    return LeaveGroupResponse(error_code=response.members[0].error_code)
