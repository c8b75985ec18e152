"""ConsumerGroupDescribe: docs/spec/consumer-groups.md#s1-2"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.heartbeat import consumer_group
from odradek.broker.groups.consumer.member import ConsumerMember
from odradek.protocol.messages.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC, CONSUMER = 0, 1  # MemberType


def describe_consumer_group(registry: GroupRegistry, group_id: str) -> DescribedGroup:
    """Raises KafkaError GROUP_ID_NOT_FOUND, also for groups of other types."""
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
        assignment=_named(registry, held),
        target_assignment=_named(registry, group.target_of(member.member_id)),
        member_type=CONSUMER if member.classic is None else CLASSIC,
    )


def _named(registry: GroupRegistry, partitions: Mapping[bytes, Iterable[int]]) -> Assignment:
    """Topics that no longer exist are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (topic := registry.cluster.topic_of_id(topic_id)) is not None
        ]
    )
