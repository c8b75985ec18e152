"""The features that this broker knows, and the levels at which it can finalise them.

A feature is listed once everything it promises is served. Source: the feature enums of Kafka 4.4.0, observed
(docs/spec/kafka-4.4.md#s2); odradek.share.transactions is in no Kafka.
"""

from collections.abc import Mapping

from odradek.protocol import kip_1289

METADATA_VERSION = "metadata.version"
METADATA_VERSION_4_3 = 30
METADATA_VERSION_CIDR = 32  # 4.4-IV1: hosts of ACLs may be ranges of addresses (KIP-1276)
METADATA_VERSION_UNREGISTERS_CONTROLLERS = 33  # 4.4-IV2: the record UnregisterController (KIP-1312)
METADATA_VERSION_4_4 = METADATA_VERSION_UNREGISTERS_CONTROLLERS  # the newest that is known, and that of a new cluster
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_EPOCHS = 2  # every end of a transaction raises the producer's epoch (KIP-890)
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
SHARE_VERSION_GROUPS = 1  # KIP-932
SHARE_VERSION_DEAD_LETTERS = 2  # KIP-1191, as in Kafka 4.4
SHARE_TRANSACTIONS = kip_1289.FEATURE  # in no Kafka: acknowledgements of share groups in transactions (KIP-1289)
SHARE_TRANSACTIONS_LEVEL = kip_1289.FEATURE_LEVEL
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    ELIGIBLE_LEADER_REPLICAS: (0, 1),  # one replica is the only eligible leader there is
    "kraft.version": (0, 1),
    METADATA_VERSION: (7, METADATA_VERSION_4_4),  # from 3.3-IV3
    GROUP_VERSION: (0, 1),  # KIP-848
    SHARE_VERSION: (0, SHARE_VERSION_DEAD_LETTERS),
    TRANSACTION_VERSION: (0, 2),  # KIP-98; flexible records; KIP-890
    SHARE_TRANSACTIONS: (0, SHARE_TRANSACTIONS_LEVEL),  # ADR 35
}

KNOWN_BY_KAFKA = frozenset({"streams.version"})  # its levels may be finalised in a directory; nothing follows from them

# Of a new cluster: those whose promises are kept. A level of 0 is not recorded.
FIRST_LEVELS: Mapping[str, int] = {
    METADATA_VERSION: METADATA_VERSION_4_4,
    ELIGIBLE_LEADER_REPLICAS: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: SHARE_VERSION_DEAD_LETTERS,
    TRANSACTION_VERSION: TRANSACTION_VERSION_EPOCHS,
}


def serves_share_transactions(levels: Mapping[str, int]) -> bool:
    """Tells whether TxnShareAcknowledge is served and listed at these finalised levels."""
    return levels.get(SHARE_TRANSACTIONS, 0) > 0 and has_what_share_transactions_need(levels)


def has_what_share_transactions_need(levels: Mapping[str, int]) -> bool:
    """Tells whether the features are there without which SHARE_TRANSACTIONS cannot be raised."""
    return (
        levels.get(SHARE_VERSION, 0) >= SHARE_VERSION_GROUPS
        and levels.get(TRANSACTION_VERSION, 0) >= TRANSACTION_VERSION_EPOCHS
    )


def may_have_pending(levels: Mapping[str, int]) -> bool:
    """Tells whether acknowledgements may be waiting for the end of a transaction that began at these levels."""
    return levels.get(SHARE_TRANSACTIONS, 0) > 0 and levels.get(SHARE_VERSION, 0) >= SHARE_VERSION_GROUPS
