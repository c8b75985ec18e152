"""The numbers that Odradek uses for KIP-1289 (acknowledgements within a transaction), which no Kafka release contains.

Kafka 4.4 uses the KIP's own numbers for other purposes: key 93 is StreamsGroupTopologyDescriptionUpdate, key 94 is
UnregisterController, and level 2 of share.version means dead-letter queues (KIP-1191). The request therefore has the
next free key, and one of Odradek's own features indicates whether it is supported (docs/spec/share-groups.md#s5-13,
rows 1, 2 and 27). The schemas repeat the API key and the tags, and a test compares them with the numbers in this
module.
"""

FEATURE = "odradek.share.transactions"
# The level identifies the wire format. At level 1, TxnShareAcknowledge has key 95 and version 0. If the key ever
# changes, the level must be raised.
FEATURE_LEVEL = 1
API_KEY = 95  # API key of TxnShareAcknowledge at FEATURE_LEVEL

# The first of Odradek's own tags, which durably store a transaction's pending acknowledgements.
PRIVATE_TAGS = 10_000
