"""The handler of each API. It is imported at the first request for its API, so that starting up does not pay for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from odradek.broker.api.dispatch import Dispatcher, FastPath, HandlerCall, Route
    from odradek.broker.broker import Broker


def fast_path_of(route: Route[Broker], dispatcher: Dispatcher[Broker]) -> FastPath | None:
    """The quicker way for ordinary requests of this API and version, if there is one."""
    if route.api_key is not ApiKey.PRODUCE:
        return None
    from odradek.broker.produce.fast_path import fast_path

    return fast_path(route, dispatcher.broker, dispatcher.now_ms, dispatcher.authorizer)


def handler_of(api_key: ApiKey) -> HandlerCall[Broker]:
    """Raises KeyError for an API that is not served."""
    match api_key:
        case ApiKey.PRODUCE:
            from odradek.broker.handlers.produce import produce

            return produce
        case ApiKey.FETCH:
            from odradek.broker.handlers.fetch import fetch

            return fetch
        case ApiKey.LIST_OFFSETS:
            from odradek.broker.handlers.list_offsets import list_offsets

            return list_offsets
        case ApiKey.METADATA:
            from odradek.broker.handlers.metadata import metadata

            return metadata
        case ApiKey.OFFSET_COMMIT:
            from odradek.broker.handlers.offset_commit import offset_commit

            return offset_commit
        case ApiKey.OFFSET_FETCH:
            from odradek.broker.handlers.offset_fetch import offset_fetch

            return offset_fetch
        case ApiKey.FIND_COORDINATOR:
            from odradek.broker.handlers.find_coordinator import find_coordinator

            return find_coordinator
        case ApiKey.JOIN_GROUP:
            from odradek.broker.handlers.join_group import join_group

            return join_group
        case ApiKey.HEARTBEAT:
            from odradek.broker.handlers.heartbeat import heartbeat

            return heartbeat
        case ApiKey.LEAVE_GROUP:
            from odradek.broker.handlers.leave_group import leave_group

            return leave_group
        case ApiKey.SYNC_GROUP:
            from odradek.broker.handlers.sync_group import sync_group

            return sync_group
        case ApiKey.DESCRIBE_GROUPS:
            from odradek.broker.handlers.describe_groups import describe_groups

            return describe_groups
        case ApiKey.LIST_GROUPS:
            from odradek.broker.handlers.list_groups import list_groups

            return list_groups
        case ApiKey.SASL_HANDSHAKE:
            from odradek.broker.handlers.sasl_handshake import sasl_handshake

            return sasl_handshake
        case ApiKey.SASL_AUTHENTICATE:
            from odradek.broker.handlers.sasl_authenticate import sasl_authenticate

            return sasl_authenticate
        case ApiKey.API_VERSIONS:
            from odradek.broker.handlers.api_versions import api_versions

            return api_versions
        case ApiKey.CREATE_TOPICS:
            from odradek.broker.handlers.create_topics import create_topics

            return create_topics
        case ApiKey.DELETE_TOPICS:
            from odradek.broker.handlers.delete_topics import delete_topics

            return delete_topics
        case ApiKey.DELETE_RECORDS:
            from odradek.broker.handlers.delete_records import delete_records

            return delete_records
        case ApiKey.INIT_PRODUCER_ID:
            from odradek.broker.handlers.init_producer_id import init_producer_id

            return init_producer_id
        case ApiKey.OFFSET_FOR_LEADER_EPOCH:
            from odradek.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch

            return offset_for_leader_epoch
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            from odradek.broker.handlers.add_partitions_to_txn import add_partitions_to_txn

            return add_partitions_to_txn
        case ApiKey.ADD_OFFSETS_TO_TXN:
            from odradek.broker.handlers.add_offsets_to_txn import add_offsets_to_txn

            return add_offsets_to_txn
        case ApiKey.END_TXN:
            from odradek.broker.handlers.end_txn import end_txn

            return end_txn
        case ApiKey.WRITE_TXN_MARKERS:
            from odradek.broker.handlers.write_txn_markers import write_txn_markers

            return write_txn_markers
        case ApiKey.TXN_OFFSET_COMMIT:
            from odradek.broker.handlers.txn_offset_commit import txn_offset_commit

            return txn_offset_commit
        case ApiKey.DESCRIBE_ACLS:
            from odradek.broker.handlers.describe_acls import describe_acls

            return describe_acls
        case ApiKey.CREATE_ACLS:
            from odradek.broker.handlers.create_acls import create_acls

            return create_acls
        case ApiKey.DELETE_ACLS:
            from odradek.broker.handlers.delete_acls import delete_acls

            return delete_acls
        case ApiKey.DESCRIBE_CONFIGS:
            from odradek.broker.handlers.describe_configs import describe_configs

            return describe_configs
        case ApiKey.ALTER_CONFIGS:
            from odradek.broker.handlers.alter_configs import alter_configs

            return alter_configs
        case ApiKey.ALTER_REPLICA_LOG_DIRS:
            from odradek.broker.handlers.alter_replica_log_dirs import alter_replica_log_dirs

            return alter_replica_log_dirs
        case ApiKey.DESCRIBE_LOG_DIRS:
            from odradek.broker.handlers.describe_log_dirs import describe_log_dirs

            return describe_log_dirs
        case ApiKey.CREATE_PARTITIONS:
            from odradek.broker.handlers.create_partitions import create_partitions

            return create_partitions
        case ApiKey.CREATE_DELEGATION_TOKEN:
            from odradek.broker.handlers.create_delegation_token import create_delegation_token

            return create_delegation_token
        case ApiKey.RENEW_DELEGATION_TOKEN:
            from odradek.broker.handlers.renew_delegation_token import renew_delegation_token

            return renew_delegation_token
        case ApiKey.EXPIRE_DELEGATION_TOKEN:
            from odradek.broker.handlers.expire_delegation_token import expire_delegation_token

            return expire_delegation_token
        case ApiKey.DESCRIBE_DELEGATION_TOKEN:
            from odradek.broker.handlers.describe_delegation_token import describe_delegation_token

            return describe_delegation_token
        case ApiKey.DELETE_GROUPS:
            from odradek.broker.handlers.delete_groups import delete_groups

            return delete_groups
        case ApiKey.INCREMENTAL_ALTER_CONFIGS:
            from odradek.broker.handlers.incremental_alter_configs import incremental_alter_configs

            return incremental_alter_configs
        case ApiKey.ELECT_LEADERS:
            from odradek.broker.handlers.elect_leaders import elect_leaders

            return elect_leaders
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            from odradek.broker.handlers.alter_partition_reassignments import alter_partition_reassignments

            return alter_partition_reassignments
        case ApiKey.LIST_PARTITION_REASSIGNMENTS:
            from odradek.broker.handlers.list_partition_reassignments import list_partition_reassignments

            return list_partition_reassignments
        case ApiKey.OFFSET_DELETE:
            from odradek.broker.handlers.offset_delete import offset_delete

            return offset_delete
        case ApiKey.DESCRIBE_CLIENT_QUOTAS:
            from odradek.broker.handlers.describe_client_quotas import describe_client_quotas

            return describe_client_quotas
        case ApiKey.ALTER_CLIENT_QUOTAS:
            from odradek.broker.handlers.alter_client_quotas import alter_client_quotas

            return alter_client_quotas
        case ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
            from odradek.broker.handlers.describe_user_scram_credentials import describe_user_scram_credentials

            return describe_user_scram_credentials
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            from odradek.broker.handlers.alter_user_scram_credentials import alter_user_scram_credentials

            return alter_user_scram_credentials
        case ApiKey.DESCRIBE_QUORUM:
            from odradek.broker.handlers.describe_quorum import describe_quorum

            return describe_quorum
        case ApiKey.UPDATE_FEATURES:
            from odradek.broker.handlers.update_features import update_features

            return update_features
        case ApiKey.DESCRIBE_CLUSTER:
            from odradek.broker.handlers.describe_cluster import describe_cluster

            return describe_cluster
        case ApiKey.DESCRIBE_PRODUCERS:
            from odradek.broker.handlers.describe_producers import describe_producers

            return describe_producers
        case ApiKey.DESCRIBE_TRANSACTIONS:
            from odradek.broker.handlers.describe_transactions import describe_transactions

            return describe_transactions
        case ApiKey.LIST_TRANSACTIONS:
            from odradek.broker.handlers.list_transactions import list_transactions

            return list_transactions
        case ApiKey.CONSUMER_GROUP_HEARTBEAT:
            from odradek.broker.handlers.consumer_group_heartbeat import consumer_group_heartbeat

            return consumer_group_heartbeat
        case ApiKey.CONSUMER_GROUP_DESCRIBE:
            from odradek.broker.handlers.consumer_group_describe import consumer_group_describe

            return consumer_group_describe
        case ApiKey.LIST_CONFIG_RESOURCES:
            from odradek.broker.handlers.list_config_resources import list_config_resources

            return list_config_resources
        case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            from odradek.broker.handlers.describe_topic_partitions import describe_topic_partitions

            return describe_topic_partitions
        case ApiKey.SHARE_FETCH:
            from odradek.broker.handlers.share_fetch import share_fetch

            return share_fetch
        case ApiKey.SHARE_ACKNOWLEDGE:
            from odradek.broker.handlers.share_acknowledge import share_acknowledge

            return share_acknowledge
        case ApiKey.INITIALIZE_SHARE_GROUP_STATE:
            from odradek.broker.handlers.initialize_share_group_state import initialize_share_group_state

            return initialize_share_group_state
        case ApiKey.READ_SHARE_GROUP_STATE:
            from odradek.broker.handlers.read_share_group_state import read_share_group_state

            return read_share_group_state
        case ApiKey.WRITE_SHARE_GROUP_STATE:
            from odradek.broker.handlers.write_share_group_state import write_share_group_state

            return write_share_group_state
        case ApiKey.DELETE_SHARE_GROUP_STATE:
            from odradek.broker.handlers.delete_share_group_state import delete_share_group_state

            return delete_share_group_state
        case ApiKey.READ_SHARE_GROUP_STATE_SUMMARY:
            from odradek.broker.handlers.read_share_group_state_summary import read_share_group_state_summary

            return read_share_group_state_summary
        case ApiKey.SHARE_GROUP_HEARTBEAT:
            from odradek.broker.handlers.share_group_heartbeat import share_group_heartbeat

            return share_group_heartbeat
        case ApiKey.SHARE_GROUP_DESCRIBE:
            from odradek.broker.handlers.share_group_describe import share_group_describe

            return share_group_describe
        case ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS:
            from odradek.broker.handlers.describe_share_group_offsets import describe_share_group_offsets

            return describe_share_group_offsets
        case ApiKey.ALTER_SHARE_GROUP_OFFSETS:
            from odradek.broker.handlers.alter_share_group_offsets import alter_share_group_offsets

            return alter_share_group_offsets
        case ApiKey.DELETE_SHARE_GROUP_OFFSETS:
            from odradek.broker.handlers.delete_share_group_offsets import delete_share_group_offsets

            return delete_share_group_offsets
        case ApiKey.TXN_SHARE_ACKNOWLEDGE:
            from odradek.broker.handlers.txn_share_acknowledge import txn_share_acknowledge

            return txn_share_acknowledge
        case _:
            raise KeyError(f"nothing answers {api_key.name}")
