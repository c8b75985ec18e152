"""Types for partitions, which are identified by topic name or id and by index, and for partition error codes. Also
contains the names of Kafka's internal topics."""

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
CLUSTER_METADATA: Final = "__cluster_metadata"  # clients must not write to this topic, and Metadata does not list it

INTERNAL_TOPICS: Final = frozenset({GROUP_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
