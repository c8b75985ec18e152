"""The names of Kafka's internal topics."""

GROUP_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
CLUSTER_METADATA = "__cluster_metadata"  # the metadata log; no client may write to it, and Metadata does not list it

INTERNAL_TOPICS = frozenset({GROUP_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
