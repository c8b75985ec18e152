"""The responses of the transaction APIs to a request that failed as a whole. The others: `broker.api.error_replies`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.struct import Message


def _add_partitions_to_txn(request: Any, version: int, code: int, message: str | None) -> Message:
    """Version 4 and later say it at the top."""
    from odradek.protocol.messages.add_partitions_to_txn_response import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTopicResult,
    )

    if version >= 4:
        return AddPartitionsToTxnResponse(error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _write_txn_markers(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.write_txn_markers_response import (
        WritableTxnMarkerPartitionResult,
        WritableTxnMarkerResult,
        WritableTxnMarkerTopicResult,
        WriteTxnMarkersResponse,
    )

    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _txn_offset_commit(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.txn_offset_commit_response import (
        TxnOffsetCommitResponse,
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    )

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_transactions(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState

    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=transactional_id, error_code=code)
            for transactional_id in request.transactional_ids
        ]
    )


TRANSACTION_ERROR_REPLIES: Mapping[ApiKey, Any] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
}
