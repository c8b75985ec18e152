"""The larger requests of a transaction, each answer of which is reduced to one error code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.client.common.errors import code_of
from odradek.client.common.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from odradek.client.producing.producer_batch import Identity
from odradek.client.producing.verdicts import Verdict, verdict
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


def add_partitions(
    transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """As clients send it, up to version 3."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in by_topic.items()],
    )


def commit_offsets(
    transactional_id: str,
    identity: Identity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
) -> TxnOffsetCommitRequest:
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        by_topic.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset.offset,
                committed_leader_epoch=NO_LEADER_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=each) for topic, each in by_topic.items()],
    )


def error_of_partitions(answer: AddPartitionsToTxnResponse) -> int:
    """The first; one that only says that another failed counts last."""
    codes = [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
        if partition.partition_error_code != 0
    ]
    telling = [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED.value]
    return next(iter(telling or codes), 0)


def error_of_offsets(answer: TxnOffsetCommitResponse) -> int:
    """The first; one that does not pass by itself comes before those that do."""
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions if partition.error_code]
    final = [
        code
        for code in codes
        if verdict(ApiKey.TXN_OFFSET_COMMIT, code_of(code), is_transactional=True) is not Verdict.RETRY
    ]
    return next(iter(final or codes), 0)
