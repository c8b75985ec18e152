"""The numbers that KIP-1289 (acknowledgements inside a transaction) takes, of which later Kafkas make other use.

No released Kafka has it, so nobody has reserved them: docs/spec/share-groups.md#s5-13, rows 1, 2 and 27. The schemas
repeat the API key and the tags; a test compares them.
"""

API_KEY = 93  # TxnShareAcknowledge, request and response. Kafka 4.4: StreamsGroupTopologyDescriptionUpdate
SHARE_VERSION = 2  # level of share.version. Kafka 4.4: dead-letter queues (KIP-1191)

PRIVATE_TAGS = 10_000  # tags from here on are ours: acknowledgements staged in a transaction, stored durably
