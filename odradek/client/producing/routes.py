"""Finds the leaders of a producer's topics, keeps the metadata up to date and the connections open, builds Produce
requests, and reads the responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from odradek.client.common.errors import AuthenticationFailed, ClientError, code_of
from odradek.client.common.values import TopicPartition, grouped
from odradek.client.network.cluster import Cluster, Leader
from odradek.client.network.connection import Connection
from odradek.protocol.batch_header import NO_TIMESTAMP
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse


class LeaderRoutes:
    """Finds the leader of each partition and connects to it.

    `on_change` is called whenever it may have become possible to send a batch. `on_refused` is called when a broker
    refuses the login.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Collection[str],
        *,
        max_age_s: float,
        on_change: Callable[[], None],
        on_refused: Callable[[AuthenticationFailed], None],
    ) -> None:
        """Creates routes to the leaders of `topics`. The collection is read again on each metadata refresh."""
        self._cluster = cluster
        self._topics = topics
        self._max_age_s = max_age_s
        self._on_change = on_change
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        # Partitions whose leader has rejected a request, until the metadata has been refreshed.
        self._stale: set[TopicPartition] = set()
        self._next_look = self._loop.call_later(max_age_s, self._refresh_regularly)

    def leader(self, partition: TopicPartition) -> int | None:
        """Returns the leader's node id. If the leader is unknown, returns None and refreshes the metadata."""
        if partition in self._stale:
            return None
        leader = self._cluster.leader(partition)
        if leader is None or leader.node_id is None:
            self.refresh()
            return None
        return leader.node_id

    def adopt_leader(self, partition: TopicPartition, answer: PartitionProduceResponse) -> None:
        """Adopts the new leader if the response names it (KIP-951). Called after `forget_leader`."""
        if answer.current_leader is not None:
            leader = Leader(answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            self._cluster.adopt_leader(partition, leader)
            self._stale.discard(partition)

    def forget_leader(self, partition: TopicPartition) -> None:
        """Marks the leader of this partition as unknown. No batch is sent to the partition until the metadata has been
        refreshed."""
        self._stale.add(partition)
        self.refresh()

    def connection(self, node_id: int) -> Connection | None:
        """Returns the open connection to this node. If no connection is open, returns None and starts to connect."""
        connection = self._cluster.open_connection(node_id)
        if connection is None and node_id not in self._connecting:
            self._connecting[node_id] = self._loop.create_task(self._connect(node_id))
        return connection

    def refresh(self) -> None:
        """Starts a metadata refresh, which is retried until a broker answers."""
        if self._refreshing is None:
            self._refreshing = self._loop.create_task(self._refresh())

    async def close(self) -> None:
        self._next_look.cancel()
        tasks = [*self._connecting.values(), *([self._refreshing] if self._refreshing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id)
        except AuthenticationFailed as error:
            self._on_refused(error)
            await self._cluster.pause(1)
        except ClientError:
            self.refresh()
            await self._cluster.pause(1)
        finally:
            del self._connecting[node_id]
            self._on_change()

    async def _refresh(self) -> None:
        try:
            failures = 0
            while True:
                failures += 1
                # Pause even before the first attempt, because a broker that has just failed may have recovered by then.
                await self._cluster.pause(failures)
                try:
                    await self._cluster.refresh(self._topics)
                except AuthenticationFailed as error:
                    self._on_refused(error)
                except ClientError:
                    continue
                self._stale.clear()
                return
        finally:
            self._refreshing = None
            self._on_change()

    def _refresh_regularly(self) -> None:
        """Refreshes the metadata at intervals, because leaders may move and topics may grow without any request
        failing."""
        self._next_look = self._loop.call_later(self._max_age_s, self._refresh_regularly)
        if self._topics:
            self.refresh()


NO_OFFSET = -1
FIRST_V2_VERSION = 12  # first version of Produce that makes the broker add partitions to the transaction
WITH_NAMES = 12  # last version whose requests name topics; later versions use topic ids


def version_bounds(*, is_transactional: bool, is_transaction_v2: bool) -> tuple[int, int]:
    """Returns the oldest and the newest version of Produce that may be used."""
    if not is_transactional:
        return 0, WITH_NAMES
    return (FIRST_V2_VERSION, WITH_NAMES) if is_transaction_v2 else (0, FIRST_V2_VERSION - 1)


def produce_request(
    batches: Iterable[tuple[TopicPartition, bytearray]], *, transactional_id: str | None, acks: int, timeout_ms: int
) -> ProduceRequest:
    """Builds a Produce request from sealed batches, with at most one batch per partition."""
    by_topic = grouped(
        (topic, PartitionProduceData(index=index, records=records)) for (topic, index), records in batches
    )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=data) for topic, data in by_topic.items()],
    )


def answers_by_partition(response: ProduceResponse) -> Mapping[TopicPartition, PartitionProduceResponse]:
    return {
        TopicPartition(topic.name, partition.index): partition
        for topic in response.responses
        for partition in topic.partition_responses
    }


def base_offset(answer: PartitionProduceResponse) -> int | None:
    """Returns the base offset, or None if the broker recognised a duplicate batch by its sequence and no longer has its
    offset."""
    return None if answer.base_offset == NO_OFFSET else answer.base_offset


def log_append_time_ms(answer: PartitionProduceResponse) -> int | None:
    """Returns the timestamp that the broker assigned, or None if the records keep their own timestamps."""
    return None if answer.log_append_time_ms == NO_TIMESTAMP else answer.log_append_time_ms


def explanation(answer: PartitionProduceResponse) -> str:
    """Returns the error as text, including the broker's own message, if any."""
    words = [code_of(answer.error_code).name]
    if answer.error_message:
        words.append(answer.error_message)
    words += [
        f"record {error.batch_index}: {error.batch_index_error_message or 'invalid'}" for error in answer.record_errors
    ]
    return ", ".join(words)
