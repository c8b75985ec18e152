"""The share coordinator. It consists of all partitions of `__share_group_state`, each a `Shard` with a `StateCore`.

This module finds a share partition's shard, loads shards at startup and when the topic is created, and keeps the logs
short. Decisions are made in `odradek/broker/shares/core`. Leaders and the group coordinator call the share coordinator
through a `Persister`, whose methods correspond to the requests with API keys 83 to 87, so the coordinator could run on
another broker. Source: docs/spec/share-groups.md#s4.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from odradek.broker.coordinators.shard import Shard
from odradek.broker.coordinators.shard_records import RecordFormat, ShardLog
from odradek.broker.coordinators.shards import Scans, Shards
from odradek.broker.runtime.clock import Clock, Timers, earliest
from odradek.broker.runtime.waiting import Deferred, sleep, start_deferred, wait_for_all, wait_for_answer
from odradek.broker.shares.core.records import decode_record, encode_record
from odradek.broker.shares.core.state import (
    Outcome,
    PendingCount,
    SharePartitionKey,
    StateSummary,
    StoredState,
    coordinator_key,
)
from odradek.broker.shares.core.state_core import ShareCoordinatorConfig, StateCore
from odradek.broker.transactions.producers import Seals
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.topic_partition import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.shares.core.in_flight import StateWrite


class StateLog(ShardLog, Protocol):
    """The log of a partition of `__share_group_state`. The log is not compacted. Instead, records that are no longer
    needed are deleted from its start."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def delete_before(self, offset: int) -> None:
        """Deletes the records below this offset, which must not be beyond the end of the log."""


@dataclass(frozen=True, slots=True)
class ShareCoordinatorSettings:
    core: ShareCoordinatorConfig
    partition_count: int
    compression: Compression
    prune_interval_ms: int

    @classmethod
    def of(cls, config: BrokerConfig, rules: KafkaRules = NEWEST) -> ShareCoordinatorSettings:
        return cls(
            core=ShareCoordinatorConfig(
                updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
                cold_snapshot_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
                marker_memory_ms=config.transaction_max_timeout_ms,
                rules=rules,
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
        seals: Seals | None = None,
    ) -> None:
        """Creates a coordinator without partitions.

        open_log          opens the log of a partition of `__share_group_state`; raises KafkaError if the log is
                          unusable
        spawn             runs a coroutine as a task on the loop
        topic_exists      returns whether the metadata contains a topic with this id
        partition_exists  returns whether the metadata contains a partition, given its topic id and index
        seals             the transactions that accept no more pending acknowledgements
        """
        self.settings = settings
        self._clock = clock
        self._scans = Scans(timers)
        self._logs: dict[int, StateLog] = {}
        record_format = RecordFormat(encode_record, decode_record, settings.compression)
        check_seal = (Seals() if seals is None else seals).check
        new_core = partial(StateCore, settings.core, partition_exists, check_seal)

        def new_shard(index: int, name: str, log: StateLog) -> Shard[StateCore]:
            self._logs[index] = log
            return Shard(name, log, new_core, record_format, clock, timers)

        self.shards: Shards[StateCore, StateLog] = Shards(
            SHARE_GROUP_STATE,
            keys="share partitions",
            usual_partition_count=settings.partition_count,
            open_log=open_log,
            new_shard=new_shard,
            spawn=spawn,
            loaded=lambda shard: shard.submit_maintenance(lambda core, _: core.forget_missing_topics(topic_exists)),
        )

    # The life cycle of the topic.

    def start(self, partition_count: int | None) -> None:
        """Starts loading if the topic exists."""
        self._scans.repeat(self.settings.prune_interval_ms, self.prune, self._prunes_ms)
        if partition_count is not None:
            self.shards.open(partition_count)

    def state_topic_created(self, partition_count: int) -> None:
        """Opens the topic's partitions. Also called after partitions have been added."""
        self.shards.open(partition_count)

    def topic_deleted(self, topic: str, topic_id: bytes) -> None:
        """Drops all state if the deleted topic is the state topic. Otherwise drops the state of the deleted topic's
        share partitions."""
        if topic == SHARE_GROUP_STATE:
            self.shards.delete()
            self._logs.clear()
            return
        for shard in self.shards:
            shard.submit_maintenance(lambda core, _: core.forget_missing_topics(lambda known: known != topic_id))

    def stop(self) -> None:
        self._scans.stop()
        self.shards.unload()

    # Finding shards.

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic, or the configured number if the topic does not exist yet."""
        return self.shards.partition_count

    def partition_for(self, key: SharePartitionKey) -> int:
        """Returns the partition of `__share_group_state` that holds the state of a share partition."""
        return self.shards.partition_for(coordinator_key(key))

    def shard_for(self, key: SharePartitionKey) -> Shard[StateCore]:
        """Returns a share partition's shard. Raises NOT_COORDINATOR if the share partition has no shard, for instance
        because the topic does not exist."""
        return self.shards.of_key(coordinator_key(key))

    def shard_of(self, index: int) -> Shard[StateCore]:
        """Returns the shard for a partition. Raises NOT_COORDINATOR if the partition does not exist."""
        return self.shards.of_partition(index)

    def pending_count(self) -> int:
        """Returns the number of records whose acknowledgement is pending in a transaction. Raises KafkaError unless all
        partitions are loaded."""
        return sum(shard.read_state(lambda core: core.pending_count) for shard in self.shards)

    def pending_in(self, key: SharePartitionKey) -> Sequence[PendingCount]:
        """Returns, for each transaction, the number of records of a share partition whose acknowledgement is pending in
        the transaction. Raises KafkaError unless the partition's state is loaded."""
        return self.shard_for(key).read_state(lambda core: core.pending_in(key))

    def pending_of(self, producer_id: int) -> list[PendingCount]:
        """Returns, for each share partition, the number of records whose acknowledgement is pending in the producer's
        transactions. Raises KafkaError unless all partitions are loaded."""
        return [each for shard in self.shards for each in shard.read_state(lambda core: core.pending_of(producer_id))]

    def repeat_markers(self) -> None:
        """Records the effects of transaction markers as ordinary records, for readers that do not understand markers
        (ADR 21). Called before a clean stop."""
        for shard in self.shards:
            shard.submit_maintenance(lambda core, now_ms: core.repeat_markers(now_ms))

    async def repeat_markers_durably(self) -> None:
        """Like `repeat_markers`, but waits until the written records and all earlier records would survive a power
        failure. Raises KafkaError if a record cannot be written."""
        answers = [
            shard.submit(lambda core, now_ms: core.repeat_markers(now_ms)._replace(must_sync=True))
            for shard in self.shards
        ]
        for answer in await wait_for_all(answers):
            if isinstance(answer, KafkaError):
                raise answer

    # Background work.

    def prune(self) -> None:
        """Deletes records that later snapshots have replaced. First writes a new snapshot of each share partition
        without recent records, because its old snapshot would otherwise prevent the deletion."""
        for index, shard in self.shards.items():
            if shard.is_loaded:
                self._prune(shard, self._logs[index])

    def _prunes_ms(self) -> int | None:
        return earliest(
            shard.core.prunes_ms(self._logs[index].start_offset, self._logs[index].end_offset)
            for index, shard in self.shards.items()
            if shard.is_loaded
        )

    def _prune(self, shard: Shard[StateCore], log: StateLog) -> None:
        shard.read_state(lambda core: core.forget_old_markers(self._clock.now_ms()))
        shard.submit_maintenance(lambda core, now_ms: core.snapshot_cold(log.end_offset, now_ms))
        shard.submit_maintenance(lambda core, now_ms: core.repeat_markers(now_ms))
        needed_from = shard.read_state(lambda core: core.needed_from(log.end_offset))
        if needed_from <= log.start_offset:
            return

        def delete(failure: KafkaError | None) -> None:
            if failure is None:
                log.delete_before(needed_from)

        # The records that replace the deleted records must survive a power failure.
        log.when_durable(delete, must_sync=True)


R = TypeVar("R")

FIRST_RETRY_MS: Final = 10
MAX_RETRY_MS: Final = 500
RETRIABLE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class Persister(Protocol):
    """Stores the state of share partitions. A returned Deferred may already be resolved. If a request is refused, its
    Deferred fails with a KafkaError."""

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Deferred[bool]: ...

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[StoredState]: ...

    def write(
        self, key: SharePartitionKey, state_epoch: int, leader_epoch: int, write: StateWrite, *, must_sync: bool = False
    ) -> Deferred[bool]:
        """Writes state. `must_sync` is set if acknowledgements are pending in a two-phase commit. WriteShareGroupState
        has no field for this flag, so the receiver of a request looks up the producer instead."""

    def delete(self, key: SharePartitionKey) -> Deferred[bool]: ...

    def summarize(self, key: SharePartitionKey) -> Deferred[StateSummary]: ...


class LocalPersister:
    """A persister that calls the share coordinator in this process. The first call creates the topic.

    While the coordinator is loading, calls are retried until `write_timeout_ms` has passed. After that, the calls fail
    with the coordinator's error.
    """

    def __init__(
        self,
        coordinator: Callable[[], ShareCoordinator],
        has_topic: Callable[[], bool],
        create_topic: Callable[[str], Deferred[Any]],
        clock: Clock,
        timers: Timers,
        *,
        write_timeout_ms: int,
    ) -> None:
        self._coordinator = coordinator
        self._has_topic = has_topic
        self._create_topic = create_topic
        self._clock = clock
        self._timers = timers
        self._write_timeout_ms = write_timeout_ms

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Deferred[bool]:
        return self._submit(key, lambda core, now_ms: core.initialize(key, state_epoch, start_offset, now_ms))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[StoredState]:
        return self._submit(key, lambda core, now_ms: core.read(key, leader_epoch, now_ms))

    def write(
        self, key: SharePartitionKey, state_epoch: int, leader_epoch: int, write: StateWrite, *, must_sync: bool = False
    ) -> Deferred[bool]:
        return self._submit(
            key, lambda core, now_ms: core.write(key, state_epoch, leader_epoch, write, now_ms, must_sync=must_sync)
        )

    def delete(self, key: SharePartitionKey) -> Deferred[bool]:
        return self._submit(key, lambda core, _: core.delete(key))

    def summarize(self, key: SharePartitionKey) -> Deferred[StateSummary]:
        return self._submit(key, lambda core, _: Outcome(core.summarize(key)))

    def _submit(self, key: SharePartitionKey, decide: Callable[[StateCore, int], Outcome[R]]) -> Deferred[R]:
        return start_deferred(self._decide(key, decide))

    async def _decide(self, key: SharePartitionKey, decide: Callable[[StateCore, int], Outcome[R]]) -> R:
        until_ms = self._clock.now_ms() + self._write_timeout_ms
        if not self._has_topic():
            with suppress(KafkaError):  # the call below shows whether the topic exists
                await self._create_topic(SHARE_GROUP_STATE)
        retry_ms = FIRST_RETRY_MS
        while True:
            try:
                return await wait_for_answer(self._coordinator().shard_for(key).submit(decide))
            except KafkaError as error:
                if error.code not in RETRIABLE or self._clock.now_ms() + retry_ms > until_ms:
                    raise
            await sleep(self._timers, retry_ms)
            retry_ms = min(2 * retry_ms, MAX_RETRY_MS)
