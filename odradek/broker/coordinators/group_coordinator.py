"""The group coordinator: all `__consumer_offsets` partitions, each a `Shard` around a `GroupCore`.

Finds the shard of a group, loads shards at start and when the topic is created, triggers expiry, and forgets the
offsets of deleted topics. Decisions are in `odradek/broker/groups`.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from odradek.broker.coordinators.shard import RecordFormat, Shard, ShardLog
from odradek.broker.groups.cluster import ClusterView
from odradek.broker.groups.consumer.config import ConsumerConfig, MigrationPolicy
from odradek.broker.groups.core import GroupCore
from odradek.broker.groups.outcome import GroupConfig
from odradek.broker.groups.records import decode_record, encode_record
from odradek.broker.groups.share.config import ShareConfig
from odradek.broker.runtime.clock import Clock, TimerHandle, Timers
from odradek.broker.runtime.uuids import hex_text
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.internal_topics import GROUP_OFFSETS

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig

logger = logging.getLogger(__name__)

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """What `__consumer_offsets` is made with when it is first needed."""

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
    def of(cls, config: BrokerConfig) -> CoordinatorSettings:
        return cls(
            groups=GroupConfig(
                group_min_session_timeout_ms=config.group_min_session_timeout_ms,
                group_max_session_timeout_ms=config.group_max_session_timeout_ms,
                group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                group_max_size=config.group_max_size,
                offset_metadata_max_bytes=config.offset_metadata_max_bytes,
                offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
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
    ) -> None:
        """
        open_log      the log of one partition of `__consumer_offsets`; raises KafkaError if it cannot be used
        spawn         runs a coroutine beside what the loop is doing
        new_uuid      for the random part of a member id
        cluster       topics and the groups' own settings
        """
        self.settings = settings
        self._clock = clock
        self._timers = timers
        self._open_log = open_log
        self._spawn = spawn
        self._new_uuid = new_uuid
        self._cluster = cluster
        self._partition_count: int | None = None
        self._shards: dict[int, Shard[GroupCore]] = {}
        self._expiry_timer: TimerHandle | None = None
        self._format = RecordFormat(encode_record, decode_record, settings.compression)

    # The topic's life.

    def start(self, partition_count: int | None) -> None:
        """Begin to load, if the topic is there. A partition that is not loaded says COORDINATOR_LOAD_IN_PROGRESS."""
        self._expiry_timer = self._timers.after(self.settings.offsets_retention_check_interval_ms, self._expire)
        if partition_count is not None:
            self.offsets_topic_created(partition_count)

    def offsets_topic_created(self, partition_count: int) -> None:
        """Also when partitions were added to it. As in Kafka, groups stay where they are until the next start, which
        then looks for them elsewhere: it is nothing that should be done."""
        if self._partition_count is None:
            self._partition_count = partition_count
        for index in range(partition_count):
            if index not in self._shards:
                self._open(index)
        self._spawn(self._load_all())

    def _open(self, index: int) -> None:
        name = f"{GROUP_OFFSETS}-{index}"
        try:
            log = self._open_log(index)
        except KafkaError as error:
            logger.error("%s cannot be used, its groups have no coordinator: %s", name, error)
            return
        new_core = partial(GroupCore, self.settings.groups, self._cluster)
        self._shards[index] = Shard(name, log, new_core, self._format, self._clock, self._timers)

    def offsets_topic_deleted(self) -> None:
        """Its offsets are gone, and the groups with them."""
        shards, self._shards, self._partition_count = self._shards, {}, None
        for shard in shards.values():
            shard.unload()

    def stop(self) -> None:
        """Waiting requests are told to look for another coordinator: there may be one after the restart."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for shard in self._shards.values():
            shard.unload()

    async def _load_all(self) -> None:
        # One after the other: loading is work for the loop, and a loaded partition serves while the next one loads.
        for shard in list(self._shards.values()):
            if not shard.has_begun_to_load:
                await shard.load()
                # A crash between a topic's deletion and that of its offsets would leave them to its namesake.
                shard.tidy(lambda core, _: core.forget_missing_topics(self._topic_exists))

    def _topic_exists(self, topic_id: bytes) -> bool:
        return self._cluster.topic_of_id(topic_id) is not None

    # Finding one's way.

    @property
    def partition_count(self) -> int:
        """Of the topic, or of the topic that will be."""
        return self._partition_count or self.settings.topic.partition_count

    def partition_for(self, group_id: str) -> int:
        return java_hash(group_id) % self.partition_count

    def shard_for(self, group_id: str) -> Shard[GroupCore]:
        """Raises NOT_COORDINATOR where there is no such partition, which is so before the topic is made."""
        shard = self._shards.get(self.partition_for(group_id))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return shard

    def require_loaded(self, partition: int) -> None:
        """Raises KafkaError unless the groups of this partition of `__consumer_offsets` are served here and now."""
        shard = self._shards.get(partition)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard.look(lambda _: None)

    def complete_transaction(self, partition: int, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """A marker was appended to this partition of `__consumer_offsets`. Raises KafkaError if it is not loaded."""
        shard = self._shards.get(partition)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard.complete_transaction(producer_id, producer_epoch, committed=committed)

    @property
    def shards(self) -> list[Shard[GroupCore]]:
        return list(self._shards.values())

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        return f"{client_id if group_instance_id is None else group_instance_id}-{hex_text(self._new_uuid())}"

    def plain_member_id(self) -> str:
        """For a member of a consumer group that brings none."""
        return urlsafe_b64encode(self._new_uuid())[:-2].decode("ascii")

    # What happens by itself.

    def topic_deleted(self, topic: str, topic_id: bytes) -> None:
        """No group keeps offsets of a topic that is gone."""
        if topic == GROUP_OFFSETS:
            self.offsets_topic_deleted()
            return
        for shard in self._shards.values():
            shard.tidy(lambda core, _: core.forget_topic(topic, topic_id))

    def _expire(self) -> None:
        for shard in self._shards.values():
            shard.tidy(lambda core, now_ms: core.expire(now_ms))
        self._expiry_timer = self._timers.after(self.settings.offsets_retention_check_interval_ms, self._expire)


@lru_cache(4096)
def java_hash(text: str) -> int:
    """`Utils.abs(text.hashCode())` of Kafka's clients and brokers: 31-based over UTF-16 units, 32 bits, no sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = 0x100000000 - value
    return 0 if value == 0x80000000 else value
