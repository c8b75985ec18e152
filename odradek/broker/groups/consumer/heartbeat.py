"""Handles ConsumerGroupHeartbeat requests, which members send to join a group, to stay in it and to leave it. Source:
docs/spec/consumer-groups.md#s2.

A heartbeat is handled in these steps: identify the member, apply its subscription, advance the group's epoch if needed,
compute a new target if one is due, and assign partitions to the member.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.common.group import TimerKind
from odradek.broker.groups.common.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    TEMPORARY_LEAVE_EPOCH,
    UNCHANGED_MS,
    is_blank,
)
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import Assigned, ConsumerMember, is_within
from odradek.broker.groups.consumer.membership import joining_member
from odradek.broker.groups.consumer.migration import downgrade_if_classic_only, upgrade_group
from odradek.broker.groups.consumer.reconciliation import Goal, follow_group_epoch, reconcile
from odradek.broker.groups.consumer.records import assignment_record, member_record
from odradek.broker.groups.consumer.regexes import resolve_if_due, subscribe_by_regex
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A valid ConsumerGroupHeartbeat request and its sender.

    member_id  the member id in the request, or an id generated for the member
    may_see    returns whether the sender may DESCRIBE a topic
    """

    request: ConsumerGroupHeartbeatRequest
    member_id: str
    client_id: str
    client_host: str
    may_see: Callable[[str], bool]

    @property
    def owned(self) -> Partitions | None:
        stated = self.request.topic_partitions
        return None if stated is None else {each.topic_id: frozenset(each.partitions) for each in stated}

    @property
    def is_full(self) -> bool:
        """True if the request contains all fields. The response then contains the complete assignment."""
        request = self.request
        return request.member_epoch == JOIN_EPOCH or (
            request.rebalance_timeout_ms != UNCHANGED_MS
            and request.topic_partitions is not None
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        )


def heartbeat(registry: GroupRegistry, beat: ConsumerHeartbeat, now_ms: int) -> Outcome[ConsumerGroupHeartbeatResponse]:
    match beat.request.member_epoch:
        case 0:
            return _join(registry, beat, now_ms)
        case -1:
            return _leave(registry, beat, now_ms)
        case -2:
            return _leave_for_a_while(registry, beat, now_ms)
        case _:
            return _continue_membership(registry, beat, now_ms)


def consumer_group(registry: GroupRegistry, group_id: str, missing: str) -> ConsumerGroup:
    """Returns the consumer group with this id. Raises GROUP_ID_NOT_FOUND if the group does not exist or has another
    type. `missing` is the error message for a group that does not exist."""
    group = registry.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, missing)
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    return group


def _join(registry: GroupRegistry, beat: ConsumerHeartbeat, now_ms: int) -> Outcome[ConsumerGroupHeartbeatResponse]:
    group_id, instance_id = beat.request.group_id, beat.request.instance_id
    match registry.groups.get(group_id):
        case ConsumerGroup() as group:
            turn = ConsumerTurn(registry, group, now_ms)
        case None:
            new_group = ConsumerGroup(group_id, registry.topic_id_of)
            new_group.epoch += registry.first_epoch()
            turn = ConsumerTurn(registry, new_group, now_ms, is_new=True)
        case ClassicGroup() as classic:
            turn = upgrade_group(registry, classic, now_ms)
        case _:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    turn.group.check_room(beat.member_id, turn.config.max_size)
    return _answer_member(turn, beat, joining_member(turn, beat.member_id, instance_id))


def _continue_membership(
    registry: GroupRegistry, beat: ConsumerHeartbeat, now_ms: int
) -> Outcome[ConsumerGroupHeartbeatResponse]:
    request = beat.request
    group = consumer_group(registry, request.group_id, f"Consumer group {request.group_id} not found.")
    member = group.require_member(beat.member_id, request.instance_id)
    owned = beat.owned if request.member_epoch < member.epoch else None
    is_within_assigned = owned is not None and is_within(owned, member.assigned)
    group.check_epoch(member, request.member_epoch, owns_only_assigned=is_within_assigned)
    return _answer_member(ConsumerTurn(registry, group, now_ms), beat, member)


def _answer_member(
    turn: ConsumerTurn, beat: ConsumerHeartbeat, before: ConsumerMember
) -> Outcome[ConsumerGroupHeartbeatResponse]:
    wanting = _apply_request(before, beat)
    subscription_changed = record_subscription(turn, before, wanting)
    resolve_if_due(turn, beat.may_see)
    member = reconcile_member(turn, wanting, beat.owned, subscription_changed=subscription_changed)
    turn.begin_session(member)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=turn.cluster.group_setting(turn.group.group_id, "consumer.heartbeat.interval.ms"),
    )
    if beat.is_full or not _same_partitions(member.assigned, before.assigned):
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in member.assigned.items()
            ]
        )
    return turn.outcome(response)


def _apply_request(member: ConsumerMember, beat: ConsumerHeartbeat) -> ConsumerMember:
    """Returns the member after updating the fields that the request contains. Fields that the request omits (null, -1)
    are unchanged."""
    request = beat.request
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        topics=(member.topics if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names)),
        regex=member.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if request.rebalance_timeout_ms == UNCHANGED_MS
            else request.rebalance_timeout_ms
        ),
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def record_subscription(turn: ConsumerTurn, before: ConsumerMember, member: ConsumerMember) -> bool:
    """Records the member's new subscription. Returns whether the subscription has changed.

    The group's epoch advances if the subscription, the topics or the preferred assignor have changed. Up to Kafka 4.3,
    the preferred assignor did not matter: docs/spec/kafka-4.4.md#s5-1, C3.
    """
    # Everything that depends on the old state is read before `turn.write` changes the group or replaces it with a copy.
    group, assignors = turn.group, turn.config.assignors
    is_new = member.member_id not in group.members
    # Votes are counted only if the result may have changed, because the count visits every member.
    may_vote_otherwise = turn.registry.config.rules >= KafkaRules.KAFKA_4_4 and (
        is_new or member.server_assignor != before.server_assignor
    )
    assignor = group.preferred_assignor(assignors) if may_vote_otherwise else None
    if is_new or member != before:
        turn.write(member_record(group.group_id, member))
    names_changed = member.topics != before.topics
    regex_matters = subscribe_by_regex(turn, before, member)
    assignor_matters = may_vote_otherwise and turn.group.preferred_assignor(assignors) != assignor
    if names_changed or regex_matters or assignor_matters:
        turn.bump_epoch()
    else:
        turn.follow_topics()
    return names_changed or member.regex != before.regex


def reconcile_member(
    turn: ConsumerTurn, member: ConsumerMember, owned: Partitions | None, *, subscription_changed: bool
) -> ConsumerMember:
    """Computes the target assignment if one is due and moves the member as close to the target as is currently
    possible."""
    follow_group_epoch(turn)
    group = turn.group
    goal = Goal(
        epoch=group.assignment_epoch,
        target=group.target_of(member.member_id),
        subscribed=frozenset(topic.topic_id for topic in turn.topics_of(group.topics_of(member))),
        is_taken=_taken_from(group, member.member_id),
    )
    reconciled = reconcile(member, goal, owned, subscription_changed=subscription_changed)
    recorded = turn.group.members[member.member_id]
    turn.put_assignment(recorded, reconciled)
    return reconciled


def _taken_from(group: ConsumerGroup, member_id: str) -> Callable[[bytes, int], bool]:
    """Returns a function that checks whether another member holds a partition. The held partitions are collected on the
    first call, because most heartbeats never call the function."""
    holders: dict[bytes, set[int]] | None = None

    def is_taken(topic_id: bytes, partition: int) -> bool:
        nonlocal holders
        if holders is None:
            holders = _unreleased_partitions(
                [other for other in group.members.values() if other.member_id != member_id]
            )
        return partition in holders.get(topic_id, ())

    return is_taken


def _unreleased_partitions(members: Collection[ConsumerMember]) -> dict[bytes, set[int]]:
    held: dict[bytes, set[int]] = {}
    for member in members:
        for assigned in (member.assigned, member.revoking):
            for topic_id, partitions in assigned.items():
                held.setdefault(topic_id, set()).update(partitions)
    return held


def _same_partitions(one: Assigned, other: Assigned) -> bool:
    return one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)


# Leaving the group. The rules are in docs/spec/consumer-groups.md#s7.


def _leave(registry: GroupRegistry, beat: ConsumerHeartbeat, now_ms: int) -> Outcome[ConsumerGroupHeartbeatResponse]:
    request = beat.request
    group = consumer_group(registry, request.group_id, f"Group {request.group_id} not found.")
    member = group.require_member(beat.member_id, request.instance_id)
    turn = ConsumerTurn(registry, group, now_ms)
    remove_members(turn, [member])
    return turn.outcome(ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH))


def remove_members(turn: ConsumerTurn, members: Collection[ConsumerMember]) -> None:
    """Removes members permanently. If all remaining members use the classic protocol, the group may become a classic
    group."""
    if not downgrade_if_classic_only(turn, leaving=members):
        turn.remove(members)


def _leave_for_a_while(
    registry: GroupRegistry, beat: ConsumerHeartbeat, now_ms: int
) -> Outcome[ConsumerGroupHeartbeatResponse]:
    """Handles the heartbeat of a static member that leaves temporarily. The member keeps its partitions until its
    session expires. Source: docs/spec/consumer-groups.md#s6"""
    request = beat.request
    group = consumer_group(registry, request.group_id, f"Group {request.group_id} not found.")
    member = group.require_member(beat.member_id, request.instance_id)
    away = replace(
        member,
        epoch=TEMPORARY_LEAVE_EPOCH,
        assigned=_held_since_ever(member.assigned),
        revoking=_held_since_ever(member.revoking),
    )
    turn = ConsumerTurn(registry, group, now_ms)
    turn.write(assignment_record(group.group_id, away))
    turn.disarm(TimerKind.REVOCATION, member.member_id)
    return turn.outcome(ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=TEMPORARY_LEAVE_EPOCH))


def _held_since_ever(assigned: Assigned) -> Assigned:
    return {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in assigned.items()}


FIRST_VERSION_WITH_CLIENT_MEMBER_ID = 1

Check = tuple[Callable[[ConsumerGroupHeartbeatRequest, int], bool], str]

SHAPE: Sequence[Check] = (
    # (condition under which a request with a given version is invalid, Kafka's message)
    (
        lambda request, version: (
            is_blank(request.member_id)
            and (
                version >= FIRST_VERSION_WITH_CLIENT_MEMBER_ID
                or request.member_epoch > 0
                or request.member_epoch == LEAVE_EPOCH
            )
        ),
        "MemberId can't be empty.",
    ),
    (lambda request, _: is_blank(request.group_id), "GroupId can't be empty."),
    (lambda request, _: is_blank(request.instance_id), "InstanceId can't be empty."),
    (lambda request, _: is_blank(request.rack_id), "RackId can't be empty."),
    (
        lambda request, _: request.member_epoch == JOIN_EPOCH and request.rebalance_timeout_ms == UNCHANGED_MS,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    (
        lambda request, _: request.member_epoch == JOIN_EPOCH and request.topic_partitions != [],
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        lambda request, _: (
            request.member_epoch == JOIN_EPOCH
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
        ),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    (
        lambda request, _: request.member_epoch == TEMPORARY_LEAVE_EPOCH and request.instance_id is None,
        "InstanceId can't be null.",
    ),
    (lambda request, _: request.member_epoch < TEMPORARY_LEAVE_EPOCH, "MemberEpoch is invalid."),
)


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR if the request is invalid."""
    for is_wrong, reason in SHAPE:
        if is_wrong(request, version):
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = ", ".join(assignors)
        what = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}."
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, what)
