"""LeaveGroup on a consumer group: members of both protocols, by member id or instance id.

Source: docs/spec/consumer-groups.md#s7
"""

from __future__ import annotations

from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.heartbeat import remove_members
from odradek.broker.groups.consumer.member import ConsumerMember
from odradek.broker.groups.consumer.membership import require_member
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse


def leave_consumer_group(
    registry: GroupRegistry, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int
) -> Outcome[LeaveGroupResponse]:
    leaving: dict[str, ConsumerMember] = {}
    answers = []
    for identity in request.members:
        code = ErrorCode.NONE
        try:
            member = _meant(group, identity)
            if member.member_id in leaving:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            leaving[member.member_id] = member
        except KafkaError as error:
            code = error.code
        answers.append(
            MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code.value
            )
        )
    turn = ConsumerTurn(registry, group, now_ms)
    if leaving:
        remove_members(turn, list(leaving.values()))
    return turn.outcome(LeaveGroupResponse(members=answers))


def _meant(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.member_id == "" and identity.group_instance_id is not None:
        holder_id = group.static_members.get(identity.group_instance_id)
        if holder_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group.members[holder_id]
    return require_member(group, identity.member_id, identity.group_instance_id)
