"""Stray directories: partitions that the metadata no longer knows, left by a deletion that a crash interrupted."""

from collections.abc import Callable, Iterable

from odradek.broker.metadata.image import MetadataImage
from odradek.protocol.topic_partition import CLUSTER_METADATA, TopicPartition


def strays(
    image: MetadataImage,
    node_id: int,
    found: Iterable[TopicPartition],
    topic_id_of: Callable[[str, int], bytes | None],
) -> list[TopicPartition]:
    """Those of `found` that belong to no partition of this node.

    topic_id_of  the topic that a directory was made for; None where it does not tell, then its name decides
    """
    return [
        one for one in found if one[0] != CLUSTER_METADATA and not _is_known(image, node_id, one, topic_id_of(*one))
    ]


def _is_known(image: MetadataImage, node_id: int, found: TopicPartition, topic_id: bytes | None) -> bool:
    name, index = found
    topic = image.topics.get(name)
    if topic is None or (topic_id is not None and topic_id != topic.topic_id) or index >= len(topic.partitions):
        return False
    return node_id in topic.partitions[index].replicas
