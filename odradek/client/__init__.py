"""An asyncio client for any broker that implements Kafka's protocol.

Each name is imported on first use, so a program that only produces does not load the consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.cluster import (
        BrokerDescription,
        ClusterDescription,
        FeatureDescription,
        UpgradeType,
    )
    from odradek.client.administration.configs import (
        AlterOperation,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConfigType,
    )
    from odradek.client.administration.groups import (
        GroupDescription,
        GroupListing,
        MemberDescription,
        SharePartitionOffset,
    )
    from odradek.client.administration.streams_groups import (
        StreamsGroupDescription,
        StreamsInternalTopic,
        StreamsMemberDescription,
        StreamsSubtopology,
        StreamsTask,
        StreamsTasks,
    )
    from odradek.client.administration.topics import NewTopic, PartitionDescription, TopicDescription
    from odradek.client.administration.transactions import ActiveProducer, TransactionDescription, TransactionListing
    from odradek.client.common.errors import (
        AbortableError,
        AuthenticationFailed,
        AuthorizationFailed,
        ClientError,
        FatalError,
        IllegalState,
        ProducerFenced,
        RetriableError,
    )
    from odradek.client.common.values import (
        AcknowledgedRange,
        AcknowledgeType,
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        PreparedTxnState,
        RecordMetadata,
        ShareGroupMetadata,
        ShareRecord,
        TopicPartition,
    )
    from odradek.client.consumer import Consumer
    from odradek.client.consuming.fetched import RawBatches
    from odradek.client.consuming.group_offsets import CommitFailed
    from odradek.client.consuming.offset_lookup import OffsetAndTimestamp
    from odradek.client.consuming.positions import OffsetOutOfRange
    from odradek.client.metrics.values import Metric, MetricKind, Metrics, Unit
    from odradek.client.producer import Producer
    from odradek.client.producing.producer_batch import ProducerIdentity
    from odradek.client.share_consumer import ShareConsumer

_MODULES = {
    "odradek.client.admin": "Admin",
    "odradek.client.administration.cluster": "BrokerDescription ClusterDescription FeatureDescription UpgradeType",
    "odradek.client.administration.configs": "AlterOperation ConfigChange ConfigEntry ConfigResource ConfigType",
    "odradek.client.administration.groups": "GroupDescription GroupListing MemberDescription SharePartitionOffset",
    "odradek.client.administration.streams_groups": (
        "StreamsGroupDescription StreamsInternalTopic StreamsMemberDescription StreamsSubtopology StreamsTask "
        "StreamsTasks"
    ),
    "odradek.client.administration.topics": "NewTopic PartitionDescription TopicDescription",
    "odradek.client.administration.transactions": "ActiveProducer TransactionDescription TransactionListing",
    "odradek.client.common.errors": (
        "AbortableError AuthenticationFailed AuthorizationFailed ClientError FatalError IllegalState "
        "ProducerFenced RetriableError"
    ),
    "odradek.client.common.values": (
        "AcknowledgeType AcknowledgedRange ConsumerGroupMetadata ConsumerRecord OffsetAndMetadata PreparedTxnState "
        "RecordMetadata ShareGroupMetadata ShareRecord TopicPartition"
    ),
    "odradek.client.consumer": "Consumer",
    "odradek.client.consuming.fetched": "RawBatches",
    "odradek.client.consuming.group_offsets": "CommitFailed",
    "odradek.client.consuming.offset_lookup": "OffsetAndTimestamp",
    "odradek.client.consuming.positions": "OffsetOutOfRange",
    "odradek.client.metrics.values": "Metric MetricKind Metrics Unit",
    "odradek.client.producer": "Producer",
    "odradek.client.producing.producer_batch": "ProducerIdentity",
    "odradek.client.share_consumer": "ShareConsumer",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "AbortableError",
    "AcknowledgeType",
    "AcknowledgedRange",
    "ActiveProducer",
    "Admin",
    "AlterOperation",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BrokerDescription",
    "ClientError",
    "ClusterDescription",
    "CommitFailed",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigType",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "FatalError",
    "FeatureDescription",
    "GroupDescription",
    "GroupListing",
    "IllegalState",
    "MemberDescription",
    "Metric",
    "MetricKind",
    "Metrics",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "PartitionDescription",
    "PreparedTxnState",
    "Producer",
    "ProducerFenced",
    "ProducerIdentity",
    "RawBatches",
    "RecordMetadata",
    "RetriableError",
    "ShareConsumer",
    "ShareGroupMetadata",
    "SharePartitionOffset",
    "ShareRecord",
    "StreamsGroupDescription",
    "StreamsInternalTopic",
    "StreamsMemberDescription",
    "StreamsSubtopology",
    "StreamsTask",
    "StreamsTasks",
    "TopicDescription",
    "TopicPartition",
    "TransactionDescription",
    "TransactionListing",
    "Unit",
    "UpgradeType",
]


def __getattr__(name: str) -> object:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
