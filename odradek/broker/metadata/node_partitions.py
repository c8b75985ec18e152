"""Finds new partitions of a node in metadata records and detects stray partition directories.

A stray directory does not belong to any partition in the metadata. It is left behind when a crash interrupts a
deletion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from odradek.broker.metadata.image import MetadataImage
from odradek.protocol.topic_partition import CLUSTER_METADATA, TopicPartition


def new_partitions(image: MetadataImage, node_id: int, records: Sequence[Any]) -> Iterator[tuple[str, int, bytes]]:
    """Yields the topic, partition and topic id of each partition that the records create on the node. `image` is the
    state before the records."""
    names: dict[bytes, str] = {}
    for record in records:
        match type(record).__name__:
            case "TopicRecord":
                names[record.topic_id] = record.name
            case "PartitionRecord" if node_id in record.replicas:
                topic_id = record.topic_id
                name = names.get(topic_id) or image.topics_by_id[topic_id].name
                yield name, record.partition_id, topic_id


def is_stray(image: MetadataImage, node_id: int, found: TopicPartition, topic_id: bytes | None) -> bool:
    """Returns whether a directory does not belong to any partition of this node.

    topic_id  id of the topic for which the directory was created, or None if the directory does not contain the id, in
              which case the topic is identified by its name
    """
    name, index = found
    if name == CLUSTER_METADATA:
        return False
    topic = image.topics.get(name)
    if topic is None or (topic_id is not None and topic_id != topic.topic_id) or index >= len(topic.partitions):
        return True
    return node_id not in topic.partitions[index].replicas
