"""The numbers under which Odradek serves KIP-1289 (acknowledgements inside a transaction), which no Kafka has released.

The KIP's own numbers went to other things in Kafka 4.4: key 93 is StreamsGroupTopologyDescriptionUpdate, 94 is
UnregisterController, and level 2 of share.version means dead-letter queues (KIP-1191). So the request has the next free
key, and a feature of Odradek's own says whether it is served: docs/spec/share-groups.md#s5-13, rows 1, 2 and 27. The
schemas repeat the API key and the tags; a test compares them.
"""

FEATURE = "odradek.share.transactions"
FEATURE_LEVEL = 1  # names the wire form: TxnShareAcknowledge has key 95, version 0. Another key would be another level
API_KEY = 95  # TxnShareAcknowledge, request and response, at FEATURE_LEVEL

PRIVATE_TAGS = 10_000  # tags from here on are ours: acknowledgements pending in a transaction, stored durably
