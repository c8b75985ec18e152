"""A partition by topic name or topic id and index; error codes by partition; the names of Kafka's internal topics."""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from odradek.protocol.errors import ErrorCode

TopicPartition: TypeAlias = tuple[str, int]
PartitionCodes: TypeAlias = Mapping[TopicPartition, ErrorCode]


class TopicIdPartition(NamedTuple):
    topic_id: bytes
    partition: int


GROUP_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"  # no client may write to it, and Metadata does not list it

INTERNAL_TOPICS: Final = frozenset({GROUP_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
