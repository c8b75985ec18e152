"""Fetches records from every broker that leads assigned partitions, while the application waits for records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from odradek.client.common.errors import STALE_METADATA, ClientError, RetriableError
from odradek.client.common.values import ShareRecord, TopicPartition
from odradek.client.metrics.consumer_metrics import ShareConsumerMetrics
from odradek.client.network.cluster import Cluster
from odradek.client.sharing.share_leader import AcknowledgementOutcome, ShareDelivery, ShareLeader
from odradek.client.sharing.share_session import AcquireMode, ShareSettings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicIdPartition

AssignedPartitions = Mapping[TopicIdPartition, TopicPartition]
Records = dict[TopicPartition, list[ShareRecord]]


class ShareFetcher:
    """Fetches records from all leaders. Nothing is fetched ahead, because acquisition locks could expire while records
    are waiting to be processed."""

    def __init__(
        self, cluster: Cluster, settings: ShareSettings, *, on_change: Callable[[], None], metrics: ShareConsumerMetrics
    ) -> None:
        """`on_change` is called when `take` has records, or when `wake` may have more to do."""
        self._metrics = metrics
        self._cluster = cluster
        self._settings = settings
        self._on_change = on_change
        self._leaders: dict[int, ShareLeader] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}  # keyed by node
        self._failures: dict[int, int] = {}  # number of consecutive failures of each node
        self._lookup: asyncio.Task[None] | None = None
        self._lookups = 0  # number of consecutive look-ups
        self._stale: set[str] = set()  # topics whose metadata must be refreshed
        self._ready: deque[tuple[ShareLeader, list[ShareDelivery]]] = deque()
        self._error: ClientError | None = None
        self._turn = 0

    @property
    def leaders(self) -> list[ShareLeader]:
        return list(self._leaders.values())

    def take(self) -> Records:
        """Takes the result of one ShareFetch. From then on, the application must acknowledge its records. Each error is
        raised once, as a ClientError."""
        if self._ready:
            leader, deliveries = self._ready.popleft()
            return {each.partition: leader.deliver(each) for each in deliveries}
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return {}

    def wake(self, assigned: AssignedPartitions, max_wait_ms: int) -> None:
        """Sends a request to each broker whose next request is due, unless a request to that broker is already in
        flight."""
        requested = self._by_leader(assigned)
        for node_id in requested.keys() - self._leaders.keys():
            self._leaders[node_id] = ShareLeader(self._cluster, node_id, self._settings, self._metrics)
        if self._stale and self._lookup is None:
            self._lookups += 1
            self._lookup = self._spawn(self._look_up(self._lookups - 1))
        elif not self._stale:
            self._lookups = 0
        for node_id in self._in_turn():
            if self._tasks and self._settings.acquire_mode is AcquireMode.RECORD_LIMIT:
                break  # the limit applies to all brokers combined
            leader, of_node = self._leaders[node_id], requested.get(node_id, {})
            if node_id not in self._tasks and leader.needs_request(of_node):
                self._tasks[node_id] = self._spawn(self._fetch(leader, of_node, max_wait_ms))

    def take_outcomes(self) -> list[AcknowledgementOutcome]:
        """Returns the outcomes of acknowledgements that have arrived since the last call."""
        found = []
        for leader in self._leaders.values():
            found += leader.acknowledged
            leader.acknowledged = []
        return found

    async def acknowledge(self) -> None:
        """Sends all waiting acknowledgements to all brokers concurrently."""
        await asyncio.gather(
            *(leader.acknowledge() for leader in self._leaders.values() if leader.acquired.unsent_partitions)
        )

    async def close_sessions(self, timeout_ms: float) -> None:
        """Sends waiting acknowledgements and releases all other acquired records. Brokers that cannot be reached
        release the records when their locks expire."""
        closing = [leader.acknowledge(is_final=True) for leader in self._leaders.values()]
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.gather(*closing, return_exceptions=True)
        tasks = [*self._tasks.values(), *([] if self._lookup is None else [self._lookup])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._ready.clear()
        for leader in self._leaders.values():
            leader.give_up_records(RetriableError("the share session was closed"))

    def _by_leader(self, assigned: AssignedPartitions) -> dict[int, dict[TopicIdPartition, TopicPartition]]:
        found: dict[int, dict[TopicIdPartition, TopicPartition]] = {}
        for named, partition in assigned.items():
            topic = self._cluster.known_topic(partition.topic)
            leader = self._cluster.leader(partition)
            if topic is None or topic.topic_id != named.topic_id or leader is None or leader.node_id is None:
                self._stale.add(partition.topic)
            else:
                found.setdefault(leader.node_id, {})[named] = partition
        return found

    def _in_turn(self) -> list[int]:
        """Returns the nodes, starting with a different node each time, so that no node starves if only one request is
        sent at a time."""
        nodes = sorted(self._leaders)
        if not nodes:
            return nodes
        self._turn = (self._turn + 1) % len(nodes)
        return nodes[self._turn :] + nodes[: self._turn]

    async def _fetch(self, leader: ShareLeader, requested: AssignedPartitions, max_wait_ms: int) -> None:
        is_refused = False
        try:
            try:
                found = await leader.fetch(requested, max_wait_ms)
            except RetriableError:
                is_refused = True
                self._stale |= {each.topic for each in requested.values()}
            except ClientError as error:
                is_refused = True
                self._error = error
            else:
                if found.deliveries:
                    self._ready.append((leader, found.deliveries))
                for partition, refused in found.refused.items():
                    is_refused |= self._refused(partition, refused)
            self._failures[leader.node_id] = self._failures.get(leader.node_id, 0) + 1 if is_refused else 0
            if is_refused:
                self._on_change()
                await self._cluster.pause(self._failures[leader.node_id])
        finally:
            del self._tasks[leader.node_id]
            self._on_change()

    def _refused(self, partition: TopicPartition, error: ClientError) -> bool:
        """Handles one partition's error. Permanent errors are passed to the application. Returns whether to pause
        before the next request to this broker."""
        if error.code in STALE_METADATA:
            self._stale.add(partition.topic)
        elif not error.is_retriable and error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
            # UNKNOWN_SERVER_ERROR is excluded, because it means that the share partition's state has not been loaded
            # yet.
            self._error = error
        return error.code is not ErrorCode.CORRUPT_MESSAGE

    async def _look_up(self, failures: int) -> None:
        try:
            if failures:
                await self._cluster.pause(failures)
            topics, self._stale = self._stale, set()
            try:
                await self._cluster.refresh(topics)
            except RetriableError:
                self._stale |= topics
            except ClientError as error:  # the broker has refused the login
                self._stale |= topics
                self._error = error
        finally:
            self._lookup = None
            self._on_change()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)
