"""The requests of a share session, built from what is wanted and what is to be said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from operator import attrgetter

from odradek.client.sharing.acquired import Sending
from odradek.client.sharing.share_session import Named
from odradek.protocol.messages import share_acknowledge_request, share_fetch_request
from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from odradek.protocol.topic_partition import TopicIdPartition

Sendings = Mapping[TopicIdPartition, Sending]


class AcquireMode(Enum):
    """`share.acquire.mode`: whole batches of the log, or never more records than asked for (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """By Kafka's names, in bytes and ms."""

    group_id: str
    member_id: str
    acquire_mode: AcquireMode
    max_records: int
    min_bytes: int
    max_bytes: int
    check_crcs: bool


def fetch_request(
    settings: ShareSettings, epoch: int, named: Named, sendings: Sendings, *, max_wait_ms: int
) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id=settings.group_id,
        member_id=settings.member_id,
        share_session_epoch=epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        max_records=settings.max_records,
        batch_size=settings.max_records,
        share_acquire_mode=settings.acquire_mode.value,
        topics=[
            FetchTopic(
                topic_id=topic_id, partitions=[_fetch_partition(each, sendings.get(each)) for each in partitions]
            )
            for topic_id, partitions in _by_topic(named.added | sendings.keys())
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=topic_id, partitions=[each.partition for each in partitions])
            for topic_id, partitions in _by_topic(named.forgotten)
        ],
    )


def acknowledge_request(settings: ShareSettings, epoch: int, sendings: Sendings) -> ShareAcknowledgeRequest:
    return ShareAcknowledgeRequest(
        group_id=settings.group_id,
        member_id=settings.member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(each.renews for each in sendings.values()),
        topics=[
            AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[_acknowledge_partition(each, sendings[each]) for each in partitions],
            )
            for topic_id, partitions in _by_topic(sendings)
        ],
    )


def _fetch_partition(named: TopicIdPartition, sending: Sending | None) -> FetchPartition:
    return FetchPartition(
        partition_index=named.partition,
        acknowledgement_batches=[
            share_fetch_request.AcknowledgementBatch(
                first_offset=run.first_offset, last_offset=run.last_offset, acknowledge_types=run.acknowledge_types
            )
            for run in (() if sending is None else sending.runs)
        ],
    )


def _acknowledge_partition(named: TopicIdPartition, sending: Sending) -> AcknowledgePartition:
    return AcknowledgePartition(
        partition_index=named.partition,
        acknowledgement_batches=[
            share_acknowledge_request.AcknowledgementBatch(
                first_offset=run.first_offset, last_offset=run.last_offset, acknowledge_types=run.acknowledge_types
            )
            for run in sending.runs
        ],
    )


def _by_topic(partitions: Iterable[TopicIdPartition]) -> list[tuple[bytes, list[TopicIdPartition]]]:
    return [(topic_id, list(each)) for topic_id, each in groupby(sorted(partitions), key=attrgetter("topic_id"))]
