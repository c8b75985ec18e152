"""Rules MET, TEL and ADM, about metadata and coordinators, telemetry, and administration."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequest
from odradek.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.push_telemetry_request import PushTelemetryRequest
from odradek.protocol.messages.push_telemetry_response import PushTelemetryResponse
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.protocol.struct import ZERO_UUID
from odradek.testing.judge.exchanges import Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.rules.produce import partition_errors
from odradek.testing.judge.scene import Scene
from odradek.testing.judge.topics import Topic

E = ErrorCode
STALE_LEADER: Final = frozenset(
    code.value
    for code in (E.NOT_LEADER_OR_FOLLOWER, E.LEADER_NOT_AVAILABLE, E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH)
)
STALE_ID: Final = frozenset({E.UNKNOWN_TOPIC_ID.value, E.INCONSISTENT_TOPIC_ID.value})
NO_COORDINATOR: Final = frozenset({E.NOT_COORDINATOR.value, E.COORDINATOR_NOT_AVAILABLE.value})
FETCHES_GROUPS: Final = 8  # the first version of OffsetFetch that can name several groups
FIRST_VERSIONS_WITH_ID: Final = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 13}
MAX_REPEATS: Final = 2
MAX_REQUESTS_PER_SECOND: Final = 50
SECOND_US: Final = 1_000_000
GROUP: Final = 0  # a key type of FindCoordinator, like TRANSACTION
TRANSACTION: Final = 1
KEY_TYPES: Final = (GROUP, TRANSACTION, 2)
JITTER: Final = 0.45
NODES: Final = "a driver that moves leaders and stops nodes"
DRIVER: Final = "a driver: traffic does not show what the application requested"

# fmt: off
RULES = (
    ProtocolRule("MET.1", M,
        "After a leader error the client sends that node at most two more requests before it reads metadata",
        "a Produce or Fetch of a partition after a leader error"),
    undecided("MET.2", M, "Metadata with an older leader epoch does not take the client back to the old leader", NODES),
    undecided("MET.3", S, "The client uses the leader that a Produce v10 or Fetch v16 response names", NODES),
    ProtocolRule("MET.4", S, "The client requests metadata at most fifty times a second on a connection",
        "a Metadata request"),
    undecided("MET.5", M,
        "The client creates topics, or requests all topics, only if the application wants that", DRIVER),
    ProtocolRule("MET.6", M,
        "If a version identifies topics only by id, no topic id is zero", "a Produce or Fetch v13 or later"),
    ProtocolRule("MET.7", S,
        "After UNKNOWN_TOPIC_ID or INCONSISTENT_TOPIC_ID the client reads metadata before it retries",
        "a Produce or Fetch of a partition after UNKNOWN_TOPIC_ID or INCONSISTENT_TOPIC_ID"),
    undecided("MET.8", S, "The client does not forget a topic immediately when one response lacks it", NODES),
    undecided("MET.9", S, "A metadata request that hangs at a dead node does not block other requests", NODES),
    ProtocolRule("MET.10", S,
        "After NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE the client sends at most two requests before"
        " FindCoordinator",
        "a request to a coordinator after NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE"),
    ProtocolRule("MET.11", M, "FindCoordinator has a valid key type, and puts its keys into the field of its version",
        "a FindCoordinator"),
    ProtocolRule("TEL.1", M,
        "PushTelemetry has the subscription id and an accepted compression, and keeps the interval",
        "a PushTelemetry after an answer to GetTelemetrySubscriptions"),
    ProtocolRule("TEL.2", M, "After UNKNOWN_SUBSCRIPTION_ID the client requests its subscriptions before the next push",
        "a telemetry request after UNKNOWN_SUBSCRIPTION_ID"),
    ProtocolRule("TEL.3", M, "A push is no larger than telemetry_max_bytes",
        "a PushTelemetry after an answer to GetTelemetrySubscriptions"),
    undecided("ADM.1", S, "Requests that only the controller or a leader can answer go to that node", NODES),
    undecided("ADM.2", S, "A listing queries every node, and shows nothing twice", NODES),
    undecided("ADM.3", M, "ListOffsets goes to the leader, once per refresh", NODES),
)
# fmt: on

Place: TypeAlias = tuple[Topic, int]
CoordinatorKey: TypeAlias = tuple[int, str]  # the FindCoordinator key type, and the group id or transactional id


@dataclass(slots=True)
class SimilarConnections:
    """Connections that may belong to one client, with the times at which they last requested metadata and the
    coordinator of each key."""

    metadata_us: int = -1
    coordinators: dict[CoordinatorKey, int] = field(default_factory=dict)


@dataclass(slots=True)
class FailedRequests:
    """An error for a partition or a coordinator key, on one connection. `repetitions` counts the requests that the
    client has sent since then without sending Metadata or FindCoordinator."""

    response: Exchange | None = None
    rule: str = ""
    repetitions: int = 0


@dataclass(slots=True)
class Rate:
    since_us: int = 0
    count: int = 0


@dataclass(slots=True)
class Telemetry:
    """The telemetry state of one client instance id."""

    subscription: Exchange | None = None
    last_push: Exchange | None = None
    unknown_subscription: Exchange | None = None


def _partitions(exchange: Exchange) -> list[Place]:
    request = exchange.request
    if isinstance(request, ProduceRequest):
        return [
            (exchange.topic(topic.name, topic.topic_id), each.index)
            for topic in request.topic_data
            for each in topic.partition_data
        ]
    if isinstance(request, FetchRequest):
        return [
            (exchange.topic(topic.topic, topic.topic_id), each.partition)
            for topic in request.topics
            for each in topic.partitions
        ]
    return []


def on_leader_request(exchange: Exchange, scene: Scene) -> None:
    """Judges a Produce or Fetch request: its topic ids, and whether the client requested metadata after an error."""
    request, since = exchange.request, FIRST_VERSIONS_WITH_ID[exchange.api or ApiKey.FETCH]
    if exchange.version >= since and isinstance(request, ProduceRequest | FetchRequest):
        topics = request.topic_data if isinstance(request, ProduceRequest) else request.topics
        if topics:
            is_fine = all(topic.topic_id != ZERO_UUID for topic in topics)
            scene.decide("MET.6", is_fine, exchange, "a topic id is zero")
    for place in _partitions(exchange):
        failure = scene.state(FailedRequests, exchange.connection.number, exchange.api, *place)
        if failure.response is None or not knows_response(exchange, failure.response):
            continue
        is_refreshed = (
            scene.state(SimilarConnections, exchange.connection.similarity).metadata_us >= failure.response.answered_us
        )
        _check_refresh(
            exchange, failure, is_refreshed, f"{'-'.join(map(str, place))} without reading metadata again", scene
        )


def _check_refresh(exchange: Exchange, failure: FailedRequests, is_refreshed: bool, what: str, scene: Scene) -> None:
    failure.repetitions = 0 if is_refreshed else failure.repetitions + 1
    why = f"the client sent {failure.repetitions} requests for {what}"
    scene.decide(failure.rule, failure.repetitions <= MAX_REPEATS, exchange, why, failure.response)
    if is_refreshed:
        failure.response = None


def on_leader_response(exchange: Exchange, scene: Scene) -> None:
    answer = exchange.answer
    if isinstance(answer, FetchResponse):
        errors = {
            (exchange.topic(topic.topic, topic.topic_id), each.partition_index): each.error_code
            for topic in answer.responses
            for each in topic.partitions
        }
    else:
        errors = partition_errors(exchange)
    for place, code in errors.items():
        if code == 0:
            _forget_failure(
                exchange, scene.find_state(FailedRequests, exchange.connection.number, exchange.api, *place)
            )
        elif code in STALE_LEADER or code in STALE_ID:
            failure = scene.state(FailedRequests, exchange.connection.number, exchange.api, *place)
            failure.response, failure.rule = failure.response or exchange, "MET.1" if code in STALE_LEADER else "MET.7"


def _forget_failure(exchange: Exchange, failure: FailedRequests | None) -> None:
    """Forgets a failure once a later request has succeeded, because the client then no longer needs to look up the
    node."""
    if failure is not None and failure.response is not None and exchange.number > failure.response.number:
        failure.response, failure.repetitions = None, 0


def on_metadata(exchange: Exchange, scene: Scene) -> None:
    scene.state(SimilarConnections, exchange.connection.similarity).metadata_us = exchange.received_us
    rate = scene.state(Rate, exchange.connection.number)
    if exchange.received_us - rate.since_us >= SECOND_US:
        rate.since_us, rate.count = exchange.received_us, 0
    rate.count += 1
    scene.decide(
        "MET.4",
        rate.count <= MAX_REQUESTS_PER_SECOND,
        exchange,
        f"the client sent {rate.count} Metadata requests within a second",
    )


def on_find_coordinator(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, FindCoordinatorRequest)
    keys = request.coordinator_keys if exchange.version >= 4 else [request.key]
    why = f"the request has key type {request.key_type} and {len(keys)} keys"
    scene.decide("MET.11", request.key_type in KEY_TYPES and len(keys) > 0, exchange, why)
    similar = scene.state(SimilarConnections, exchange.connection.similarity)
    for key in keys:
        similar.coordinators[request.key_type, key] = exchange.received_us


def _coordinator_keys(exchange: Exchange) -> list[CoordinatorKey]:
    """Returns the keys whose coordinator must answer the request. Only DescribeShareGroupOffsets and OffsetFetch can
    have several keys."""
    request = exchange.request
    if isinstance(request, DescribeShareGroupOffsetsRequest):
        return [(GROUP, group.group_id) for group in request.groups]
    if isinstance(request, OffsetFetchRequest) and exchange.version >= FETCHES_GROUPS:
        return [(GROUP, group.group_id) for group in request.groups]
    if not isinstance(request, TxnOffsetCommitRequest):  # TxnOffsetCommit goes to the group's coordinator
        found = getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", None)
        if isinstance(found, str) and found:
            return [(TRANSACTION, found)]
    group_id = getattr(request, "group_id", None)
    return [(GROUP, group_id)] if isinstance(group_id, str) and group_id else []


def _coordinator_codes(exchange: Exchange) -> Mapping[CoordinatorKey, int]:
    """Returns the error code for each group or transactional id of an exchange."""
    answer = exchange.answer
    if isinstance(answer, DescribeShareGroupOffsetsResponse):
        return {(GROUP, group.group_id): group.error_code for group in answer.groups}
    if isinstance(answer, OffsetFetchResponse) and exchange.version >= FETCHES_GROUPS:
        return {(GROUP, group.group_id): group.error_code for group in answer.groups}
    code = getattr(answer, "error_code", None)
    if code in (None, 0):
        codes = _codes_of_partitions(answer)
        # Other partition errors reveal nothing about the coordinator, because a node can check partitions before it
        # checks whether it is the coordinator.
        code = next(iter(codes & NO_COORDINATOR or codes & {0}), code)
    return {} if code is None else dict.fromkeys(_coordinator_keys(exchange), code)


def _codes_of_partitions(answer: object) -> Set[int]:
    """Returns the error codes of all partitions in a response, or an empty set if the response has no error codes for
    partitions."""
    if isinstance(answer, AddPartitionsToTxnResponse):
        topics = answer.results_by_topic_v3_and_below
        return {partition.partition_error_code for topic in topics for partition in topic.results_by_partition}
    if isinstance(answer, OffsetCommitResponse | TxnOffsetCommitResponse | OffsetFetchResponse):
        return {partition.error_code for topic in answer.topics for partition in topic.partitions}
    return frozenset()


def on_coordinator_request(exchange: Exchange, scene: Scene) -> None:
    for key in _coordinator_keys(exchange):
        failure = scene.find_state(FailedRequests, exchange.connection.number, *key)
        if failure is not None and failure.response is not None and knows_response(exchange, failure.response):
            found_us = scene.state(SimilarConnections, exchange.connection.similarity).coordinators.get(key, -1)
            is_refreshed = found_us >= failure.response.answered_us
            _check_refresh(exchange, failure, is_refreshed, f"{key[1]!r} without FindCoordinator", scene)


def on_coordinator_response(exchange: Exchange, scene: Scene) -> None:
    for key, code in _coordinator_codes(exchange).items():
        if code == 0:
            _forget_failure(exchange, scene.find_state(FailedRequests, exchange.connection.number, *key))
        elif code in NO_COORDINATOR:
            failure = scene.state(FailedRequests, exchange.connection.number, *key)
            failure.response, failure.rule = failure.response or exchange, "MET.10"


def on_get_telemetry_subscriptions(exchange: Exchange, scene: Scene) -> None:
    request_id = getattr(exchange.request, "client_instance_id", ZERO_UUID)
    telemetry = scene.state(Telemetry, request_id)
    if telemetry.unknown_subscription is not None:
        scene.record_kept("TEL.2", exchange)
        telemetry.unknown_subscription = None


def on_get_telemetry_subscriptions_response(exchange: Exchange, scene: Scene) -> None:
    answer = exchange.answer
    if isinstance(answer, GetTelemetrySubscriptionsResponse) and answer.error_code == 0:
        scene.join(exchange.connection, "instance", answer.client_instance_id)
        scene.state(Telemetry, answer.client_instance_id).subscription = exchange


def on_push_telemetry(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, PushTelemetryRequest)
    telemetry = scene.state(Telemetry, request.client_instance_id)
    scene.join(exchange.connection, "instance", request.client_instance_id)
    subscription = telemetry.subscription
    if (
        telemetry.unknown_subscription is not None
        and knows_response(exchange, telemetry.unknown_subscription)
        and not request.terminating
    ):
        scene.record_broken(
            "TEL.2", exchange, "the client pushes with an unknown subscription id", telemetry.unknown_subscription
        )
    elif (
        subscription is not None
        and isinstance(subscription.answer, GetTelemetrySubscriptionsResponse)
        and knows_response(exchange, subscription)
    ):
        answer = subscription.answer
        before = telemetry.last_push or subscription
        early_us = JITTER * answer.push_interval_ms * 1000 - (exchange.received_us - before.received_us)
        if request.subscription_id != answer.subscription_id:
            why = f"the push has subscription id {request.subscription_id}, but the answer had {answer.subscription_id}"
        elif request.compression_type not in (0, *answer.accepted_compression_types):
            why = f"the push has compression {request.compression_type}, which the broker does not accept"
        elif early_us > 0 and not request.terminating:
            passed_ms = (exchange.received_us - before.received_us) // 1000
            why = f"the client pushes after {passed_ms} ms, although the interval is {answer.push_interval_ms} ms"
        else:
            why = ""
        scene.decide("TEL.1", not why, exchange, why, subscription, telemetry.last_push)
        size = len(request.metrics)
        is_fine = answer.telemetry_max_bytes <= 0 or size <= answer.telemetry_max_bytes
        scene.decide(
            "TEL.3",
            is_fine,
            exchange,
            f"the push has {size} bytes, although the limit is {answer.telemetry_max_bytes}",
            subscription,
        )
    telemetry.last_push = exchange


def on_push_telemetry_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, PushTelemetryRequest)
    if isinstance(answer, PushTelemetryResponse) and answer.error_code == E.UNKNOWN_SUBSCRIPTION_ID.value:
        scene.state(Telemetry, request.client_instance_id).unknown_subscription = exchange


COORDINATED: Final = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)

FAMILY = Family(
    RULES,
    on_request={
        ApiKey.PRODUCE: (on_leader_request,),
        ApiKey.FETCH: (on_leader_request,),
        ApiKey.METADATA: (on_metadata,),
        ApiKey.FIND_COORDINATOR: (on_find_coordinator,),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (on_get_telemetry_subscriptions,),
        ApiKey.PUSH_TELEMETRY: (on_push_telemetry,),
        **dict.fromkeys(COORDINATED, (on_coordinator_request,)),
    },
    on_response={
        ApiKey.PRODUCE: (on_leader_response,),
        ApiKey.FETCH: (on_leader_response,),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (on_get_telemetry_subscriptions_response,),
        ApiKey.PUSH_TELEMETRY: (on_push_telemetry_response,),
        **dict.fromkeys(COORDINATED, (on_coordinator_response,)),
    },
)
