"""SERVED: the APIs and versions that are served, and what ApiVersions answers. Other requests are not answered.

`odradek/broker/handlers/by_api_key.py` names the function that answers each API.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.protocol.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class Served:
    """The versions of one API that ApiVersions shows, which are those of Kafka 4.3.1.

    `served_from`: older ones are shown but disconnected (Kafka lists Produce 0-2 only for the sake of librdkafka).
    `keeps_frame`: the handler writes into the frame, or uses its bytes after it returned: they must be its own.
    `waits_for_others`: its answer may wait for time or other clients, and a broker that stops does not wait with it.
    """

    min_version: int
    max_version: int
    served_from: int = 0
    keeps_frame: bool = False
    waits_for_others: bool = False

    def serves(self, version: int) -> bool:
        return max(self.min_version, self.served_from) <= version <= self.max_version


SERVED: Final[Mapping[ApiKey, Served]] = {
    ApiKey.PRODUCE: Served(0, 13, served_from=3, keeps_frame=True),
    ApiKey.FETCH: Served(4, 18, waits_for_others=True),
    ApiKey.LIST_OFFSETS: Served(1, 11),
    ApiKey.METADATA: Served(0, 13),
    ApiKey.OFFSET_COMMIT: Served(2, 10),
    ApiKey.OFFSET_FETCH: Served(1, 10),
    ApiKey.FIND_COORDINATOR: Served(0, 6),
    ApiKey.JOIN_GROUP: Served(0, 9, waits_for_others=True),
    ApiKey.HEARTBEAT: Served(0, 4),
    ApiKey.LEAVE_GROUP: Served(0, 5),
    ApiKey.SYNC_GROUP: Served(0, 5, waits_for_others=True),
    ApiKey.DESCRIBE_GROUPS: Served(0, 6),
    ApiKey.LIST_GROUPS: Served(0, 5),
    ApiKey.SASL_HANDSHAKE: Served(0, 1),
    ApiKey.API_VERSIONS: Served(0, 4),
    ApiKey.CREATE_TOPICS: Served(2, 7),
    ApiKey.DELETE_TOPICS: Served(1, 6),
    ApiKey.DELETE_RECORDS: Served(0, 2),
    ApiKey.INIT_PRODUCER_ID: Served(0, 6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served(0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Served(0, 4),
    ApiKey.END_TXN: Served(0, 5),
    ApiKey.WRITE_TXN_MARKERS: Served(1, 2),
    ApiKey.TXN_OFFSET_COMMIT: Served(0, 5),
    ApiKey.DESCRIBE_ACLS: Served(1, 3),
    ApiKey.CREATE_ACLS: Served(1, 3),
    ApiKey.DELETE_ACLS: Served(1, 3),
    ApiKey.DESCRIBE_CONFIGS: Served(1, 4),
    ApiKey.ALTER_CONFIGS: Served(0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served(1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Served(1, 5),
    ApiKey.SASL_AUTHENTICATE: Served(0, 2),
    ApiKey.CREATE_PARTITIONS: Served(0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: Served(1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: Served(1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Served(1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Served(1, 3),
    ApiKey.DELETE_GROUPS: Served(0, 2),
    ApiKey.ELECT_LEADERS: Served(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served(0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served(0, 0),
    ApiKey.OFFSET_DELETE: Served(0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served(0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Served(0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served(0, 0),
    ApiKey.DESCRIBE_QUORUM: Served(0, 2),
    ApiKey.UPDATE_FEATURES: Served(0, 2),
    ApiKey.DESCRIBE_CLUSTER: Served(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Served(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Served(0, 0),
    ApiKey.LIST_TRANSACTIONS: Served(0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served(0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served(0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: Served(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served(0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: Served(1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: Served(1, 1),
    ApiKey.SHARE_FETCH: Served(1, 2, waits_for_others=True),
    ApiKey.SHARE_ACKNOWLEDGE: Served(1, 2),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Served(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: Served(0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: Served(0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: Served(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Served(0, 1),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Served(0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Served(0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Served(0, 0),
    ApiKey.TXN_SHARE_ACKNOWLEDGE: Served(0, 0),  # while it is gated in: `odradek.broker.handlers.api_versions`
}
