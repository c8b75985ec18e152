"""A member's share session at one broker: the epoch of its next request, its partitions, and its requests.

ShareFetch and ShareAcknowledge share one epoch counter, so only one request may be in flight at a time. Source:
docs/spec/share-groups.md#s1-10, #s6-1 (P1 to P4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from odradek.client.sharing.acquired import SentAcknowledgements
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import share_acknowledge_request, share_fetch_request
from odradek.protocol.messages.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek.protocol.messages.share_fetch_request import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from odradek.protocol.topic_partition import TopicIdPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
FIRST_EPOCH, LAST_EPOCH = 1, 2**31 - 1

# Errors returned by a broker that does not have the request's session.
SESSION_LOST_ERRORS = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class NamedPartitions(NamedTuple):
    """The partitions that a ShareFetch names, in addition to the partitions whose records it acknowledges."""

    added: frozenset[TopicIdPartition]
    forgotten: frozenset[TopicIdPartition]


@dataclass(slots=True)
class ShareSession:
    epoch: int = INITIAL_EPOCH  # epoch of the next request
    # The partitions in the broker's copy of the session.
    partitions: frozenset[TopicIdPartition] = field(default_factory=frozenset)

    @property
    def is_open(self) -> bool:
        """True if acknowledgements can be sent."""
        return self.epoch != INITIAL_EPOCH

    def partitions_to_name(
        self, requested: frozenset[TopicIdPartition], acknowledged: Iterable[TopicIdPartition]
    ) -> NamedPartitions:
        """Returns the partitions that a ShareFetch of `requested` has to add to the session and remove from it.

        acknowledged   partitions with acknowledgements in the same request. A partition that a request names remains in
                       the session unless the same request removes it.
        """
        return NamedPartitions(requested - self.partitions, (self.partitions | set(acknowledged)) - requested)

    def on_fetch_response(self, requested: frozenset[TopicIdPartition], code: ErrorCode) -> None:
        """Applies the top-level error code of a ShareFetch response."""
        self._advance_epoch(code)
        self.partitions = requested if self.is_open else frozenset()

    def on_acknowledge_response(self, partitions: Iterable[TopicIdPartition], code: ErrorCode) -> None:
        """Applies the top-level error code of a ShareAcknowledge response."""
        self._advance_epoch(code)
        self.partitions = self.partitions | set(partitions) if self.is_open else frozenset()

    def reset(self) -> None:
        """Starts a new session, either because the last request may not have arrived or because the broker has closed
        the session together with the connection."""
        self.epoch, self.partitions = INITIAL_EPOCH, frozenset()

    def _advance_epoch(self, code: ErrorCode) -> None:
        if code in SESSION_LOST_ERRORS:
            self.epoch = INITIAL_EPOCH
        else:
            self.epoch = FIRST_EPOCH if self.epoch == LAST_EPOCH else self.epoch + 1


Sendings = Mapping[TopicIdPartition, SentAcknowledgements]


class AcquireMode(Enum):
    """The acquire mode (`share.acquire.mode`, KIP-1206): acquire entire log batches, or never more records than
    requested."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The share consumer settings that its requests contain, and the ids of its group and member. Sizes are in
    bytes."""

    group_id: str
    member_id: str
    acquire_mode: AcquireMode
    max_records: int
    min_bytes: int
    max_bytes: int
    check_crcs: bool


def fetch_request(
    settings: ShareSettings, epoch: int, named: NamedPartitions, sendings: Sendings, *, max_wait_ms: int
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
                topic_id=topic_id, partitions=[_acknowledge_partition(each, sendings[each]) for each in partitions]
            )
            for topic_id, partitions in _by_topic(sendings)
        ],
    )


def _fetch_partition(named: TopicIdPartition, sending: SentAcknowledgements | None) -> FetchPartition:
    return FetchPartition(
        partition_index=named.partition,
        acknowledgement_batches=[
            share_fetch_request.AcknowledgementBatch(
                first_offset=run.first_offset, last_offset=run.last_offset, acknowledge_types=run.acknowledge_types
            )
            for run in (() if sending is None else sending.runs)
        ],
    )


def _acknowledge_partition(named: TopicIdPartition, sending: SentAcknowledgements) -> AcknowledgePartition:
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
