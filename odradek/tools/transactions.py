"""Finds open transactions in a cluster, explains why readers wait, and ends transactions.

A hanging transaction is open in a partition but unknown to all coordinators. It will never end, so read_committed
consumers wait forever. Brokers before KIP-890 could create hanging transactions.

A transaction in doubt may not end on its own either: it is part of a two-phase commit, which another system decides
(KIP-939), or has been open for too long.

| end it | if it is | effect |
|---|---|---|
| by its coordinator | any other transaction | it ends in all partitions, and its producer is fenced |
| by force | a two-phase commit, which the broker has promised not to end | the same |
| by a marker in one partition | a transaction unknown to all coordinators | it ends in that partition |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.client.administration.records import LATEST, offsets
from odradek.client.administration.requests import AdminRequests
from odradek.client.administration.transactions import (
    TransactionDescription,
    abort_transaction,
    describe_listed,
    describe_producers,
    describe_transaction,
    fence_producer,
    ids_by_producer,
    list_transactions,
)
from odradek.client.common.errors import ClientError, check
from odradek.client.common.values import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse


@dataclass(frozen=True, slots=True, order=True)
class PartitionLeader:
    """A partition and its leader. `leader_id` is None if the partition has no leader at the moment."""

    topic: str
    partition: int
    leader_id: int | None


async def list_partitions(requests: AdminRequests, topics: Iterable[str] | None = None) -> list[PartitionLeader]:
    """Returns the partitions of these topics, or of all topics. Raises ClientError if a topic does not exist."""
    requested = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(topics=requested, allow_auto_topic_creation=False)
    answer = await requests.ask_any_broker(request, MetadataResponse)
    for topic in answer.topics:
        check(topic.error_code, f"the topic {topic.name!r}")
    return sorted(
        PartitionLeader(topic.name or "", each.partition_index, each.leader_id if each.leader_id >= 0 else None)
        for topic in answer.topics
        for each in topic.partitions
    )


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction as one partition reports it. `coordinator_epoch` is None if the partition does not yet
    contain a marker from the producer."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int
    last_timestamp_ms: int

    def silent_for_ms(self, now_ms: int) -> int:
        return max(0, now_ms - self.last_timestamp_ms)


async def open_transactions(requests: AdminRequests, partitions: Iterable[PartitionLeader]) -> list[OpenTransaction]:
    """Returns the partitions' open transactions, as reported by their leaders. Skips partitions without a leader.
    Raises ClientError."""
    leaders = {TopicPartition(each.topic, each.partition): each.leader_id for each in partitions}
    led = [partition for partition, leader_id in leaders.items() if leader_id is not None]
    return [
        OpenTransaction(
            partition.topic,
            partition.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.transaction_start_offset,
            producer.last_timestamp_ms,
        )
        for partition, producers in (await describe_producers(requests, led)).items()
        for producer in producers
        if producer.transaction_start_offset is not None
    ]


async def owner_of(
    requests: AdminRequests, transaction: OpenTransaction, ids: dict[int, str]
) -> TransactionDescription | None:
    """Returns the coordinator's description of the transaction that this open transaction is part of. Returns None if
    no coordinator knows the transaction, in which case no coordinator will end it.

    ids  the result of `ids_by_producer`
    """
    transactional_id = ids.get(transaction.producer_id)
    if transactional_id is None:
        return None
    try:
        found = await describe_transaction(requests, transactional_id)
    except ClientError as refusal:
        if refusal.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # the coordinator has deleted the id in the meantime
            return None
        raise
    is_part = (transaction.topic, transaction.partition) in found.partitions
    return found if found.producer_id == transaction.producer_id and is_part else None


async def find_hanging(
    requests: AdminRequests, partitions: Sequence[PartitionLeader], before_ms: int
) -> list[OpenTransaction]:
    """Returns the hanging transactions whose last record is older than `before_ms`. Raises ClientError."""
    candidates = [each for each in await open_transactions(requests, partitions) if each.last_timestamp_ms < before_ms]
    ids = await ids_by_producer(requests, (each.producer_id for each in candidates))
    return [each for each in candidates if await owner_of(requests, each, ids) is None]


async def transaction_at(requests: AdminRequests, partition: PartitionLeader, start_offset: int) -> OpenTransaction:
    """Returns the open transaction that begins at this offset. Raises ClientError if no open transaction does."""
    found = await open_transactions(requests, [partition])
    for each in found:
        if each.start_offset == start_offset:
            return each
    others = ", ".join(str(each.start_offset) for each in found) or "none"
    name = f"{partition.topic}-{partition.partition}"
    raise ClientError(
        f"no open transaction of {name} begins at offset {start_offset}. Open transactions there begin at: {others}"
    )


@dataclass(frozen=True, slots=True)
class HeldRecords:
    """The part of a partition that read_committed consumers cannot read. It begins at `from_offset` and contains
    `records` records, including markers."""

    topic: str
    partition: int
    from_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class InDoubtTransaction:
    """A transaction in doubt.

    holds  the partitions in which it is the oldest open transaction. In its other partitions, readers wait for an older
           transaction.
    """

    transaction: TransactionDescription
    holds: tuple[HeldRecords, ...]


async def find_in_doubt(
    requests: AdminRequests, now_ms: int, *, longer_than_ms: int, two_phase_longer_than_ms: int
) -> list[InDoubtTransaction]:
    """Returns the transactions in doubt, oldest first. A transaction is in doubt if it has been open for at least
    `longer_than_ms`, or `two_phase_longer_than_ms` if it is part of a two-phase commit. Raises ClientError."""
    found = [
        each
        for each in await describe_listed(requests, await list_transactions(requests, states=(ONGOING,)))
        if each.state == ONGOING
        and (each.open_for_ms(now_ms) or 0) >= (two_phase_longer_than_ms if each.is_two_phase else longer_than_ms)
    ]
    open_partitions = {topic_partition for each in found for topic_partition in each.partitions}
    # Requests all topics, because a request that names a topic deleted in the meantime would fail.
    all_partitions = await list_partitions(requests) if open_partitions else []
    partitions = [each for each in all_partitions if (each.topic, each.partition) in open_partitions]
    oldest = oldest_in(await open_transactions(requests, partitions))
    ends = await end_offsets(requests, partitions)
    return [
        InDoubtTransaction(each, tuple(held_records(each, oldest, ends)))
        for each in sorted(found, key=lambda each: (each.started_ms or 0, each.transactional_id))
    ]


def oldest_in(transactions: Iterable[OpenTransaction]) -> dict[TopicPartition, OpenTransaction]:
    oldest: dict[TopicPartition, OpenTransaction] = {}
    for each in transactions:
        topic_partition = TopicPartition(each.topic, each.partition)
        if topic_partition not in oldest or each.start_offset < oldest[topic_partition].start_offset:
            oldest[topic_partition] = each
    return oldest


def held_records(
    transaction: TransactionDescription,
    oldest: Mapping[TopicPartition, OpenTransaction],
    ends: Mapping[TopicPartition, int],
) -> Iterable[HeldRecords]:
    for topic_partition in transaction.partitions:
        first = oldest.get(topic_partition)
        if first is not None and first.producer_id == transaction.producer_id and topic_partition in ends:
            yield HeldRecords(*topic_partition, first.start_offset, ends[topic_partition] - first.start_offset)


async def end_offsets(requests: AdminRequests, partitions: Iterable[PartitionLeader]) -> dict[TopicPartition, int]:
    """Returns the end offset of each partition that has a leader. Raises ClientError."""
    requested = {
        TopicPartition(each.topic, each.partition): LATEST for each in partitions if each.leader_id is not None
    }
    found = await offsets(requests, requested, is_committed=False)
    return {each: end.offset for each, end in found.items() if end is not None}


ONGOING = "Ongoing"
# Transaction timeout that a forced termination sets for the transactional id. As in Kafka's tool, it is the timeout of
# an admin request.
TIMEOUT_MS = 30_000


async def abort_by_coordinator(requests: AdminRequests, transactional_id: str) -> None:
    """Aborts a transactional id's open transaction and returns once the abort is complete. Raises ClientError.

    Also raises ClientError if the id has no open transaction, because its producer would be fenced needlessly, or if
    the transaction is part of a two-phase commit.
    """
    found = await describe_transaction(requests, transactional_id)
    if found.state != ONGOING:
        raise ClientError(f"{transactional_id!r} has no open transaction: its state is {found.state}")
    if found.timeout_ms is None:
        raise ClientError(
            f"the transaction of {transactional_id!r} is part of a two-phase commit, and its external coordinator"
            " may have decided to commit it. If the decision cannot be found out, use force-terminate"
            f" --transactional-id {transactional_id}"
        )
    await fence_producer(requests, transactional_id, found.timeout_ms)


async def force_terminate(requests: AdminRequests, transactional_id: str) -> TransactionDescription:
    """Aborts a transactional id's open transaction, fences its owner, and ends two-phase commit for the id. Returns the
    previous state once the abort is complete. Raises ClientError, for example if the id is unknown."""
    found = await describe_transaction(requests, transactional_id)
    await fence_producer(requests, transactional_id, TIMEOUT_MS)
    return found


async def abort_by_marker(requests: AdminRequests, transaction: OpenTransaction) -> None:
    """Writes an abort marker into one partition. Raises ClientError if a request fails. Also raises it if a coordinator
    knows the transaction, because the marker would end only the part in this partition."""
    owner = await owner_of(requests, transaction, await ids_by_producer(requests, [transaction.producer_id]))
    if owner is not None:
        raise ClientError(
            f"the transaction belongs to the transactional id {owner.transactional_id!r} ({owner.state}), and its"
            f" coordinator ends it {owner.timeout_ms} ms after its start. To end it now, use abort"
            f" --transactional-id {owner.transactional_id}"
        )
    await abort_transaction(
        requests,
        TopicPartition(transaction.topic, transaction.partition),
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        coordinator_epoch=transaction.coordinator_epoch,
    )
