"""The APIs and versions that this broker supports and lists in ApiVersions (SERVED). Any other request closes its
connection, with one exception: an ApiVersions request with an unknown version gets a response (KIP-511).

Each row names a module in `odradek/broker/handlers`, which contains the API's handler as a function with the API's
name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.kafka_rules import NEWEST, KafkaRules


@dataclass(frozen=True, slots=True)
class ServedApi:
    """One API: the module of its handler, and the versions that ApiVersions lists. The versions are those of Kafka
    4.4.0 and InitProducerId v6, which Kafka lists only with `unstable.api.versions.enable`.

    served_from       the first version that is served; requests of older versions close the connection, even if
                      ApiVersions lists the versions (Kafka lists Produce 0-2 only for librdkafka)
    keeps_frame       whether the handler writes into the frame or uses it after returning, in which case the frame must
                      not be shared
    is_sliced         whether other clients are served between slices of the handler (`odradek.broker.runtime.slices`),
                      so that more entries are allowed. If the response is not ready immediately, a thread encodes it
    waits_for_others  whether the response may have to wait for time to pass or for other clients, so that a stopping
                      broker does not wait for the response
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


@dataclass(frozen=True, slots=True)
class OfferedVersions:
    """The versions that a broker supports and lists: SERVED, or the versions of an older release that it emulates.

    features      the lowest and the highest level that can be finalised, by feature name
    first_levels  feature levels of a new cluster; a missing feature has level 0
    rules         the release whose rules apply if releases differ
    """

    apis: Mapping[ApiKey, ServedApi]
    features: Mapping[str, tuple[int, int]]
    first_levels: Mapping[str, int]
    rules: KafkaRules = NEWEST


SERVED: Final[Mapping[ApiKey, ServedApi]] = {
    ApiKey.PRODUCE: ServedApi(0, 13, "records.produce", served_from=3, keeps_frame=True),
    ApiKey.FETCH: ServedApi(4, 18, "records.fetch", waits_for_others=True),
    ApiKey.LIST_OFFSETS: ServedApi(1, 11, "records.offsets", is_sliced=True),
    ApiKey.METADATA: ServedApi(0, 13, "topics.metadata", is_sliced=True),
    ApiKey.OFFSET_COMMIT: ServedApi(2, 10, "groups.group_offsets"),
    ApiKey.OFFSET_FETCH: ServedApi(1, 10, "groups.offset_fetch", is_sliced=True),
    ApiKey.FIND_COORDINATOR: ServedApi(0, 6, "groups.find_coordinator", is_sliced=True),
    ApiKey.JOIN_GROUP: ServedApi(0, 9, "groups.classic_groups", waits_for_others=True),
    ApiKey.HEARTBEAT: ServedApi(0, 4, "groups.classic_groups"),
    ApiKey.LEAVE_GROUP: ServedApi(0, 5, "groups.classic_groups"),
    ApiKey.SYNC_GROUP: ServedApi(0, 5, "groups.classic_groups", waits_for_others=True),
    ApiKey.DESCRIBE_GROUPS: ServedApi(0, 6, "groups.group_administration", is_sliced=True),
    ApiKey.LIST_GROUPS: ServedApi(0, 5, "groups.group_administration", is_sliced=True),
    ApiKey.SASL_HANDSHAKE: ServedApi(0, 1, "security.logins"),
    ApiKey.API_VERSIONS: ServedApi(0, 5, "cluster.features"),
    ApiKey.CREATE_TOPICS: ServedApi(2, 7, "topics.topics"),
    ApiKey.DELETE_TOPICS: ServedApi(1, 6, "topics.topics"),
    ApiKey.DELETE_RECORDS: ServedApi(0, 2, "records.administration"),
    ApiKey.INIT_PRODUCER_ID: ServedApi(0, 6, "transactions.transactions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ServedApi(2, 4, "records.offsets"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ServedApi(0, 5, "transactions.transactions"),
    ApiKey.ADD_OFFSETS_TO_TXN: ServedApi(0, 4, "transactions.transactions"),
    ApiKey.END_TXN: ServedApi(0, 5, "transactions.transactions"),
    ApiKey.WRITE_TXN_MARKERS: ServedApi(1, 2, "transactions.administration"),
    ApiKey.TXN_OFFSET_COMMIT: ServedApi(0, 6, "transactions.txn_offset_commit"),
    ApiKey.DESCRIBE_ACLS: ServedApi(1, 3, "security.acls", is_sliced=True),
    ApiKey.CREATE_ACLS: ServedApi(1, 3, "security.acls"),
    ApiKey.DELETE_ACLS: ServedApi(1, 3, "security.acls"),
    ApiKey.DESCRIBE_CONFIGS: ServedApi(1, 4, "topics.configs", is_sliced=True),
    ApiKey.ALTER_CONFIGS: ServedApi(0, 2, "topics.configs"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ServedApi(1, 2, "cluster.replicas"),
    ApiKey.DESCRIBE_LOG_DIRS: ServedApi(1, 5, "cluster.replicas"),
    ApiKey.SASL_AUTHENTICATE: ServedApi(0, 2, "security.logins"),
    ApiKey.CREATE_PARTITIONS: ServedApi(0, 3, "topics.topics"),
    ApiKey.CREATE_DELEGATION_TOKEN: ServedApi(1, 3, "security.tokens"),
    ApiKey.RENEW_DELEGATION_TOKEN: ServedApi(1, 2, "security.tokens"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ServedApi(1, 2, "security.tokens"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ServedApi(1, 3, "security.tokens"),
    ApiKey.DELETE_GROUPS: ServedApi(0, 3, "groups.group_administration"),
    ApiKey.ELECT_LEADERS: ServedApi(0, 2, "cluster.replicas"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ServedApi(0, 1, "topics.configs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ServedApi(0, 1, "cluster.replicas"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ServedApi(0, 0, "cluster.replicas"),
    ApiKey.OFFSET_DELETE: ServedApi(0, 0, "groups.group_offsets"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ServedApi(0, 1, "security.quotas"),
    ApiKey.ALTER_CLIENT_QUOTAS: ServedApi(0, 1, "security.quotas"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ServedApi(0, 0, "security.logins"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ServedApi(0, 0, "security.logins"),
    ApiKey.DESCRIBE_QUORUM: ServedApi(0, 2, "cluster.cluster"),
    ApiKey.UPDATE_FEATURES: ServedApi(0, 2, "cluster.features"),
    ApiKey.DESCRIBE_CLUSTER: ServedApi(0, 2, "cluster.cluster"),
    ApiKey.DESCRIBE_PRODUCERS: ServedApi(0, 0, "records.administration", is_sliced=True),
    ApiKey.DESCRIBE_TRANSACTIONS: ServedApi(0, 0, "transactions.administration", is_sliced=True),
    ApiKey.LIST_TRANSACTIONS: ServedApi(0, 2, "transactions.administration", is_sliced=True),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ServedApi(0, 1, "groups.consumer_groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ServedApi(0, 1, "groups.consumer_groups"),
    ApiKey.LIST_CONFIG_RESOURCES: ServedApi(0, 1, "topics.configs"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ServedApi(0, 0, "topics.metadata", is_sliced=True),
    ApiKey.SHARE_GROUP_HEARTBEAT: ServedApi(1, 1, "shares.share_groups"),
    ApiKey.SHARE_GROUP_DESCRIBE: ServedApi(1, 1, "shares.share_groups"),
    ApiKey.SHARE_FETCH: ServedApi(1, 2, "shares.share_session", waits_for_others=True),
    ApiKey.SHARE_ACKNOWLEDGE: ServedApi(1, 2, "shares.share_session"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ServedApi(0, 0, "shares.share_group_state"),
    ApiKey.READ_SHARE_GROUP_STATE: ServedApi(0, 0, "shares.share_group_state"),
    ApiKey.WRITE_SHARE_GROUP_STATE: ServedApi(0, 1, "shares.share_group_state"),
    ApiKey.DELETE_SHARE_GROUP_STATE: ServedApi(0, 0, "shares.share_group_state"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ServedApi(0, 1, "shares.share_group_state"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ServedApi(0, 1, "groups.streams_groups"),
    ApiKey.STREAMS_GROUP_DESCRIBE: ServedApi(0, 1, "groups.streams_groups"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ServedApi(0, 1, "shares.share_group_offsets"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ServedApi(0, 0, "shares.share_group_offsets"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ServedApi(0, 0, "shares.share_group_offsets"),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: ServedApi(0, 0, "groups.streams_groups"),
    # Listed only while the cluster's features allow acknowledgements in transactions; see handlers/cluster/features.py.
    ApiKey.TXN_SHARE_ACKNOWLEDGE: ServedApi(0, 0, "shares.txn_share_acknowledge"),
    ApiKey.UNREGISTER_CONTROLLER: ServedApi(0, 0, "cluster.cluster"),
}


def by_number(served: Mapping[ApiKey, ServedApi]) -> Mapping[int, tuple[ApiKey, ServedApi]]:
    """Returns the table by API number. All brokers with the table SERVED share one result."""
    return SERVED_BY_NUMBER if served is SERVED else _by_number(served)


def _by_number(served: Mapping[ApiKey, ServedApi]) -> Mapping[int, tuple[ApiKey, ServedApi]]:
    return {key.value: (key, one) for key, one in served.items()}


SERVED_BY_NUMBER: Final = _by_number(SERVED)
