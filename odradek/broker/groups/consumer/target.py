"""The target assignment: the partitions that each member shall own in the end. Source: docs/spec/consumer-groups.md#s3.

It is computed in a heartbeat that finds the group epoch ahead of it, at most once in
`consumer.assignment.interval.ms`.
"""

from __future__ import annotations

from odradek.broker.groups.consumer.assignors.group_view import GroupView, Subscriber
from odradek.broker.groups.consumer.assignors.registry import ASSIGNORS
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.records import target_epoch_record, target_record
from odradek.broker.groups.consumer.turn import ConsumerTurn


def is_target_due(turn: ConsumerTurn) -> bool:
    group = turn.group
    if group.epoch <= group.assignment_epoch:
        return False
    interval_ms = turn.cluster.group_setting(group.group_id, "consumer.assignment.interval.ms")
    return not group.computed_ms <= turn.now_ms < group.computed_ms + interval_ms


def follow_group_epoch(turn: ConsumerTurn) -> None:
    """Compute the target anew if that is due."""
    if not is_target_due(turn):
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
