"""SERVED: the APIs and versions that are served, and what ApiVersions answers. Other requests are not answered.

A row names the folder of `odradek/broker/handlers` in which the API's handler lies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.protocol.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class Served:
    """One API: its handler's folder, and the versions that ApiVersions shows, which are those of Kafka 4.3.1.

    `served_from`: older ones are shown but disconnected (Kafka lists Produce 0-2 only for the sake of librdkafka).
    `keeps_frame`: the handler writes into the frame, or uses its bytes after it returned: they must be its own.
    `is_sliced`: its handler serves others in between (`odradek.broker.runtime.slices`), whatever the number of entries.
    `waits_for_others`: its answer may wait for time or other clients, and a broker that stops does not wait with it.
    """

    min_version: int
    max_version: int
    folder: str
    served_from: int = 0
    keeps_frame: bool = False
    waits_for_others: bool = False
    is_sliced: bool = False

    def serves(self, version: int) -> bool:
        return max(self.min_version, self.served_from) <= version <= self.max_version


SERVED: Final[Mapping[ApiKey, Served]] = {
    ApiKey.PRODUCE: Served(0, 13, "records", served_from=3, keeps_frame=True),
    ApiKey.FETCH: Served(4, 18, "records", waits_for_others=True),
    ApiKey.LIST_OFFSETS: Served(1, 11, "records", is_sliced=True),
    ApiKey.METADATA: Served(0, 13, "topics", is_sliced=True),
    ApiKey.OFFSET_COMMIT: Served(2, 10, "groups"),
    ApiKey.OFFSET_FETCH: Served(1, 10, "groups", is_sliced=True),
    ApiKey.FIND_COORDINATOR: Served(0, 6, "groups"),
    ApiKey.JOIN_GROUP: Served(0, 9, "groups", waits_for_others=True),
    ApiKey.HEARTBEAT: Served(0, 4, "groups"),
    ApiKey.LEAVE_GROUP: Served(0, 5, "groups"),
    ApiKey.SYNC_GROUP: Served(0, 5, "groups", waits_for_others=True),
    ApiKey.DESCRIBE_GROUPS: Served(0, 6, "groups", is_sliced=True),
    ApiKey.LIST_GROUPS: Served(0, 5, "groups"),
    ApiKey.SASL_HANDSHAKE: Served(0, 1, "security"),
    ApiKey.API_VERSIONS: Served(0, 4, "cluster"),
    ApiKey.CREATE_TOPICS: Served(2, 7, "topics"),
    ApiKey.DELETE_TOPICS: Served(1, 6, "topics"),
    ApiKey.DELETE_RECORDS: Served(0, 2, "records"),
    ApiKey.INIT_PRODUCER_ID: Served(0, 6, "transactions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served(2, 4, "records"),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served(0, 5, "transactions"),
    ApiKey.ADD_OFFSETS_TO_TXN: Served(0, 4, "transactions"),
    ApiKey.END_TXN: Served(0, 5, "transactions"),
    ApiKey.WRITE_TXN_MARKERS: Served(1, 2, "transactions"),
    ApiKey.TXN_OFFSET_COMMIT: Served(0, 5, "transactions"),
    ApiKey.DESCRIBE_ACLS: Served(1, 3, "security"),
    ApiKey.CREATE_ACLS: Served(1, 3, "security"),
    ApiKey.DELETE_ACLS: Served(1, 3, "security"),
    ApiKey.DESCRIBE_CONFIGS: Served(1, 4, "topics", is_sliced=True),
    ApiKey.ALTER_CONFIGS: Served(0, 2, "topics"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served(1, 2, "cluster"),
    ApiKey.DESCRIBE_LOG_DIRS: Served(1, 5, "cluster"),
    ApiKey.SASL_AUTHENTICATE: Served(0, 2, "security"),
    ApiKey.CREATE_PARTITIONS: Served(0, 3, "topics"),
    ApiKey.CREATE_DELEGATION_TOKEN: Served(1, 3, "security"),
    ApiKey.RENEW_DELEGATION_TOKEN: Served(1, 2, "security"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Served(1, 2, "security"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Served(1, 3, "security"),
    ApiKey.DELETE_GROUPS: Served(0, 2, "groups"),
    ApiKey.ELECT_LEADERS: Served(0, 2, "cluster"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served(0, 1, "topics"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served(0, 1, "cluster"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served(0, 0, "cluster"),
    ApiKey.OFFSET_DELETE: Served(0, 0, "groups"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served(0, 1, "security"),
    ApiKey.ALTER_CLIENT_QUOTAS: Served(0, 1, "security"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served(0, 0, "security"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served(0, 0, "security"),
    ApiKey.DESCRIBE_QUORUM: Served(0, 2, "cluster"),
    ApiKey.UPDATE_FEATURES: Served(0, 2, "cluster"),
    ApiKey.DESCRIBE_CLUSTER: Served(0, 2, "cluster"),
    ApiKey.DESCRIBE_PRODUCERS: Served(0, 0, "records"),
    ApiKey.DESCRIBE_TRANSACTIONS: Served(0, 0, "transactions"),
    ApiKey.LIST_TRANSACTIONS: Served(0, 2, "transactions"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served(0, 1, "groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served(0, 1, "groups"),
    ApiKey.LIST_CONFIG_RESOURCES: Served(0, 1, "topics"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served(0, 0, "topics", is_sliced=True),
    ApiKey.SHARE_GROUP_HEARTBEAT: Served(1, 1, "shares"),
    ApiKey.SHARE_GROUP_DESCRIBE: Served(1, 1, "shares"),
    ApiKey.SHARE_FETCH: Served(1, 2, "shares", waits_for_others=True),
    ApiKey.SHARE_ACKNOWLEDGE: Served(1, 2, "shares"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Served(0, 0, "shares"),
    ApiKey.READ_SHARE_GROUP_STATE: Served(0, 0, "shares"),
    ApiKey.WRITE_SHARE_GROUP_STATE: Served(0, 1, "shares"),
    ApiKey.DELETE_SHARE_GROUP_STATE: Served(0, 0, "shares"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Served(0, 1, "shares"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Served(0, 1, "shares"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Served(0, 0, "shares"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Served(0, 0, "shares"),
    ApiKey.TXN_SHARE_ACKNOWLEDGE: Served(0, 0, "shares"),  # gated: handlers/cluster/api_versions.py
}
