"""The group coordinator. It consists of all partitions of `__consumer_offsets`, each a `Shard` with a `GroupCore`.

This module finds a group's shard, loads shards at startup and when the topic is created, triggers expiry, and removes
the offsets of deleted topics. Decisions are made in `odradek/broker/groups`.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.coordinators.shard import Shard
from odradek.broker.coordinators.shard_records import RecordFormat, ShardLog
from odradek.broker.coordinators.shards import Scans, Shards
from odradek.broker.groups.common.group import TimerKey, TimerKind
from odradek.broker.groups.common.outcome import (
    ConsumerConfig,
    GroupConfig,
    MigrationPolicy,
    ShareConfig,
    StreamsConfig,
)
from odradek.broker.groups.common.registry import ClusterView, half_of
from odradek.broker.groups.core import GroupCore
from odradek.broker.groups.records import decode_record, encode_record
from odradek.broker.runtime.clock import Clock, Timers
from odradek.broker.runtime.uuids import hex_text
from odradek.protocol.compression import Compression
from odradek.protocol.errors import KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.topic_partition import GROUP_OFFSETS

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.groups.streams.target import ComputedTarget

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """The settings of the topic `__consumer_offsets`, used when the topic is created on first use."""

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
                streams=StreamsConfig(
                    max_size=config.group_streams_max_size,
                    keeps_descriptions=config.group_streams_topology_description_plugin_class is not None,
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


def _ignore_end(group_id: str, result: object = None) -> None:
    """Does nothing when a topic search or a computation finishes. Replaces the real callback once the coordinator has
    stopped."""


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
        random_below: Callable[[int], int] = half_of,
    ) -> None:
        """Creates a coordinator without partitions.

        open_log      opens the log of a partition of `__consumer_offsets`; raises KafkaError if the log is unusable
        spawn         runs a coroutine as a task on the loop
        new_uuid      creates the random part of a member id
        cluster       provides topics and the settings of groups
        member_id     receives the generated id of a new member, and returns the id to use
        first_epoch   returns a number to add to the first epoch, or generation, of a new group
        random_below  returns a random number below its argument
        """
        self.settings = settings
        self._new_uuid = new_uuid
        self._member_id = member_id
        self._cluster = cluster
        cluster.when_found(self._topics_found)
        cluster.when_computed(self._target_computed)
        self._scans = Scans(timers)
        record_format = RecordFormat(encode_record, decode_record, settings.compression)
        new_core = partial(GroupCore, settings.groups, cluster, first_epoch, random_below)
        self.shards: Shards[GroupCore, ShardLog] = Shards(
            GROUP_OFFSETS,
            keys="groups",
            usual_partition_count=settings.topic.partition_count,
            open_log=open_log,
            new_shard=lambda _, name, log: Shard(name, log, new_core, record_format, clock, timers),
            spawn=spawn,
            # If the broker crashed after deleting a topic but before deleting its offsets, a new topic with the same
            # name must not inherit the offsets.
            loaded=lambda shard: shard.submit_maintenance(
                lambda core, _: core.forget_missing_topics(self._topic_exists)
            ),
        )

    # The life cycle of the topic.

    def start(self, partition_count: int | None) -> None:
        """Starts loading if the topic exists. Until a partition is loaded, its requests fail with
        COORDINATOR_LOAD_IN_PROGRESS."""
        self._scans.repeat(
            self.settings.offsets_retention_check_interval_ms,
            self._expire,
            lambda: self.shards.earliest(lambda core: core.expires_ms()),
        )
        if partition_count is not None:
            self.shards.open(partition_count)

    def offsets_topic_created(self, partition_count: int) -> None:
        """Opens the topic's partitions. Also called after partitions have been added."""
        self.shards.open(partition_count)

    def offsets_topic_deleted(self) -> None:
        """Drops all groups after the topic has been deleted."""
        self.shards.delete()

    def stop(self) -> None:
        """Stops the coordinator. Waiting requests fail with NOT_COORDINATOR."""
        self._scans.stop()
        self.shards.unload()
        # The searches and computations must no longer refer to this object, so that it can be freed without the garbage
        # collector.
        self._cluster.when_found(_ignore_end)
        self._cluster.when_computed(_ignore_end)

    def _topic_exists(self, topic_id: bytes) -> bool:
        return self._cluster.topic_of_id(topic_id) is not None

    # Finding shards.

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic, or the configured number if the topic does not exist yet."""
        return self.shards.partition_count

    def partition_for(self, group_id: str) -> int:
        return self.shards.partition_for(group_id)

    def shard_for(self, group_id: str) -> Shard[GroupCore]:
        """Returns a group's shard. Raises NOT_COORDINATOR if the group has no shard, for instance because the topic
        does not exist."""
        return self.shards.of_key(group_id)

    def require_loaded(self, partition: int) -> None:
        """Raises KafkaError unless this broker has loaded the groups in this partition of `__consumer_offsets`."""
        self.shards.of_partition(partition).read_state(lambda _: None)

    def complete_transaction(self, partition: int, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Applies a marker that has been appended to this partition of `__consumer_offsets`. Raises KafkaError if the
        partition is not loaded."""
        self.shards.of_partition(partition).complete_transaction(producer_id, producer_epoch, committed=committed)

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        name = client_id if group_instance_id is None else group_instance_id
        return self._member_id(f"{name}-{hex_text(self._new_uuid())}")

    def plain_member_id(self) -> str:
        """Creates the member id for a consumer-group member that joins without one."""
        return self._member_id(urlsafe_b64encode(self._new_uuid())[:-2].decode("ascii"))

    # Background work.

    def topic_deleted(self, topic: str, topic_id: bytes) -> None:
        """Removes the offsets of a deleted topic from all groups."""
        if topic == GROUP_OFFSETS:
            self.offsets_topic_deleted()
            return
        for shard in self.shards:
            shard.submit_maintenance(lambda core, _: core.forget_topic(topic, topic_id))

    def _topics_found(self, group_id: str) -> None:
        """Called when the search for topics that match a group's regular expressions has finished. Fires the group's
        timer so that the group uses the result, unless its partition has been unloaded or deleted in the meantime."""
        with suppress(KafkaError):
            shard = self.shard_for(group_id)
            if shard.is_loaded:
                shard.fire_soon(TimerKey(TimerKind.REGEX, group_id))
                return
        self._cluster.forget_search(group_id)

    def _target_computed(self, group_id: str, computed: ComputedTarget) -> None:
        """Called when the computation of a large group's target has finished. Records the result if the group can still
        use it."""
        with suppress(KafkaError):  # The topic, and with it all groups, may have been deleted.
            self.shard_for(group_id).submit_maintenance(
                lambda core, now_ms: core.target_computed(group_id, computed, now_ms)
            )

    def _expire(self) -> None:
        for shard in self.shards:
            shard.submit_maintenance(lambda core, now_ms: core.expire(now_ms))
