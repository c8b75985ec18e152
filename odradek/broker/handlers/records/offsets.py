"""Handlers that look up offsets: ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, RequestContext
from odradek.broker.partitions.partition import NO_EPOCH, IsolationLevel, Partition, check_leader_epoch
from odradek.broker.runtime.slices import Steps, sliced
from odradek.broker.runtime.waiting import NowOrLater, in_thread, start_coroutine
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.batch_header import NO_TIMESTAMP
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
    from odradek.protocol.messages.offset_for_leader_epoch_request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )
    from odradek.storage.log import TimestampOffset


FIRST_VERSION_WITH_LEADER_EPOCH = 4

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# Special timestamps and the versions that introduced them. Other negative timestamps are invalid.
FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
REMOTE_TIMESTAMPS = frozenset({LATEST_TIERED, EARLIEST_PENDING_UPLOAD})  # timestamps that need remote storage


@sliced
def list_offsets(
    request: ListOffsetsRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[NowOrLater[ListOffsetsResponse]]:
    """Handles ListOffsets (key 2), versions 1-11, which returns the offset for a timestamp or for one of the special
    timestamps.

    v2 adds the isolation level. v4 adds leader epochs. v6 is flexible. v7 adds the maximum timestamp (KIP-734). v8 adds
    the earliest local offset (KIP-405). v9 adds the latest tiered offset (KIP-1005). v10 adds a time limit for remote
    storage. v11 adds the earliest pending upload (KIP-1023). Needs DESCRIBE on each topic. If no record has the
    timestamp, the timestamp and offset are -1, without an error. There is no tiered storage, so the offsets that v9 and
    v11 added never exist.
    """
    pending = PendingListOffsets(request, context, broker)
    yield from pending.look_up_offsets()
    return start_coroutine(pending.run_searches(), ends_with_client=True)


class TimestampSearch(NamedTuple):
    """A pending search for a timestamp in the records of a partition."""

    run: Callable[[], TimestampOffset | None]
    answer: ListOffsetsPartitionResponse
    end_offset: int  # results must be below this offset


class PendingListOffsets:
    """A ListOffsets request in progress. Offsets that need no search are looked up immediately. Searches in records run
    in a thread, one partition at a time, so that other jobs in the thread pool wait for a single search at most, rather
    than for the entire request."""

    def __init__(self, request: ListOffsetsRequest, context: RequestContext, broker: HandlerBroker) -> None:
        self.response = ListOffsetsResponse()
        self._context = context
        self._broker = broker
        self._isolation = IsolationLevel.of(request.isolation_level)
        self._request = request
        self._searches: list[TimestampSearch] = []

    def look_up_offsets(self) -> Steps[None]:
        # Number of occurrences of each partition. Kafka refuses partitions that occur more than once.
        named = Counter[tuple[str, int]]()
        for topic in self._request.topics:
            for requested in topic.partitions:
                named[topic.name, requested.partition_index] += 1
                yield
        # The response has one entry for each topic, even if the request names a topic several times.
        by_topic: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        for topic in self._request.topics:
            answers = by_topic.setdefault(topic.name, {})
            for requested in topic.partitions:
                yield
                answer = ListOffsetsPartitionResponse(partition_index=requested.partition_index)
                if named[topic.name, requested.partition_index] > 1:
                    answer.error_code = ErrorCode.INVALID_REQUEST.value
                else:
                    self._answer(topic.name, requested, answer)
                answers.setdefault(requested.partition_index, answer)
        for name, answers in by_topic.items():
            self.response.topics.append(ListOffsetsTopicResponse(name=name, partitions=list(answers.values())))
            yield

    async def run_searches(self) -> ListOffsetsResponse:
        """Runs the searches in a thread, because they decode batches and may wait for the disk. Returns the complete
        response.

        If the client disconnects, this coroutine is closed and starts no more searches.
        """
        for search in self._searches:
            try:
                found = await in_thread(self._broker.workers, search.run)
            except KafkaError as failure:
                search.answer.error_code = failure.code.value
            else:
                if found is not None and found.offset < search.end_offset:
                    self._set_answer(search.answer, found.timestamp, found.offset, found.leader_epoch)
        return self.response

    def _answer(self, topic: str, requested: ListOffsetsPartition, answer: ListOffsetsPartitionResponse) -> None:
        timestamp = requested.timestamp
        try:
            self._context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
            if timestamp < 0 and self._context.api_version < FIRST_VERSIONS.get(timestamp, 2**15):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            partition = self._broker.partitions.get(topic, requested.partition_index)
            known_epoch = requested.current_leader_epoch
            check_leader_epoch(partition, None if known_epoch == NO_EPOCH else known_epoch)
        except KafkaError as refusal:
            answer.error_code = refusal.code.value
            return
        log = partition.log
        if timestamp == LATEST:
            self._set_answer(answer, NO_TIMESTAMP, self._end_offset(partition), log.leader_epoch)
        elif timestamp in (EARLIEST, EARLIEST_LOCAL):
            earliest_epoch = log.leader_epoch_at(log.log_start_offset)
            leader_epoch = log.leader_epoch if earliest_epoch is None else earliest_epoch
            self._set_answer(answer, NO_TIMESTAMP, log.log_start_offset, leader_epoch)
        elif timestamp not in REMOTE_TIMESTAMPS:
            self._search(partition, timestamp, answer)

    def _set_answer(
        self, answer: ListOffsetsPartitionResponse, timestamp: int, offset: int, leader_epoch: int | None
    ) -> None:
        answer.timestamp, answer.offset = timestamp, offset
        if leader_epoch is not None and self._context.api_version >= FIRST_VERSION_WITH_LEADER_EPOCH:
            answer.leader_epoch = leader_epoch

    def _end_offset(self, partition: Partition) -> int:
        log = partition.log
        return log.last_stable_offset if self._isolation is IsolationLevel.READ_COMMITTED else log.high_watermark

    def _search(self, partition: Partition, timestamp: int, answer: ListOffsetsPartitionResponse) -> None:
        log = partition.log
        run: Callable[[], TimestampOffset | None] = log.reader.offset_of_max_timestamp
        if timestamp != MAX_TIMESTAMP:
            run = partial(log.reader.offset_for_timestamp, timestamp)
        self._searches.append(TimestampSearch(run, answer, self._end_offset(partition)))


def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext, broker: HandlerBroker
) -> OffsetForLeaderEpochResponse:
    """Handles OffsetForLeaderEpoch (key 23), versions 2-4, which returns the end offset of a leader epoch. Readers use
    it to find the point where logs diverge.

    v3 adds the replica id. v4 is flexible. Needs CLUSTER_ACTION on the cluster, or DESCRIBE on each topic. For an
    unknown epoch, the response has epoch -1 and offset -1 without an error. Source: KIP-101, KIP-320.
    """
    may_all = is_allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    epoch_end(context, broker, topic.topic, partition, may_all=may_all)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def epoch_end(
    context: RequestContext, broker: HandlerBroker, topic: str, requested: OffsetForLeaderPartition, *, may_all: bool
) -> EpochEndOffset:
    """Returns the result for one partition. If `may_all` is true, the client needs no permission on the topic."""
    answer = EpochEndOffset(partition=requested.partition)
    known_epoch = requested.current_leader_epoch
    try:
        if not may_all:
            context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        partition = broker.partitions.get(topic, requested.partition)
        check_leader_epoch(partition, None if known_epoch == NO_EPOCH else known_epoch)
    except KafkaError as refusal:
        answer.error_code = refusal.code.value
        return answer
    if requested.leader_epoch != NO_EPOCH:
        end = partition.log.end_offset_for_epoch(requested.leader_epoch)
        if end is not None:
            answer.leader_epoch, answer.end_offset = end
    return answer
