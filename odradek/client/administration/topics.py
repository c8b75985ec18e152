"""Topics to create and descriptions of existing topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.protocol.messages.metadata_response import MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. The broker uses its default for each number that is None. The keys of `configs` are Kafka's
    setting names."""

    topic: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition. `leader` is None while the partition has no leader. Replicas are broker ids."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions. `topic_id` has 16 bytes, and `is_internal` is true for internal topics."""

    topic: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


def topic_description(described: MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        described.name or "",
        described.topic_id,
        described.is_internal,
        tuple(
            PartitionDescription(
                each.partition_index,
                each.leader_id if each.leader_id >= 0 else None,
                each.leader_epoch if each.leader_epoch >= 0 else None,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
            )
            for each in sorted(described.partitions, key=lambda partition: partition.partition_index)
        ),
    )
