"""The numbers with which Odradek serves KIP-1289 (acknowledgements inside a transaction), which no Kafka release
contains.

Kafka 4.4 uses the KIP's own numbers for other purposes: key 93 is StreamsGroupTopologyDescriptionUpdate, key 94 is
UnregisterController, and level 2 of share.version stands for dead-letter queues (KIP-1191). The request therefore has
the next free key, and a feature of Odradek shows whether it is served: docs/spec/share-groups.md#s5-13, rows 1, 2 and
27. The schemas repeat the API key and the tags; a test compares them.
"""

FEATURE = "odradek.share.transactions"
# Identifies the wire format: TxnShareAcknowledge has key 95, version 0. Another key would be another level.
FEATURE_LEVEL = 1
API_KEY = 95  # TxnShareAcknowledge, request and response, at FEATURE_LEVEL

PRIVATE_TAGS = 10_000  # tags from here on belong to Odradek: acknowledgements pending in a transaction, stored durably
