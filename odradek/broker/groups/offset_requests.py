"""Handles offset requests after the group has accepted them, and computes when offsets expire."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.broker.groups.common.outcome import GroupConfig
from odradek.broker.groups.offsets import CommittedOffset, Offsets, no_topic_conflict
from odradek.broker.groups.records import offset_commit_record, offset_tombstone
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition
from odradek.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition
from odradek.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.struct import ZERO_UUID


def commit_records(
    request: OffsetCommitRequest, config: GroupConfig, now_ms: int
) -> tuple[OffsetCommitResponse, list[CoordinatorRecord]]:
    """Returns the response to a commit and the records to write. If a partition's metadata is too long, only that
    partition is refused."""
    response, records = OffsetCommitResponse(), []
    expires_ms = -1 if request.retention_time_ms == -1 else now_ms + request.retention_time_ms
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if is_too_long(partition.committed_metadata, config.offset_metadata_max_bytes):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = commit_value(partition, topic.topic_id, now_ms, expires_ms)
                records.append(offset_commit_record(request.group_id, topic.name, partition.partition_index, value))
            answers.append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code.value)
            )
        response.topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return response, records


def transactional_commit_records(
    request: TxnOffsetCommitRequest, config: GroupConfig, now_ms: int
) -> tuple[TxnOffsetCommitResponse, list[CoordinatorRecord]]:
    """Like `commit_records`, but for a commit in a transaction. The topic id is recorded if the request contains it
    (version 6 and later)."""
    response, records = TxnOffsetCommitResponse(), []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if is_too_long(partition.committed_metadata, config.offset_metadata_max_bytes):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = commit_value(partition, topic.topic_id, now_ms, -1)
                records.append(offset_commit_record(request.group_id, topic.name, partition.partition_index, value))
            answers.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code.value)
            )
        response.topics.append(
            TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    return response, records


def commit_value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: bytes,
    now_ms: int,
    expires_ms: int,
) -> OffsetCommitValue:
    if expires_ms != -1:
        # The record version with an expiry time stores neither the leader epoch nor the topic id, so the value in
        # memory must not contain them either.
        return OffsetCommitValue(
            offset=partition.committed_offset,
            metadata=partition.committed_metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expires_ms,
        )
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        topic_id=topic_id,
    )


def is_too_long(metadata: str | None, limit: int) -> bool:
    """Returns whether the metadata exceeds the limit. Despite the name of the setting `offset.metadata.max.bytes`,
    Kafka counts UTF-16 units, not bytes."""
    if metadata is None or len(metadata) * 2 <= limit:
        return False
    return len(metadata) + sum(character > "\uffff" for character in metadata) > limit


def fetch_offsets(
    request: OffsetFetchRequestGroup, offsets: Offsets, *, group_exists: bool, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Handles OffsetFetch for one group. If the request lists no topics, all committed offsets are returned. For a
    group that does not exist, the response contains no offsets and no error."""
    committed = offsets.of(request.group_id) if group_exists else {}
    unstable = offsets.open_positions(request.group_id) if require_stable else {}
    response = OffsetFetchResponseGroup(group_id=request.group_id)
    if request.topics is None:
        by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {}
        for (topic, partition), offset in committed.items():
            is_unstable = (topic, partition) in unstable
            by_topic.setdefault(topic, []).append(partition_response(partition, offset, is_unstable=is_unstable))
        response.topics = [
            OffsetFetchResponseTopics(name=topic, partitions=partitions) for topic, partitions in by_topic.items()
        ]
        return response
    for requested in request.topics:
        partitions = []
        for partition in requested.partition_indexes:
            stored = committed.get((requested.name, partition))
            if stored is not None and not no_topic_conflict(stored.topic_id, requested.topic_id):
                stored = None
            partitions.append(
                partition_response(partition, stored, is_unstable=(requested.name, partition) in unstable)
            )
        response.topics.append(
            OffsetFetchResponseTopics(name=requested.name, topic_id=requested.topic_id, partitions=partitions)
        )
    return response


def partition_response(
    partition: int, committed: CommittedOffset | None, *, is_unstable: bool
) -> OffsetFetchResponsePartitions:
    """Returns the OffsetFetch response for one partition.

    An offset is unstable if an open transaction may still replace it. Clients that request stable offsets then receive
    UNSTABLE_OFFSET_COMMIT. Source: docs/spec/transactions.md#s2-7
    """
    if is_unstable:
        return OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=-1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT.value
        )
    if committed is None:
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=-1)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
        metadata=committed.metadata,
    )


def all_tombstones(group_id: str, offsets: Offsets) -> list[CoordinatorRecord]:
    """Returns tombstones for all of the group's committed and pending offsets."""
    positions = dict.fromkeys([*offsets.of(group_id), *offsets.open_positions(group_id)])
    return [offset_tombstone(group_id, topic, partition) for topic, partition in positions]


def topic_tombstones(topic: str, topic_id: bytes, offsets: Offsets) -> list[CoordinatorRecord]:
    """Returns tombstones for the offsets of a deleted topic. Offsets of a newer topic with the same name are kept."""
    positions = dict.fromkeys(
        (group_id, partition)
        for group_id, partition, committed in offsets.positions_of_topic(topic)
        if committed.topic_id in (ZERO_UUID, topic_id)
    )
    return [offset_tombstone(group_id, topic, partition) for group_id, partition in positions]


def missing_topic_tombstones(topic_exists: Callable[[bytes], bool], offsets: Offsets) -> list[CoordinatorRecord]:
    return [
        offset_tombstone(group_id, topic, partition)
        for group_id in offsets.group_ids()
        for (topic, partition), committed in offsets.of(group_id).items()
        if committed.topic_id != ZERO_UUID and not topic_exists(committed.topic_id)
    ]


def expires_ms(committed: CommittedOffset, idle_since_ms: int | None, config: GroupConfig) -> int:
    """Returns the time at which an offset expires. If the OffsetCommit request contained a retention time, that time
    applies. Otherwise the configured retention period begins at `idle_since_ms`, or at the commit if `idle_since_ms` is
    None."""
    if committed.expires_ms is not None:
        return committed.expires_ms
    return (committed.committed_ms if idle_since_ms is None else idle_since_ms) + config.offsets_retention_ms
