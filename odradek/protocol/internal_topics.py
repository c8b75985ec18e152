"""The names of Kafka's internal topics."""

from typing import Final

GROUP_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"  # no client may write to it, and Metadata does not list it

INTERNAL_TOPICS: Final = frozenset({GROUP_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
