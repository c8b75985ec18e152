"""Builds a share consumer's and its producer's requests for one topic and reads their responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.txn_share_acknowledge_request import (
    TxnShareAcknowledgeBatch,
    TxnShareAcknowledgePartition,
    TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeTopic,
)

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
HEARTBEAT_VERSION, FETCH_VERSION, ACKNOWLEDGE_VERSION, STAGE_VERSION = 1, 2, 2, 0
JOIN, LEAVE = 0, -1  # member epochs, equal to the session epochs OPEN and FINAL
OPEN, FINAL = 0, -1

Record = tuple[int, int]  # partition and offset
Kinds = dict[Record, int]  # acknowledgement type of each record


class AcquiredRecord(NamedTuple):
    partition: int
    offset: int
    delivery_count: int

    @property
    def record(self) -> Record:
        return self.partition, self.offset


def heartbeat(group: str, member: str, epoch: int, topics: Sequence[str] | None = None) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=None if topics is None else list(topics),
    )


def assigned_in(answer: Any) -> set[int] | None:
    """Returns the partitions of the single topic, or None if the response has no assignment."""
    if answer.assignment is None:
        return None
    return {index for each in answer.assignment.topic_partitions for index in each.partitions}


def fetch(
    group: str, member: str, epoch: int, topic_id: bytes, partitions: Iterable[int], *, max_records: int, mode: int = 0
) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=max_records,
        batch_size=max_records,
        share_acquire_mode=mode,
        topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=at) for at in partitions])],
    )


def acquired_in(answer: Any) -> list[AcquiredRecord]:
    return [
        AcquiredRecord(partition.partition_index, offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
        for offset in range(each.first_offset, each.last_offset + 1)
    ]


def acknowledge(group: str, member: str, epoch: int, topic_id: bytes, kinds: Kinds) -> ShareAcknowledgeRequest:
    return ShareAcknowledgeRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        is_renew_ack=RENEW in kinds.values(),
        topics=[
            AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    AcknowledgePartition(
                        partition_index=partition,
                        acknowledgement_batches=[
                            AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
                            for offset, kind in offsets
                        ],
                    )
                    for partition, offsets in _by_partition(kinds)
                ],
            )
        ],
    )


def stage(
    group: str,
    member: str,
    member_epoch: int,
    topic_id: bytes,
    kinds: Kinds,
    *,
    transactional_id: str,
    pair: tuple[int, int],
) -> TxnShareAcknowledgeRequest:
    return TxnShareAcknowledgeRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=pair[0],
        producer_epoch=pair[1],
        member_id=member,
        member_epoch=member_epoch,
        topics=[
            TxnShareAcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    TxnShareAcknowledgePartition(
                        partition_index=partition,
                        acknowledgement_batches=[
                            TxnShareAcknowledgeBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
                            for offset, kind in offsets
                        ],
                    )
                    for partition, offsets in _by_partition(kinds)
                ],
            )
        ],
    )


def codes_in(answer: Any) -> dict[int, int]:
    """Returns the error codes of ShareAcknowledge or TxnShareAcknowledge, by partition."""
    return {each.partition_index: each.error_code for topic in answer.responses for each in topic.partitions}


def _by_partition(kinds: Kinds) -> list[tuple[int, list[tuple[int, int]]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for (partition, offset), kind in sorted(kinds.items()):
        found.setdefault(partition, []).append((offset, kind))
    return list(found.items())
