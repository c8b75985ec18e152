"""The numbers that Odradek uses for KIP-1289 (acknowledgements inside a transaction), which no Kafka release contains.

Kafka 4.4 uses the KIP's own numbers for other purposes: key 93 is StreamsGroupTopologyDescriptionUpdate, key 94 is
UnregisterController, and level 2 of share.version stands for dead-letter queues (KIP-1191). Therefore the request has
the next free key, and one of Odradek's own features indicates whether it is supported: docs/spec/share-groups.md#s5-13,
rows 1, 2 and 27. The schemas repeat the API key and the tags, which a test compares with those in this module.
"""

FEATURE = "odradek.share.transactions"
# Identifies the wire format, in which TxnShareAcknowledge has key 95 and version 0. With a different key, the level
# would change.
FEATURE_LEVEL = 1
API_KEY = 95  # request and response of TxnShareAcknowledge, at FEATURE_LEVEL

# Odradek's own tags begin here; they durably store acknowledgements that are pending in a transaction.
PRIVATE_TAGS = 10_000
