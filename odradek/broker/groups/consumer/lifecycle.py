"""Operations of consumer groups other than heartbeats: replay, loading, timers, LeaveGroup (by member id or instance
id, for members that use either protocol) and ConsumerGroupDescribe. Source: docs/spec/consumer-groups.md#s1-2, #s7,
#s8-1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from odradek.broker.groups.common.epochs import replay_into
from odradek.broker.groups.common.group import CoordinatorRecord, Group, TimerKey, TimerKind
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.heartbeat import consumer_group, remove_members
from odradek.broker.groups.consumer.member import ConsumerMember, MemberState
from odradek.broker.groups.consumer.regexes import resolve
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse

GROUP_EPOCH = 3


def replay(registry: GroupRegistry, record: CoordinatorRecord) -> None:
    def make(group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, registry.topic_id_of)

    replay_into(registry, record, ConsumerGroup, make, GROUP_EPOCH)


def on_loaded(registry: GroupRegistry, group: Group, now_ms: int) -> Outcome[None]:
    """Starts the timers after loading. Members keep their epochs. Each member gets a full session timeout to send its
    next heartbeat. A member that still has to give up partitions gets a full rebalance timeout to do so."""
    assert isinstance(group, ConsumerGroup)
    turn = ConsumerTurn(registry, group, now_ms)
    for member in group.members.values():
        turn.begin_session(member)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            turn.arm(TimerKind.REVOCATION, max(member.rebalance_timeout_ms, 0), member.member_id)
    return turn.outcome()


def on_timer(registry: GroupRegistry, group: Group, key: TimerKey, now_ms: int) -> Outcome[None]:
    assert isinstance(group, ConsumerGroup)
    turn = ConsumerTurn(registry, group, now_ms)
    act = ON_TIMER.get(key.kind)
    if act is not None:
        act(turn, key.member_id)
    return turn.outcome()


def _expire_member(turn: ConsumerTurn, member_id: str) -> None:
    member = turn.group.members.get(member_id)
    if member is not None:
        remove_members(turn, [member])


def _has_not_revoked(turn: ConsumerTurn, member_id: str) -> None:
    member = turn.group.members.get(member_id)
    if member is not None and member.state is MemberState.UNREVOKED_PARTITIONS:
        remove_members(turn, [member])


ON_TIMER: Mapping[TimerKind, Callable[[ConsumerTurn, str], None]] = {
    TimerKind.SESSION: _expire_member,
    TimerKind.REVOCATION: _has_not_revoked,
    TimerKind.REJOIN: _expire_member,
    TimerKind.REGEX: lambda turn, _: resolve(turn),
}


def leave_consumer_group(
    registry: GroupRegistry, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int
) -> Outcome[LeaveGroupResponse]:
    leaving: dict[str, ConsumerMember] = {}
    answers = []
    for identity in request.members:
        code = ErrorCode.NONE
        try:
            member = _find_member(group, identity)
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


def _find_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.member_id == "" and identity.group_instance_id is not None:
        holder_id = group.static_members.get(identity.group_instance_id)
        if holder_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group.members[holder_id]
    return group.require_member(identity.member_id, identity.group_instance_id)


CLASSIC, CONSUMER = 0, 1  # values of MemberType


def describe_consumer_group(registry: GroupRegistry, group_id: str) -> DescribedGroup:
    """Describes a consumer group. Raises GROUP_ID_NOT_FOUND if the group does not exist or has another type."""
    group = consumer_group(registry, group_id, f"Group {group_id} not found.")
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(registry.config.consumer.assignors),
        members=[_member(registry, group, member) for member in group.members.values()],
    )


def _member(registry: GroupRegistry, group: ConsumerGroup, member: ConsumerMember) -> Member:
    held: dict[bytes, set[int]] = {}
    for assigned in (member.assigned, member.revoking):
        for topic_id, partitions in assigned.items():
            held.setdefault(topic_id, set()).update(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_with_topic_names(registry, held),
        target_assignment=_with_topic_names(registry, group.target_of(member.member_id)),
        member_type=CONSUMER if member.classic is None else CLASSIC,
    )


def _with_topic_names(registry: GroupRegistry, partitions: Mapping[bytes, Iterable[int]]) -> Assignment:
    """Returns the partitions with their topic names. Topics that no longer exist are omitted."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (topic := registry.cluster.topic_of_id(topic_id)) is not None
        ]
    )
