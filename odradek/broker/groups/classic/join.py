"""Handles JoinGroup requests for a classic group. Decides which clients can join and which member ids they get, and
begins a rebalance if necessary."""

from __future__ import annotations

from dataclasses import dataclass, replace

from odradek.broker.groups.classic.member import ClassicMember, Protocols, protocols_of
from odradek.broker.groups.classic.rebalance import join_response, maybe_complete_join, prepare_rebalance, rebalance
from odradek.broker.groups.classic.tables import JOIN_BY_RETURNING_STATIC_MEMBER, GroupState, GroupVerdict, join_verdict
from odradek.broker.groups.classic.turn import ClassicTurn, group_metadata_record
from odradek.broker.groups.common.group import TimerKind
from odradek.broker.groups.common.outcome import GroupConfig, Token
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

NO_MEMBER_ID = ""
FIRST_VERSION_WITH_REQUIRED_MEMBER_ID = 4
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9


@dataclass(frozen=True, slots=True)
class Joiner:
    """A JoinGroup request and its sender."""

    request: JoinGroupRequest
    version: int
    client_id: str
    client_host: str
    new_member_id: str  # used if the request has no member id
    plain_member_id: str  # the member id to use instead of `new_member_id` if the group is a consumer group
    token: Token

    @property
    def rebalance_timeout_ms(self) -> int:
        return self.request.rebalance_timeout_ms if self.version >= 1 else self.request.session_timeout_ms

    @property
    def protocols(self) -> Protocols:
        return protocols_of(self.request.protocols)


def join_refusal(request: JoinGroupRequest, config: GroupConfig) -> JoinGroupResponse | None:
    """Returns an error response if the request is invalid regardless of the group, otherwise None."""
    code = None
    if request.group_id == "":
        code = ErrorCode.INVALID_GROUP_ID
    elif not (config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms):
        code = ErrorCode.INVALID_SESSION_TIMEOUT
    return None if code is None else error_response(code, request.member_id)


def error_response(code: ErrorCode, member_id: str = NO_MEMBER_ID) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code.value, protocol_name=None, member_id=member_id)


def join(turn: ClassicTurn, joiner: Joiner) -> JoinGroupResponse | None:
    """Handles a JoinGroup request and returns the response. Returns None if the response is sent later or is one of the
    turn's replies."""
    group, member_id = turn.group, joiner.request.member_id
    if not has_room(turn, member_id):
        group.remove(member_id)
        return error_response(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if group.state is GroupState.DEAD:
        return error_response(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    if not group.supports(joiner.request.protocol_type, joiner.protocols):
        return error_response(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    if member_id == NO_MEMBER_ID:
        return join_without_member_id(turn, joiner)
    return join_with_member_id(turn, joiner)


def has_room(turn: ClassicTurn, member_id: str) -> bool:
    """Returns whether the group has room for the client.

    During a rebalance, the first `group.max.size` clients may join, whether or not they are members. A member that has
    not rejoined does not count, because it may be dead.
    """
    group, max_size = turn.group, turn.config.group_max_size
    member = group.members.get(member_id)
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            return (member is not None and member.awaiting_join is not None) or group.waiting_to_join < max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member is not None or len(group.members) < max_size


def join_without_member_id(turn: ClassicTurn, joiner: Joiner) -> JoinGroupResponse | None:
    group, instance_id = turn.group, joiner.request.group_instance_id
    if instance_id is not None:
        old_member_id = group.static_members.get(instance_id)
        if old_member_id is not None:
            return return_static_member(turn, joiner, old_member_id)
    elif joiner.version >= FIRST_VERSION_WITH_REQUIRED_MEMBER_ID:
        # The client receives a member id and must repeat the request with it. If the client were added right away,
        # every attempt whose response is lost would leave a dead member behind.
        group.pending_join |= {joiner.new_member_id}
        turn.arm(TimerKind.SESSION, joiner.request.session_timeout_ms, joiner.new_member_id)
        return error_response(ErrorCode.MEMBER_ID_REQUIRED, joiner.new_member_id)
    add_member(turn, joiner, joiner.new_member_id)
    return None


def join_with_member_id(turn: ClassicTurn, joiner: Joiner) -> JoinGroupResponse | None:
    group, request = turn.group, joiner.request
    if request.member_id in group.pending_join:
        if request.group_instance_id is not None:
            # Only dynamic members receive a member id in advance. Kafka responds with the same error.
            return error_response(ErrorCode.UNKNOWN_SERVER_ERROR)
        add_member(turn, joiner, request.member_id)
        return None
    try:
        member = group.require_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return error_response(error.code, request.member_id)
    is_leader = group.is_leader(member.member_id)
    same_protocols = member.protocols == joiner.protocols
    match join_verdict(group.state, is_leader=is_leader, same_protocols=same_protocols):
        case GroupVerdict.REBALANCE:
            update_member(turn, joiner, member)
            rebalance(turn)
            return None
        case GroupVerdict.SAME_GENERATION:
            return join_response(group, member.member_id)
        case ErrorCode() as code:
            return error_response(code, request.member_id)
        case other:
            raise RuntimeError(f"unknown kind of join: {other}")


def add_member(turn: ClassicTurn, joiner: Joiner, member_id: str) -> None:
    group, request = turn.group, joiner.request
    if group.is_initial_rebalance:
        group.member_joined_in_delay = True
    member = ClassicMember(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=joiner.protocols,
        is_new=True,
        awaiting_join=joiner.token,
    )
    group.add(member, request.protocol_type)
    turn.arm(TimerKind.SESSION, turn.config.new_member_join_timeout_ms, member_id)
    rebalance(turn)


def update_member(turn: ClassicTurn, joiner: Joiner, member: ClassicMember) -> None:
    if member.awaiting_join is not None:
        # The member has resent the request on another connection. Without this reply, the first request would never be
        # answered.
        turn.reply(member.awaiting_join, error_response(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    turn.group.put(
        replace(
            member,
            protocols=joiner.protocols,
            rebalance_timeout_ms=joiner.rebalance_timeout_ms,
            session_timeout_ms=joiner.request.session_timeout_ms,
            awaiting_join=joiner.token,
        )
    )


def return_static_member(turn: ClassicTurn, joiner: Joiner, old_member_id: str) -> JoinGroupResponse | None:
    """Gives a restarted static member its previous place in the group. Later requests with its old member id are
    fenced."""
    group = turn.group
    old, old_leader_id = group.members[old_member_id], group.leader_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    if old.awaiting_join is not None:
        turn.reply(old.awaiting_join, error_response(fenced, old_member_id))
    if old.awaiting_sync is not None:
        turn.reply(old.awaiting_sync, SyncGroupResponse(error_code=fenced.value))
    member = group.rename_static(old_member_id, joiner.new_member_id)
    turn.disarm(TimerKind.SESSION, old_member_id)
    turn.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
    update_member(turn, joiner, member)
    if JOIN_BY_RETURNING_STATIC_MEMBER[group.state] is GroupVerdict.REBALANCE:
        if group.state is GroupState.PREPARING_REBALANCE:
            maybe_complete_join(turn)
        else:
            prepare_rebalance(turn)
        return None
    if group.select_protocol() != group.protocol_name:
        rebalance(turn)
        return None
    # The new member id must be stored. Otherwise a broker restart would restore the old id and the member would be
    # fenced.
    group.put(replace(group.members[member.member_id], awaiting_join=None))
    turn.records.append(
        group_metadata_record(group, {member_id: each.assignment for member_id, each in group.members.items()})
    )
    if joiner.version < FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT:
        # The response to older clients has no field that makes a returning leader skip the assignment, so the leader
        # would compute a new assignment. To prevent that, the response names the old leader id as the leader.
        answer = join_response(group, member.member_id)
        answer.leader, answer.members = old_leader_id or "", []
        return answer
    answer = join_response(group, member.member_id)
    answer.skip_assignment = group.is_leader(member.member_id)
    return answer
