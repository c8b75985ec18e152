"""The partitions of a cluster, with their leaders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek.client.administration.asking import Asking
from odradek.client.common.errors import check
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse


@dataclass(frozen=True, slots=True, order=True)
class PartitionOf:
    """leader_id: None where there is none at the moment."""

    topic: str
    partition: int
    leader_id: int | None


async def list_partitions(asking: Asking, topics: Iterable[str] | None = None) -> list[PartitionOf]:
    """Of these topics, or of all. Raises ClientError for a topic that does not exist."""
    asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    answer = await asking.any_broker(request, MetadataResponse)
    for topic in answer.topics:
        check(topic.error_code, f"the topic {topic.name!r}")
    return sorted(
        PartitionOf(topic.name or "", each.partition_index, each.leader_id if each.leader_id >= 0 else None)
        for topic in answer.topics
        for each in topic.partitions
    )
