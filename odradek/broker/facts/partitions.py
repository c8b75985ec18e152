"""Describes the leaders and offsets of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from odradek.broker.broker import Broker


class LedPartition(NamedTuple):
    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int


def partition_facts(broker: Broker, topic: str, index: int) -> LedPartition:
    """Describes a partition. Raises KafkaError if the partition does not exist or its log is unusable."""
    log = broker.partitions.get(topic, index).log
    placed = broker.metadata.image.topics[topic].partitions[index]
    return LedPartition(
        topic,
        index,
        placed.leader,
        placed.leader_epoch,
        log.log_start_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.log_end_offset,
    )
