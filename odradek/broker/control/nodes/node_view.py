"""Presents the broker of a cluster as one of the cluster's nodes, with only the partitions and coordinators of that
node.

All nodes share the same logs. For a partition that another node leads, the handlers return NOT_LEADER_OR_FOLLOWER,
because they look up partitions in `LedPartitions`. Before a request reaches its handler, this module checks whether the
node is the coordinator that the request needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.control.nodes.led_markers import LedMarkers
from odradek.broker.fetch.replicas import ReplicaFetch, Replicas
from odradek.broker.handlers.by_api_key import handler_of
from odradek.broker.handlers.cluster.replicas import election_response
from odradek.broker.handlers.groups.group_administration import list_groups
from odradek.broker.handlers.handler_broker import HandlerBroker
from odradek.broker.handlers.records.administration import describe_producers
from odradek.broker.handlers.records.fetch import answer_fetch
from odradek.broker.handlers.shares.share_group_offsets import describe_share_group_offsets
from odradek.broker.handlers.transactions.administration import list_transactions
from odradek.broker.metadata.replicas import ElectionType, elect_leader
from odradek.broker.network.request_filter import RequestFilter
from odradek.broker.partitions.registry import LedPartitions
from odradek.broker.security.authorization import authorizer_of
from odradek.broker.shares.core.state import SharePartitionKey, coordinator_key
from odradek.protocol.api_facts import API_OF_KEY, Coordinator, facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.exchange import api_and_version, read_request
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Sequence

    from odradek.broker.api.context import ConnectionInfo, RequestContext
    from odradek.broker.api.dispatch import HandlerCall
    from odradek.broker.api.served import OfferedVersions
    from odradek.broker.broker import Broker
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.configuration.listeners import Listener
    from odradek.broker.coordinators.group_coordinator import GroupCoordinator
    from odradek.broker.coordinators.share_coordinator import ShareCoordinator
    from odradek.broker.coordinators.steps import BrokerSteps
    from odradek.broker.coordinators.transaction_coordinator import ProducerIdSource, TransactionCoordinator
    from odradek.broker.coordinators.transaction_markers import TopicMarkerWriter
    from odradek.broker.coordinators.verification import Verifier
    from odradek.broker.fetch.sessions import FetchSessions
    from odradek.broker.handlers.shares.share_group_state import RequestedPartition, StateRequestForm
    from odradek.broker.metadata.cluster_metadata import ClusterMetadata
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.metadata.topic_creation import TopicCreation
    from odradek.broker.partitions.registry import Partitions
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.broker.runtime.loop_watch import LoopWatch
    from odradek.broker.runtime.replies import ParkedRequest
    from odradek.broker.runtime.waiting import NowOrLater
    from odradek.broker.runtime.workers import DecompressionWorkers, Workers
    from odradek.broker.security.tls.certificates import ListenerCertificates
    from odradek.broker.serving import ServingBroker
    from odradek.broker.shares.leader.shares import SharePartitionManager
    from odradek.broker.transactions.producers import Seals, TwoPhaseProducers
    from odradek.protocol.file_slice import Chunk
    from odradek.protocol.kafka_rules import KafkaRules
    from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
    from odradek.protocol.messages.describe_producers_response import DescribeProducersResponse
    from odradek.protocol.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequest
    from odradek.protocol.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
    from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest
    from odradek.protocol.messages.elect_leaders_response import ElectLeadersResponse
    from odradek.protocol.messages.fetch_request import FetchRequest
    from odradek.protocol.messages.fetch_response import FetchResponse
    from odradek.protocol.messages.list_groups_request import ListGroupsRequest
    from odradek.protocol.messages.list_groups_response import ListGroupsResponse
    from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
    from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
    from odradek.protocol.struct import Buffer, Struct
    from odradek.protocol.topic_partition import TopicPartition
    from odradek.storage.log_directory import LogDirectory

# Fields that contain group ids or transactional ids. If a field is a list, its elements are ids, or structs with one of
# these fields.
GROUP_FIELDS: Final = ("group_id", "group_ids", "groups", "groups_names")
TRANSACTION_FIELDS: Final = (
    "transactional_id",
    "transactional_ids",
    "v3_and_below_transactional_id",
    "transactions",
)
STATE_TOPICS: Final = {
    Coordinator.GROUP: GROUP_OFFSETS,
    Coordinator.TRANSACTION: TRANSACTION_STATE,
    Coordinator.SHARE: SHARE_GROUP_STATE,
}


# Errors from an election on a single broker. In a cluster, another node may be able to become the leader.
MAY_BE_ON_OTHER_NODES: Final = frozenset(
    {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
)


class NodeBroker(HandlerBroker):
    """The broker as seen by one node's handlers.

    A node has only the partitions that it leads, and its own fetch sessions. It shares everything else with the other
    nodes.
    """

    def __init__(self, whole: Broker, node_id: int) -> None:
        self._whole = whole
        self._node_id = node_id
        self._partitions = LedPartitions(whole.partitions, node_id)
        self._sessions: FetchSessions | None = None

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def partitions(self) -> Partitions:
        return self._partitions

    @property
    def fetch_sessions(self) -> FetchSessions:
        if self._sessions is None:
            self._sessions = self._whole.new_fetch_sessions()
        return self._sessions

    @property
    def config(self) -> BrokerConfig:
        return self._whole.config

    @property
    def cluster_id(self) -> str:
        return self._whole.cluster_id

    @property
    def advertised_listeners(self) -> Sequence[Listener]:
        return self._whole.advertised_listeners

    @property
    def offered(self) -> OfferedVersions:
        return self._whole.offered

    @property
    def rules(self) -> KafkaRules:
        return self._whole.rules

    @property
    def clock(self) -> Clock:
        return self._whole.clock

    @property
    def steady_clock(self) -> Clock:
        return self._whole.steady_clock

    @property
    def timers(self) -> Timers:
        return self._whole.timers

    @property
    def steps(self) -> BrokerSteps:
        return self._whole.steps

    @property
    def loop(self) -> AbstractEventLoop:
        return self._whole.loop

    @property
    def watch(self) -> LoopWatch:
        return self._whole.watch

    @property
    def workers(self) -> Workers:
        return self._whole.workers

    @property
    def decompression_workers(self) -> DecompressionWorkers:
        return self._whole.decompression_workers

    @property
    def log_directory(self) -> LogDirectory:
        return self._whole.log_directory

    @property
    def metadata(self) -> ClusterMetadata:
        return self._whole.metadata

    @property
    def auto_creation(self) -> TopicCreation:
        return self._whole.auto_creation

    @property
    def certificates(self) -> ListenerCertificates | None:
        return self._whole.certificates

    @property
    def host_addresses(self) -> dict[str, tuple[str, ...]]:
        return self._whole.host_addresses

    @property
    def producer_ids(self) -> ProducerIdSource:
        return self._whole.producer_ids

    @property
    def two_phase(self) -> TwoPhaseProducers:
        return self._whole.two_phase

    @property
    def seals(self) -> Seals:
        return self._whole.seals

    @property
    def groups(self) -> GroupCoordinator:
        return self._whole.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        return self._whole.transactions

    @property
    def markers(self) -> TopicMarkerWriter:
        return LedMarkers(self._whole.markers, self._is_led_elsewhere)

    def _is_led_elsewhere(self, topic_partition: TopicPartition) -> bool:
        try:
            self._partitions.get(*topic_partition)
        except KafkaError as error:
            return error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return False

    @property
    def verifier(self) -> Verifier:
        return self._whole.verifier

    @property
    def share_coordinator(self) -> ShareCoordinator:
        return self._whole.share_coordinator

    @property
    def shares(self) -> SharePartitionManager:
        return self._whole.shares

    def has_started(self, coordinator: str) -> bool:
        return self._whole.has_started(coordinator)


class RefusingNodeBroker(NodeBroker):
    """The broker as seen by one node's handlers for a request that another node must coordinate.

    As in Kafka, handlers first check the client's permissions and the form of the request. As soon as a handler uses a
    coordinator, the request is refused with NOT_COORDINATOR.
    """

    @property
    def groups(self) -> GroupCoordinator:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    @property
    def transactions(self) -> TransactionCoordinator:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    @property
    def share_coordinator(self) -> ShareCoordinator:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)


class LeadingNodes(Protocol):
    """The nodes of a cluster, any of which can be elected leader of a partition."""

    def is_live(self, node_id: int) -> bool: ...

    async def make_leaders(self, places: Sequence[tuple[str, int, int]]) -> None:
        """Changes the leaders of partitions. Each entry of `places` contains a topic, a partition and the id of its new
        leader."""


class NodeHandlers:
    """The handlers of one node. A method named after an API replaces the broker's handler for that API."""

    def __init__(self, whole: Broker, node_id: int, replicas: Replicas, cluster: LeadingNodes) -> None:
        self._whole = whole
        self._node_id = node_id
        self._cluster = cluster
        self._make_fetch = partial(ReplicaFetch, node_id=node_id, whole=whole.partitions, replicas=replicas)

    def handler_of(self, api: ApiKey) -> HandlerCall[HandlerBroker]:
        own: HandlerCall[HandlerBroker] | None = getattr(self, api.name.lower(), None)
        return own or handler_of(api)

    def fetch(self, request: FetchRequest, context: RequestContext, view: HandlerBroker) -> NowOrLater[FetchResponse]:
        return answer_fetch(request, context, view, self._make_fetch)

    async def list_groups(
        self, request: ListGroupsRequest, context: RequestContext, view: HandlerBroker
    ) -> ListGroupsResponse:
        """Lists the groups that this node coordinates."""
        answer = await list_groups(request, context, view)
        answer.groups = [
            each for each in answer.groups if coordinator_of(self._whole, GROUP_OFFSETS, each.group_id) == self._node_id
        ]
        return answer

    async def list_transactions(
        self, request: ListTransactionsRequest, context: RequestContext, view: HandlerBroker
    ) -> ListTransactionsResponse:
        """Lists the transactional ids that this node coordinates."""
        answer = await list_transactions(request, context, view)
        answer.transaction_states = [
            each
            for each in answer.transaction_states
            if coordinator_of(self._whole, TRANSACTION_STATE, each.transactional_id) == self._node_id
        ]
        return answer

    async def elect_leaders(
        self, request: ElectLeadersRequest, context: RequestContext, view: HandlerBroker
    ) -> ElectLeadersResponse:
        """Elects leaders among the running nodes and responds when the new leaders are in place."""
        led: list[tuple[str, int, int]] = []

        def elect(image: MetadataImage, name: str, index: int, election: ElectionType) -> KafkaError | None:
            refusal = elect_leader(image, name, index, election)
            if refusal.code not in MAY_BE_ON_OTHER_NODES:
                return refusal
            replicas = image.topics[name].partitions[index].replicas
            candidates = replicas[:1] if election is ElectionType.PREFERRED else replicas
            leader = next((each for each in candidates if self._cluster.is_live(each)), None)
            if leader is None:
                return refusal
            led.append((name, index, leader))
            return None

        answer = election_response(request, context, view, elect)
        await self._cluster.make_leaders(led)
        return answer

    def describe_producers(
        self, request: DescribeProducersRequest, context: RequestContext, _view: HandlerBroker
    ) -> NowOrLater[DescribeProducersResponse]:
        """Describes the producers of all partitions, because followers can also answer this request."""
        return describe_producers(request, context, self._whole)

    def describe_share_group_offsets(
        self, request: DescribeShareGroupOffsetsRequest, context: RequestContext, view: HandlerBroker
    ) -> NowOrLater[DescribeShareGroupOffsetsResponse]:
        """Describes the offsets of all partitions, because the lag includes partitions that other nodes lead."""
        broker = view if isinstance(view, RefusingNodeBroker) else self._whole
        return describe_share_group_offsets(request, context, broker)


def node_dispatcher(
    serving: ServingBroker, view: NodeBroker, replicas: Replicas, cluster: LeadingNodes
) -> Dispatcher[HandlerBroker]:
    """Creates a dispatcher whose handlers see this view of a node. The dispatcher has no fast path for Produce, because
    that path would cache partitions."""
    broker = serving.broker
    dispatcher: Dispatcher[HandlerBroker] = Dispatcher(
        view,
        broker.clock,
        NodeHandlers(broker, view.node_id, replicas, cluster).handler_of,
        served=broker.offered.apis,
        authorizer=authorizer_of(broker.config, broker.metadata.image.acls, broker.rules),
    )
    dispatcher.workers = broker.codec_thread
    dispatcher.throttling = serving.dispatcher.throttling
    return dispatcher


class NodeRequests(RequestFilter):
    """Refuses requests that another node must coordinate. Implements `RequestReceiver` of `connection_host.py`.

    A request may name several groups, transactions or share partitions; clients then send one request to each
    coordinator. A request is refused only if this node coordinates none of its keys.
    """

    def __init__(self, serving: ServingBroker, node_id: int, replicas: Replicas, cluster: LeadingNodes) -> None:
        self._broker = serving.broker
        self._node_id = node_id
        self.dispatcher = node_dispatcher(serving, NodeBroker(self._broker, node_id), replicas, cluster)
        self._refusals = node_dispatcher(serving, RefusingNodeBroker(self._broker, node_id), replicas, cluster)
        super().__init__(self.dispatcher)

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        leaders = self._coordinators(frame)
        is_elsewhere = bool(leaders) and self._node_id not in leaders
        return (self._refusals if is_elsewhere else self.dispatcher).start(frame, connection)

    def serves(self, number: int, version: int) -> bool:
        return self.dispatcher.serves(number, version)

    def refusal(self, frame: Buffer, connection: ConnectionInfo, code: ErrorCode) -> list[Chunk]:
        return self.dispatcher.refusal(frame, connection, code)

    def _coordinators(self, frame: memoryview) -> Collection[int | None]:
        """Returns the nodes that coordinate the groups, transactions or share partitions of a request. The result is
        empty if the request names no group, transaction or share partition."""
        requested = api_and_version(frame)
        if requested is None:
            return ()
        number, version = requested
        api = API_OF_KEY.get(number)
        coordinator = None if api is None else facts_of(api).coordinator
        if coordinator is None or not self.dispatcher.serves(number, version):
            return ()
        topic = STATE_TOPICS[coordinator]
        if topic not in self._broker.metadata.image.topics:
            return ()
        return {self.coordinator(topic, key) for key in keys_of(read_request(frame).message, coordinator)}

    def coordinator(self, topic: str, key: str) -> int | None:
        return coordinator_of(self._broker, topic, key)


def coordinator_of(broker: Broker, topic: str, key: str) -> int | None:
    """Returns the node that leads the partition of `topic` for this key, or None while the partition has no leader."""
    return broker.metadata.image.topics[topic].partitions[state_partition(broker, topic, key)].leader


def state_partition(broker: Broker, topic: str, key: str) -> int:
    """Returns the partition of a coordinator's topic that contains the state of this key."""
    if topic == GROUP_OFFSETS:
        return broker.groups.partition_for(key)
    if topic == TRANSACTION_STATE:
        return broker.transactions.partition_for(key)
    return broker.share_coordinator.shards.partition_for(key)


def keys_of(request: Struct, coordinator: Coordinator) -> Iterator[str]:
    """Yields the keys that clients use to look up the coordinators of a request."""
    match coordinator:
        case Coordinator.GROUP:
            yield from keys_in(request, GROUP_FIELDS)
        case Coordinator.TRANSACTION:
            yield from keys_in(request, TRANSACTION_FIELDS)
        case Coordinator.SHARE:
            requested = cast("StateRequestForm[RequestedPartition]", request)
            for topic in requested.topics:
                for each in topic.partitions:
                    yield coordinator_key(SharePartitionKey(requested.group_id, topic.topic_id, each.partition))


def keys_in(request: Struct, fields: Collection[str]) -> Iterator[str]:
    for name in set(fields).intersection(type(request).__slots__):
        value = getattr(request, name)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, str) and each:
                yield each
            elif each is not None and not isinstance(each, str):
                yield from keys_in(each, fields)
