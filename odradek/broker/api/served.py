"""SERVED: the APIs and versions that are served, and what ApiVersions answers. Other requests are not answered.

A row names the module of `odradek/broker/handlers` in which the API's handler lies: a function with the API's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.protocol.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class Served:
    """One API: its handler's module, and the versions that ApiVersions shows, which are those of Kafka 4.3.1.

    `served_from`: older ones are shown but disconnected (Kafka lists Produce 0-2 only for the sake of librdkafka).
    `keeps_frame`: the handler writes into the frame, or uses its bytes after it returned: they must be its own.
    `is_sliced`: its handler serves others in between (`odradek.broker.runtime.slices`), so it may have more entries.
    `waits_for_others`: its answer may wait for time or other clients, and a broker that stops does not wait with it.
    """

    min_version: int
    max_version: int
    module: str
    served_from: int = 0
    keeps_frame: bool = False
    waits_for_others: bool = False
    is_sliced: bool = False

    def serves(self, version: int) -> bool:
        return max(self.min_version, self.served_from) <= version <= self.max_version


SERVED: Final[Mapping[ApiKey, Served]] = {
    ApiKey.PRODUCE: Served(0, 13, "records.produce", served_from=3, keeps_frame=True),
    ApiKey.FETCH: Served(4, 18, "records.fetch", waits_for_others=True),
    ApiKey.LIST_OFFSETS: Served(1, 11, "records.offsets", is_sliced=True),
    ApiKey.METADATA: Served(0, 13, "topics.metadata", is_sliced=True),
    ApiKey.OFFSET_COMMIT: Served(2, 10, "groups.group_offsets"),
    ApiKey.OFFSET_FETCH: Served(1, 10, "groups.offset_fetch", is_sliced=True),
    ApiKey.FIND_COORDINATOR: Served(0, 6, "groups.find_coordinator"),
    ApiKey.JOIN_GROUP: Served(0, 9, "groups.classic_groups", waits_for_others=True),
    ApiKey.HEARTBEAT: Served(0, 4, "groups.classic_groups"),
    ApiKey.LEAVE_GROUP: Served(0, 5, "groups.classic_groups"),
    ApiKey.SYNC_GROUP: Served(0, 5, "groups.classic_groups", waits_for_others=True),
    ApiKey.DESCRIBE_GROUPS: Served(0, 6, "groups.group_administration", is_sliced=True),
    ApiKey.LIST_GROUPS: Served(0, 5, "groups.group_administration"),
    ApiKey.SASL_HANDSHAKE: Served(0, 1, "security.logins"),
    ApiKey.API_VERSIONS: Served(0, 4, "cluster.features"),
    ApiKey.CREATE_TOPICS: Served(2, 7, "topics.topics"),
    ApiKey.DELETE_TOPICS: Served(1, 6, "topics.topics"),
    ApiKey.DELETE_RECORDS: Served(0, 2, "records.administration"),
    ApiKey.INIT_PRODUCER_ID: Served(0, 6, "transactions.transactions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served(2, 4, "records.offsets"),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served(0, 5, "transactions.transactions"),
    ApiKey.ADD_OFFSETS_TO_TXN: Served(0, 4, "transactions.transactions"),
    ApiKey.END_TXN: Served(0, 5, "transactions.transactions"),
    ApiKey.WRITE_TXN_MARKERS: Served(1, 2, "transactions.administration"),
    ApiKey.TXN_OFFSET_COMMIT: Served(0, 5, "transactions.txn_offset_commit"),
    ApiKey.DESCRIBE_ACLS: Served(1, 3, "security.acls"),
    ApiKey.CREATE_ACLS: Served(1, 3, "security.acls"),
    ApiKey.DELETE_ACLS: Served(1, 3, "security.acls"),
    ApiKey.DESCRIBE_CONFIGS: Served(1, 4, "topics.configs", is_sliced=True),
    ApiKey.ALTER_CONFIGS: Served(0, 2, "topics.configs"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served(1, 2, "cluster.replicas"),
    ApiKey.DESCRIBE_LOG_DIRS: Served(1, 5, "cluster.replicas"),
    ApiKey.SASL_AUTHENTICATE: Served(0, 2, "security.logins"),
    ApiKey.CREATE_PARTITIONS: Served(0, 3, "topics.topics"),
    ApiKey.CREATE_DELEGATION_TOKEN: Served(1, 3, "security.tokens"),
    ApiKey.RENEW_DELEGATION_TOKEN: Served(1, 2, "security.tokens"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Served(1, 2, "security.tokens"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Served(1, 3, "security.tokens"),
    ApiKey.DELETE_GROUPS: Served(0, 2, "groups.group_administration"),
    ApiKey.ELECT_LEADERS: Served(0, 2, "cluster.replicas"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served(0, 1, "topics.configs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served(0, 1, "cluster.replicas"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served(0, 0, "cluster.replicas"),
    ApiKey.OFFSET_DELETE: Served(0, 0, "groups.group_offsets"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served(0, 1, "security.quotas"),
    ApiKey.ALTER_CLIENT_QUOTAS: Served(0, 1, "security.quotas"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served(0, 0, "security.logins"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served(0, 0, "security.logins"),
    ApiKey.DESCRIBE_QUORUM: Served(0, 2, "cluster.cluster"),
    ApiKey.UPDATE_FEATURES: Served(0, 2, "cluster.features"),
    ApiKey.DESCRIBE_CLUSTER: Served(0, 2, "cluster.cluster"),
    ApiKey.DESCRIBE_PRODUCERS: Served(0, 0, "records.administration"),
    ApiKey.DESCRIBE_TRANSACTIONS: Served(0, 0, "transactions.administration"),
    ApiKey.LIST_TRANSACTIONS: Served(0, 2, "transactions.administration"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served(0, 1, "groups.consumer_groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served(0, 1, "groups.consumer_groups"),
    ApiKey.LIST_CONFIG_RESOURCES: Served(0, 1, "topics.configs"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served(0, 0, "topics.metadata", is_sliced=True),
    ApiKey.SHARE_GROUP_HEARTBEAT: Served(1, 1, "shares.share_groups"),
    ApiKey.SHARE_GROUP_DESCRIBE: Served(1, 1, "shares.share_groups"),
    ApiKey.SHARE_FETCH: Served(1, 2, "shares.share_session", waits_for_others=True),
    ApiKey.SHARE_ACKNOWLEDGE: Served(1, 2, "shares.share_session"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Served(0, 0, "shares.share_group_state"),
    ApiKey.READ_SHARE_GROUP_STATE: Served(0, 0, "shares.share_group_state"),
    ApiKey.WRITE_SHARE_GROUP_STATE: Served(0, 1, "shares.share_group_state"),
    ApiKey.DELETE_SHARE_GROUP_STATE: Served(0, 0, "shares.share_group_state"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Served(0, 1, "shares.share_group_state"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Served(0, 1, "shares.share_group_offsets"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Served(0, 0, "shares.share_group_offsets"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Served(0, 0, "shares.share_group_offsets"),
    # Gated by a feature: handlers/cluster/features.py.
    ApiKey.TXN_SHARE_ACKNOWLEDGE: Served(0, 0, "shares.txn_share_acknowledge"),
}
