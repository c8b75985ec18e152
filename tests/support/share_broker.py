"""Share groups on a broker scene: real logs on a fake disk, the share coordinator, and members with separate
connections.

Requests and responses are encoded and decoded. The test controls time, ticks and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.coordinators.share_coordinator import LocalPersister, ShareCoordinator, ShareCoordinatorSettings
from odradek.broker.metadata.topics import NewTopic, TopicResult
from odradek.broker.runtime.waiting import Deferred
from odradek.broker.shares.core.dead_letters import QueueRules
from odradek.broker.shares.core.in_flight import StateWrite
from odradek.broker.shares.core.state import (
    SharePartitionKey,
    StateSummary,
    StoredState,
)
from odradek.broker.shares.core.state_core import ShareCoordinatorConfig
from odradek.broker.shares.leader.dead_letter_queues import DeadLetterQueues
from odradek.broker.shares.leader.group_settings import ShareGroupSettings
from odradek.broker.shares.leader.markers import ShareMarkers
from odradek.broker.shares.leader.overdue import OverdueTransactions
from odradek.broker.shares.leader.shares import SharePartitionManager
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.compression import Compression
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from odradek.storage.log import Origin
from tests.support.fake_disk import FakeDisk
from tests.support.share_member import Member
from tests.support.transaction_broker import EagerLog, TransactionBroker
from tests.support.turns import run

GROUP = "g"
STATE_PARTITIONS = 3


class FlakyPersister:
    """The real persister with faults. Each of `refusals` replaces the response to one write; `held` delays writes.

    held_reads   delays the responses to reads, after the state has been read
    held_begins  delays the responses to initialisations, after the state has been initialised
    """

    def __init__(self, persister: LocalPersister) -> None:
        self._persister = persister
        self.refusals: list[ErrorCode] = []
        self.initialize_refusals: list[ErrorCode] = []
        self.delete_refusals: list[ErrorCode] = []
        self.held: list[Callable[[], None]] | None = None
        self.held_reads: list[Callable[[], None]] | None = None
        self.held_begins: list[Callable[[], None]] | None = None
        self.writes: list[StateWrite] = []  # all writes so far, in the order they were requested

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Deferred[bool]:
        if self.initialize_refusals:
            return self._refused(self.initialize_refusals.pop(0))
        real = self._persister.initialize(key, state_epoch, start_offset)
        if self.held_begins is None:
            return real
        answer: Deferred[bool] = Deferred()
        self.held_begins.append(lambda: answer.resolve(real.outcome()))
        return answer

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[StoredState]:
        real = self._persister.read(key, leader_epoch)
        if self.held_reads is None:
            return real
        answer: Deferred[StoredState] = Deferred()
        self.held_reads.append(lambda: answer.resolve(real.outcome()))
        return answer

    def delete(self, key: SharePartitionKey) -> Deferred[bool]:
        if self.delete_refusals:
            return self._refused(self.delete_refusals.pop(0))
        return self._persister.delete(key)

    def _refused(self, code: ErrorCode) -> Deferred[bool]:
        refused: Deferred[bool] = Deferred()
        refused.fail(KafkaError(code))
        return refused

    def summarize(self, key: SharePartitionKey) -> Deferred[StateSummary]:
        return self._persister.summarize(key)

    def write(
        self, key: SharePartitionKey, state_epoch: int, leader_epoch: int, write: StateWrite, *, must_sync: bool = False
    ) -> Deferred[bool]:
        answer: Deferred[bool] = Deferred()
        self.writes.append(write)

        def ask() -> None:
            if self.refusals:
                answer.fail(KafkaError(self.refusals.pop(0)))
                return
            self._persister.write(key, state_epoch, leader_epoch, write, must_sync=must_sync).when_done(resolve_later)

        def resolve_later(real: Deferred[bool]) -> None:
            try:
                answer.resolve(real.outcome())
            except KafkaError as error:
                answer.fail(error)

        if self.held is None:
            ask()
        else:
            self.held.append(ask)
        return answer


class ShareBroker(TransactionBroker):
    """A broker with share groups. Most methods use the group GROUP. `set_group` changes its settings."""

    def __init__(self, disk: FakeDisk | None = None, **settings: Any) -> None:
        super().__init__(disk, **settings)
        self.broker.config.share_coordinator_write_timeout_ms = 5_000
        self.broker.config.group_coordinator_rebalance_protocols = ("classic", "consumer")
        self.max_sessions = 2000
        self.queue_rules = QueueRules(creates_topics=False, prefix="dlq.")
        self.create_refusals: list[KafkaError] = []  # Each error refuses the creation of one dead-letter topic.
        self.queue_partitions = 1  # number of partitions of created dead-letter topics
        self.syncs_state = False
        self.start_share_coordinator()
        self.start_shares()
        self.set_level("share.version", 1)
        self.connections = 10

    def make_share_markers(self) -> ShareMarkers:
        return ShareMarkers(lambda: self.share_coordinator, lambda: self.shares)

    def start_share_coordinator(self) -> None:
        self.share_coordinator = ShareCoordinator(
            ShareCoordinatorSettings(
                ShareCoordinatorConfig(rules=self.rules), STATE_PARTITIONS, Compression.NONE, 300_000
            ),
            self.clock,
            self.timers,
            open_log=lambda index: EagerLog(self.partitions.get(SHARE_GROUP_STATE, index), self.workers),
            spawn=run,
            topic_exists=self.image.topics_by_id.__contains__,
            partition_exists=self.image.has_partition_of_id,
            seals=self.seals,
        )
        self.broker.share_coordinator = self.share_coordinator
        topic = self.image.topics.get(SHARE_GROUP_STATE)
        self.share_coordinator.start(None if topic is None else len(topic.partitions))

    def start_shares(self) -> None:
        local = LocalPersister(
            lambda: self.share_coordinator,
            lambda: SHARE_GROUP_STATE in self.image.topics,
            self._create_state_topic,
            self.clock,
            self.timers,
            write_timeout_ms=5_000,
        )
        self.persister = FlakyPersister(local)
        settings = ShareGroupSettings(self.image, BrokerConfig({}).current_text)
        self.dead_letters = DeadLetterQueues(
            self.image,
            settings,
            self.clock,
            self.timers,
            self.workers,
            self.tick,
            rules=lambda: self.queue_rules,
            partitions=self.partitions,
            topics=self,
            persister=self.persister,
            must_sync=lambda _: self.syncs_state,
            find=lambda key: self.shares.find(key),
        )
        self.shares = SharePartitionManager(
            self.image,
            self.persister,
            settings,
            self.clock,
            self.timers,
            self.workers,
            self.tick,
            max_sessions=self.max_sessions,
            overdue=OverdueTransactions(
                lambda: self.transactions, self.clock, self.timers, self.two_phase.__contains__
            ),
            dead_letters=self.dead_letters,
        )
        self.broker.shares = self.shares

    def restart_shares(self) -> None:
        """Restarts the share partitions. Acquisitions are lost, but the logs remain."""
        self.share_coordinator.stop()
        self.start_share_coordinator()
        self.start_shares()

    def hold_reads(self) -> Callable[[], None]:
        """Makes share partitions remain in the loading state until the returned function is called."""
        held: list[Callable[[], None]] = []
        self.persister.held_reads = held

        def release() -> None:
            self.persister.held_reads = None
            for answer in held:
                answer()
            self.settle()

        return release

    def restart_groups(self) -> None:
        """Replaces the group coordinator with a new one that loads the existing log."""
        self.groups.stop()
        self.start_groups()

    def _create_state_topic(self, name: str) -> Deferred[Any]:
        self.topic(name, STATE_PARTITIONS)
        created: Deferred[Any] = Deferred()
        created.resolve([])
        return created

    def create(self, topics: Sequence[NewTopic]) -> Deferred[list[TopicResult]]:
        """Creates dead-letter topics, as the broker's `TopicCreation` does."""
        (new_topic,) = topics
        error = self.create_refusals.pop(0) if self.create_refusals else None
        if error is None:
            self.topic(new_topic.name, new_topic.partition_count or self.queue_partitions)
            self.image.configs[ConfigResourceType.TOPIC, new_topic.name] = {
                name: value for name, value in new_topic.configs if value is not None
            }
        created: Deferred[list[TopicResult]] = Deferred()
        created.resolve([TopicResult(new_topic.name, error)])
        return created

    def topic(self, name: str, partition_count: int = 1, **settings: Any) -> Any:
        topic = super().topic(name, partition_count, **settings)
        if name == SHARE_GROUP_STATE:
            self.share_coordinator.state_topic_created(partition_count)
        return topic

    def delete_topic(self, name: str) -> None:
        topic = self.image.topics[name]
        super().delete_topic(name)
        self.shares.topic_deleted(topic.topic_id)
        self.share_coordinator.topic_deleted(name, topic.topic_id)

    def set_level(self, feature: str, level: int) -> None:
        self.image.replay(FeatureLevelRecord(name=feature, feature_level=level))
        self.shares.features_changed()

    def set_group(self, group_id: str = GROUP, **settings: str) -> None:
        """Changes group settings, e.g. `share_auto_offset_reset="earliest"`."""
        own = self.image.configs.setdefault((ConfigResourceType.GROUP, group_id), {})
        own.update({name.replace("_", "."): value for name, value in settings.items()})
        self.shares.group_config_changed(group_id)

    def shared_topic(self, name: str, *batches: int, partition_count: int = 1, start_offset: int = 0) -> bytes:
        """Creates a topic with initialised share state for GROUP.

        batches  number of records of each batch in the first partition
        """
        topic = self.topic(name, partition_count)
        for index in range(partition_count):
            self.initialize(SharePartitionKey(GROUP, topic.topic_id, index), start_offset=start_offset)
        self.produce(name, *batches)
        return bytes(topic.topic_id)

    def initialize(self, key: SharePartitionKey, *, state_epoch: int = 1, start_offset: int = 0) -> None:
        begun = self.persister.initialize(key, state_epoch, start_offset)
        self.settle()
        assert begun.outcome() is True

    def produce(self, topic: str, *batches: int, index: int = 0) -> None:
        for count in batches:
            records = [NewRecord(None, b"v" * 10, self.clock.now_ms()) for _ in range(count)]
            self.partition(topic, index).append_now(
                build_batch(records), origin=Origin.CLIENT, now_ms=self.clock.now_ms()
            )
        self.settle()

    def transactional(self, count: int, *, commit: bool | None) -> None:
        """Appends a transaction's records to "T" and commits the transaction, aborts it, or leaves it open (None)."""
        producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
        partition, now_ms = self.partition("T"), self.clock.now_ms()
        records = [NewRecord(None, b"v", now_ms) for _ in range(count)]
        batch = build_batch(records, base_sequence=-1 if commit is None else 0, is_transactional=True, **producer)
        partition.append_now(batch, origin=Origin.COORDINATOR, now_ms=now_ms)
        if commit is not None:
            marker = marker_batch(is_commit=commit, coordinator_epoch=0, timestamp_ms=now_ms, **producer)
            partition.append_now(marker, origin=Origin.COORDINATOR, now_ms=now_ms)
        self.settle()

    def stored(self, topic_id: bytes, index: int = 0) -> StateSummary:
        summary = self.persister.summarize(SharePartitionKey(GROUP, topic_id, index)).outcome()
        assert isinstance(summary, StateSummary)
        return summary

    def stored_batches(self, topic_id: bytes, index: int = 0) -> list[tuple[int, ...]]:
        state = self.persister.read(SharePartitionKey(GROUP, topic_id, index), 0).outcome()
        assert isinstance(state, StoredState)
        return [tuple(each) for each in state.batches]

    def member(self, member_id: str, group_id: str = GROUP) -> Member:
        self.connections += 1
        return Member(self, group_id, member_id, ConnectionInfo(self.connections, "127.0.0.1", 50_000))

    def sleep(self, ms: int) -> None:
        self.timers.advance(ms)
        self.settle()

    def deny(self, operation: Operation, resource: ResourceType, name: str) -> None:
        self.authorizer.denied.add((operation, resource, name))
