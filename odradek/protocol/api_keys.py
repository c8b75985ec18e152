"""Kafka's API keys. `odradek.broker.api.dispatch` says which of them are served, and in which versions."""

from enum import Enum
from typing import Final

from odradek.protocol import kip_1289


class ApiKey(Enum):
    """The value is the int16 at the head of every request; names follow Kafka's message names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    TXN_SHARE_ACKNOWLEDGE = kip_1289.API_KEY

    @property
    def kafka_name(self) -> str:
        """Spells it as Kafka's metrics and documentation do, e.g. CreateTopics."""
        return self.name.title().replace("_", "")


# By API, the first version whose throttle time the client waits out, since the broker answers at once (KIP-219).
# Answers of other APIs tell a time, too, but Kafka's clients do not wait for it.
# Source: `shouldClientThrottle` of `org.apache.kafka.common.requests.AbstractResponse` and of those derived from it.
CLIENTS_WAIT_FROM: Final = {
    ApiKey.PRODUCE.value: 6,
    ApiKey.FETCH.value: 8,
    ApiKey.LIST_OFFSETS.value: 3,
    ApiKey.METADATA.value: 6,
    ApiKey.OFFSET_COMMIT.value: 4,
    ApiKey.OFFSET_FETCH.value: 4,
    ApiKey.FIND_COORDINATOR.value: 2,
    ApiKey.JOIN_GROUP.value: 3,
    ApiKey.HEARTBEAT.value: 2,
    ApiKey.LEAVE_GROUP.value: 2,
    ApiKey.SYNC_GROUP.value: 2,
    ApiKey.DESCRIBE_GROUPS.value: 2,
    ApiKey.LIST_GROUPS.value: 2,
    ApiKey.API_VERSIONS.value: 2,
    ApiKey.CREATE_TOPICS.value: 3,
    ApiKey.DELETE_TOPICS.value: 2,
    ApiKey.DELETE_RECORDS.value: 1,
    ApiKey.INIT_PRODUCER_ID.value: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN.value: 1,
    ApiKey.ADD_OFFSETS_TO_TXN.value: 1,
    ApiKey.END_TXN.value: 1,
    ApiKey.TXN_OFFSET_COMMIT.value: 1,
    ApiKey.DESCRIBE_ACLS.value: 1,
    ApiKey.CREATE_ACLS.value: 1,
    ApiKey.DELETE_ACLS.value: 1,
    ApiKey.DESCRIBE_CONFIGS.value: 2,
    ApiKey.ALTER_CONFIGS.value: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS.value: 1,
    ApiKey.DESCRIBE_LOG_DIRS.value: 1,
    ApiKey.CREATE_PARTITIONS.value: 1,
    ApiKey.CREATE_DELEGATION_TOKEN.value: 1,
    ApiKey.RENEW_DELEGATION_TOKEN.value: 1,
    ApiKey.EXPIRE_DELEGATION_TOKEN.value: 1,
    ApiKey.DESCRIBE_DELEGATION_TOKEN.value: 1,
    ApiKey.DELETE_GROUPS.value: 1,
    ApiKey.ELECT_LEADERS.value: 0,
    ApiKey.INCREMENTAL_ALTER_CONFIGS.value: 0,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS.value: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS.value: 0,
    ApiKey.OFFSET_DELETE.value: 0,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS.value: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS.value: 0,
    ApiKey.UNREGISTER_BROKER.value: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS.value: 0,
}


def client_waits(api_key: int, version: int) -> bool:
    """Says whether a client is to send nothing until the throttle time of such an answer has passed."""
    return version >= CLIENTS_WAIT_FROM.get(api_key, version + 1)
