"""Transactions in doubt, which will not end by themselves: those of a two-phase commit, whose decision lies elsewhere
(KIP-939), and those open for too long. Also the partitions where readers of committed data wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.client.administration.asking import Asking
from odradek.client.administration.transactions import TransactionDescription, describe_listed, list_transactions
from odradek.client.common.errors import check
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.tools.transactions.ending import ONGOING
from odradek.tools.transactions.hanging import (
    OpenTransaction,
    PartitionLeader,
    by_leader,
    list_partitions,
    open_transactions,
)

LATEST = -1  # the timestamp that asks for the end
A_CONSUMER = -1  # in place of a replica's id


@dataclass(frozen=True, slots=True)
class Held:
    """Readers of committed data stop at `from_offset`; behind it lie `records`, markers included."""

    topic: str
    partition: int
    from_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Transaction in doubt; `holds` are the partitions whose oldest it is: in its others, readers wait for another."""

    transaction: TransactionDescription
    holds: tuple[Held, ...]


async def find_in_doubt(
    asking: Asking, now_ms: int, *, longer_than_ms: int, two_phase_longer_than_ms: int
) -> list[InDoubt]:
    """Returns the open transactions that are older than that, oldest first. Raises ClientError."""
    found = [
        each
        for each in await describe_listed(asking, await list_transactions(asking, states=(ONGOING,)))
        if each.state == ONGOING
        and (each.open_for_ms(now_ms) or 0) >= (two_phase_longer_than_ms if each.is_two_phase else longer_than_ms)
    ]
    wanted = {topic_partition for each in found for topic_partition in each.partitions}
    # All topics are asked for: one of these may have been deleted.
    all_partitions = await list_partitions(asking) if wanted else []
    partitions = [each for each in all_partitions if (each.topic, each.partition) in wanted]
    oldest = oldest_in(await open_transactions(asking, partitions))
    ends = await end_offsets(asking, partitions)
    return [
        InDoubt(each, tuple(held(each, oldest, ends)))
        for each in sorted(found, key=lambda each: (each.started_ms or 0, each.transactional_id))
    ]


def oldest_in(transactions: Iterable[OpenTransaction]) -> dict[TopicPartition, OpenTransaction]:
    oldest: dict[TopicPartition, OpenTransaction] = {}
    for each in transactions:
        topic_partition = each.topic, each.partition
        if topic_partition not in oldest or each.start_offset < oldest[topic_partition].start_offset:
            oldest[topic_partition] = each
    return oldest


def held(
    transaction: TransactionDescription,
    oldest: Mapping[TopicPartition, OpenTransaction],
    ends: Mapping[TopicPartition, int],
) -> Iterable[Held]:
    for topic_partition in transaction.partitions:
        first = oldest.get(topic_partition)
        if first is not None and first.producer_id == transaction.producer_id and topic_partition in ends:
            yield Held(*topic_partition, first.start_offset, ends[topic_partition] - first.start_offset)


async def end_offsets(asking: Asking, partitions: Iterable[PartitionLeader]) -> dict[TopicPartition, int]:
    """Returns one past the last record of every partition that has a leader. Raises ClientError."""
    ends: dict[TopicPartition, int] = {}
    for leader_id, led in by_leader(partitions).items():
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes],
            )
            for name, indexes in led.items()
        ]
        request = ListOffsetsRequest(replica_id=A_CONSUMER, topics=topics)
        for topic in (await asking.broker(leader_id, request, ListOffsetsResponse)).topics:
            for partition in topic.partitions:
                check(partition.error_code, f"the end of {topic.name}-{partition.partition_index}")
                ends[topic.name, partition.partition_index] = partition.offset
    return ends
