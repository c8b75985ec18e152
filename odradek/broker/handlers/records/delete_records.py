"""DeleteRecords (key 21), versions 0-2: moves the log start offset of partitions forward.

v2: flexible. Needs DELETE on each topic. Offset -1 stands for the high watermark. Deleted records are unreadable at
once; their files are removed by the next retention check. Topics that are only compacted refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.delete_records_request import DeleteRecordsRequest

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def delete_records(request: DeleteRecordsRequest, context: RequestContext, broker: Broker) -> DeleteRecordsResponse:
    named: dict[str, dict[int, int]] = {}  # of a partition named twice the last offset counts
    for topic in request.topics:
        named.setdefault(topic.name, {}).update({each.partition_index: each.offset for each in topic.partitions})
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[result(context, broker, name, index, offset) for index, offset in offsets.items()],
            )
            for name, offsets in named.items()
        ]
    )


def result(
    context: RequestContext, broker: Broker, topic: str, index: int, offset: int
) -> DeleteRecordsPartitionResult:
    try:
        context.require(Operation.DELETE, ResourceType.TOPIC, topic)
        partition = broker.partitions.get(topic, index)
        if partition.is_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = partition.log
        if not log.config.is_deleted:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        low_watermark = log.delete_records_before(log.high_watermark if offset == HIGH_WATERMARK else offset)
    except KafkaError as refusal:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=refusal.code.value
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
