"""DescribeProducers (key 61), version 0: the producer state of partitions, idempotent and transactional.

Needs READ on each topic. Source: KIP-664; docs/spec/transactions.md#s2-9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.configuration.settings import InvalidSetting
from odradek.broker.metadata.topic_names import check_topic_name
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
    from odradek.storage.producer_state import ProducerEntry


def describe_producers(
    request: DescribeProducersRequest, context: RequestContext, broker: Broker
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[producers_of(context, broker, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def producers_of(context: RequestContext, broker: Broker, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        context.require(Operation.READ, ResourceType.TOPIC, topic)
        partition = broker.partitions.get(topic, index)
    except InvalidSetting as refusal:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return PartitionResponse(partition_index=index, error_code=code.value, error_message=str(refusal))
    except KafkaError as refusal:
        message = refusal.message
        if message is None and topic not in broker.metadata.image.topics:  # of a partition Kafka says nothing
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
