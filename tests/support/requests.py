"""Builds the request that tests and benchmarks send most often: one batch for one partition."""

from __future__ import annotations

from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.struct import ZERO_UUID, Buffer


def produce_request(
    topic: str,
    records: Buffer | None,
    *,
    partition: int = 0,
    topic_id: bytes = ZERO_UUID,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Returns a request that writes one batch to one partition. Versions 13 and later identify the topic by
    `topic_id`."""
    data = PartitionProduceData(index=partition, records=records)
    named = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=[named])
