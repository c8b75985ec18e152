"""The features that this broker supports, with the levels that can be finalised.

A feature level is only listed if everything that it promises is implemented. Source: Kafka 4.4.0's feature enums, as
observed (docs/spec/kafka-4.4.md#s2). No Kafka release has odradek.share.transactions.
"""

from collections.abc import Mapping

from odradek.protocol import kip_1289

METADATA_VERSION = "metadata.version"
METADATA_VERSION_4_3 = 30
METADATA_VERSION_CIDR = 32  # 4.4-IV1: ACL hosts can be address ranges (KIP-1276)
METADATA_VERSION_UNREGISTERS_CONTROLLERS = 33  # 4.4-IV2: the record UnregisterController (KIP-1312)
METADATA_VERSION_4_4 = METADATA_VERSION_UNREGISTERS_CONTROLLERS  # newest known level, used for new clusters
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_EPOCHS = 2  # ending a transaction always bumps the producer epoch (KIP-890)
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
SHARE_VERSION_GROUPS = 1  # KIP-932
SHARE_VERSION_DEAD_LETTERS = 2  # KIP-1191, as in Kafka 4.4
SHARE_TRANSACTIONS = kip_1289.FEATURE  # share group acknowledgements in transactions (KIP-1289); not part of Kafka
SHARE_TRANSACTIONS_LEVEL = kip_1289.FEATURE_LEVEL
STREAMS_VERSION = "streams.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    ELIGIBLE_LEADER_REPLICAS: (0, 1),  # KIP-966
    "kraft.version": (0, 1),
    METADATA_VERSION: (7, METADATA_VERSION_4_4),  # 7 is 3.3-IV3
    GROUP_VERSION: (0, 1),  # KIP-848
    SHARE_VERSION: (0, SHARE_VERSION_DEAD_LETTERS),
    STREAMS_VERSION: (0, 1),  # KIP-1071
    TRANSACTION_VERSION: (0, 2),  # level 0: KIP-98; level 1: flexible records; level 2: KIP-890
    SHARE_TRANSACTIONS: (0, SHARE_TRANSACTIONS_LEVEL),  # ADR 35
}

# A new cluster's levels. All other features have level 0, which is not recorded.
FIRST_LEVELS: Mapping[str, int] = {
    METADATA_VERSION: METADATA_VERSION_4_4,
    ELIGIBLE_LEADER_REPLICAS: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: SHARE_VERSION_DEAD_LETTERS,
    STREAMS_VERSION: 1,
    TRANSACTION_VERSION: TRANSACTION_VERSION_EPOCHS,
}


def serves_share_transactions(levels: Mapping[str, int]) -> bool:
    """Returns whether TxnShareAcknowledge is served and listed at these finalised levels."""
    return levels.get(SHARE_TRANSACTIONS, 0) > 0 and supports_share_transactions(levels)


def supports_share_transactions(levels: Mapping[str, int]) -> bool:
    """Returns whether all features that SHARE_TRANSACTIONS requires have the necessary levels."""
    return (
        levels.get(SHARE_VERSION, 0) >= SHARE_VERSION_GROUPS
        and levels.get(TRANSACTION_VERSION, 0) >= TRANSACTION_VERSION_EPOCHS
    )


def may_have_pending(levels: Mapping[str, int]) -> bool:
    """Returns whether acknowledgements may be pending in a transaction that began at these levels."""
    return levels.get(SHARE_TRANSACTIONS, 0) > 0 and levels.get(SHARE_VERSION, 0) >= SHARE_VERSION_GROUPS
