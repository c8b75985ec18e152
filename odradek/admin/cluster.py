"""All brokers of a cluster, discovered through any one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from odradek.admin.connection import AdminError, Connection, Refused, check
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.find_coordinator_response import FindCoordinatorResponse
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.messages.metadata_response import MetadataResponse

T = TypeVar("T")

DEFAULT_PORT = 9092
TIMEOUT_S = 30.0
PAUSE_S = 0.1
TRANSACTION = 1  # the type of coordinator
ONE_KEY = 3  # FindCoordinator asks for one key up to this version
PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, order=True)
class PartitionOf:
    """leader_id: None where there is none at the moment."""

    topic: str
    partition: int
    leader_id: int | None


class Cluster:
    """Raises AdminError wherever something cannot be had. To be closed."""

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """bootstrap: `host:port`, several of them with commas; the first that answers is used."""
        self._timeout_s = timeout_s
        self._connections: dict[int, Connection] = {}
        self._first = self._reach(bootstrap)
        self._nodes = {broker.node_id: broker for broker in self._brokers()}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in (self._first, *self._connections.values()):
            connection.close()

    @property
    def node_ids(self) -> list[int]:
        return sorted(self._nodes)

    def broker(self, node_id: int) -> Connection:
        """A connection to it, kept."""
        if node_id not in self._connections:
            node = self._nodes.get(node_id)
            if node is None:
                raise AdminError(f"there is no broker {node_id}; there are {', '.join(map(str, self.node_ids))}")
            self._connections[node_id] = Connection(node.host, node.port, self._timeout_s)
        return self._connections[node_id]

    def partitions(self, topics: Iterable[str] | None = None) -> list[PartitionOf]:
        """Of these topics, or of all. Raises AdminError for a topic that does not exist."""
        asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        answer = self._first.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse)
        for topic in answer.topics:
            check(topic.error_code, f"the topic {topic.name}")
        return sorted(
            PartitionOf(topic.name or "", each.partition_index, each.leader_id if each.leader_id >= 0 else None)
            for topic in answer.topics
            for each in topic.partitions
        )

    def coordinator(self, transactional_id: str) -> int:
        """The node that coordinates this transactional id."""
        request = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION)

        def find() -> int:
            answer = self._first.ask(request, FindCoordinatorResponse, highest=ONE_KEY)
            check(answer.error_code, f"the coordinator of {transactional_id!r}", answer.error_message)
            return answer.node_id

        return self.patiently(find)

    def patiently(self, action: Callable[[], T]) -> T:
        """Again and again while it is refused with something that passes by itself."""
        ends_at = time.monotonic() + self._timeout_s
        while True:
            try:
                return action()
            except Refused as refusal:
                if refusal.code not in PASSING or time.monotonic() > ends_at:
                    raise
            time.sleep(PAUSE_S)

    def _reach(self, bootstrap: str) -> Connection:
        failures = []
        for address in filter(None, (part.strip() for part in bootstrap.split(","))):
            host, port = parse_address(address)
            try:
                return Connection(host, port, self._timeout_s)
            except AdminError as error:
                failures.append(str(error))
        raise AdminError("; ".join(failures) or "no address of a broker was given")

    def _brokers(self) -> list[Node]:
        answer = self._first.ask(MetadataRequest(topics=[]), MetadataResponse)
        return [Node(broker.node_id, broker.host, broker.port) for broker in answer.brokers]


def parse_address(address: str) -> tuple[str, int]:
    """`host`, `host:port` or `[::1]:port`. Raises AdminError."""
    host, separator, port = address.rpartition(":")
    if not separator or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    if not port.isdecimal() or not host:
        raise AdminError(f"{address!r} is not the address of a broker: it takes host:port")
    return host.strip("[]"), int(port)


def by_topic(partitions: Iterable[tuple[str, int]]) -> Mapping[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
