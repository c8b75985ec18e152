"""Hanging transactions: open in a partition but unknown to every coordinator, so that nothing will ever end them and
readers of committed data wait without end. Brokers before KIP-890 allowed them to arise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from odradek.client.administration.asking import Asking, by_topic
from odradek.client.administration.transactions import TransactionDescription, describe_transaction, ids_by_producer
from odradek.client.common.errors import ClientError, check
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_producers_response import DescribeProducersResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class PartitionLeader:
    """Partition of a cluster; `leader_id` is None where there is no leader at the moment."""

    topic: str
    partition: int
    leader_id: int | None


async def list_partitions(asking: Asking, topics: Iterable[str] | None = None) -> list[PartitionLeader]:
    """Returns the partitions of these topics, or of all. Raises ClientError for a topic that does not exist."""
    asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    answer = await asking.any_broker(request, MetadataResponse)
    for topic in answer.topics:
        check(topic.error_code, f"the topic {topic.name!r}")
    return sorted(
        PartitionLeader(topic.name or "", each.partition_index, each.leader_id if each.leader_id >= 0 else None)
        for topic in answer.topics
        for each in topic.partitions
    )


def by_leader(partitions: Iterable[PartitionLeader]) -> dict[int, dict[str, list[int]]]:
    """Groups the partitions that have a leader: leader → topic → partitions."""
    led: dict[int, list[TopicPartition]] = {}
    for each in partitions:
        if each.leader_id is not None:
            led.setdefault(each.leader_id, []).append((each.topic, each.partition))
    return {leader_id: by_topic(members) for leader_id, members in led.items()}


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Transaction as its partition sees it; `coordinator_epoch` is None before the producer's first marker there."""

    topic: str
    partition: int
    leader_id: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int
    last_timestamp_ms: int

    def silent_for_ms(self, now_ms: int) -> int:
        return max(0, now_ms - self.last_timestamp_ms)


async def open_transactions(asking: Asking, partitions: Iterable[PartitionLeader]) -> list[OpenTransaction]:
    """Asks the leader of every partition that has one. Raises ClientError."""
    found: list[OpenTransaction] = []
    for leader_id, led in by_leader(partitions).items():
        topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in led.items()]
        answer = await asking.broker(leader_id, DescribeProducersRequest(topics=topics), DescribeProducersResponse)
        for topic in answer.topics:
            for partition in topic.partitions:
                name = f"the producers of {topic.name}-{partition.partition_index}"
                check(partition.error_code, name, partition.error_message)
                found += [
                    OpenTransaction(
                        topic.name,
                        partition.partition_index,
                        leader_id,
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
                        producer.current_txn_start_offset,
                        producer.last_timestamp,
                    )
                    for producer in partition.active_producers
                    if producer.current_txn_start_offset >= 0
                ]
    return found


async def owner_of(asking: Asking, transaction: OpenTransaction, ids: dict[int, str]) -> TransactionDescription | None:
    """Returns the transaction of a coordinator that this one is part of, and that will end it; None if there is none.

    ids  from `ids_by_producer`
    """
    transactional_id = ids.get(transaction.producer_id)
    if transactional_id is None:
        return None
    try:
        found = await describe_transaction(asking, transactional_id)
    except ClientError as refusal:
        if refusal.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # forgotten meanwhile
            return None
        raise
    is_part = (transaction.topic, transaction.partition) in found.partitions
    return found if found.producer_id == transaction.producer_id and is_part else None


async def find_hanging(asking: Asking, partitions: Sequence[PartitionLeader], before_ms: int) -> list[OpenTransaction]:
    """Returns the hanging transactions whose last record is older than `before_ms`. Raises ClientError."""
    candidates = [each for each in await open_transactions(asking, partitions) if each.last_timestamp_ms < before_ms]
    ids = await ids_by_producer(asking, (each.producer_id for each in candidates))
    return [each for each in candidates if await owner_of(asking, each, ids) is None]


async def transaction_at(asking: Asking, partition: PartitionLeader, start_offset: int) -> OpenTransaction:
    """Raises ClientError where none begins at that offset."""
    found = await open_transactions(asking, [partition])
    for each in found:
        if each.start_offset == start_offset:
            return each
    others = ", ".join(str(each.start_offset) for each in found) or "none is open there"
    name = f"{partition.topic}-{partition.partition}"
    raise ClientError(f"no open transaction of {name} begins at offset {start_offset}; those open begin at: {others}")
