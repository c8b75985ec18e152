"""The state of the cluster according to the metadata log: topics, partitions, configs, features, brokers, producer ids.

Only `replay` changes a `MetadataImage`, one record at a time, both at startup and while the broker is running. Records
that this broker does not use, such as controller registrations, are ignored but remain in the log. Source: Kafka
4.3.1's record schemas and its brokers' responses for the recorded directories (served.json).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.metadata.supported_features import (
    METADATA_VERSION,
    SHARE_VERSION,
    SHARE_VERSION_DEAD_LETTERS,
    serves_share_transactions,
)
from odradek.broker.metadata.topic_names import collision_key
from odradek.broker.security.acl.acls import Acls
from odradek.broker.security.quotas.entities import ClientQuotasImage
from odradek.broker.security.sasl.credentials import ScramCredentials
from odradek.broker.security.tokens.image import DelegationTokens
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
    from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
    from odradek.protocol.messages.client_quota_record import ClientQuotaRecord
    from odradek.protocol.messages.config_record import ConfigRecord
    from odradek.protocol.messages.delegation_token_record import DelegationTokenRecord
    from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
    from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
    from odradek.protocol.messages.partition_record import PartitionRecord
    from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
    from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
    from odradek.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
    from odradek.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
    from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
    from odradek.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
    from odradek.protocol.messages.topic_record import TopicRecord
    from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
    from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

LEADER_UNCHANGED: Final = -2  # value of PartitionChangeRecord.leader if the leader does not change
NO_LEADER: Final = -1


ConfigResource = tuple[ConfigResourceType, str]
DEFAULT_BROKER: Final[ConfigResource] = (ConfigResourceType.BROKER, "")  # cluster-wide defaults of broker settings


class Node(NamedTuple):
    """Identifies this broker as a holder of replicas. `other_ids` contains the ids of other nodes that share this
    node's metadata log."""

    node_id: int
    directory_id: bytes
    other_ids: tuple[int, ...] = ()


NOBODY: Final[list[int]] = []  # shared by all partitions without eligible leader replicas, to save memory


@dataclass(slots=True)
class PartitionImage:
    """The state of a partition. `leader` is None if the partition has no leader. The lists are never modified, only
    replaced."""

    partition_id: int
    leader: int | None
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    isr: list[int]
    directories: list[bytes]
    eligible_leader_replicas: list[int] = field(default_factory=list)
    last_known_elr: list[int] = field(default_factory=list)
    leader_is_recovering: bool = False  # set after an unclean election


@dataclass(slots=True)
class TopicImage:
    """The state of a topic. `partitions[n].partition_id` is n."""

    name: str
    topic_id: bytes
    partitions: list[PartitionImage] = field(default_factory=list)


@dataclass(slots=True)
class BrokerImage:
    """A broker registration. `endpoints` maps listener names to (host, port)."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: dict[str, tuple[str, int]]
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool = False
    directories: list[bytes] = field(default_factory=list)


class MetadataImage:
    """The state that results from all records replayed so far.

    acknowledges_in_transactions  whether TxnShareAcknowledge is served and listed (docs/spec/share-groups.md#s5-2)
    has_dead_letter_queues        whether share groups copy rejected records to their dead-letter topics (KIP-1191)

    Both attributes are derived from the feature levels.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.names_by_collision_key: dict[str, str] = {}  # topic names by `collision_key`, to detect names that collide
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.features: dict[str, int] = {}  # finalised levels; a missing feature has level 0
        self.acknowledges_in_transactions = False
        self.has_dead_letter_queues = False
        self.brokers: dict[int, BrokerImage] = {}
        self.client_quotas = ClientQuotasImage()
        self.acls = Acls()
        self.scram_credentials = ScramCredentials()
        self.delegation_tokens = DelegationTokens()
        self.next_producer_id = 0
        self.topics_version = 0  # increases when topics are created or deleted, or partitions are added
        self.next_offset = 0  # offset after the last replayed record of the metadata log

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, 0)

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Returns the topic's own settings."""
        return self.configs.get((ConfigResourceType.TOPIC, topic), {})

    def has_partition(self, topic_partition: tuple[str, int]) -> bool:
        topic = self.topics.get(topic_partition[0])
        return topic is not None and 0 <= topic_partition[1] < len(topic.partitions)

    def has_partition_of_id(self, topic_id: bytes, partition: int) -> bool:
        topic = self.topics_by_id.get(topic_id)
        return topic is not None and 0 <= partition < len(topic.partitions)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def controller_for_clients(self, preferred: int) -> int:
        """Returns the id of the broker that clients see as the controller, or -1 if all brokers are fenced.

        As in Kafka, this can be any unfenced broker. If `preferred` is not fenced, the result is `preferred`. Source:
        KRaftMetadataCache.getRandomAliveBrokerId.
        """
        alive = [broker.broker_id for broker in self.brokers.values() if not broker.is_fenced]
        return preferred if preferred in alive else next(iter(alive), -1)

    def replay(self, record: Message) -> None:
        """Applies one record. Raises KeyError, IndexError or ValueError if the record contradicts earlier records or is
        invalid, which means that the log is corrupt."""
        apply = REPLAYS.get(type(record).__name__)
        if apply is not None:
            apply(self, record)

    def _topic(self, record: "TopicRecord") -> None:
        topic = TopicImage(record.name, record.topic_id)
        self.topics[record.name] = topic
        self.names_by_collision_key[collision_key(record.name)] = record.name
        self.topics_by_id[record.topic_id] = topic
        self.topics_version += 1

    def _partition(self, record: "PartitionRecord") -> None:
        partition = PartitionImage(
            record.partition_id,
            None if record.leader == NO_LEADER else record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.replicas,
            record.isr,
            record.directories,
            record.eligible_leader_replicas or NOBODY,
            record.last_known_elr or NOBODY,
            record.leader_recovery_state == 1,
        )
        partitions = self.topics_by_id[record.topic_id].partitions
        if record.partition_id == len(partitions):
            partitions.append(partition)
            self.topics_version += 1
        else:
            partitions[record.partition_id] = partition

    def _partition_change(self, record: "PartitionChangeRecord") -> None:
        partition = self.topics_by_id[record.topic_id].partitions[record.partition_id]
        if record.isr is not None:
            partition.isr = record.isr
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.directories is not None:
            partition.directories = record.directories
        if record.eligible_leader_replicas is not None:
            partition.eligible_leader_replicas = record.eligible_leader_replicas
        if record.last_known_elr is not None:
            partition.last_known_elr = record.last_known_elr
        if record.leader_recovery_state != -1:
            partition.leader_is_recovering = record.leader_recovery_state == 1
        if record.leader != LEADER_UNCHANGED:
            partition.leader = None if record.leader == NO_LEADER else record.leader
            partition.leader_epoch += 1
        partition.partition_epoch += 1

    def _remove_topic(self, record: "RemoveTopicRecord") -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        self.names_by_collision_key.pop(collision_key(topic.name), None)
        self.topics_version += 1
        self.configs.pop((ConfigResourceType.TOPIC, topic.name), None)

    def _config(self, record: "ConfigRecord") -> None:
        resource = (ConfigResourceType(record.resource_type), record.resource_name)
        settings = self.configs.setdefault(resource, {})
        if record.value is not None:
            settings[record.name] = record.value
            return
        settings.pop(record.name, None)
        if not settings:
            del self.configs[resource]

    def _feature_level(self, record: "FeatureLevelRecord") -> None:
        if record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level
        self.acknowledges_in_transactions = serves_share_transactions(self.features)
        self.has_dead_letter_queues = self.features.get(SHARE_VERSION, 0) >= SHARE_VERSION_DEAD_LETTERS

    def _register_broker(self, record: "RegisterBrokerRecord") -> None:
        self.brokers[record.broker_id] = BrokerImage(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            {endpoint.name: (endpoint.host, endpoint.port) for endpoint in record.end_points},
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            record.log_dirs,
        )

    def _broker_change(self, record: "BrokerRegistrationChangeRecord") -> None:
        broker = self.brokers[record.broker_id]
        if record.fenced != 0:
            broker.is_fenced = record.fenced == 1
        if record.in_controlled_shutdown != 0:
            broker.in_controlled_shutdown = record.in_controlled_shutdown == 1
        if record.log_dirs:
            broker.directories = record.log_dirs

    def _unregister_broker(self, record: "UnregisterBrokerRecord") -> None:
        del self.brokers[record.broker_id]

    def _producer_ids(self, record: "ProducerIdsRecord") -> None:
        self.next_producer_id = record.next_producer_id

    def _client_quota(self, record: "ClientQuotaRecord") -> None:
        self.client_quotas.replay(record)

    def _acl(self, record: "AccessControlEntryRecord") -> None:
        self.acls.replay(record)

    def _remove_acl(self, record: "RemoveAccessControlEntryRecord") -> None:
        self.acls.remove(record.id)

    def _scram_credential(self, record: "UserScramCredentialRecord") -> None:
        self.scram_credentials.replay(record)

    def _remove_scram_credential(self, record: "RemoveUserScramCredentialRecord") -> None:
        self.scram_credentials.replay_removal(record)

    def _delegation_token(self, record: "DelegationTokenRecord") -> None:
        self.delegation_tokens.replay(record)

    def _remove_delegation_token(self, record: "RemoveDelegationTokenRecord") -> None:
        self.delegation_tokens.replay_removal(record)

    def _clear_elr(self, record: Any) -> None:
        topics = [self.topics[record.topic_name]] if record.topic_name else list(self.topics.values())
        for topic in topics:
            for partition in topic.partitions:
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    partition.eligible_leader_replicas, partition.last_known_elr = [], []
                    partition.partition_epoch += 1


# Maps the name of each record class to its replay function. Names are used so that a record class is imported only when
# a record of this class is read or written.
REPLAYS: Final[Mapping[str, Callable[[MetadataImage, Any], None]]] = {
    "TopicRecord": MetadataImage._topic,
    "PartitionRecord": MetadataImage._partition,
    "PartitionChangeRecord": MetadataImage._partition_change,
    "RemoveTopicRecord": MetadataImage._remove_topic,
    "ConfigRecord": MetadataImage._config,
    "FeatureLevelRecord": MetadataImage._feature_level,
    "RegisterBrokerRecord": MetadataImage._register_broker,
    "BrokerRegistrationChangeRecord": MetadataImage._broker_change,
    "UnregisterBrokerRecord": MetadataImage._unregister_broker,
    "ProducerIdsRecord": MetadataImage._producer_ids,
    "ClientQuotaRecord": MetadataImage._client_quota,
    "AccessControlEntryRecord": MetadataImage._acl,
    "RemoveAccessControlEntryRecord": MetadataImage._remove_acl,
    "UserScramCredentialRecord": MetadataImage._scram_credential,
    "RemoveUserScramCredentialRecord": MetadataImage._remove_scram_credential,
    "DelegationTokenRecord": MetadataImage._delegation_token,
    "RemoveDelegationTokenRecord": MetadataImage._remove_delegation_token,
    "ClearElrRecord": MetadataImage._clear_elr,
}
