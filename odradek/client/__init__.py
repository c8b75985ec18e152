"""A client for any broker that speaks Kafka, on asyncio."""

from odradek.client.errors import (
    AbortableError,
    AuthorizationFailed,
    ClientError,
    FatalError,
    IllegalState,
    ProducerFenced,
    RetriableError,
)
from odradek.client.prepared import PreparedTxnState
from odradek.client.producer import Producer
from odradek.client.values import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    RecordMetadata,
    TopicPartition,
)

__all__ = [
    "AbortableError",
    "AuthorizationFailed",
    "ClientError",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "FatalError",
    "IllegalState",
    "OffsetAndMetadata",
    "PreparedTxnState",
    "Producer",
    "ProducerFenced",
    "RecordMetadata",
    "RetriableError",
    "TopicPartition",
]
