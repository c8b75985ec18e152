"""Queries partition leaders about their logs with ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

from odradek.client.common.errors import STALE_METADATA, RetriableError, code_of, refusal
from odradek.client.common.values import TopicPartition, grouped
from odradek.client.network.cluster import Cluster, Leader
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse

T = TypeVar("T")
CONSUMER = -1  # the replica id that identifies consumers
NO_EPOCH = -1


class OffsetAndTimestamp(NamedTuple):
    """The offset and timestamp of the first record with at least the requested timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None = None


class FoundOffset(NamedTuple):
    """The response of a partition's leader to ListOffsets."""

    code: ErrorCode
    offset: int
    timestamp_ms: int
    leader_epoch: int | None


class EpochEnd(NamedTuple):
    """The end of a leader epoch in the leader's log. If the log does not contain the epoch, the fields describe the
    last earlier epoch. The epoch and end are None if the log has no earlier epoch either.

    current_epoch   epoch of the leader itself, as known when the request was sent
    """

    code: ErrorCode
    current_epoch: int | None
    leader_epoch: int | None
    end_offset: int | None


async def leaders_of(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[int, list[tuple[TopicPartition, Leader]]]:
    """Groups partitions by the node of their leader. Leaves out partitions without a leader. Refreshes the metadata
    once if a leader is unknown."""
    partitions = list(partitions)
    if unknown := {partition.topic for partition in partitions if cluster.leader(partition) is None}:
        await cluster.refresh(unknown)
    found: dict[int, list[tuple[TopicPartition, Leader]]] = {}
    for partition in partitions:
        leader = cluster.leader(partition)
        if leader is not None and leader.node_id is not None:
            found.setdefault(leader.node_id, []).append((partition, leader))
    return found


async def ask_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, isolation_level: int
) -> dict[TopicPartition, FoundOffset]:
    """Sends one round of ListOffsets requests. Partitions without a reachable leader are missing from the result."""

    async def ask(node_id: int, led: list[tuple[TopicPartition, Leader]]) -> dict[TopicPartition, FoundOffset]:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=partition.partition,
                        current_leader_epoch=NO_EPOCH if leader.leader_epoch is None else leader.leader_epoch,
                        timestamp=timestamps[partition],
                    )
                    for partition, leader in each
                ],
            )
            for topic, each in grouped((each[0].topic, each) for each in led).items()
        ]
        request = ListOffsetsRequest(replica_id=CONSUMER, isolation_level=isolation_level, topics=topics)
        answer = await cluster.ask(request, ListOffsetsResponse, node_id=node_id)
        return {
            TopicPartition(topic.name, each.partition_index): FoundOffset(
                code_of(each.error_code),
                each.offset,
                each.timestamp,
                each.leader_epoch if each.leader_epoch >= 0 else None,
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    leaders = await leaders_of(cluster, timestamps)
    return _joined(await asyncio.gather(*(_if_reached(ask(node_id, led)) for node_id, led in leaders.items())))


async def ask_epoch_ends(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
    """Sends one round of OffsetForLeaderEpoch requests. Partitions without a reachable leader are missing from the
    result."""

    async def ask(node_id: int, led: list[tuple[TopicPartition, Leader]]) -> dict[TopicPartition, EpochEnd]:
        topics = [
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=partition.partition,
                        current_leader_epoch=NO_EPOCH if leader.leader_epoch is None else leader.leader_epoch,
                        leader_epoch=epochs[partition],
                    )
                    for partition, leader in each
                ],
            )
            for topic, each in grouped((each[0].topic, each) for each in led).items()
        ]
        current = {partition: leader.leader_epoch for partition, leader in led}
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=topics)
        answer = await cluster.ask(request, OffsetForLeaderEpochResponse, node_id=node_id)
        found: dict[TopicPartition, EpochEnd] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.topic, each.partition)
                is_known = each.end_offset >= 0 and each.leader_epoch >= 0
                found[partition] = EpochEnd(
                    code_of(each.error_code),
                    current.get(partition),
                    each.leader_epoch if is_known else None,
                    each.end_offset if is_known else None,
                )
        return found

    leaders = await leaders_of(cluster, epochs)
    return _joined(await asyncio.gather(*(_if_reached(ask(node_id, led)) for node_id, led in leaders.items())))


async def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, isolation_level: int, timeout_ms: float
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Sends rounds of ListOffsets requests until every partition has a result. The result is None for a partition that
    has no record with at least the given timestamp.

    Raises RetriableError on timeout, ClientError for a permanent refusal.
    """
    ends_at = time.monotonic() + timeout_ms / 1000
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    failures = 0
    while left := {partition: at for partition, at in timestamps.items() if partition not in found}:
        stale: set[str] = set()
        answers: dict[TopicPartition, FoundOffset] = {}
        try:
            answers = await ask_offsets(cluster, left, isolation_level=isolation_level)
        except RetriableError:
            if time.monotonic() > ends_at:
                raise
        for partition in left:
            code = answers[partition].code if partition in answers else ErrorCode.LEADER_NOT_AVAILABLE
            if code is ErrorCode.NONE:
                _, offset, timestamp_ms, epoch = answers[partition]
                found[partition] = OffsetAndTimestamp(offset, timestamp_ms, epoch) if offset >= 0 else None
                continue
            error = refusal(code, f"the offsets of {partition.topic}-{partition.partition}")
            if not error.is_retriable or time.monotonic() > ends_at:
                raise error
            if code in STALE_METADATA:
                stale.add(partition.topic)
        if len(found) < len(timestamps):
            failures += 1
            await cluster.pause(failures)
            with suppress(RetriableError):
                await cluster.refresh(stale)
    return found


async def _if_reached(asking: Awaitable[dict[TopicPartition, T]]) -> dict[TopicPartition, T]:
    """Returns an empty result if the broker cannot be reached. Its partitions are then looked up again, possibly at
    another broker."""
    try:
        return await asking
    except RetriableError:
        return {}


def _joined(answers: Iterable[dict[TopicPartition, T]]) -> dict[TopicPartition, T]:
    return {partition: found for answer in answers for partition, found in answer.items()}
