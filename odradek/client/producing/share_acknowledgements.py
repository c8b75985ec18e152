"""Builds a transaction's larger requests, reduces each response to one error code, and acknowledges records from a
share group within a transaction (KIP-1289).

Acknowledgements are sent to the partition leaders, because the leaders hold the acquired records. Either all of a
request's acknowledgements become pending, or none do. Source: docs/spec/share-groups.md#s1-9, #s5-3, #s5-9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from odradek.client.common.errors import AbortableError, ClientError, RetriableError, code_of
from odradek.client.common.values import (
    TXN_ACKNOWLEDGE_FEATURE,
    TXN_ACKNOWLEDGE_NEEDS,
    AcknowledgedRange,
    Acknowledgements,
    AcknowledgeType,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ShareGroupMetadata,
    ShareRecord,
    TopicPartition,
    grouped,
)
from odradek.client.network.cluster import Cluster
from odradek.client.producing.producer_batch import ProducerIdentity
from odradek.client.producing.verdicts import Verdict, verdict
from odradek.client.sharing.acquired import GAP, ranges_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_header import NO_LEADER_EPOCH
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.protocol.messages.txn_share_acknowledge_request import (
    TxnShareAcknowledgeBatch,
    TxnShareAcknowledgePartition,
    TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeTopic,
)
from odradek.protocol.messages.txn_share_acknowledge_response import TxnShareAcknowledgeResponse
from odradek.protocol.struct import ZERO_UUID


def add_partitions(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Builds an AddPartitionsToTxn request in version 3 or earlier, the versions intended for clients."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in grouped(sorted(partitions)).items()
        ],
    )


def commit_offsets(
    transactional_id: str,
    identity: ProducerIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
    topic_ids: Mapping[str, bytes],
) -> TxnOffsetCommitRequest:
    """Builds a TxnOffsetCommit request. `topic_ids` holds the ids of all topics if the request may be sent in a version
    without topic names."""
    by_topic = grouped(
        (
            topic,
            TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset.offset,
                committed_leader_epoch=NO_LEADER_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            ),
        )
        for (topic, index), offset in offsets.items()
    )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(name=topic, topic_id=topic_ids.get(topic, ZERO_UUID), partitions=each)
            for topic, each in by_topic.items()
        ],
    )


def error_of_partitions(answer: AddPartitionsToTxnResponse) -> int:
    """Returns the first error code, or 0 if there are no errors. OPERATION_NOT_ATTEMPTED is returned only if there is
    no other error, because it merely means that another partition failed."""
    codes = [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
        if partition.partition_error_code != 0
    ]
    telling = [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED.value]
    return next(iter(telling or codes), 0)


def error_of_offsets(answer: TxnOffsetCommitResponse) -> int:
    """Returns one of the error codes, or 0 if there are no errors. Permanent errors take precedence over transient
    ones."""
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions if partition.error_code]
    final = [
        code
        for code in codes
        if verdict(ApiKey.TXN_OFFSET_COMMIT, code_of(code), is_transactional=True) is not Verdict.RETRY
    ]
    return next(iter(final or codes), 0)


# The application passes either records, all of which are accepted, or ranges of offsets with their types.
ToAcknowledge = Iterable[ShareRecord] | Mapping[TopicPartition, Iterable[AcknowledgedRange]]

PENDING_TYPES = frozenset({AcknowledgeType.ACCEPT, AcknowledgeType.REJECT})


def acknowledgements(given: ToAcknowledge) -> Acknowledgements:
    """Sorts the application's acknowledgements into disjoint, ascending ranges for each partition.

    Raises AbortableError for types that a transaction cannot undo (with INVALID_RECORD_STATE, as the broker does), and
    for ranges that overlap or contain no offset (with INVALID_REQUEST). The error is abortable because the transaction
    must not be committed without these acknowledgements.
    """
    if not isinstance(given, Mapping):
        offsets = grouped((TopicPartition(record.topic, record.partition), record.offset) for record in given)
        return {
            partition: [AcknowledgedRange(first, last) for first, last in ranges_of(each)]
            for partition, each in offsets.items()
        }
    found: dict[TopicPartition, list[AcknowledgedRange]] = {}
    for partition, ranges in given.items():
        last_offset = -1
        for each in sorted((AcknowledgedRange(*each) for each in ranges), key=attrgetter("first_offset")):
            if each.type not in PENDING_TYPES:
                message = f"a transaction can contain only ACCEPT and REJECT, not {_name_of(each.type)}"
                raise AbortableError(message, ErrorCode.INVALID_RECORD_STATE)
            if not last_offset < each.first_offset <= each.last_offset:
                message = (
                    f"the offsets {each.first_offset} to {each.last_offset} are not a valid range, or overlap"
                    " another range"
                )
                raise AbortableError(message, ErrorCode.INVALID_REQUEST)
            last_offset = each.last_offset
            found.setdefault(TopicPartition(*partition), []).append(each)
    return found


def _name_of(kind: AcknowledgeType | int) -> str:
    """Returns an acknowledge type's name. The function also accepts 0, which means a gap in the protocol."""
    if isinstance(kind, AcknowledgeType):
        return kind.name
    return "GAP" if kind == GAP else repr(kind)


def request(
    transactional_id: str,
    identity: ProducerIdentity,
    group: ShareGroupMetadata,
    topic_ids: Mapping[str, bytes],
    given: Acknowledgements,
) -> TxnShareAcknowledgeRequest:
    topics: dict[str, TxnShareAcknowledgeTopic] = {}
    for (topic, index), ranges in sorted(given.items()):
        if topic not in topics:
            topics[topic] = TxnShareAcknowledgeTopic(topic_id=topic_ids[topic], partitions=[])
        batches = [
            TxnShareAcknowledgeBatch(
                first_offset=each.first_offset, last_offset=each.last_offset, acknowledge_types=[each.type.value]
            )
            for each in ranges
        ]
        topics[topic].partitions.append(
            TxnShareAcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
        )
    return TxnShareAcknowledgeRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        topics=list(topics.values()),
    )


def error_of(sent: TxnShareAcknowledgeRequest, answer: TxnShareAcknowledgeResponse) -> ErrorCode:
    """Returns a response's decisive error. Permanent errors take precedence over transient ones.
    OPERATION_NOT_ATTEMPTED is returned only if there is no other error."""
    if answer.error_code != 0:
        return code_of(answer.error_code)
    message = {
        (topic.topic_id, partition.partition_index): code_of(partition.error_code)
        for topic in answer.responses
        for partition in topic.partitions
    }
    codes = [
        message.get((topic.topic_id, partition.partition_index), ErrorCode.INVALID_RECORD_STATE)
        for topic in sent.topics
        for partition in topic.partitions
    ]
    return min((code for code in codes if code is not ErrorCode.NONE), key=_order, default=ErrorCode.NONE)


def _order(code: ErrorCode) -> int:
    if code is ErrorCode.OPERATION_NOT_ATTEMPTED:
        return 2
    return 1 if txn_acknowledge_verdict(code) is Verdict.RETRY else 0


def txn_acknowledge_verdict(code: ErrorCode) -> Verdict:
    return verdict(ApiKey.TXN_SHARE_ACKNOWLEDGE, code, is_transactional=True)


def not_served(who: str) -> ClientError:
    return ClientError(f"{who} does not support {TXN_ACKNOWLEDGE_NEEDS}", ErrorCode.UNSUPPORTED_VERSION)


class TxnAcknowledgeCall:
    """Sends one call's acknowledgements to all leaders concurrently. Each call of `send` makes one attempt."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        identity: ProducerIdentity,
        group: ShareGroupMetadata,
        given: Acknowledgements,
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._identity = identity
        self._group = group
        self._left = dict(given)

    async def check_served(self) -> None:
        """Raises ClientError (UNSUPPORTED_VERSION), before anything is sent, unless every broker supports the
        request."""
        await self._cluster.check_all_serve(TxnShareAcknowledgeRequest, TXN_ACKNOWLEDGE_FEATURE, TXN_ACKNOWLEDGE_NEEDS)

    async def send(self, timeout_ms: float) -> ErrorCode:
        """Sends all acknowledgements that are not pending yet. Returns NONE if all of them are now pending, otherwise
        the decisive error.

        The call can be repeated after a transient error: pending acknowledgements remain pending and are not sent
        again. Raises RetriableError if a connection is lost.
        """
        topics = {partition.topic for partition in self._left}
        for topic in topics:
            await self._cluster.topic(topic, timeout_ms=timeout_ms)
        by_leader: dict[int, dict[TopicPartition, Sequence[AcknowledgedRange]]] = {}
        for partition, ranges in self._left.items():
            leader = self._cluster.leader(partition)
            if leader is None or leader.node_id is None:
                await self._cluster.refresh(topics)
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            by_leader.setdefault(leader.node_id, {})[partition] = ranges
        found = await asyncio.gather(
            *(self._send_to(node_id, ranges, timeout_ms) for node_id, ranges in by_leader.items()),
            return_exceptions=True,
        )
        errors = [each for each in found if isinstance(each, BaseException)]
        final = [each for each in errors if not isinstance(each, RetriableError)]
        if errors:
            raise (final or errors)[0]
        codes = [each for each in found if isinstance(each, ErrorCode) and each is not ErrorCode.NONE]
        code = min(codes, key=_order, default=ErrorCode.NONE)
        if ErrorCode.NOT_LEADER_OR_FOLLOWER in codes:
            await self._cluster.refresh(topics)
        return code

    async def _send_to(self, node_id: int, given: Acknowledgements, timeout_ms: float) -> ErrorCode:
        topic_ids = {}
        for partition in given:
            metadata = self._cluster.known_topic(partition.topic)
            topic_ids[partition.topic] = ZERO_UUID if metadata is None else metadata.topic_id
        sent = request(self._transactional_id, self._identity, self._group, topic_ids, given)
        answer = await self._cluster.ask(sent, TxnShareAcknowledgeResponse, node_id=node_id, timeout_ms=timeout_ms)
        code = error_of(sent, answer)
        if code is ErrorCode.NONE:
            for partition in given:
                del self._left[partition]
        return code
