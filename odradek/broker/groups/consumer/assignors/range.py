"""The `range` assignor. It gives each member a contiguous range of each topic's partitions: first the static members by
instance id, then the dynamic members by member id. It is not sticky.

Source: docs/spec/consumer-groups.md#s4-1.
"""

from __future__ import annotations

from odradek.broker.groups.consumer.assignors.group_view import GroupView, TargetAssignment


def assign_ranges(group: GroupView) -> TargetAssignment:
    members = group.in_id_order()
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member.member_id: {} for member in members}
    for topic_id, count in group.partition_counts.items():
        subscribers = [member for member in members if topic_id in member.topic_ids]
        if not subscribers:
            continue
        least, extra = divmod(count, len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            end = start + least + (place < extra)
            if end > start:
                assigned[member.member_id][topic_id] = frozenset(range(start, end))
            start = end
    return assigned
