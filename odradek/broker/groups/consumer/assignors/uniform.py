"""The `uniform` assignor. It distributes partitions evenly and moves as few partitions as possible.

This module handles groups whose members all subscribe to the same topics; `uniform_mixed.py` handles other groups. The
rules are in docs/spec/consumer-groups.md#s4-1.
"""

from __future__ import annotations

from collections import deque

from odradek.broker.groups.consumer.assignors.group_view import (
    GroupView,
    Subscriber,
    TargetAssignment,
    partitions_in_hash_order,
    topics_in_hash_order,
)
from odradek.broker.groups.consumer.assignors.uniform_mixed import assign_mixed
from odradek.protocol.topic_partition import TopicIdPartition


def assign_uniformly(group: GroupView) -> TargetAssignment:
    if not group.subscribers:
        return {}
    if not group.is_homogeneous:
        return assign_mixed(group)
    members = group.in_hash_order()
    topic_ids = members[0].topic_ids
    pool = _unassigned(members, topic_ids, group)
    total = sum(group.partition_counts[topic_id] for topic_id in topic_ids)
    quota, extra = divmod(total, len(members))
    shares: dict[str, list[TopicIdPartition]] = {}
    open_quotas: list[tuple[str, int]] = []
    for place, member in enumerate(members):
        left = quota + (extra > 0)
        may_have_one_more = extra > 0
        retained = []
        for partition in _old_target(member, topic_ids):
            if left > 0:
                retained.append(partition)
                left -= 1
            else:
                pool.append(partition)
        if left > 0 and may_have_one_more and len(members) - place > extra:
            # If enough members follow, this member gets no extra partition. The extra partition is left for a later
            # member that already owns one partition more than the quota.
            left -= 1
            may_have_one_more = False
        if left > 0:
            open_quotas.append((member.member_id, left))
        extra -= may_have_one_more
        shares[member.member_id] = retained
    for member_id, left in open_quotas:
        shares[member_id] += [pool.popleft() for _ in range(min(left, len(pool)))]
    return {member_id: _by_topic(share) for member_id, share in shares.items()}


def _unassigned(members: list[Subscriber], topic_ids: frozenset[bytes], group: GroupView) -> deque[TopicIdPartition]:
    """Returns the partitions that were in no member's previous target, topic by topic, in ascending order."""
    assigned: dict[bytes, set[int]] = {topic_id: set() for topic_id in topic_ids}
    for member in members:
        for topic_id, partitions in member.target.items():
            if topic_id in assigned:
                assigned[topic_id] |= partitions
    return deque(
        TopicIdPartition(topic_id, partition)
        for topic_id in topics_in_hash_order(sorted(topic_ids))
        for partition in range(group.partition_counts[topic_id])
        if partition not in assigned[topic_id]
    )


def _old_target(member: Subscriber, topic_ids: frozenset[bytes]) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic_id, partition)
        for topic_id in topics_in_hash_order(member.target)
        if topic_id in topic_ids
        for partition in partitions_in_hash_order(member.target[topic_id])
    ]


def _by_topic(share: list[TopicIdPartition]) -> dict[bytes, frozenset[int]]:
    by_topic: dict[bytes, set[int]] = {}
    for topic_id, partition in share:
        by_topic.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in by_topic.items()}
