"""A client for any broker that speaks Kafka, on asyncio."""

from odradek.client.admin import (
    Admin,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.consumer import Consumer
from odradek.client.consuming.fetched import RawBatches
from odradek.client.consuming.group_offsets import CommitFailed
from odradek.client.consuming.offset_lookup import OffsetAndTimestamp
from odradek.client.consuming.positions import OffsetOutOfRange
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
from odradek.client.share_consumer import ShareConsumer
from odradek.client.values import (
    AcknowledgedRange,
    AcknowledgeType,
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    RecordMetadata,
    ShareGroupMetadata,
    ShareRecord,
    TopicPartition,
)

__all__ = [
    "AbortableError",
    "AcknowledgeType",
    "AcknowledgedRange",
    "Admin",
    "AuthorizationFailed",
    "ClientError",
    "CommitFailed",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "FatalError",
    "IllegalState",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "PartitionDescription",
    "PreparedTxnState",
    "Producer",
    "ProducerFenced",
    "RawBatches",
    "RecordMetadata",
    "RetriableError",
    "ShareConsumer",
    "ShareGroupMetadata",
    "ShareRecord",
    "TopicDescription",
    "TopicPartition",
    "TransactionDescription",
    "TransactionListing",
]
