"""Facts about each API that are fixed by Kafka's protocol, with one row per API, shared by all parts of Odradek.

`odradek.broker.api.served` lists the APIs that the broker serves, with their handlers. An API without a row here has
the default values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode as E


class Coordinator(Enum):
    """The coordinator that a request must be sent to."""

    GROUP = auto()
    TRANSACTION = auto()
    SHARE = auto()


@dataclass(frozen=True, slots=True)
class ApiFacts:
    """Facts about one API.

    throttled_from         first version in which clients wait for the throttle time themselves, because the broker
                           responds immediately (KIP-219); None if they never wait. Source: `shouldClientThrottle` in
                           the subclasses of `org.apache.kafka.common.requests.AbstractResponse`
    coordinator            the coordinator that serves the API, or None for any broker or a partition leader. Other
                           brokers respond with NOT_COORDINATOR
    passing_codes          some of the API's transient errors, after which clients must retry, so the odd broker
                           (`broker/control/odd`) returns them at random
    is_login               requests of the API authenticate their connection
    has_secrets            the request or the response may contain passwords, tokens or their keys
    is_of_brokers          brokers send the request to one another, and the request quota does not apply to it
    creates_topics         the request may create topics, even if the response is an error
    is_of_connection       the request's effect ends with its connection
    mutation_refused_from  the first version in which a quota can reject the request, which creates or deletes
                           partitions, with THROTTLING_QUOTA_EXCEEDED; older versions are only throttled. None if the
                           quota does not apply
    refuses_without_words  Kafka sends no error message when it rejects the request because of missing permissions
    names_brokers          clients use the API to obtain the addresses of brokers
    absent_values          values of fields in an error response that mean "none", where the default would mean
                           something else
    code_repeated_to       the last version in which the response contains the error code both at the top level and in
                           each element
    may_be_raised          the odd broker may claim to support 1 to 3 more versions of the API. No client can use them,
                           because no release after 4.3 has added a version of the API
    """

    throttled_from: int | None = None
    coordinator: Coordinator | None = None
    passing_codes: tuple[E, ...] = ()
    is_login: bool = False
    has_secrets: bool = False
    is_of_brokers: bool = False
    creates_topics: bool = False
    is_of_connection: bool = False
    mutation_refused_from: int | None = None
    refuses_without_words: bool = False
    names_brokers: bool = False
    absent_values: Mapping[str, object] = field(default_factory=dict)
    code_repeated_to: int = -1
    may_be_raised: bool = False


GROUP, TRANSACTION, SHARE = Coordinator.GROUP, Coordinator.TRANSACTION, Coordinator.SHARE
_MOVING: Final = (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR)
_NO_FACTS: Final = ApiFacts()
_FACTS: Final[Mapping[ApiKey, ApiFacts]] = {
    ApiKey.PRODUCE: ApiFacts(
        throttled_from=6,
        passing_codes=(E.NOT_LEADER_OR_FOLLOWER,),
        refuses_without_words=True,
        absent_values={"base_offset": -1},
    ),
    ApiKey.FETCH: ApiFacts(
        throttled_from=8,
        is_of_connection=True,
        absent_values={"high_watermark": -1, "records": b""},
        code_repeated_to=12,
    ),
    ApiKey.LIST_OFFSETS: ApiFacts(throttled_from=3, passing_codes=(E.NOT_LEADER_OR_FOLLOWER,)),
    ApiKey.METADATA: ApiFacts(throttled_from=6, creates_topics=True, names_brokers=True, code_repeated_to=13),
    ApiKey.OFFSET_COMMIT: ApiFacts(throttled_from=4, coordinator=GROUP, passing_codes=_MOVING),
    ApiKey.OFFSET_FETCH: ApiFacts(
        throttled_from=4, coordinator=GROUP, passing_codes=_MOVING, absent_values={"committed_offset": -1}
    ),
    ApiKey.FIND_COORDINATOR: ApiFacts(
        throttled_from=2,
        passing_codes=(E.COORDINATOR_NOT_AVAILABLE,),
        creates_topics=True,
        names_brokers=True,
        absent_values={"node_id": -1, "port": -1},
    ),
    ApiKey.JOIN_GROUP: ApiFacts(
        throttled_from=3, coordinator=GROUP, passing_codes=_MOVING, absent_values={"protocol_name": None}
    ),
    ApiKey.HEARTBEAT: ApiFacts(throttled_from=2, coordinator=GROUP, passing_codes=_MOVING, may_be_raised=True),
    ApiKey.LEAVE_GROUP: ApiFacts(throttled_from=2, coordinator=GROUP, may_be_raised=True),
    ApiKey.SYNC_GROUP: ApiFacts(throttled_from=2, coordinator=GROUP, may_be_raised=True),
    ApiKey.DESCRIBE_GROUPS: ApiFacts(throttled_from=2, coordinator=GROUP),
    ApiKey.LIST_GROUPS: ApiFacts(throttled_from=2),
    ApiKey.SASL_HANDSHAKE: ApiFacts(is_login=True),
    ApiKey.API_VERSIONS: ApiFacts(throttled_from=2),
    ApiKey.CREATE_TOPICS: ApiFacts(throttled_from=3, mutation_refused_from=6),
    ApiKey.DELETE_TOPICS: ApiFacts(throttled_from=2, mutation_refused_from=5, may_be_raised=True),
    ApiKey.DELETE_RECORDS: ApiFacts(throttled_from=1, absent_values={"low_watermark": -1}),
    ApiKey.INIT_PRODUCER_ID: ApiFacts(
        throttled_from=1,
        coordinator=TRANSACTION,
        passing_codes=(E.CONCURRENT_TRANSACTIONS, *_MOVING),
        absent_values={"producer_id": -1, "producer_epoch": -1},
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiFacts(may_be_raised=True),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiFacts(
        throttled_from=1, coordinator=TRANSACTION, passing_codes=(E.CONCURRENT_TRANSACTIONS, *_MOVING)
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiFacts(
        throttled_from=1, coordinator=TRANSACTION, passing_codes=(E.CONCURRENT_TRANSACTIONS, *_MOVING)
    ),
    ApiKey.END_TXN: ApiFacts(
        throttled_from=1,
        coordinator=TRANSACTION,
        passing_codes=(E.CONCURRENT_TRANSACTIONS, *_MOVING),
        absent_values={"producer_id": -1},
    ),
    ApiKey.WRITE_TXN_MARKERS: ApiFacts(is_of_brokers=True),
    ApiKey.TXN_OFFSET_COMMIT: ApiFacts(throttled_from=1, coordinator=GROUP, passing_codes=_MOVING),
    ApiKey.DESCRIBE_ACLS: ApiFacts(throttled_from=1),
    ApiKey.CREATE_ACLS: ApiFacts(throttled_from=1),
    ApiKey.DELETE_ACLS: ApiFacts(throttled_from=1),
    ApiKey.DESCRIBE_CONFIGS: ApiFacts(throttled_from=2),
    ApiKey.ALTER_CONFIGS: ApiFacts(throttled_from=1, has_secrets=True),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ApiFacts(throttled_from=1),
    ApiKey.DESCRIBE_LOG_DIRS: ApiFacts(throttled_from=1),
    ApiKey.SASL_AUTHENTICATE: ApiFacts(is_login=True, has_secrets=True, is_of_connection=True),
    ApiKey.CREATE_PARTITIONS: ApiFacts(throttled_from=1, mutation_refused_from=3, may_be_raised=True),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiFacts(throttled_from=1, has_secrets=True),
    ApiKey.RENEW_DELEGATION_TOKEN: ApiFacts(
        throttled_from=1, has_secrets=True, absent_values={"expiry_timestamp_ms": -1}
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ApiFacts(
        throttled_from=1, has_secrets=True, absent_values={"expiry_timestamp_ms": -1}
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ApiFacts(throttled_from=1, has_secrets=True),
    ApiKey.DELETE_GROUPS: ApiFacts(throttled_from=1, coordinator=GROUP),
    ApiKey.ELECT_LEADERS: ApiFacts(throttled_from=0, code_repeated_to=2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiFacts(throttled_from=0, has_secrets=True),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiFacts(throttled_from=0, code_repeated_to=1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiFacts(throttled_from=0),
    ApiKey.OFFSET_DELETE: ApiFacts(throttled_from=0, coordinator=GROUP),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiFacts(refuses_without_words=True, absent_values={"entries": None}),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiFacts(throttled_from=0, refuses_without_words=True, code_repeated_to=0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiFacts(throttled_from=0, has_secrets=True),
    ApiKey.DESCRIBE_CLUSTER: ApiFacts(names_brokers=True),
    ApiKey.UNREGISTER_BROKER: ApiFacts(throttled_from=0),
    ApiKey.UNREGISTER_CONTROLLER: ApiFacts(throttled_from=0),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiFacts(coordinator=TRANSACTION),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiFacts(coordinator=GROUP, passing_codes=_MOVING, refuses_without_words=True),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiFacts(coordinator=GROUP, refuses_without_words=True),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiFacts(throttled_from=0),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiFacts(coordinator=GROUP, refuses_without_words=True),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiFacts(coordinator=GROUP, refuses_without_words=True),
    ApiKey.SHARE_FETCH: ApiFacts(is_of_connection=True, refuses_without_words=True),
    ApiKey.SHARE_ACKNOWLEDGE: ApiFacts(is_of_connection=True, refuses_without_words=True),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ApiFacts(coordinator=SHARE, is_of_brokers=True),
    ApiKey.READ_SHARE_GROUP_STATE: ApiFacts(coordinator=SHARE, is_of_brokers=True),
    ApiKey.WRITE_SHARE_GROUP_STATE: ApiFacts(coordinator=SHARE, is_of_brokers=True),
    ApiKey.DELETE_SHARE_GROUP_STATE: ApiFacts(coordinator=SHARE, is_of_brokers=True),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ApiFacts(coordinator=SHARE, is_of_brokers=True),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ApiFacts(coordinator=GROUP, passing_codes=_MOVING, refuses_without_words=True),
    ApiKey.STREAMS_GROUP_DESCRIBE: ApiFacts(coordinator=GROUP, refuses_without_words=True),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: ApiFacts(coordinator=GROUP, refuses_without_words=True),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiFacts(coordinator=GROUP, refuses_without_words=True),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiFacts(coordinator=GROUP),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiFacts(coordinator=GROUP),
}


def facts_of(api: ApiKey | None) -> ApiFacts:
    """Returns the facts about an API, or the default values if `api` is None because the request was unreadable."""
    return _NO_FACTS if api is None else _FACTS.get(api, _NO_FACTS)


API_OF_KEY: Final = {api.value: api for api in ApiKey}  # keyed by the number in the header of a request


def client_waits(api_key: int, version: int) -> bool:
    """Returns whether the client itself must wait until the throttle time in the response has passed before it sends
    anything."""
    api = API_OF_KEY.get(api_key)
    first = None if api is None else facts_of(api).throttled_from
    return first is not None and version >= first
