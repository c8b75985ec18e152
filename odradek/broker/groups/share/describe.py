"""A share group for people: docs/spec/share-groups.md#s2-5."""

from __future__ import annotations

from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.share.assignor import NAME
from odradek.broker.groups.share.heartbeat import share_group
from odradek.protocol.messages.share_group_describe_response import Assignment, DescribedGroup, Member, TopicPartitions


def describe_share_group(registry: GroupRegistry, group_id: str) -> DescribedGroup:
    """Raises GROUP_ID_NOT_FOUND. Assignments are what members have, not what they are meant to get."""
    group = share_group(registry, group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=NAME,
        members=[
            Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                assignment=Assignment(
                    topic_partitions=[
                        TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes))
                        for topic_id, indexes in member.assigned.items()
                        if (topic := registry.cluster.topic_of_id(topic_id)) is not None
                    ]
                ),
            )
            for member in group.members.values()
        ],
    )
