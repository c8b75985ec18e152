"""Which partitions records bring to a node, before the image has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from odradek.broker.metadata.image import MetadataImage


def new_partitions(image: MetadataImage, node_id: int, records: Sequence[Any]) -> Iterator[tuple[str, int, bytes]]:
    """Topic, partition and topic id of each. image: without the records."""
    names: dict[bytes, str] = {}
    for record in records:
        match type(record).__name__:
            case "TopicRecord":
                names[record.topic_id] = record.name
            case "PartitionRecord" if node_id in record.replicas:
                topic_id = record.topic_id
                name = names.get(topic_id) or image.topics_by_id[topic_id].name
                yield name, record.partition_id, topic_id
