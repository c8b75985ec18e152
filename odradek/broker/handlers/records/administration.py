"""Handlers for administrators' requests about records: DeleteRecords and DescribeProducers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.long_requests import AnswerEntries
from odradek.broker.configuration.settings import InvalidSetting
from odradek.broker.metadata.topic_names import check_topic_name
from odradek.broker.runtime.slices import Steps, sliced
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.delete_records_request import DeleteRecordsRequest
    from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
    from odradek.storage.producer_state import ProducerEntry


HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def delete_records(
    request: DeleteRecordsRequest, context: RequestContext, broker: HandlerBroker
) -> DeleteRecordsResponse:
    """Handles DeleteRecords (key 21), versions 0-2, which moves the log start offset of partitions forward.

    v2 is flexible. Needs DELETE on each topic. Offset -1 means the high watermark. Deleted records become unreadable
    immediately; the next retention check removes their files. Topics whose only cleanup policy is compaction are
    refused.
    """
    named: dict[str, dict[int, int]] = {}  # if a partition occurs twice, its last offset is used
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
    context: RequestContext, broker: HandlerBroker, topic: str, index: int, offset: int
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


@sliced
def describe_producers(
    request: DescribeProducersRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[DescribeProducersResponse]:
    """Handles DescribeProducers (key 61), version 0, which returns the state of each partition's idempotent and
    transactional producers.

    Needs READ on each topic. Source: KIP-664; docs/spec/transactions.md#s2-9.
    """
    response, entries = DescribeProducersResponse(), AnswerEntries()
    for topic in request.topics:
        answer = TopicResponse(name=topic.name)
        response.topics.append(answer)
        yield
        for index in topic.partition_indexes:
            partition = producers_of(context, broker, topic.name, index)
            answer.partitions.append(partition)
            entries.add(1 + len(partition.active_producers))
            for _ in range(1 + len(partition.active_producers)):
                yield
    return response


def producers_of(context: RequestContext, broker: HandlerBroker, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        context.require(Operation.READ, ResourceType.TOPIC, topic)
        partition = broker.partitions.get(topic, index)
    except InvalidSetting as refusal:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return PartitionResponse(partition_index=index, error_code=code.value, error_message=str(refusal))
    except KafkaError as refusal:
        message = refusal.message
        # As in Kafka, there is an error message if the topic is missing, but not if only the partition is missing.
        if message is None and topic not in broker.metadata.image.topics:
            message = "This server does not host this topic-partition."
        return PartitionResponse(partition_index=index, error_code=refusal.code.value, error_message=message)
    return PartitionResponse(
        partition_index=index, active_producers=[state(entry) for entry in partition.log.producers()]
    )


def state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=or_none(entry.last_sequence),
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=or_none(entry.coordinator_epoch),
        current_txn_start_offset=or_none(entry.current_txn_first_offset),
    )


def or_none(value: int | None) -> int:
    return -1 if value is None else value
