"""Defines the broker's settings. Each row of the table completely describes one setting.

The settings that this broker uses are the attributes of `BrokerSettings`. Kafka's other settings are in
`odradek.broker.configuration.unused_settings`. Defaults are the same as Kafka's unless a comment on the row gives
Kafka's default. Some defaults differ because this broker is a single node: it cannot hold three replicas, and need not
wait for other nodes to join.
"""

from collections.abc import Mapping

from odradek.broker.configuration.settings import (
    CountPerAddress,
    GzipLevel,
    ListOf,
    OneOf,
    Range,
    Setting,
    SettingKind,
    SettingRow,
    TimePerPrefix,
    UpdateMode,
    ValueType,
)
from odradek.broker.configuration.unused_settings import UNUSED_ON_ONE_NODE, WITHOUT_EFFECT

BOOLEAN, DOUBLE = SettingKind[bool](ValueType.BOOLEAN), SettingKind[float](ValueType.DOUBLE)
SHORT, INT, LONG = SettingKind[int](ValueType.SHORT), SettingKind[int](ValueType.INT), SettingKind[int](ValueType.LONG)
STRING, CLASS = SettingKind[str](ValueType.STRING), SettingKind[str](ValueType.CLASS)
PASSWORD = SettingKind[str](ValueType.PASSWORD)
LIST = SettingKind[tuple[str, ...]](ValueType.LIST)
PER_BROKER, CLUSTER_WIDE = UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE
SCHEMA_LEVELS = (  # same as odradek.registry.levels.LEVELS; few brokers import that module
    *("NONE", "BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


# fmt: off
class BrokerSettings:
    """The settings that this broker uses, in Kafka's order. Each attribute is named after its setting, with `_` instead
    of `.`.

    A row holds the type, the default, the documentation, the rule for values, and whether AlterConfigs may change the
    setting while the broker is running. The `ssl` and `sasl` settings, and some `connections` settings, can also be set
    for a single listener; see listener_settings.py.
    """

    add_partitions_to_txn_retry_backoff_max_ms = INT("100",
        "Maximum time for which adding a partition to a transaction waits for the previous transaction to end.",
        Range(0))
    add_partitions_to_txn_retry_backoff_ms = INT("20",
        "Wait between two attempts to add a partition to a transaction.", Range(1))
    advertised_listeners = LIST(None,
        "Addresses that the broker gives to clients, if they differ from listeners.", ListOf(may_be_empty=False))
    authorizer_class_name = STRING("",
        "Authorizer that checks requests: org.apache.kafka.metadata.authorizer.StandardAuthorizer, or empty for none.")
    auto_create_topics_enable = BOOLEAN("true",
        "Creates missing topics automatically when a client requests their metadata.")
    broker_id = INT("-1", "Older name of node.id.")
    broker_rack = STRING(None, "Rack of this broker, for clients that prefer nearby replicas.")
    compression_gzip_level = INT("-1", "Default compression.gzip.level of topics.", GzipLevel(), CLUSTER_WIDE)
    compression_lz4_level = INT("9", "Default of the topic setting compression.lz4.level.", Range(1, 17), CLUSTER_WIDE)
    compression_type = STRING("producer", "Default compression.type of topics.", OneOf(COMPRESSION_TYPES), CLUSTER_WIDE)
    compression_zstd_level = INT("3", "Default compression.zstd.level of topics.", Range(-131072, 22), CLUSTER_WIDE)
    connection_failed_authentication_delay_ms = INT("100",
        "Delay before a connection is closed after a failed authentication.", Range(0))
    connections_max_idle_ms = LONG("600000", "Idle time after which a connection is closed.")
    connections_max_reauth_ms = LONG("0",
        "Lifetime of a SASL session, after which the client must authenticate again; 0 means no limit.")
    controller_listener_names = LIST("CONTROLLER",
        "Names of controller listeners. Their addresses are ignored, because one process is both broker and"
        " controller.",
        ListOf(may_be_empty=False))  # Kafka: no default
    controller_quota_window_num = INT("11",
        "Number of windows in which controller_mutation_rate is measured.", Range(1))
    controller_quota_window_size_seconds = INT("1",
        "Length of a window in which controller_mutation_rate is measured.", Range(1))
    default_replication_factor = INT("1",
        "Replication factor of new topics if the request does not specify it; a single node supports only 1.")
    delegation_token_expiry_check_interval_ms = LONG("3600000",
        "Interval at which expired delegation tokens are removed.", Range(1))
    delegation_token_expiry_time_ms = LONG("86400000",
        "Time after which a delegation token expires unless it is renewed.", Range(1))
    delegation_token_max_lifetime_ms = LONG("604800000",
        "Maximum lifetime of a delegation token, including renewals.", Range(1))
    delegation_token_secret_key = PASSWORD(None,
        "Secret key with which delegation tokens are signed; without it, delegation tokens are disabled.")
    delete_topic_enable = BOOLEAN("true", "Allows topics to be deleted.")
    errors_deadletterqueue_auto_create_topics_enable = BOOLEAN("false",
        "Creates a share group's dead-letter topic automatically when a record has to be copied into it.",
        None, CLUSTER_WIDE)
    errors_deadletterqueue_topic_name_prefix = STRING("dlq.",
        "Prefix that the names of dead-letter topics must have; empty for any name.", None, CLUSTER_WIDE)
    fetch_max_bytes = INT("57671680",
        "Maximum size of a Fetch response, even if the client requests more.", Range(1024))
    group_consumer_assignment_interval_ms = INT("1000",
        "Default consumer.assignment.interval.ms of groups.", Range(0), CLUSTER_WIDE)
    group_consumer_assignor_offload_enable = BOOLEAN("true",
        "Default consumer.assignor.offload.enable of groups.", None, CLUSTER_WIDE, is_internal=True)
    group_consumer_assignors = LIST("uniform,range",
        "Server-side assignors of consumer groups; the first is the default.", ListOf(may_be_empty=False))
    group_consumer_heartbeat_interval_ms = INT("5000", "Default consumer.heartbeat.interval.ms of groups.", Range(1))
    group_consumer_max_assignment_interval_ms = INT("15000",
        "Maximum consumer.assignment.interval.ms of groups.", Range(0))
    group_consumer_max_heartbeat_interval_ms = INT("15000",
        "Maximum consumer.heartbeat.interval.ms of groups.", Range(1))
    group_consumer_max_session_timeout_ms = INT("60000", "Maximum consumer.session.timeout.ms of groups.", Range(1))
    group_consumer_max_size = INT("2147483647", "Maximum number of members of a consumer group.", Range(1))
    group_consumer_migration_policy = STRING("bidirectional",
        "Conversions allowed between classic and consumer groups: upgrade, downgrade, bidirectional or disabled.",
        OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), True))
    group_consumer_min_assignment_interval_ms = INT("0", "Minimum consumer.assignment.interval.ms of groups.", Range(0))
    group_consumer_min_heartbeat_interval_ms = INT("5000",
        "Minimum consumer.heartbeat.interval.ms of groups.", Range(1))
    group_consumer_min_session_timeout_ms = INT("45000", "Minimum consumer.session.timeout.ms of groups.", Range(1))
    group_consumer_regex_refresh_interval_ms = INT("600000",
        "Interval at which subscriptions to regular expressions are resolved again.", Range(10000), is_internal=True)
    group_consumer_session_timeout_ms = INT("45000", "Default consumer.session.timeout.ms of groups.", Range(1))
    group_coordinator_rebalance_protocols = LIST("classic,consumer,streams",
        "Rebalance protocols that groups may use.",
        ListOf(("consumer", "classic", "share", "streams"), may_be_empty=False))
    group_initial_rebalance_delay_ms = INT("0",
        "Time for which a new classic group waits for more members before its first rebalance.")  # Kafka: 3000
    group_max_session_timeout_ms = INT("1800000",
        "Maximum session timeout that a member of a classic group may request.")
    group_max_size = INT("2147483647", "Maximum number of members of a classic group.", Range(1))
    group_min_session_timeout_ms = INT("6000", "Minimum session timeout that a member of a classic group may request.")
    group_share_assignment_interval_ms = INT("1000",
        "Default share.assignment.interval.ms of groups.", Range(0), CLUSTER_WIDE)
    group_share_assignor_offload_enable = BOOLEAN("true",
        "Default share.assignor.offload.enable of groups.", None, CLUSTER_WIDE, is_internal=True)
    group_share_delivery_count_limit = INT("5", "Default share.delivery.count.limit of groups.", Range(2, 10))
    group_share_heartbeat_interval_ms = INT("5000", "Default share.heartbeat.interval.ms of groups.", Range(1))
    group_share_initialize_retry_interval_ms = INT("30000",
        "Wait before the state of share partitions is initialized again after a failure.", Range(1), is_internal=True)
    group_share_max_assignment_interval_ms = INT("15000", "Maximum share.assignment.interval.ms of groups.", Range(0))
    group_share_max_delivery_count_limit = INT("10", "Maximum share.delivery.count.limit of groups.", Range(5, 25))
    group_share_max_heartbeat_interval_ms = INT("15000", "Maximum share.heartbeat.interval.ms of groups.", Range(1))
    group_share_max_partition_max_record_locks = INT("4000",
        "Maximum share.partition.max.record.locks of groups.", Range(2000, 10000))
    group_share_max_record_lock_duration_ms = INT("60000",
        "Maximum share.record.lock.duration.ms of groups.", Range(30000, 3600000))
    group_share_max_session_timeout_ms = INT("60000", "Maximum share.session.timeout.ms of groups.", Range(1))
    group_share_max_share_sessions = INT("2000", "Maximum number of share sessions.", Range(1))
    group_share_max_size = INT("200", "Maximum number of members of a share group.", Range(1, 1000))
    group_share_min_assignment_interval_ms = INT("0", "Minimum share.assignment.interval.ms of groups.", Range(0))
    group_share_min_delivery_count_limit = INT("2", "Minimum share.delivery.count.limit of groups.", Range(2, 5))
    group_share_min_heartbeat_interval_ms = INT("5000", "Minimum share.heartbeat.interval.ms of groups.", Range(1))
    group_share_min_partition_max_record_locks = INT("100",
        "Minimum share.partition.max.record.locks of groups.", Range(100, 2000))
    group_share_min_record_lock_duration_ms = INT("15000",
        "Minimum share.record.lock.duration.ms of groups.", Range(1000, 30000))
    group_share_min_session_timeout_ms = INT("45000", "Minimum share.session.timeout.ms of groups.", Range(1))
    group_share_partition_max_record_locks = INT("2000",
        "Default share.partition.max.record.locks of groups.", Range(100, 10000))
    group_share_record_lock_duration_ms = INT("30000",
        "Default share.record.lock.duration.ms of groups.", Range(1000, 3600000))
    group_share_session_timeout_ms = INT("45000", "Default share.session.timeout.ms of groups.", Range(1))
    group_streams_acceptable_recovery_lag = LONG("10000",
        "Default streams.acceptable.recovery.lag of groups.", Range(0), is_internal=True)
    group_streams_assignment_interval_ms = INT("1000",
        "Default streams.assignment.interval.ms of groups.", Range(0), CLUSTER_WIDE)
    group_streams_assignor_offload_enable = BOOLEAN("true",
        "Default streams.assignor.offload.enable of groups.", None, CLUSTER_WIDE, is_internal=True)
    group_streams_assignors = LIST("sticky",
        "Assignors of the tasks of streams groups; the first is the default.", ListOf(may_be_empty=False))
    group_streams_heartbeat_interval_ms = INT("5000", "Default streams.heartbeat.interval.ms of groups.", Range(1))
    group_streams_initial_rebalance_delay_ms = INT("3000",
        "Default streams.initial.rebalance.delay.ms of groups.", Range(0))
    group_streams_max_assignment_interval_ms = INT("15000",
        "Maximum streams.assignment.interval.ms of groups.", Range(0))
    group_streams_max_heartbeat_interval_ms = INT("15000", "Maximum streams.heartbeat.interval.ms of groups.", Range(1))
    group_streams_max_session_timeout_ms = INT("60000", "Maximum streams.session.timeout.ms of groups.", Range(1))
    group_streams_max_size = INT("2147483647", "Maximum number of members of a streams group.", Range(1))
    group_streams_max_standby_replicas = INT("2", "Maximum streams.num.standby.replicas of groups.", Range(0))
    group_streams_max_warmup_replicas = INT("20",
        "Maximum streams.num.warmup.replicas of groups.", Range(0), is_internal=True)
    group_streams_min_assignment_interval_ms = INT("0", "Minimum streams.assignment.interval.ms of groups.", Range(0))
    group_streams_min_heartbeat_interval_ms = INT("5000", "Minimum streams.heartbeat.interval.ms of groups.", Range(1))
    group_streams_min_session_timeout_ms = INT("45000", "Minimum streams.session.timeout.ms of groups.", Range(1))
    group_streams_min_task_offset_interval_ms = INT("15000",
        "Minimum streams.task.offset.interval.ms of groups.", Range(1), is_internal=True)
    group_streams_num_standby_replicas = INT("0", "Default streams.num.standby.replicas of groups.", Range(0))
    group_streams_num_warmup_replicas = INT("2",
        "Default streams.num.warmup.replicas of groups.", Range(0), is_internal=True)
    group_streams_rack_aware_assignment_tags = LIST("",
        "Default streams.rack.aware.assignment.tags of groups.", ListOf())
    group_streams_session_timeout_ms = INT("45000", "Default streams.session.timeout.ms of groups.", Range(1))
    group_streams_task_offset_interval_ms = INT("60000",
        "Default streams.task.offset.interval.ms of groups.", Range(1), is_internal=True)
    group_streams_topology_description_plugin_class = CLASS(None,
        "Store for the topology descriptions of streams groups: empty for no store, or the class name of Kafka's"
        " in-memory store, for which the broker uses its own in-memory store.",
        OneOf(("org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin",)))
    inter_broker_listener_name = STRING(None,
        "Listener for connections between brokers; checked as in Kafka, but not used on a single node.")
    listener_security_protocol_map = STRING(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.", None, PER_BROKER)
    listeners = LIST("PLAINTEXT://localhost:9092",
        "Addresses to listen on, as NAME://host:port; an empty host means all interfaces, port 0 any free port.",
        ListOf(may_be_empty=False), PER_BROKER)  # Kafka: PLAINTEXT://:9092
    log_cleaner_backoff_ms = LONG("15000",
        "Pause of the log cleaner when there is nothing to clean.", Range(0), CLUSTER_WIDE)
    log_cleaner_dedupe_buffer_size = LONG("134217728",
        "Size of the memory for the log cleaner's table of keys.", None, CLUSTER_WIDE)
    log_cleaner_delete_retention_ms = LONG("86400000", "Default delete.retention.ms of topics.", Range(0), CLUSTER_WIDE)
    log_cleaner_enable = BOOLEAN("true", "Compacts topics whose cleanup.policy includes compact.")
    log_cleaner_io_max_bytes_per_second = DOUBLE("1.7976931348623157E308",
        "Maximum rate at which the log cleaner reads and writes.", None, CLUSTER_WIDE)
    log_cleaner_max_compaction_lag_ms = LONG("9223372036854775807",
        "Default max.compaction.lag.ms of topics.", Range(1), CLUSTER_WIDE)
    log_cleaner_min_cleanable_ratio = DOUBLE("0.5",
        "Default min.cleanable.dirty.ratio of topics.", Range(0, 1), CLUSTER_WIDE)
    log_cleaner_min_compaction_lag_ms = LONG("0", "Default min.compaction.lag.ms of topics.", Range(0), CLUSTER_WIDE)
    log_cleanup_policy = LIST("delete",
        "Default cleanup.policy of topics.", ListOf(("compact", "delete")), CLUSTER_WIDE)
    log_dir = LIST("/tmp/kafka-logs", "Data directory, unless log.dirs is set.", ListOf(may_be_empty=False))
    log_dirs = LIST(None, "Data directory; exactly one is supported.", ListOf(may_be_empty=False))
    log_flush_interval_messages = LONG("9223372036854775807",
        "Default flush.messages of topics.", Range(1), CLUSTER_WIDE)
    log_flush_interval_ms = LONG(None, "Default flush.ms of topics.", None, CLUSTER_WIDE)
    log_flush_offset_checkpoint_interval_ms = INT("60000",
        "Interval at which recovery points are written to their checkpoint file.", Range(0))
    log_flush_scheduler_interval_ms = LONG("9223372036854775807",
        "Default flush.ms of topics, unless log.flush.interval.ms is set.")
    log_index_interval_bytes = INT("4096", "Default index.interval.bytes of topics.", Range(0), CLUSTER_WIDE)
    log_index_size_max_bytes = INT("10485760", "Default segment.index.bytes of topics.", Range(4), CLUSTER_WIDE)
    log_initial_task_delay_ms = LONG("30000",
        "Delay after the start before logs are cleaned, flushed and checked for retention.", Range(0), is_internal=True)
    log_message_timestamp_after_max_ms = LONG("3600000",
        "Default message.timestamp.after.max.ms of topics.", Range(0), CLUSTER_WIDE)
    log_message_timestamp_before_max_ms = LONG("9223372036854775807",
        "Default message.timestamp.before.max.ms of topics.", Range(0), CLUSTER_WIDE)
    log_message_timestamp_type = STRING("CreateTime",
        "Default message.timestamp.type of topics.", OneOf(("CreateTime", "LogAppendTime")), CLUSTER_WIDE)
    log_preallocate = BOOLEAN("false", "Default preallocate of topics.", None, CLUSTER_WIDE)
    log_retention_bytes = LONG("-1", "Default retention.bytes of topics.", None, CLUSTER_WIDE)
    log_retention_check_interval_ms = LONG("300000", "Interval at which segments are checked for deletion.", Range(1))
    log_retention_hours = INT("168", "Default retention.ms of topics, in hours, unless a finer unit is set.")
    log_retention_minutes = INT(None, "Default retention.ms of topics, in minutes, unless log.retention.ms is set.")
    log_retention_ms = LONG(None, "Default retention.ms of topics.", None, CLUSTER_WIDE)
    log_roll_hours = INT("168", "Default segment.ms of topics, in hours, unless log.roll.ms is set.", Range(1))
    log_roll_jitter_hours = INT("0",
        "Default segment.jitter.ms of topics, in hours, unless log.roll.jitter.ms is set.", Range(0))
    log_roll_jitter_ms = LONG(None, "Default segment.jitter.ms of topics.", None, CLUSTER_WIDE)
    log_roll_ms = LONG(None, "Default segment.ms of topics.", None, CLUSTER_WIDE)
    log_segment_bytes = INT("1073741824", "Default segment.bytes of topics.", Range(1048576), CLUSTER_WIDE)
    log_segment_delete_delay_ms = LONG("60000", "Default file.delete.delay.ms of topics.", Range(0), CLUSTER_WIDE)
    max_connection_creation_rate = INT("2147483647",
        "Maximum number of new connections per second; further connections wait.", Range(0), CLUSTER_WIDE)
    max_connections = INT("2147483647", "Maximum number of connections.", Range(0), CLUSTER_WIDE)
    max_connections_per_ip = INT("2147483647",
        "Maximum number of connections from one address.", Range(0), CLUSTER_WIDE)
    max_connections_per_ip_overrides = STRING("",
        "Exceptions to max.connections.per.ip, as comma-separated address:count pairs.",
        CountPerAddress(), CLUSTER_WIDE)
    max_decompressed_message_bytes = INT("2147483639",
        "Default max.decompressed.message.bytes of topics.", Range(1, 2147483639), CLUSTER_WIDE)
    max_incremental_fetch_session_cache_slots = INT("1000", "Maximum number of incremental fetch sessions.", Range(0))
    max_request_partition_size_limit = INT("2000",
        "Maximum number of partitions in a response to DescribeTopicPartitions.", Range(1))
    message_max_bytes = INT("1048588", "Default max.message.bytes of topics.", Range(0), CLUSTER_WIDE)
    metadata_log_dir = STRING(None, "Directory of the metadata log; it must be the data directory.")
    min_insync_replicas = INT("1", "Default min.insync.replicas of topics.", Range(1), CLUSTER_WIDE)
    node_id = INT("1",
        "Id of this broker in the cluster. A data directory can be used only with the id with which it was"
        " created.", Range(0))  # Kafka: no default
    num_partitions = INT("1",
        "Number of partitions of new topics if the request does not specify it.", Range(1))
    offset_metadata_max_bytes = INT("4096", "Maximum size of the metadata that is committed with an offset.")
    offsets_retention_check_interval_ms = LONG("600000", "Interval at which expired offsets are removed.", Range(1))
    offsets_retention_minutes = INT("10080",
        "Retention of the offsets of a group after its last member has left.", Range(1))
    offsets_topic_compression_codec = INT("0", "Compression codec of __consumer_offsets, by its number.")
    offsets_topic_num_partitions = INT("50", "Number of partitions with which __consumer_offsets is created.", Range(1))
    offsets_topic_replication_factor = SHORT("1",
        "Replication factor of __consumer_offsets; a single node supports only 1.", Range(1))  # Kafka: 3
    offsets_topic_segment_bytes = INT("104857600", "Segment size of __consumer_offsets.", Range(1))
    process_roles = LIST("broker,controller",
        "Roles of this process; they must include broker.",
        ListOf(("broker", "controller"), may_be_empty=False))  # Kafka: no default
    producer_id_expiration_check_interval_ms = INT("600000",
        "Interval at which expired producer ids are removed.", Range(1), is_internal=True)
    producer_id_expiration_ms = INT("86400000",
        "Time for which a producer's sequence numbers are remembered after its last write.", Range(1), CLUSTER_WIDE)
    queued_max_request_bytes = LONG("-1",
        "Maximum total size of the requests that wait to be handled; -1 means no limit.")
    quota_window_num = INT("11",
        "Number of windows in which client quotas are measured, including the current one.", Range(1))
    quota_window_size_seconds = INT("1",
        "Length of a window in which client quotas are measured, and maximum throttle time for request_percentage.",
        Range(1))
    request_timeout_ms = INT("30000",
        "Maximum time that the broker waits to complete a request that does not specify a timeout.")
    sasl_enabled_mechanisms = LIST("GSSAPI", "SASL mechanisms that clients may use.", ListOf(), PER_BROKER)
    sasl_jaas_config = PASSWORD(None,
        "Login module of a SASL mechanism and its options, in the format of JAAS.", None, PER_BROKER)
    sasl_oauthbearer_clock_skew_seconds = INT("30",
        "Tolerated difference between the clocks of the broker and the issuer when tokens are checked.")
    sasl_oauthbearer_allow_unverified_audience = BOOLEAN("false",
        "Lets the broker start without sasl.oauthbearer.expected.audience, so that it accepts tokens for any audience.")
    sasl_oauthbearer_allow_unverified_issuer = BOOLEAN("false",
        "Lets the broker start without sasl.oauthbearer.expected.issuer, so that it accepts tokens of any issuer.")
    sasl_oauthbearer_expected_audience = LIST("",
        "Accepted audiences; a token must contain one of them.", ListOf())
    sasl_oauthbearer_expected_issuer = STRING(None, "Issuer that tokens must have.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms = LONG("3600000",
        "Interval at which the keys of the issuer are fetched again.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = LONG("10000",
        "Longest wait between attempts to fetch the keys of the issuer.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = LONG("100",
        "First wait between attempts to fetch the keys of the issuer.")
    sasl_oauthbearer_jwks_endpoint_url = STRING(None,
        "URL or file of the keys with which the signatures of tokens are verified.")
    sasl_oauthbearer_scope_claim_name = STRING("scope", "Name of the claim that holds the scope of a token.")
    sasl_oauthbearer_sub_claim_name = STRING("sub", "Name of the claim that holds the principal of a token.")
    sasl_server_callback_handler_class = CLASS(None,
        "Callback handler of a SASL mechanism; only Kafka's handlers for OAUTHBEARER are supported.")
    sasl_server_max_receive_size = INT("524288", "Maximum size of a request before authentication is complete.")
    security_inter_broker_protocol = STRING("PLAINTEXT",
        "Security protocol between brokers; checked as in Kafka, but not used on a single node.",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")))
    share_coordinator_cold_partition_snapshot_interval_ms = INT("300000",
        "Interval at which share partitions without updates get a new snapshot.", Range(1), is_internal=True)
    share_coordinator_snapshot_update_records_per_snapshot = INT("500",
        "Number of updates of a share partition after which a snapshot is written.", Range(0, 500))
    share_coordinator_state_topic_compression_codec = INT("0",
        "Compression codec of __share_group_state, by its number.")
    share_coordinator_state_topic_min_isr = SHORT("1",
        "Minimum number of in-sync replicas of __share_group_state.", Range(1))  # Kafka: 2
    share_coordinator_state_topic_num_partitions = INT("50",
        "Number of partitions with which __share_group_state is created.", Range(1))
    share_coordinator_state_topic_prune_interval_ms = INT("300000",
        "Interval at which records of __share_group_state that are no longer needed are deleted.",
        Range(1), is_internal=True)
    share_coordinator_state_topic_replication_factor = SHORT("1",
        "Replication factor of __share_group_state; a single node supports only 1.", Range(1))  # Kafka: 3
    share_coordinator_state_topic_segment_bytes = INT("104857600", "Segment size of __share_group_state.", Range(1))
    share_coordinator_write_timeout_ms = INT("5000",
        "Maximum time for the share coordinator to write a record.", Range(1))
    socket_listen_backlog_size = INT("50", "Maximum number of connections that wait to be accepted.", Range(1))
    socket_receive_buffer_bytes = INT("102400",
        "Size of a socket's receive buffer; -1 leaves it to the operating system.")
    socket_request_max_bytes = INT("104857600", "Maximum size of a request.", Range(1))
    socket_send_buffer_bytes = INT("102400", "Size of a socket's send buffer; -1 leaves it to the operating system.")
    ssl_allow_dn_changes = BOOLEAN("false",
        "Allows the distinguished name of a key to change while the broker runs.")
    ssl_allow_san_changes = BOOLEAN("false",
        "Allows the subject alternative names of a key to change while the broker runs.")
    ssl_cipher_suites = LIST("",
        "TLS cipher suites, by their standard names. By default, the TLS library chooses them.", ListOf(), PER_BROKER)
    ssl_client_auth = STRING("none",
        "Client certificates: required, requested or none.",
        OneOf(("required", "requested", "none")), PER_BROKER)
    ssl_enabled_protocols = LIST("TLSv1.2,TLSv1.3", "Versions of TLS that clients may use.", ListOf(), PER_BROKER)
    ssl_key_password = PASSWORD(None, "Password of the private key.", None, PER_BROKER)
    ssl_keystore_certificate_chain = PASSWORD(None, "Certificate chain of the broker, as PEM.", None, PER_BROKER)
    ssl_keystore_key = PASSWORD(None, "Private key of the broker, as PEM.", None, PER_BROKER)
    ssl_keystore_location = STRING(None, "File with the broker's private key and certificate chain.", None, PER_BROKER)
    ssl_keystore_password = PASSWORD(None, "Password of the key store.", None, PER_BROKER)
    ssl_keystore_type = STRING("JKS", "Format of the key store: PEM or PKCS12.", None, PER_BROKER)
    ssl_principal_mapping_rules = STRING("DEFAULT",
        "Rules that map the distinguished name of a client's certificate to a principal.")
    ssl_truststore_certificates = PASSWORD(None,
        "Certificates of the authorities that may sign client certificates, as PEM.", None, PER_BROKER)
    ssl_truststore_location = STRING(None,
        "File with certificates of the authorities that may sign client certificates.", None, PER_BROKER)
    ssl_truststore_password = PASSWORD(None, "Password of the trust store.", None, PER_BROKER)
    ssl_truststore_type = STRING("JKS", "Format of the trust store: PEM or PKCS12.", None, PER_BROKER)
    transaction_abort_timed_out_transaction_cleanup_interval_ms = INT("10000",
        "Interval at which transactions that timed out are aborted.", Range(1))
    transaction_max_timeout_ms = INT("900000", "Maximum transaction timeout that a producer may request.", Range(1))
    transaction_partition_verification_enable = BOOLEAN("true",
        "Verifies that a partition belongs to the transaction before records are appended.",
        None, CLUSTER_WIDE)
    transaction_remove_expired_transaction_cleanup_interval_ms = INT("3600000",
        "Interval at which expired transactional ids are removed.", Range(1))
    transaction_state_log_min_isr = INT("1",
        "Minimum number of in-sync replicas of __transaction_state.", Range(1))  # Kafka: 2
    transaction_state_log_num_partitions = INT("50",
        "Number of partitions with which __transaction_state is created.", Range(1))
    transaction_state_log_replication_factor = SHORT("1",
        "Replication factor of __transaction_state; a single node supports only 1.", Range(1))  # Kafka: 3
    transaction_state_log_segment_bytes = INT("104857600", "Segment size of __transaction_state.", Range(1))
    transaction_two_phase_commit_enable = BOOLEAN("false",
        "Allows two-phase commit: an external coordinator decides, and no timeout applies (KIP-939).")
    transactional_id_expiration_ms = INT("604800000",
        "Time for which a transactional id is remembered after its last transaction.", Range(1))
    unclean_leader_election_enable = BOOLEAN("false",
        "Default unclean.leader.election.enable of topics.", None, CLUSTER_WIDE)

    # Kafka does not have these settings. They are parsed and described like Kafka's settings.
    odradek_advertise = STRING("listeners",
        "Addresses that the broker gives to clients if advertised.listeners is not set: listeners gives the"
        " addresses of listeners; arrival gives each client the address at which its connection arrived.",
        OneOf(("listeners", "arrival")))
    odradek_advertise_published = LIST(None,
        "Addresses for clients that connect through a published port of the container, with "
        "odradek.advertise=arrival: a comma-separated list of [NAME://]host[:port]. The default port is the "
        "listener's.")
    odradek_authentication_timeout_ms = INT("30000",
        "Maximum duration of a TLS handshake, and of the SASL exchange that follows it.", Range(1))
    odradek_control_enable = BOOLEAN("false",
        "Enables control of clusters, faults and clocks over the HTTP port, for tests of clients.")
    odradek_control_requests_enable = BOOLEAN("false",
        "Stores the latest requests of clients and their answers, so that the control interface can return"
        " them. The default is true for clusters that are created over HTTP. If requests are stored, a Produce of"
        " 1 KiB needs a fifth more CPU.")
    odradek_http_actions = BOOLEAN("false",
        "Adds buttons to the page that end transactions, delete records and topics, create topics, and move offsets."
        " Everybody who can open the page may use them.")
    odradek_http_host = STRING("127.0.0.1",
        "Address on which the page, metrics and health are served; empty for all interfaces.")
    odradek_http_security_protocol = STRING("PLAINTEXT",
        "Protocol of the HTTP port: PLAINTEXT, or SSL with the keys in listener.name.http.ssl.* or ssl.*.",
        OneOf(("PLAINTEXT", "SSL")))
    odradek_http_token = PASSWORD(None,
        "Secret that requests to the HTTP port must contain as bearer token or password, except requests for health.")
    odradek_http_port = INT("9644",
        "Port on which the page, metrics and health are served; 0 for any free port, -1 for no port.", Range(-1, 65535))
    odradek_schema_registry_enable = BOOLEAN("false",
        "Runs a schema registry in this process, with the HTTP interface of Confluent's registry.")
    odradek_schema_registry_port = INT("8081",
        "Port of the schema registry; 0 for any free port.", Range(0, 65535))
    odradek_schema_registry_host = STRING(None,
        "Address of the schema registry. By default, it is the address of the first listener; empty means all"
        " interfaces. The registry uses TLS if odradek.http.security.protocol is SSL.")
    odradek_schema_registry_compatibility_level = STRING("BACKWARD",
        "Compatibility level of subjects without a level of their own.", OneOf(SCHEMA_LEVELS))
    odradek_port = INT(None, "Port to listen on, instead of the port of the first listener.", Range(0, 65535))
    odradek_cluster_id = STRING(None, "Cluster id of a new data directory; random by default.")
    odradek_share_transactions = INT("0",
        "Level of the feature odradek.share.transactions in a new data directory; with level 1, transactions can "
        "contain acknowledgements of share groups (KIP-1289).", Range(0, 1))
    odradek_ssl_handshakes_max = INT("1000",
        "Maximum number of TLS handshakes in flight on a listener. If there are more, the oldest handshakes are"
        " aborted.",
        Range(1))
    odradek_ssl_reload_interval_ms = INT("2000",
        "Interval at which files of keys and certificates are checked for changes; -1 for never.", Range(-1))
    odradek_tail_cache_bytes = LONG("33554432",
        "Size of the memory for the newest batches, from which consumers at the end of a log are served.", Range(0))
    odradek_transactional_id_expiration_rules = LIST("spark.=3600000",
        "Expiration of transactional ids with certain prefixes, instead of transactional.id.expiration.ms:"
        " comma-separated prefix=milliseconds pairs.", TimePerPrefix())

    # In Kafka, only StandardAuthorizer reads these two settings. They are unknown to the rest of the Kafka broker,
    # which therefore describes them only if they are set, and hides their values. This broker does the same.
    allow_everyone_if_no_acl_found = PASSWORD("false",
        "Gives everyone access to resources to which no ACL applies.", is_internal=True)
    super_users = PASSWORD("",
        "Principals who may do everything, such as User:admin, separated by semicolons.", is_internal=True)
# fmt: on


EFFECTIVE_SETTINGS: Mapping[str, Setting] = {
    row.setting.name: row.setting for row in vars(BrokerSettings).values() if isinstance(row, SettingRow)
}
BROKER_SETTINGS: Mapping[str, Setting] = {**EFFECTIVE_SETTINGS, **UNUSED_ON_ONE_NODE, **WITHOUT_EFFECT}
