"""Handles JoinGroup, SyncGroup and Heartbeat requests from members of consumer groups that use the classic protocol.

Every request is answered immediately, without waiting for other members, and the member's epoch serves as the
generation. The response REBALANCE_IN_PROGRESS makes a member rejoin if it has partitions to give up or to receive. It
also makes a member rejoin if a new target is due, because a join computes the target. Source:
docs/spec/consumer-groups.md#s11-2.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.broker.groups.classic.group import CONSUMER_PROTOCOL_TYPE
from odradek.broker.groups.classic.join import (
    FIRST_VERSION_WITH_REQUIRED_MEMBER_ID,
    NO_MEMBER_ID,
    Joiner,
    error_response,
    join,
)
from odradek.broker.groups.classic.rebalance import prepare_rebalance
from odradek.broker.groups.classic.tables import GroupState
from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.common.group import TimerKind
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.heartbeat import reconcile_member, record_subscription
from odradek.broker.groups.consumer.member import ClassicProtocols, ConsumerMember, MemberState
from odradek.broker.groups.consumer.membership import joining_member
from odradek.broker.groups.consumer.migration import (
    by_topic_id,
    downgrade_group,
    may_downgrade,
    read_subscription,
    take_over,
    written_assignment,
)
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse


def join_consumer_group(
    registry: GroupRegistry, group: ConsumerGroup, joiner: Joiner, now_ms: int
) -> Outcome[JoinGroupResponse]:
    """Handles a JoinGroup request from a member that uses the classic protocol. The request can list the partitions
    that the member still owns."""
    request = joiner.request
    turn = ConsumerTurn(registry, group, now_ms)
    try:
        if group.has_consumer_protocol_member and not turn.config.migration_policy.allows_mixed_groups:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group.check_room(request.member_id, turn.config.max_size)
        _check_protocols(group, joiner)
        is_dynamic = request.group_instance_id is None
        if request.member_id == NO_MEMBER_ID and is_dynamic and joiner.version >= FIRST_VERSION_WITH_REQUIRED_MEMBER_ID:
            return Outcome(error_response(ErrorCode.MEMBER_ID_REQUIRED, joiner.plain_member_id))
        subscription = _subscription(joiner)
        if request.group_instance_id is not None and request.member_id != NO_MEMBER_ID:
            _check_instance(group, request.member_id, request.group_instance_id)
        if _replaces_the_last_consumer_member(turn, request.group_instance_id):
            return _join_downgraded(turn, joiner, subscription)
        return _join(turn, joiner, subscription)
    except KafkaError as error:
        return Outcome(error_response(error.code, NO_MEMBER_ID))


def _join(turn: ConsumerTurn, joiner: Joiner, subscription: ConsumerProtocolSubscription) -> Outcome[JoinGroupResponse]:
    request = joiner.request
    before = joining_member(
        turn, request.member_id or joiner.plain_member_id, request.group_instance_id, speaks_classic=True
    )
    member = replace(
        before,
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=before.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        topics=frozenset(subscription.topics),
        regex="",
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicProtocols(request.session_timeout_ms, joiner.protocols),
    )
    changed = record_subscription(turn, before, member)
    owned = _owned(turn, subscription)
    after = reconcile_member(turn, member, owned, subscription_changed=changed)
    turn.begin_session(after)
    turn.set_memory(replace(turn.group.memory, rejoining=turn.group.memory.rejoining - {after.member_id}))
    turn.arm(TimerKind.REJOIN, after.rebalance_timeout_ms, after.member_id)  # stopped when the member sends SyncGroup
    return turn.outcome(
        JoinGroupResponse(
            generation_id=after.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=_common_protocol(turn.group, after),
            leader="",
            member_id=after.member_id,
            members=[],
        )
    )


def sync_consumer_group(
    registry: GroupRegistry, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int
) -> Outcome[SyncGroupResponse]:
    turn = ConsumerTurn(registry, group, now_ms)
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        member.require_epoch(request.generation_id)
        _check_protocol_names(group, member, request)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            _request_rejoin(turn, member)
            return turn.outcome(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS.value))
    except KafkaError as error:
        return Outcome(SyncGroupResponse(error_code=error.code.value))

    def name_of(topic_id: bytes) -> str | None:
        topic = turn.cluster.topic_of_id(topic_id)
        return None if topic is None else topic.name

    turn.disarm(TimerKind.REJOIN, member.member_id)
    turn.begin_session(member)
    return turn.outcome(
        SyncGroupResponse(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=_common_protocol(group, member),
            assignment=written_assignment(member.assigned, name_of),
        )
    )


def heartbeat_consumer_group(
    registry: GroupRegistry, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int
) -> Outcome[HeartbeatResponse]:
    """Handles a Heartbeat request. Raises KafkaError unless the sender is a member that uses the classic protocol, and
    the request contains its current generation."""
    member = _classic_member(group, request.member_id, request.group_instance_id)
    member.require_epoch(request.generation_id)
    turn = ConsumerTurn(registry, group, now_ms)
    turn.begin_session(member)
    if not _must_rejoin(turn, member):
        return turn.outcome(HeartbeatResponse())
    _request_rejoin(turn, member)
    return turn.outcome(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS.value))


def _request_rejoin(turn: ConsumerTurn, member: ConsumerMember) -> None:
    """Records that the member must rejoin. The time limit for rejoining begins with the first response that contains
    REBALANCE_IN_PROGRESS."""
    memory = turn.group.memory
    if member.member_id not in memory.rejoining:
        turn.set_memory(replace(memory, rejoining=memory.rejoining | {member.member_id}))
        turn.arm(TimerKind.REJOIN, member.rebalance_timeout_ms, member.member_id)


def _must_rejoin(turn: ConsumerTurn, member: ConsumerMember) -> bool:
    """Returns whether the member must rejoin. A member must rejoin if there is a newer target, if it has partitions to
    give up, or if all partitions that it was waiting for have become free.

    Unlike in Kafka, a member must also rejoin if a new target is due. In Kafka, only members that use the consumer
    protocol trigger the computation, so without such members the partitions of departed members remain unassigned.
    """
    group = turn.group
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member):
        return True
    return turn.is_target_due("consumer.assignment.interval.ms")


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        other.holds(topic_id, partition)
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions - member.assigned.get(topic_id, {}).keys()
        for other in group.members.values()
        if other.member_id != member.member_id
    )


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = group.require_member(member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _check_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> None:
    """Raises KafkaError unless the instance id belongs to this member id."""
    holder_id = group.static_members.get(instance_id)
    if holder_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if holder_id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)


def _check_protocols(group: ConsumerGroup, joiner: Joiner) -> None:
    """Raises INCONSISTENT_GROUP_PROTOCOL unless the joining client and all other classic-protocol members have a
    protocol in common."""
    if joiner.request.protocol_type != CONSUMER_PROTOCOL_TYPE or not joiner.protocols:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    offered = {name for name, _ in joiner.protocols}
    if not offered & _common_names(group, joiner.request.member_id, offered):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _common_names(group: ConsumerGroup, but_not: str, names: set[str]) -> set[str]:
    for member in group.members.values():
        if member.classic is not None and member.member_id != but_not:
            names = names & {name for name, _ in member.classic.supported}
    return names


def _common_protocol(group: ConsumerGroup, member: ConsumerMember) -> str:
    """Returns the first of the member's protocols that all other classic-protocol members support."""
    assert member.classic is not None
    names = [name for name, _ in member.classic.supported]
    common = _common_names(group, member.member_id, set(names))
    return next((name for name in names if name in common), names[0])


def _check_protocol_names(group: ConsumerGroup, member: ConsumerMember, request: SyncGroupRequest) -> None:
    """Raises INCONSISTENT_GROUP_PROTOCOL if the request contains a different protocol type or name. Older request
    versions contain neither field."""
    name = _common_protocol(group, member)
    for requested, actual in ((request.protocol_type, CONSUMER_PROTOCOL_TYPE), (request.protocol_name, name)):
        if requested is not None and requested != actual:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription(joiner: Joiner) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(joiner.protocols[0][1])
    except MalformedMessage:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None


def _owned(turn: ConsumerTurn, subscription: ConsumerProtocolSubscription) -> Partitions:
    return by_topic_id([(each.topic, each.partitions) for each in subscription.owned_partitions], turn.cluster)


# Downgrade of a group whose last member with the consumer protocol is a static member that returns with the classic
# protocol.


def _replaces_the_last_consumer_member(turn: ConsumerTurn, instance_id: str | None) -> bool:
    holder_id = turn.group.static_members.get(instance_id) if instance_id is not None else None
    if holder_id is None or turn.group.members[holder_id].classic is not None:
        return False
    others = [member for member in turn.group.members.values() if member.member_id != holder_id]
    return may_downgrade(turn, others)


def _join_downgraded(
    turn: ConsumerTurn, joiner: Joiner, subscription: ConsumerProtocolSubscription
) -> Outcome[JoinGroupResponse]:
    """Converts the group to a classic group and has the static member join it. The other members keep their assignments
    unless partitions must be reassigned."""
    instance_id = joiner.request.group_instance_id
    assert instance_id is not None
    group = turn.group
    holder = group.members[group.static_members[instance_id]]
    heir = replace(holder, classic=ClassicProtocols(joiner.request.session_timeout_ms, joiner.protocols))
    others = [member for member in group.members.values() if member.member_id != holder.member_id]
    rebalance = downgrade_group(turn, [*others, heir])
    response = join(rebalance, joiner)
    wants_others = frozenset(subscription.topics) != holder.topics or holder.regex
    is_stale = wants_others or group.epoch > group.assignment_epoch
    if is_stale and rebalance.group.state is GroupState.STABLE:
        prepare_rebalance(rebalance)
    take_over(turn, rebalance)
    return turn.outcome(response)
