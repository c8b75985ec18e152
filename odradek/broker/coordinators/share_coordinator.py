"""The share coordinator: all `__share_group_state` partitions, each a `Shard` around a `StateCore`.

Finds the shard of a share partition, loads shards at start or when the topic is created, and keeps their logs short.
Decisions are in `odradek/broker/shares/state`. Source: docs/spec/share-groups.md#s4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.coordinators.group_coordinator import java_hash
from odradek.broker.coordinators.shard import RecordFormat, Shard, ShardLog
from odradek.broker.runtime.clock import Clock, TimerHandle, Timers
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state.core import ShareCoordinatorConfig, StateCore
from odradek.broker.shares.state.records import decode_record, encode_record
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.internal_topics import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig

logger = logging.getLogger(__name__)


class StateLog(ShardLog, Protocol):
    """A partition of `__share_group_state`. Not compacted: what is not needed is deleted from its front."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def delete_before(self, offset: int) -> None:
        """Forget the records below this offset, which is not beyond the end."""


@dataclass(frozen=True, slots=True)
class ShareCoordinatorSettings:
    core: ShareCoordinatorConfig
    partition_count: int
    compression: Compression
    prune_interval_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> ShareCoordinatorSettings:
        return cls(
            core=ShareCoordinatorConfig(
                updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
                cold_snapshot_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
                marker_memory_ms=config.transaction_max_timeout_ms,
            ),
            partition_count=config.share_coordinator_state_topic_num_partitions,
            compression=Compression(config.share_coordinator_state_topic_compression_codec),
            prune_interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
        )


class ShareCoordinator:
    def __init__(
        self,
        settings: ShareCoordinatorSettings,
        clock: Clock,
        timers: Timers,
        *,
        open_log: Callable[[int], StateLog],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        topic_exists: Callable[[bytes], bool],
        partition_exists: Callable[[bytes, int], bool],
    ) -> None:
        """
        open_log          the log of one partition of `__share_group_state`; raises KafkaError if it cannot be used
        spawn             runs a coroutine beside what the loop is doing
        topic_exists      whether metadata knows a topic of this id
        partition_exists  whether it has this partition
        """
        self.settings = settings
        self._clock = clock
        self._timers = timers
        self._open_log = open_log
        self._spawn = spawn
        self._topic_exists = topic_exists
        self._partition_exists = partition_exists
        self._partition_count: int | None = None
        self._shards: dict[int, Shard[StateCore]] = {}
        self._logs: dict[int, StateLog] = {}
        self._prune_timer: TimerHandle | None = None
        self._format = RecordFormat(encode_record, decode_record, settings.compression)

    # The topic's life.

    def start(self, partition_count: int | None) -> None:
        """Begin to load, if the topic is there."""
        self._prune_timer = self._timers.after(self.settings.prune_interval_ms, self._prune_and_go_on)
        if partition_count is not None:
            self.state_topic_created(partition_count)

    def state_topic_created(self, partition_count: int) -> None:
        """Also when partitions were added to it; share partitions stay where they are until the next start."""
        if self._partition_count is None:
            self._partition_count = partition_count
        for index in range(partition_count):
            if index not in self._shards:
                self._open(index)
        self._spawn(self._load_all())

    def _open(self, index: int) -> None:
        name = f"{SHARE_GROUP_STATE}-{index}"
        try:
            log = self._open_log(index)
        except KafkaError as error:
            logger.error("%s cannot be used, its share partitions have no coordinator: %s", name, error)
            return
        new_core = partial(StateCore, self.settings.core, self._partition_exists)
        self._logs[index] = log
        self._shards[index] = Shard(name, log, new_core, self._format, self._clock, self._timers)

    async def _load_all(self) -> None:
        for shard in list(self._shards.values()):
            if not shard.has_begun_to_load:
                await shard.load()
                shard.tidy(lambda core, _: core.forget_missing_topics(self._topic_exists))

    def topic_deleted(self, topic: str, topic_id: bytes) -> None:
        """With the state topic all state is gone; with another, that of its share partitions."""
        if topic == SHARE_GROUP_STATE:
            shards, self._shards, self._logs, self._partition_count = self._shards, {}, {}, None
            for shard in shards.values():
                shard.unload()
            return
        for shard in self._shards.values():
            shard.tidy(lambda core, _: core.forget_missing_topics(lambda known: known != topic_id))

    def stop(self) -> None:
        if self._prune_timer is not None:
            self._prune_timer.cancel()
        for shard in self._shards.values():
            shard.unload()

    # Finding one's way.

    @property
    def partition_count(self) -> int:
        """Of the topic, or of the topic that will be."""
        return self._partition_count or self.settings.partition_count

    def partition_for(self, coordinator_key: str) -> int:
        """The state partition of `group:topic id:partition`; see `SharePartitionKey.coordinator_key`."""
        return java_hash(coordinator_key) % self.partition_count

    def shard_for(self, key: SharePartitionKey) -> Shard[StateCore]:
        """Raises NOT_COORDINATOR where there is no such partition, which is so before the topic is created."""
        return self.shard_of(self.partition_for(key.coordinator_key))

    def shard_of(self, index: int) -> Shard[StateCore]:
        """Raises NOT_COORDINATOR where there is no such partition."""
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return shard

    def staged_count(self) -> int:
        """Offsets whose acknowledgement is staged in a transaction. Raises KafkaError while any partition is not
        loaded."""
        return sum(shard.look(lambda core: core.staged_count) for shard in self._shards.values())

    # What happens by itself.

    def prune(self) -> None:
        """Delete the records that later snapshots repeat. What was not written for long is written out again first,
        so that it does not hold up the others."""
        for index, shard in self._shards.items():
            if shard.is_loaded:
                self._prune(shard, self._logs[index])

    def _prune(self, shard: Shard[StateCore], log: StateLog) -> None:
        shard.look(lambda core: core.forget_old_markers(self._clock.now_ms()))
        shard.tidy(lambda core, now_ms: core.snapshot_cold(log.end_offset, now_ms))
        needed_from = shard.look(lambda core: core.needed_from(log.end_offset))
        if needed_from <= log.start_offset:
            return

        def delete(failure: KafkaError | None) -> None:
            if failure is None:
                log.delete_before(needed_from)

        log.when_durable(delete, must_sync=True)  # a power failure must not take what makes the others needless

    def _prune_and_go_on(self) -> None:
        self.prune()
        self._prune_timer = self._timers.after(self.settings.prune_interval_ms, self._prune_and_go_on)
