"""The brokers of a cluster, the leaders of its partitions and its coordinators, as reported by any broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

import odradek
from odradek.client.common.errors import (
    RETRIABLE,
    AuthenticationFailed,
    ClientError,
    RetriableError,
    check,
    code_of,
    refusal,
)
from odradek.client.common.values import TopicPartition
from odradek.client.metrics.client_metrics import ClientMetrics
from odradek.client.metrics.sensors import NAN
from odradek.client.network.backoff import Backoff
from odradek.client.network.connection import Connection, ExpectedBroker, ServedVersions
from odradek.client.security.settings import NO_SECURITY, Security
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.protocol.struct import Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

DEFAULT_PORT = 9092
DEFAULT_REQUEST_TIMEOUT_MS = 30_000
DEFAULT_RETRY_BACKOFF_MS = 100
DEFAULT_RETRY_BACKOFF_MAX_MS = 1_000
DEFAULT_METADATA_MAX_AGE_MS = 300_000
ONE_KEY = 3  # last version of FindCoordinator with a single key
MAIN = ""  # the channel for short requests
TRANSACTION_VERSION = "transaction.version"


class CoordinatorType(Enum):
    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Leader:
    """A partition's leader. `node_id` is None if there is currently no leader. `leader_epoch` is None if the broker
    does not report it."""

    node_id: int | None
    leader_epoch: int | None

    def newer_leader(self, reported: Leader) -> Leader:
        """Returns `reported`, or this leader if `reported` has an older epoch, because a node may report outdated
        metadata (KIP-320)."""
        return (
            self if reported.leader_epoch is not None and reported.leader_epoch < (self.leader_epoch or 0) else reported
        )


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic's metadata. `leaders` is indexed by partition. A partition that the broker left out has no leader."""

    topic: str
    topic_id: bytes
    leaders: tuple[Leader, ...]


class Cluster:
    """The connections to all brokers of a cluster, and the cluster's metadata. A `Cluster` must be started and closed.

    There is one connection to each broker, opened on first use, and another connection for each `channel` that a caller
    names. A broker answers the requests on a connection in order. Requests that can wait in the broker for a long time
    (Fetch, JoinGroup) must therefore not precede urgent requests (Heartbeat) on the same connection.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str,
        request_timeout_ms: float = DEFAULT_REQUEST_TIMEOUT_MS,
        retry_backoff_ms: float = DEFAULT_RETRY_BACKOFF_MS,
        retry_backoff_max_ms: float = DEFAULT_RETRY_BACKOFF_MAX_MS,
        metadata_max_age_ms: float = DEFAULT_METADATA_MAX_AGE_MS,
        bootstrap_timeout_ms: float = 0,
        allow_auto_create_topics: bool = True,
        security: Security = NO_SECURITY,
        metrics: ClientMetrics | None = None,
    ) -> None:
        """Creates a cluster. `start` connects it.

        bootstrap_servers     one or more brokers as `host:port`, in a sequence or separated by commas. Any other form
                              raises ValueError.
        bootstrap_timeout_ms  how long `start` retries if no broker answers
        security              the TLS and SASL settings. Certificates that cannot be read raise ValueError or OSError.
        metrics               the client's metrics; if left out, measurements are discarded
        """
        self._bootstrap = parse_addresses(bootstrap_servers)
        _ = security.tls_context  # evaluated here, so that an unreadable file raises an error immediately
        self._security = security
        self._client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self._allow_auto_create_topics = allow_auto_create_topics
        self._metadata_max_age_s = metadata_max_age_ms / 1000
        self._bootstrap_timeout_s = bootstrap_timeout_ms / 1000
        self.backoff = Backoff(retry_backoff_ms, max(retry_backoff_ms, retry_backoff_max_ms))
        self.cluster_id: str | None = None
        self._nodes: dict[int, Node] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._learnt_at: dict[str, float] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._connections: dict[tuple[str, int, str], Connection] = {}  # keyed by host, port and channel
        self._opening: dict[tuple[str, int, str], asyncio.Task[Connection]] = {}
        self._features_epoch = -1
        self._features: dict[str, int] = {}
        self._features_learnt_at = 0.0
        self._metadata_at_s: float | None = None  # time of the last Metadata response, on the metrics' clock
        self._metrics = metrics or ClientMetrics("client", client_id)
        self._metrics.count_connections = lambda: sum(each.is_open for each in list(self._connections.values()))
        self._metrics.node_id_of = self._node_id_of
        self._is_closed = False

    async def start(self) -> None:
        """Discovers the brokers through the first bootstrap server that answers. Raises RetriableError if none answers
        within `bootstrap_timeout_ms`. Raises AuthenticationFailed immediately if a broker refuses the login."""
        self._is_closed = False
        ends_at = time.monotonic() + self._bootstrap_timeout_s
        failures = 0
        while True:
            try:
                await self.refresh(())
            except RetriableError:
                if time.monotonic() >= ends_at:
                    raise
            else:
                return
            failures += 1
            await asyncio.sleep(min(self.backoff.delay_s(failures), max(0.0, ends_at - time.monotonic())))

    async def close(self) -> None:
        """Closes all connections. Unanswered requests fail with a RetriableError."""
        self._is_closed = True
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        connections = list(self._connections.values())
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.closed() for connection in connections))

    # Requests.

    async def ask(
        self,
        request: Message,
        answer: type[M],
        *,
        node_id: int | None = None,
        max_version: int | None = None,
        min_version: int = 0,
        timeout_ms: float | None = None,
        channel: str = MAIN,
    ) -> M:
        """Sends a request to this broker, or to any broker if `node_id` is None (on the main channel), and returns the
        response.

        Raises RetriableError if the connection is lost, or if no response arrives in time (by default within
        `request_timeout_ms`). The caller checks the error codes in the response.
        """
        connection = await (self._any_connection() if node_id is None else self.connection(node_id, channel))
        return await connection.ask(
            request, answer, max_version=max_version, min_version=min_version, timeout_ms=timeout_ms
        )

    async def ask_coordinator(
        self,
        key: str,
        kind: CoordinatorType,
        request: Message,
        answer: type[M],
        *,
        max_version: int | None = None,
        min_version: int = 0,
        timeout_ms: float | None = None,
        channel: str = MAIN,
        find_timeout_ms: float = DEFAULT_REQUEST_TIMEOUT_MS,
    ) -> M:
        """Sends a request to this key's coordinator. If the connection is lost, the next call looks the coordinator up
        again.

        find_timeout_ms   how long to search for the coordinator; 0 for a single attempt
        """
        node_id = await self.coordinator(key, kind, timeout_ms=find_timeout_ms)
        try:
            return await self.ask(
                request,
                answer,
                node_id=node_id,
                max_version=max_version,
                min_version=min_version,
                timeout_ms=timeout_ms,
                channel=channel,
            )
        except RetriableError:
            self.forget_coordinator(key, kind)
            raise

    async def retry(
        self, ask: Callable[[], Coroutine[Any, Any, T]], timeout_s: float, *, never: ErrorCode | None = None
    ) -> T:
        """Retries `ask` after each RetriableError until the timeout has passed. An error with the code `never` is
        raised immediately."""
        ends_at, failures = time.monotonic() + timeout_s, 0
        while True:
            try:
                return await ask()
            except RetriableError as error:
                if time.monotonic() >= ends_at or (never is not None and error.code is never):
                    raise
            failures += 1
            await self.pause(failures)

    async def pause(self, failures: int) -> None:
        """Sleeps for the delay after this many consecutive failures. `failures` is at least 1."""
        await asyncio.sleep(self.backoff.delay_s(failures))

    async def check_all_serve(self, request: type[Message], feature: str, needs: str) -> None:
        """Raises ClientError (UNSUPPORTED_VERSION) unless every broker supports this request.

        If a broker did not support the request when its connection was opened, its versions are requested again,
        because raising a feature level may have added the request. Raises RetriableError if a broker cannot be reached.

        feature  a feature that must also be finalized. The request's API key is not reserved, so a later version of
                 Kafka may use the same key for another request.
        needs    a broker's requirement for supporting the request, for the error message
        """

        def is_served(versions: ServedVersions) -> bool:
            return versions.has_feature(feature) and versions.newest_version(request) is not None

        for node_id in self.node_ids:
            connection = await self.connection(node_id)
            if not is_served(connection.versions):
                await connection.refresh_versions()
            if not is_served(connection.versions):
                raise ClientError(f"{connection.name} does not support {needs}", ErrorCode.UNSUPPORTED_VERSION)

    @property
    def node_ids(self) -> list[int]:
        return sorted(self._nodes)

    @property
    def requests_in_flight(self) -> int:
        """The number of unanswered requests to all brokers."""
        return sum(each.requests_in_flight for each in list(self._connections.values()))

    @property
    def metadata_age_s(self) -> float:
        """Seconds since the last Metadata response, or NaN before the first one."""
        return NAN if self._metadata_at_s is None else self._metrics.clock() - self._metadata_at_s

    def _node_id_of(self, address: tuple[str, int]) -> int | None:
        return next((each.node_id for each in self._nodes.values() if (each.host, each.port) == address), None)

    @property
    def transaction_version(self) -> int:
        """The finalized level of transaction.version, as last reported, or 0 if the broker does not report it."""
        return self._features.get(TRANSACTION_VERSION, 0)

    async def refresh_features(self) -> None:
        """Requests the finalized features. Without this call, brokers report them only when a connection is opened.
        Raises ClientError."""
        request = ApiVersionsRequest(client_software_name="odradek", client_software_version=odradek.__version__)
        answer = await self.ask(request, ApiVersionsResponse)
        check(answer.error_code, "the versions of the cluster")
        self._store_features(ServedVersions.of(answer))

    @property
    def are_features_stale(self) -> bool:
        """True if the features were last reported more than `metadata_max_age_ms` ago."""
        return time.monotonic() - self._features_learnt_at > self._metadata_max_age_s

    def _store_features(self, versions: ServedVersions) -> None:
        self._features_learnt_at = time.monotonic()
        if versions.features_epoch >= self._features_epoch:
            self._features_epoch = versions.features_epoch
            self._features = dict(versions.features)

    # Metadata.

    async def refresh(self, topics: Iterable[str] | None = None, *, allow_auto_create: bool | None = None) -> None:
        """Refreshes the metadata of these topics, or of all known topics. Raises RetriableError if no broker answers.
        An error for a single topic is not raised here; `topic` raises it."""
        names = list(self._topics) if topics is None else list(topics)
        for topic in await self._ask_metadata(names, allow_auto_create):
            self._store_topic(topic)

    async def topic(self, name: str, *, timeout_ms: float = DEFAULT_REQUEST_TIMEOUT_MS) -> TopicMetadata:
        """Waits until the topic exists and returns its metadata. The request may create the topic. Raises
        RetriableError on timeout. Raises ClientError immediately if the name is invalid or access is denied."""
        cached = self._topics.get(name)
        if cached is not None:
            return cached
        ends_at = time.monotonic() + timeout_ms / 1000
        failures = 0
        while True:
            error: ClientError
            try:
                answer = await self._ask_for_topic(name)
                code = code_of(answer.error_code)
                if code is ErrorCode.NONE:
                    return self._topics[name]
                error = refusal(code, f"the topic {name!r}")
            except RetriableError as lost:
                error = lost
            if not error.is_retriable or time.monotonic() >= ends_at:
                raise error
            failures += 1
            await self.pause(failures)

    async def partitions(self, topic: str, *, timeout_ms: float = DEFAULT_REQUEST_TIMEOUT_MS) -> int:
        """Returns the topic's number of partitions. Raises the errors of `topic`."""
        return len((await self.topic(topic, timeout_ms=timeout_ms)).leaders)

    def known_topic(self, topic: str) -> TopicMetadata | None:
        """Returns a topic's last known metadata. Sends no request."""
        return self._topics.get(topic)

    async def topic_names(self, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
        """Returns the names of the existing topics by topic id. Looks up unknown ids. Raises RetriableError."""
        requested = set(topic_ids)
        found = self._names_of(requested)
        if missing := requested - found.keys():
            requested_topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(missing)]
            for topic in await self._metadata(
                MetadataRequest(topics=requested_topics, allow_auto_topic_creation=False)
            ):
                if topic.name is not None:
                    self._store_topic(topic)
            found = self._names_of(requested)
        return found

    def _names_of(self, topic_ids: Collection[bytes]) -> dict[bytes, str]:
        return {cached.topic_id: cached.topic for cached in self._topics.values() if cached.topic_id in topic_ids}

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Returns the last known leader of the partition, or None if the partition is unknown."""
        cached = self._topics.get(partition.topic)
        if cached is None or partition.partition >= len(cached.leaders):
            return None
        return cached.leaders[partition.partition]

    def adopt_leader(self, partition: TopicPartition, reported: Leader) -> None:
        """Adopts a leader that another node has reported in a response (KIP-951), unless a leader with a newer epoch is
        known."""
        cached = self._topics.get(partition.topic)
        if cached is not None and partition.partition < len(cached.leaders) and reported.node_id in self._nodes:
            leaders = list(cached.leaders)
            leaders[partition.partition] = leaders[partition.partition].newer_leader(reported)
            self._topics[partition.topic] = replace(cached, leaders=tuple(leaders))

    def stale_topics(self, now_s: float) -> list[str]:
        """Returns the topics whose metadata is more than `metadata_max_age_ms` old at `now_s` (of time.monotonic)."""
        return [topic for topic, at in self._learnt_at.items() if now_s - at > self._metadata_max_age_s]

    def forget_topics(self, topics: Collection[str]) -> None:
        for topic in topics:
            self._topics.pop(topic, None)
            self._learnt_at.pop(topic, None)

    # Coordinators.

    async def coordinator(
        self, key: str, kind: CoordinatorType, *, timeout_ms: float = DEFAULT_REQUEST_TIMEOUT_MS
    ) -> int:
        """Returns the node that coordinates this group or transactional id. Raises RetriableError if no coordinator is
        found within `timeout_ms`. Raises ClientError immediately if the request is refused permanently."""
        cached = self._coordinators.get((kind, key))
        if cached is not None:
            return cached
        request = FindCoordinatorRequest(key=key, key_type=kind.value)

        async def ask() -> int:
            answer = await self.ask(request, FindCoordinatorResponse, max_version=ONE_KEY)
            check(answer.error_code, f"the coordinator of the {kind.name.lower()} {key!r}", answer.error_message)
            self._nodes.setdefault(answer.node_id, Node(answer.node_id, answer.host, answer.port))
            self._coordinators[kind, key] = answer.node_id
            return answer.node_id

        return await self.retry(ask, timeout_ms / 1000)

    def forget_coordinator(self, key: str, kind: CoordinatorType) -> None:
        self._coordinators.pop((kind, key), None)

    # Connections.

    def open_connection(self, node_id: int) -> Connection | None:
        """Returns the main connection to this broker if it is open."""
        node = self._nodes.get(node_id)
        connection = None if node is None else self._connections.get((node.host, node.port, MAIN))
        return connection if connection is not None and connection.is_open else None

    async def connection(self, node_id: int, channel: str = MAIN) -> Connection:
        """Returns the connection to this broker, opening it if necessary. Raises RetriableError."""
        node = self._nodes.get(node_id)
        if node is None:
            raise RetriableError(f"the metadata contains no broker {node_id}", ErrorCode.BROKER_NOT_AVAILABLE)
        try:
            return await self._connect(node.host, node.port, channel)
        except RetriableError as error:
            if (node.host, node.port) in self._bootstrap or self._is_closed:
                raise
            where = f"{error}; broker {node_id} advertises this address to clients (advertised.listeners)"
            raise RetriableError(where, error.code) from None

    async def _any_connection(self) -> Connection:
        for (_, _, channel), connection in self._connections.items():
            if channel == MAIN and connection.is_open:
                return connection
        failures: list[RetriableError] = []
        addresses = dict.fromkeys([*((node.host, node.port) for node in self._nodes.values()), *self._bootstrap])
        for host, port in addresses:
            try:
                return await self._connect(host, port)
            except RetriableError as error:
                failures.append(error)
        codes = {error.code for error in failures}
        code = codes.pop() if len(codes) == 1 else None
        raise RetriableError("; ".join(map(str, failures)), code or ErrorCode.BROKER_NOT_AVAILABLE)

    async def _connect(self, host: str, port: int, channel: str = MAIN) -> Connection:
        """Connects to an address. Only one attempt is made at a time, and all callers share it. Cancelling a caller
        does not cancel the attempt."""
        address = (host, port, channel)
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        if self._is_closed:
            raise RetriableError("the client is closed")
        task = self._opening.get(address)
        if task is None:
            task = self._opening[address] = asyncio.get_running_loop().create_task(self._open(address))
            task.add_done_callback(_retrieve_error)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # cancelled by `close`, not by the caller
                raise RetriableError("the client is closed") from None
            raise

    async def _open(self, address: tuple[str, int, str]) -> Connection:
        try:
            host, port, _ = address
            connection = await Connection.open(
                host,
                port,
                client_id=self._client_id,
                request_timeout_ms=self.request_timeout_ms,
                security=self._security,
                meter=self._metrics.node(host, port),
                expected=self._expected_broker((host, port)),
            )
        except RetriableError as error:
            if error.code is ErrorCode.REBOOTSTRAP_REQUIRED:
                self._rebootstrap()
            raise
        except AuthenticationFailed:
            self._metrics.refused_logins.record()
            raise
        finally:
            del self._opening[address]
        self._metrics.created_connections.record()
        if self._security.has_sasl or self._security.tls_context is not None:
            self._metrics.logins.record()
        self._connections[address] = connection
        self._store_features(connection.versions)
        return connection

    def _expected_broker(self, address: tuple[str, int]) -> ExpectedBroker | None:
        node_id = self._node_id_of(address)
        return None if node_id is None or self.cluster_id is None else ExpectedBroker(self.cluster_id, node_id)

    def _rebootstrap(self) -> None:
        """Forgets all brokers, because the address of a broker now belongs to a different broker or cluster. The next
        request goes to an open connection or to a bootstrap server, which reports the brokers again (KIP-1242)."""
        self._nodes.clear()
        self._coordinators.clear()
        self.cluster_id = None

    async def _ask_for_topic(self, name: str) -> MetadataResponseTopic:
        for topic in await self._ask_metadata([name], None):
            if topic.name == name:
                self._store_topic(topic)
                return topic
        raise RetriableError(
            f"the broker's answer does not contain the topic {name!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    async def _ask_metadata(self, names: list[str], allow_auto_create: bool | None) -> list[MetadataResponseTopic]:
        allowed = self._allow_auto_create_topics if allow_auto_create is None else allow_auto_create
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=allowed
        )
        return await self._metadata(request)

    async def _metadata(self, request: MetadataRequest) -> list[MetadataResponseTopic]:
        answer = await self.ask(request, MetadataResponse)
        self._metadata_at_s = self._metrics.clock()
        self._nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in answer.brokers}
        self.cluster_id = answer.cluster_id
        return answer.topics

    def _store_topic(self, topic: MetadataResponseTopic) -> None:
        """Stores a topic's metadata. If the topic has a transient error, the known metadata is retained."""
        name = topic.name or ""
        if topic.error_code != 0:
            if code_of(topic.error_code) not in RETRIABLE:
                self.forget_topics((name,))
            return
        leaders = [Leader(None, None)] * (1 + max((each.partition_index for each in topic.partitions), default=-1))
        for each in topic.partitions:
            leaders[each.partition_index] = Leader(
                each.leader_id if each.leader_id >= 0 else None, each.leader_epoch if each.leader_epoch >= 0 else None
            )
        cached = self._topics.get(name)
        if cached is not None and cached.topic_id == topic.topic_id:
            count = min(len(cached.leaders), len(leaders))
            leaders[:count] = map(Leader.newer_leader, cached.leaders[:count], leaders[:count])
        self._topics[name] = TopicMetadata(name, topic.topic_id, tuple(leaders))
        self._learnt_at[name] = time.monotonic()


def parse_addresses(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """Parses addresses of the form `host`, `host:port` or `[::1]:port`. Raises ValueError."""
    texts = servers.split(",") if isinstance(servers, str) else servers
    addresses = []
    for text in filter(None, (text.strip() for text in texts)):
        host, separator, port = text.rpartition(":")
        if not separator or text.endswith("]"):
            host, port = text, str(DEFAULT_PORT)
        if not port.isdecimal() or not host:
            raise ValueError(f"{text!r} is not the address of a broker: write host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no address of a broker was given")
    return addresses


def _retrieve_error(task: asyncio.Task[Connection]) -> None:
    """Marks the task's exception as retrieved. All waiting callers have received it, and asyncio would otherwise print
    it."""
    if not task.cancelled():
        task.exception()
