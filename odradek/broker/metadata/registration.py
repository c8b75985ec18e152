"""Builds the records that a broker writes about itself when it starts and stops: initial features, registration and
leadership."""

from collections.abc import Iterable, Mapping, Sequence

from odradek.broker.configuration.listeners import Listener
from odradek.broker.metadata.files import BOOTSTRAP, FORMATTED, bootstrap_snapshot, is_complete, records_in
from odradek.broker.metadata.image import DEFAULT_BROKER, MetadataImage, Node
from odradek.broker.metadata.replaying import CorruptMetadata
from odradek.broker.metadata.supported_features import (
    ELIGIBLE_LEADER_REPLICAS,
    FIRST_LEVELS,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.messages.begin_transaction_record import BeginTransactionRecord
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.end_transaction_record import EndTransactionRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from odradek.protocol.struct import Message
from odradek.protocol.topic_partition import TRANSACTION_STATE
from odradek.storage.disk import Disk

UNASSIGNED = bytes(16)  # directory id of a replica on another broker
PLAINTEXT = 0  # id of the security protocol


def first_features(levels: Mapping[str, int] = FIRST_LEVELS) -> list[Message]:
    """Builds a new cluster's feature records in Kafka's order: metadata.version first, then the other features by
    name."""
    ordered = sorted(levels.items(), key=lambda each: (each[0] != METADATA_VERSION, each[0]))
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in ordered]


def formatted_records(
    disk: Disk, root: str, metadata_directory: str, now_ms: int, first_levels: Mapping[str, int], rules: KafkaRules
) -> list[Message]:
    """Returns the records that were written when the directory was formatted by Kafka's tool or by this broker. Formats
    the directory if it is new.

    A Kafka 4.4 directory has these records in a snapshot of the metadata log at offset 0. An older directory has them
    in a file in its root. Like Kafka 4.4, this function looks for the snapshot first. The emulated release determines
    which file a new directory gets. Source: docs/spec/kafka-4.4.md#s6-1, #s6-3.
    """
    snapshot_path, root_path = f"{metadata_directory}/{FORMATTED}", f"{root}/{BOOTSTRAP}"
    for path in (snapshot_path, root_path):
        if disk.exists(path):
            data = disk.read_bytes(path)
            if not is_complete(data):
                raise CorruptMetadata(
                    f"{path} is damaged; without it the directory would start with the newest features"
                )
            return records_in(data)
    records = first_features(first_levels)
    if rules >= KafkaRules.KAFKA_4_4:
        disk.replace(snapshot_path, bootstrap_snapshot(records, 0, now_ms, last_contained_ms=now_ms))
    else:
        disk.replace(root_path, bootstrap_snapshot(records, 0, now_ms))
    return records


def bootstrap_records(formatted: Sequence[Message], min_insync_replicas: str) -> list[Message]:
    """Builds a metadata log's first records: the formatting records, and the configured min.insync.replicas if eligible
    leader replicas are enabled (KIP-966).
    """
    min_isr = ConfigRecord(
        resource_type=DEFAULT_BROKER[0].value,
        resource_name=DEFAULT_BROKER[1],
        name="min.insync.replicas",
        value=min_insync_replicas,
    )
    has_elr = any(
        isinstance(record, FeatureLevelRecord) and record.name == ELIGIBLE_LEADER_REPLICAS and record.feature_level > 0
        for record in formatted
    )
    begin, end = BeginTransactionRecord(name="Bootstrap records"), EndTransactionRecord()
    return [begin, *formatted, *([min_isr] if has_elr else []), end]


def registration_records(
    node: Node, endpoints: Iterable[Listener], *, rack: str | None, incarnation_id: bytes, broker_epoch: int
) -> list[Message]:
    """Builds the records that register this process as the node's broker and immediately unfence it. `broker_epoch` is
    the offset of the first record."""
    return [
        RegisterBrokerRecord(
            broker_id=node.node_id,
            incarnation_id=incarnation_id,
            broker_epoch=broker_epoch,
            end_points=[
                BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=PLAINTEXT)
                for one in endpoints
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
                for name, (least, most) in SUPPORTED_FEATURES.items()
            ],
            rack=rack,
            fenced=True,
            log_dirs=[node.directory_id],
        ),
        BrokerRegistrationChangeRecord(broker_id=node.node_id, broker_epoch=broker_epoch, fenced=-1),
    ]


def leadership_records(image: MetadataImage, node: Node, *, was_clean: bool) -> list[Message]:
    """Builds the records that make this node the leader of every partition that has a replica on it.

    was_clean  False after a crash. In that case, partitions that this node already led also get a new leader epoch, so
               that consumers can detect that a power failure removed records that they had read (KIP-320)

    Partitions of `__transaction_state` always get a new leader epoch. This epoch is also the transaction coordinator's
    epoch, which distinguishes requests from the previous process from requests from this process. (Kafka raises the
    leader epochs of all topics.)
    """
    has_elr = image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0
    records: list[Message] = []
    for topic in image.topics.values():
        for partition in topic.partitions:
            leads = partition.leader == node.node_id and partition.isr == [node.node_id]
            keeps_leading = leads and was_clean and topic.name != TRANSACTION_STATE
            if node.node_id not in partition.replicas or keeps_leading:
                continue
            change = PartitionChangeRecord(
                partition_id=partition.partition_id, topic_id=topic.topic_id, leader=node.node_id
            )
            if partition.isr != [node.node_id]:
                change.isr = [node.node_id]
            if has_elr and partition.eligible_leader_replicas:
                change.eligible_leader_replicas = []
            if has_elr and partition.last_known_elr:
                change.last_known_elr = []
            if partition.leader_is_recovering:
                change.leader_recovery_state = 0
            places = [node.directory_id if one == node.node_id else UNASSIGNED for one in partition.replicas]
            if partition.directories and partition.directories != places and len(partition.replicas) == 1:
                change.directories = places
            records.append(change)
    return records


def fencing_records(node: Node, broker_epoch: int) -> list[Message]:
    """Builds the record that fences a broker. The broker writes this record when it shuts down cleanly."""
    return [BrokerRegistrationChangeRecord(broker_id=node.node_id, broker_epoch=broker_epoch, fenced=1)]
