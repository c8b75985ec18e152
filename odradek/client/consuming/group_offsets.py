"""Reads and writes a group's committed offsets through its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from odradek.client.common.errors import STALE_COORDINATOR, ClientError, RetriableError, code_of, refusal
from odradek.client.common.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, grouped
from odradek.client.network.cluster import Cluster, CoordinatorType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse

LAST_COMMIT_VERSION_WITH_NAMES = 9  # last version that names topics; later versions use topic ids
FETCH_OF_ONE_GROUP = 7
NO_EPOCH = -1

Committed = dict[TopicPartition, OffsetAndMetadata | None]


class CommitFailed(ClientError):
    """The group has continued without this member, and other members now read its partitions. Nothing was committed."""


EXPELLED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class GroupOffsets:
    def __init__(self, cluster: Cluster, group_id: str, *, timeout_ms: float) -> None:
        """Prepares access to a group's offsets. `timeout_ms` is how long calls retry transient errors."""
        self._cluster = cluster
        self._group_id = group_id
        self._timeout_s = timeout_ms / 1000

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: Callable[[], ConsumerGroupMetadata]
    ) -> None:
        """Commits offsets.

        member   returns the metadata of the committing member; called on each attempt, because the member's epoch may
                 change between attempts

        Raises RetriableError, CommitFailed, or ClientError for other refusals.
        """
        topics = grouped(
            (
                topic,
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=NO_EPOCH if leader_epoch is None else leader_epoch,
                    committed_metadata=metadata,
                ),
            )
            for (topic, partition), (offset, metadata, leader_epoch) in offsets.items()
        )

        async def ask() -> None:
            identity = member()
            request = OffsetCommitRequest(
                group_id=self._group_id,
                generation_id_or_member_epoch=identity.generation_id,
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                topics=[OffsetCommitRequestTopic(name=topic, partitions=each) for topic, each in topics.items()],
            )
            answer = await self._cluster.ask_coordinator(
                self._group_id,
                CoordinatorType.GROUP,
                request,
                OffsetCommitResponse,
                max_version=LAST_COMMIT_VERSION_WITH_NAMES,
            )
            codes = {code_of(each.error_code) for topic in answer.topics for each in topic.partitions}
            self._raise_first(codes - {ErrorCode.NONE}, "the commit of offsets")

        await self._cluster.retry(ask, self._timeout_s, never=ErrorCode.REBALANCE_IN_PROGRESS)

    async def committed(self, partitions: Collection[TopicPartition]) -> Committed:
        """Returns the committed offset of each partition, or None if no offset is committed. Raises RetriableError on
        timeout."""
        return await self._cluster.retry(lambda: self.committed_now(partitions), self._timeout_s)

    async def committed_now(self, partitions: Collection[TopicPartition]) -> Committed:
        """Like `committed`, but makes only one attempt. Raises RetriableError while a transaction is about to commit
        offsets (KIP-447)."""
        topics = grouped(partitions).items()
        request = OffsetFetchRequest(
            group_id=self._group_id,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=each) for topic, each in topics],
            require_stable=True,
        )
        answer = await self._cluster.ask_coordinator(
            self._group_id, CoordinatorType.GROUP, request, OffsetFetchResponse, max_version=FETCH_OF_ONE_GROUP
        )
        codes = {code_of(each.error_code) for topic in answer.topics for each in topic.partitions}
        self._raise_first((codes | {code_of(answer.error_code)}) - {ErrorCode.NONE}, "the committed offsets")
        found: Committed = dict.fromkeys(partitions)
        for topic_told in answer.topics:
            for each in topic_told.partitions:
                if each.committed_offset >= 0:
                    found[TopicPartition(topic_told.name, each.partition_index)] = OffsetAndMetadata(
                        each.committed_offset,
                        each.metadata or "",
                        each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None,
                    )
        return found

    def _raise_first(self, codes: set[ErrorCode], what: str) -> None:
        """Raises the exception for one of these codes, if any. Permanent errors take precedence over transient ones."""
        if codes & STALE_COORDINATOR:
            self._cluster.forget_coordinator(self._group_id, CoordinatorType.GROUP)
        text = f"{what} of the group {self._group_id!r}"
        if expelled := codes & EXPELLED:
            code = expelled.pop()
            raise CommitFailed(f"{text}: {code.name}: this member is no longer in the group", code)
        if ErrorCode.REBALANCE_IN_PROGRESS in codes:
            code = ErrorCode.REBALANCE_IN_PROGRESS
            raise RetriableError(f"{text}: the group is rebalancing: call getmany or getone again, then commit", code)
        if ErrorCode.STALE_MEMBER_EPOCH in codes:
            raise RetriableError(f"{text}: the epoch of the member has increased", ErrorCode.STALE_MEMBER_EPOCH)
        errors = sorted((refusal(code, text) for code in codes), key=lambda error: error.is_retriable)
        if errors:
            raise errors[0]
