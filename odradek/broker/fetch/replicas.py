"""Handles Fetch in a cluster whose nodes share their logs. Leaders direct consumers to a closer replica (KIP-392), and
followers serve consumers.

In version 11 and later, the leader's response to a consumer with a rack names the preferred replica and contains no
records. The preferred replica serves the partition up to its own log end offset. Source: KIP-392; all other rules:
Kafka 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.broker.fetch.partition_read import NO_RECORDS, PartitionAnswer, PartitionRead
from odradek.broker.fetch.request import PendingFetch
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.partitions.partition import check_leader_epoch
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch_response import PartitionData

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.fetch.request import ColdRead, FetchBroker
    from odradek.broker.fetch.sessions import Fetch, FetchPartition
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.partitions.registry import Partitions
    from odradek.protocol.messages.fetch_request import FetchRequest

FIRST_VERSION_WITH_RACKS: Final = 11


@dataclass(slots=True)
class Replicas:
    """The replicas that consumers may read from, namely the replicas on nodes with a rack.

    end_offsets  log end offset of each lagging follower, by topic, partition and node
    """

    image: MetadataImage
    end_offsets: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def may_serve(self, node_id: int, topic: str, index: int) -> bool:
        """Returns whether consumers may read the partition from this node even though another node is the leader."""
        registration = self.image.brokers.get(node_id)
        partition = self.image.topics[topic].partitions[index]
        return registration is not None and registration.rack is not None and node_id in partition.replicas

    def end_offset(self, node_id: int, partition: Partition) -> int:
        """Returns the log end offset of the follower on this node."""
        end = partition.log.high_watermark
        return min(end, self.end_offsets.get((partition.topic, partition.index, node_id), end))

    def preferred_replica(self, rack: str, partition: Partition, fetch_offset: int) -> int | None:
        """Returns the id of the follower that a consumer in this rack should read from, or None to read from the
        leader.

        A consumer in the leader's rack reads from the leader. A follower qualifies if it is in the rack and its log
        contains the fetch offset. If several followers qualify, the one with the highest log end offset is chosen.
        """
        if fetch_offset < partition.log.log_start_offset:
            return None
        image = self.image.topics[partition.topic].partitions[partition.index]
        best, best_end = None, -1
        for node_id in sorted(image.isr):
            broker = self.image.brokers.get(node_id)
            if broker is None or broker.is_fenced or broker.rack != rack:
                continue
            if node_id == image.leader:
                return None
            end = self.end_offset(node_id, partition)
            if fetch_offset <= end and end > best_end:
                best, best_end = node_id, end
        return best


class FollowerRead(PartitionRead):
    """A read from a follower that may lag behind the leader."""

    __slots__ = ("_followed_to",)

    def follow_to(self, end: int) -> None:
        self._followed_to = end
        self._end_offset = min(end, self._end_offset)

    def check(self) -> PartitionAnswer | None:
        """Makes the same checks as a leader, but uses the log end offset of a follower that may lag. Raises KafkaError
        if a check fails.

        If the follower does not have the offset, the error is OFFSET_OUT_OF_RANGE. The consumer then checks with the
        leader whether the offset exists. Source: docs/spec/client-rules.md#fet-12
        """
        check_leader_epoch(self._partition, self._requested.current_leader_epoch)
        if self._requested.fetch_offset > self._followed_to:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return super().check()

    def _answer(self, chunks: object, size_bytes: int, end_offset: int) -> PartitionAnswer:
        answer = super()._answer(chunks, size_bytes, end_offset)
        data = answer.data
        data.high_watermark = min(data.high_watermark, self._followed_to)
        data.last_stable_offset = min(data.last_stable_offset, self._followed_to)
        return answer


class ReplicaFetch(PendingFetch):
    """A Fetch request to one node of a multi-node cluster."""

    def __init__(
        self,
        request: FetchRequest,
        context: RequestContext,
        broker: FetchBroker,
        session_fetch: Fetch,
        *,
        node_id: int,
        whole: Partitions,
        replicas: Replicas,
    ) -> None:
        super().__init__(request, context, broker, session_fetch)
        self._node_id = node_id
        self._whole = whole
        self._replicas = replicas
        self._may_follow = context.api_version >= FIRST_VERSION_WITH_RACKS and not self._is_follower
        self._rack = request.rack_id if self._may_follow else ""

    def _find(self, requested: FetchPartition) -> Partition:
        try:
            partition = super()._find(requested)
        except KafkaError as refusal:
            if refusal.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or not self._may_follow:
                raise
            partition = self._followed_partition(requested)
        if self._is_behind(partition) or self._preferred(partition, requested) is not None:
            # The response must contain this partition, even if the session has already sent its current offsets.
            requested.sent_high_watermark = -1
        return partition

    def _followed_partition(self, requested: FetchPartition) -> Partition:
        if isinstance(requested.topic, bytes):
            partition = self._whole.get_by_id(requested.topic, requested.index)
        else:
            partition = self._whole.get(requested.topic, requested.index)
        self._context.require(Operation.READ, ResourceType.TOPIC, partition.topic)
        if not self._replicas.may_serve(self._node_id, partition.topic, partition.index):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def _leads(self, partition: Partition) -> bool:
        return self._replicas.image.topics[partition.topic].partitions[partition.index].leader == self._node_id

    def _is_behind(self, partition: Partition) -> bool:
        return (
            not self._leads(partition)
            and self._replicas.end_offset(self._node_id, partition) < partition.log.high_watermark
        )

    def _preferred(self, partition: Partition, requested: FetchPartition) -> int | None:
        if not self._rack or not self._leads(partition):
            return None
        return self._replicas.preferred_replica(self._rack, partition, requested.fetch_offset)

    def _read(self, partition: Partition, requested: FetchPartition) -> ColdRead | None:
        preferred = self._preferred(partition, requested)
        if preferred is None:
            return super()._read(partition, requested)
        try:
            check_leader_epoch(partition, requested.current_leader_epoch)
        except KafkaError as error:
            self._add_answer(self._error_answer(requested, error.code))
            return None
        data = PartitionData(
            partition_index=requested.index,
            high_watermark=partition.log.high_watermark,
            last_stable_offset=partition.log.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=preferred,
            records=NO_RECORDS,
        )
        self._add_answer(PartitionAnswer(data, 0, partition, ends_waiting=True))
        return None

    def _partition_read(self, partition: Partition, requested: FetchPartition) -> PartitionRead:
        if not self._is_behind(partition):
            return super()._partition_read(partition, requested)
        read = FollowerRead(
            partition,
            requested,
            isolation=self._isolation,
            max_bytes=min(requested.max_bytes, self._left_bytes),
            min_one_batch=self._size_bytes == 0,
        )
        read.follow_to(self._replicas.end_offset(self._node_id, partition))
        return read
