"""Produce requests built from batches, and the meaning of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.client.common.errors import code_of
from odradek.client.common.values import TopicPartition
from odradek.protocol.batch_header import NO_TIMESTAMP
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse

NO_OFFSET = -1
SINCE_TRANSACTION_V2 = 12  # from this version of Produce on the broker itself adds partitions to the transaction
WITH_NAMES = 12  # from version 13 on topics go by their ids


def version_bounds(*, is_transactional: bool, is_transaction_v2: bool) -> tuple[int, int]:
    """The oldest and the newest version that may be used."""
    if not is_transactional:
        return 0, WITH_NAMES
    return (SINCE_TRANSACTION_V2, WITH_NAMES) if is_transaction_v2 else (0, SINCE_TRANSACTION_V2 - 1)


def produce_request(
    batches: Iterable[tuple[TopicPartition, bytearray]], *, transactional_id: str | None, acks: int, timeout_ms: int
) -> ProduceRequest:
    """batches: sealed ones, at most one for each partition."""
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for (topic, index), records in batches:
        by_topic.setdefault(topic, []).append(PartitionProduceData(index=index, records=records))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=data) for topic, data in by_topic.items()],
    )


def answers_by_partition(response: ProduceResponse) -> Mapping[TopicPartition, PartitionProduceResponse]:
    return {
        TopicPartition(topic.name, partition.index): partition
        for topic in response.responses
        for partition in topic.partition_responses
    }


def base_offset(answer: PartitionProduceResponse) -> int | None:
    """None where the broker knows a repeated batch no more than by its sequence."""
    return None if answer.base_offset == NO_OFFSET else answer.base_offset


def log_append_time_ms(answer: PartitionProduceResponse) -> int | None:
    """None where the records keep their own timestamps."""
    return None if answer.log_append_time_ms == NO_TIMESTAMP else answer.log_append_time_ms


def explanation(answer: PartitionProduceResponse) -> str:
    """What the broker says, in its own words where it has some."""
    words = [code_of(answer.error_code).name]
    if answer.error_message:
        words.append(answer.error_message)
    words += [
        f"record {error.batch_index}: {error.batch_index_error_message or 'invalid'}" for error in answer.record_errors
    ]
    return ", ".join(words)
