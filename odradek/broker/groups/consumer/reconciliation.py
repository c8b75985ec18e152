"""Computes the target assignment of a consumer group and moves each member towards its part of the target.

A heartbeat computes a new target if the group epoch is ahead of the target's epoch, at most once per
`consumer.assignment.interval.ms`. A member first gives up partitions, and then receives the partitions that are free.
`reconcile` applies these rules to one member at a time. Source: docs/spec/consumer-groups.md#s3, #s4.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from odradek.broker.groups.common.epochs import Partitions
from odradek.broker.groups.consumer.assignors.group_view import GroupView, Subscriber
from odradek.broker.groups.consumer.assignors.registry import ASSIGNORS
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import Assigned, ConsumerMember, MemberState, overlaps
from odradek.broker.groups.consumer.records import target_epoch_record, target_record
from odradek.broker.groups.consumer.turn import ConsumerTurn


@dataclass(frozen=True, slots=True)
class Goal:
    """The state towards which a member moves.

    epoch       epoch of the target assignment
    target      the member's part of the target assignment
    subscribed  ids of the topics that the member subscribes to now; the target may not reflect them yet
    is_taken    returns whether another member has the partition, or has not yet confirmed giving it up
    """

    epoch: int
    target: Partitions
    subscribed: Container[bytes]
    is_taken: Callable[[bytes, int], bool]


def reconcile(
    member: ConsumerMember, goal: Goal, owned: Partitions | None, *, subscription_changed: bool
) -> ConsumerMember:
    """Returns the member as it is after this heartbeat, possibly unchanged. `owned` contains the partitions that the
    member reports as owned or is None if the request does not list them."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != goal.epoch:
                return _move_towards_target(goal, member, owned)
            return _without_unsubscribed(goal, member) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if owned is None or overlaps(owned, member.revoking):
                return _without_unsubscribed(goal, member) if subscription_changed else member
            return _move_towards_target(goal, replace(member, revoking={}), owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return _move_towards_target(goal, member, owned)


def _move_towards_target(goal: Goal, member: ConsumerMember, owned: Partitions | None) -> ConsumerMember:
    target = {topic_id: partitions for topic_id, partitions in goal.target.items() if topic_id in goal.subscribed}
    retained, dropped = _split_assignment(
        member.assigned, lambda topic_id, partition: partition in target.get(topic_id, ())
    )
    if dropped and (owned is None or overlaps(owned, dropped)):
        return replace(
            member,
            previous_epoch=member.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=retained,
            revoking=dropped,
        )
    assigned = {topic_id: dict(partitions) for topic_id, partitions in retained.items()}
    state = MemberState.STABLE
    for topic_id, partitions in target.items():
        for partition in sorted(partitions - retained.get(topic_id, {}).keys()):
            if goal.is_taken(topic_id, partition):
                state = MemberState.UNRELEASED_PARTITIONS
            else:
                assigned.setdefault(topic_id, {})[partition] = goal.epoch
    return replace(member, epoch=goal.epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking={})


def _without_unsubscribed(goal: Goal, member: ConsumerMember) -> ConsumerMember:
    """Revokes partitions of topics that the member no longer subscribes to, without waiting for a new target."""
    retained, dropped = _split_assignment(member.assigned, lambda topic_id, _: topic_id in goal.subscribed)
    if not dropped:
        return member
    revoking = {topic_id: dict(partitions) for topic_id, partitions in member.revoking.items()}
    for topic_id, partitions in dropped.items():
        revoking.setdefault(topic_id, {}).update(partitions)
    return replace(
        member,
        previous_epoch=member.epoch,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=retained,
        revoking=revoking,
    )


def _split_assignment(assigned: Assigned, stays: Callable[[bytes, int], bool]) -> tuple[Assigned, Assigned]:
    retained: dict[bytes, dict[int, int]] = {}
    dropped: dict[bytes, dict[int, int]] = {}
    for topic_id, partitions in assigned.items():
        for partition, since in partitions.items():
            (retained if stays(topic_id, partition) else dropped).setdefault(topic_id, {})[partition] = since
    return retained, dropped


def follow_group_epoch(turn: ConsumerTurn) -> None:
    """Computes a new target assignment if one is due."""
    if not turn.is_target_due("consumer.assignment.interval.ms"):
        return
    group = turn.group
    view = group_view(turn, group)
    target = ASSIGNORS[group.preferred_assignor(turn.config.assignors)](view)
    for member_id, partitions in target.items():
        if group.targets.get(member_id) != partitions:
            turn.write(target_record(group.group_id, member_id, partitions))
    turn.write(target_epoch_record(group.group_id, group.epoch, turn.now_ms))


def group_view(turn: ConsumerTurn, group: ConsumerGroup) -> GroupView:
    topics = {topic.name: topic for topic in turn.topics_of(group.subscribed_topics())}
    subscribers = {}
    for member in group.members.values():
        topic_ids = frozenset(topics[name].topic_id for name in group.topics_of(member) if name in topics)
        subscribers[member.member_id] = Subscriber(
            member.member_id, member.instance_id, topic_ids, group.target_of(member.member_id)
        )
    return GroupView(subscribers, {topic.topic_id: topic.partition_count for topic in topics.values()})
