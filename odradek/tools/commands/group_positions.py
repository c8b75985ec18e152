"""Determines groups' positions in their partitions, and their lag."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.client.common.errors import ClientError
from odradek.client.common.values import OffsetAndMetadata, TopicPartition
from odradek.protocol.lag import partition_lag

if TYPE_CHECKING:
    from odradek.client.admin import Admin

Committed = Mapping[TopicPartition, OffsetAndMetadata]


class Position(NamedTuple):
    """A group's position in a partition. `committed` is None if the group has no committed offset. `end` is the high
    watermark, or None if the partition does not exist or has no leader."""

    partition: TopicPartition
    committed: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        return partition_lag(self.committed, self.end)


async def positions(
    admin: Admin, groups: Mapping[str, tuple[Committed, Collection[TopicPartition]]]
) -> dict[str, list[Position]]:
    """Returns each group's positions, given its committed offsets and the partitions assigned to its members.

    Includes every partition of each topic for which the group has committed offsets or assigned partitions, because the
    group still has to read the partitions without a committed offset. Leaves out assigned partitions that the topic
    does not have, which occur in a streams group if another topic of the same subtopology has more partitions.
    """
    named = {name: {*committed, *assigned} for name, (committed, assigned) in groups.items()}
    existing = {*await admin.list_topics(include_internal=True)}
    topics = sorted({each.topic for partitions in named.values() for each in partitions} & existing)
    described = await admin.describe_topics(topics) if topics else {}
    led = {
        TopicPartition(topic, each.partition): each.leader is not None
        for topic, found in described.items()
        for each in found.partitions
    }
    ends = await _ends(admin, [partition for partition, has_leader in led.items() if has_leader])
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in led:
        by_topic.setdefault(partition.topic, []).append(partition)
    rows = {}
    for name, (committed, assigned) in groups.items():
        whole = {each for topic in {each.topic for each in named[name]} for each in by_topic.get(topic, ())}
        missing = {each for each in assigned if each.topic not in by_topic}
        rows[name] = [
            Position(each, committed[each].offset if each in committed else None, ends.get(each))
            for each in sorted({*committed, *missing} | whole)
        ]
    return rows


async def _ends(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    from odradek.client.administration.records import LATEST

    try:
        found = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    except ClientError as error:
        if error.is_retriable:  # a leader is unavailable: show the committed offsets without end offsets
            return {}
        raise
    return {partition: end.offset for partition, end in found.items() if end is not None}
