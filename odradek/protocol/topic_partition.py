"""A partition by the name of its topic and its index, or by the topic's id; and error codes by partition."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from odradek.protocol.errors import ErrorCode

TopicPartition: TypeAlias = tuple[str, int]
PartitionCodes: TypeAlias = Mapping[TopicPartition, ErrorCode]


class TopicIdPartition(NamedTuple):
    topic_id: bytes
    partition: int
