"""The group coordinator: all `__consumer_offsets` partitions, each a `Shard` around a `GroupCore`.

Finds the shard of a group, loads shards at start and when the topic is created, triggers expiry, and forgets the
offsets of deleted topics. Decisions are in `odradek/broker/groups`.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.coordinators.shard import Shard
from odradek.broker.coordinators.shard_records import RecordFormat, ShardLog
from odradek.broker.coordinators.shards import Scans, Shards
from odradek.broker.groups.common.group import TimerKey, TimerKind
from odradek.broker.groups.common.outcome import ConsumerConfig, GroupConfig, MigrationPolicy, ShareConfig
from odradek.broker.groups.common.registry import ClusterView
from odradek.broker.groups.core import GroupCore
from odradek.broker.groups.records import decode_record, encode_record
from odradek.broker.runtime.clock import Clock, Timers
from odradek.broker.runtime.uuids import hex_text
from odradek.protocol.compression import Compression
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.topic_partition import GROUP_OFFSETS

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """Settings with which `__consumer_offsets` is made when it is first needed."""

    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    groups: GroupConfig
    topic: OffsetsTopic
    compression: Compression
    offsets_retention_check_interval_ms: int

    @classmethod
    def of(cls, config: BrokerConfig, rules: KafkaRules = NEWEST) -> CoordinatorSettings:
        return cls(
            groups=GroupConfig(
                group_min_session_timeout_ms=config.group_min_session_timeout_ms,
                group_max_session_timeout_ms=config.group_max_session_timeout_ms,
                group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                group_max_size=config.group_max_size,
                offset_metadata_max_bytes=config.offset_metadata_max_bytes,
                offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
                rules=rules,
                consumer=ConsumerConfig(
                    assignors=config.group_consumer_assignors,
                    max_size=config.group_consumer_max_size,
                    migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
                    regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
                ),
                share=ShareConfig(
                    max_size=config.group_share_max_size,
                    initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
                ),
            ),
            topic=OffsetsTopic(
                partition_count=config.offsets_topic_num_partitions,
                replication_factor=config.offsets_topic_replication_factor,
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            ),
            compression=Compression(config.offsets_topic_compression_codec),
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        )


def _nobody(group_id: str) -> None:
    """No group waits for the topics of its regular expressions."""


class GroupCoordinator:
    def __init__(
        self,
        settings: CoordinatorSettings,
        clock: Clock,
        timers: Timers,
        *,
        open_log: Callable[[int], ShardLog],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        new_uuid: Callable[[], bytes],
        cluster: ClusterView,
        member_id: Callable[[str], str] = str,
        first_epoch: Callable[[], int] = int,
    ) -> None:
        """
        open_log      the log of one partition of `__consumer_offsets`; raises KafkaError if it cannot be used
        spawn         runs a coroutine beside what the loop is doing
        new_uuid      for the random part of a member id
        cluster       topics and the groups' own settings
        member_id     gets the id that a new member would have, and returns the one that it has
        first_epoch   gives what is added to the first epoch, or generation, of a new group
        """
        self.settings = settings
        self._new_uuid = new_uuid
        self._member_id = member_id
        self._cluster = cluster
        cluster.when_found(self._topics_found)
        self._scans = Scans(timers)
        record_format = RecordFormat(encode_record, decode_record, settings.compression)
        new_core = partial(GroupCore, settings.groups, cluster, first_epoch)
        self.shards: Shards[GroupCore, ShardLog] = Shards(
            GROUP_OFFSETS,
            keys="groups",
            usual_partition_count=settings.topic.partition_count,
            open_log=open_log,
            new_shard=lambda _, name, log: Shard(name, log, new_core, record_format, clock, timers),
            spawn=spawn,
            # A crash between a topic's deletion and that of its offsets would leave them to its namesake.
            loaded=lambda shard: shard.tidy(lambda core, _: core.forget_missing_topics(self._topic_exists)),
        )

    # The topic's life.

    def start(self, partition_count: int | None) -> None:
        """Begin to load, if the topic is there. A partition that is not loaded says COORDINATOR_LOAD_IN_PROGRESS."""
        self._scans.every(
            self.settings.offsets_retention_check_interval_ms,
            self._expire,
            lambda: self.shards.earliest(lambda core: core.expires_ms()),
        )
        if partition_count is not None:
            self.shards.open(partition_count)

    def offsets_topic_created(self, partition_count: int) -> None:
        """Opens its partitions; also when some were added to it."""
        self.shards.open(partition_count)

    def offsets_topic_deleted(self) -> None:
        """Drops all groups, whose offsets are gone."""
        self.shards.delete()

    def stop(self) -> None:
        """Waiting requests are told to look for another coordinator."""
        self._scans.stop()
        self.shards.unload()
        self._cluster.when_found(_nobody)  # a reference to this object would make a cycle

    def _topic_exists(self, topic_id: bytes) -> bool:
        return self._cluster.topic_of_id(topic_id) is not None

    # Finding one's way.

    @property
    def partition_count(self) -> int:
        """Partitions of the topic, or of the topic that will be."""
        return self.shards.partition_count

    def partition_for(self, group_id: str) -> int:
        return self.shards.partition_for(group_id)

    def shard_for(self, group_id: str) -> Shard[GroupCore]:
        """Raises NOT_COORDINATOR where there is no such partition, which is so before the topic is made."""
        return self.shards.of_key(group_id)

    def require_loaded(self, partition: int) -> None:
        """Raises KafkaError unless the groups of this partition of `__consumer_offsets` are served here and now."""
        self.shards.of_partition(partition).look(lambda _: None)

    def complete_transaction(self, partition: int, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """A marker was appended to this partition of `__consumer_offsets`. Raises KafkaError if it is not loaded."""
        self.shards.of_partition(partition).complete_transaction(producer_id, producer_epoch, committed=committed)

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        name = client_id if group_instance_id is None else group_instance_id
        return self._member_id(f"{name}-{hex_text(self._new_uuid())}")

    def plain_member_id(self) -> str:
        """Makes an id for a member of a consumer group that brings none."""
        return self._member_id(urlsafe_b64encode(self._new_uuid())[:-2].decode("ascii"))

    # What happens by itself.

    def topic_deleted(self, topic: str, topic_id: bytes) -> None:
        """No group keeps offsets of a topic that is gone."""
        if topic == GROUP_OFFSETS:
            self.offsets_topic_deleted()
            return
        for shard in self.shards:
            shard.tidy(lambda core, _: core.forget_topic(topic, topic_id))

    def _topics_found(self, group_id: str) -> None:
        """The search for the topics of a group's regular expressions has ended, so the group can resolve them."""
        shard = self.shard_for(group_id)
        if shard.is_loaded:
            shard.fire_soon(TimerKey(TimerKind.REGEX, group_id))

    def _expire(self) -> None:
        for shard in self.shards:
            shard.tidy(lambda core, now_ms: core.expire(now_ms))
