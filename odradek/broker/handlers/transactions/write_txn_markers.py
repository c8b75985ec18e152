"""WriteTxnMarkers (key 27), versions 1-2: ends transactions in partitions that this broker leads.

v1: flexible. v2 (KIP-1228): the transaction version, under which a marker's epoch must be newer than the open
transaction's. Needs ALTER or CLUSTER_ACTION on the cluster: coordinators send it, and operators who end a transaction
that no coordinator knows. Answered when all are durable; markers of one producer id are answered as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, refused
from odradek.broker.coordinators.transaction_markers import TxnMarker
from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from odradek.protocol.topic_partition import PartitionCodes

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest


def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext, broker: Broker
) -> WriteTxnMarkersResponse | Deferred[WriteTxnMarkersResponse]:
    if not is_allowed(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE) and not is_allowed(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise refused(ResourceType.CLUSTER, context.api_key)
    reply: Deferred[WriteTxnMarkersResponse] = Deferred()
    markers = [marker_of(each) for each in request.markers]
    broker.markers.write(markers, lambda results: reply.resolve(response_to(markers, results)))
    return reply


def marker_of(asked: WritableTxnMarker) -> TxnMarker:
    return TxnMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
        [(topic.name, index) for topic in asked.topics for index in topic.partition_indexes],
    )


def response_to(markers: Sequence[TxnMarker], results: Sequence[PartitionCodes]) -> WriteTxnMarkersResponse:
    by_producer: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker, codes in zip(markers, results, strict=True):
        topics = by_producer.setdefault(marker.producer_id, {})
        for (topic, index), code in codes.items():
            topics.setdefault(topic, {})[index] = code
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code.value)
                            for index, code in codes.items()
                        ],
                    )
                    for topic, codes in topics.items()
                ],
            )
            for producer_id, topics in by_producer.items()
        ]
    )
