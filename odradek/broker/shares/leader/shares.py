"""The share partitions that a broker leads, and its share sessions. The broker creates its `SharePartitionManager` for
the first request that needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Set
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.broker.coordinators.share_coordinator import LocalPersister, Persister, ShareCoordinator
from odradek.broker.metadata.supported_features import SHARE_VERSION, SHARE_VERSION_GROUPS
from odradek.broker.partitions.registry import BrokerParts
from odradek.broker.shares.core.dead_letters import QueueRules
from odradek.broker.shares.core.sessions import SessionKey, ShareSession, ShareSessions
from odradek.broker.shares.core.state import SharePartitionKey, TransactionEnd
from odradek.broker.shares.leader.dead_letter_queues import DeadLetterQueues
from odradek.broker.shares.leader.group_settings import ShareGroupSettings
from odradek.broker.shares.leader.live_partition import LiveSharePartition, SharePartitionPhase
from odradek.broker.shares.leader.overdue import OverdueTransactions
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import SHARE_GROUP_STATE, TopicIdPartition
from odradek.storage.log_config import INT64_MAX

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.coordinators.group_coordinator import GroupCoordinator
    from odradek.broker.coordinators.steps import BrokerSteps
    from odradek.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.metadata.topic_creation import TopicCreation
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.broker.runtime.workers import Workers
    from odradek.broker.transactions.producers import Seals, TwoPhaseProducers


def has_share_groups(image: MetadataImage) -> bool:
    return image.features.get(SHARE_VERSION, 0) >= SHARE_VERSION_GROUPS


class SharePartitionManager:
    """The part of a broker that serves share groups.

    is_draining  whether odradek.share.transactions is about to be lowered; if so, no more acknowledgements become
                 pending (docs/spec/share-groups.md#s5-10 W2)
    """

    def __init__(
        self,
        image: MetadataImage,
        persister: Persister,
        settings: ShareGroupSettings,
        clock: Clock,
        timers: Timers,
        workers: Workers,
        call_soon: Callable[[Callable[[], None]], object],
        *,
        max_sessions: int,
        overdue: OverdueTransactions,
        dead_letters: DeadLetterQueues,
        lock_clock: Clock | None = None,
    ) -> None:
        """Creates a manager that has no share partitions yet. `lock_clock` measures acquisition locks and defaults to
        `clock`."""
        self.image = image
        self.persister = persister
        self.settings = settings
        self.sessions = ShareSessions(max_sessions)
        self.is_draining = False
        self._clock = clock
        self._lock_clock = lock_clock or clock
        self._timers = timers
        self._workers = workers
        self._call_soon = call_soon
        self._overdue = overdue
        self.dead_letters = dead_letters
        self._expired_in_dropped = 0
        self._live: dict[SharePartitionKey, LiveSharePartition] = {}
        self._loading: dict[LiveSharePartition, None] = {}
        self._pending_by: dict[int, dict[LiveSharePartition, None]] = {}  # by producer id
        self._groups_of: dict[tuple[str, int], set[str]] = {}  # connection → groups that it opened sessions in

    @property
    def loaded_partitions(self) -> Iterable[LiveSharePartition]:
        return self._live.values()

    def require_enabled(self) -> None:
        """Raises UNSUPPORTED_VERSION if share groups are disabled."""
        if not has_share_groups(self.image):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def require_transactions(self) -> None:
        """Raises UNSUPPORTED_VERSION if acknowledgements cannot currently be part of a transaction."""
        if self.is_draining or not self.image.acknowledges_in_transactions:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def find(self, key: SharePartitionKey) -> LiveSharePartition | None:
        return self._live.get(key)

    def find_or_load(self, key: SharePartitionKey, partition: Partition) -> LiveSharePartition:
        live = self._live.get(key)
        if live is None:
            live = self._live[key] = LiveSharePartition(
                key,
                partition,
                persister=self.persister,
                settings=self.settings,
                clock=self._clock,
                lock_clock=self._lock_clock,
                timers=self._timers,
                workers=self._workers,
                call_soon=self._call_soon,
                on_gone=self._forget_partition,
                has_session=self._has_session,
                on_overdue=self._overdue.end_transaction,
                on_pending=self._note_producers,
                on_dead_letters=self.dead_letters.copy_letters,
            )
            self._loading[live] = None
            live.load()
        return live

    def register_connection(self, connection: ConnectionInfo, group_id: str) -> None:
        """Registers the connection, so that its share sessions end when the connection is closed."""
        groups = self._groups_of.get(connection.address)
        if groups is None:
            groups = self._groups_of[connection.address] = set()
            connection.when_closed(partial(self._connection_closed, connection.address))
        groups.add(group_id)

    def end_session(self, session: ShareSession) -> None:
        """Ends a session and releases the records that its member holds in the session's partitions. Does not wait for
        the writes."""
        if not self.sessions.end(session):
            return
        group_id, member_id, _ = session.key
        for topic_id, index in session.partitions:
            live = self._live.get(SharePartitionKey(group_id, topic_id, index))
            if live is not None:
                live.release(member_id)

    # Transactions.

    def end_transaction(self, ending: TransactionEnd) -> None:
        """Applies a marker, which commits or aborts its transaction's acknowledgements."""
        producer_id = ending.producer_id
        for live in (*self._loading, *self._pending_by.get(producer_id, ())):
            live.end_transaction(ending)
        # Keep share partitions where a later transaction of the same producer is pending. Dropped share partitions have
        # already removed themselves.
        left = {live: None for live in self._pending_by.pop(producer_id, ()) if producer_id in live.producer_ids}
        if left:
            self._pending_by[producer_id] = left

    def reread_pending(self, ending: TransactionEnd) -> None:
        """Makes share partitions read their state again if this marker ends one of their transactions and another
        broker stores the state."""
        for live in list(self._live.values()):
            live.reread_ended(ending)

    @property
    def pending_producer_ids(self) -> Set[int]:
        """The producers that may have pending acknowledgements in share partitions that are in memory."""
        return self._pending_by.keys()

    @property
    def pending_record_count(self) -> int:
        """The number of TX_PENDING records in share partitions that are in memory. The share coordinator counts the
        pending records of all share partitions."""
        return sum(
            live.core.pending.record_count for live in self._live.values() if live.phase is SharePartitionPhase.ACTIVE
        )

    @property
    def held_count(self) -> int:
        """The number of records that are TX_PENDING or about to become TX_PENDING."""
        return sum(
            live.core.pending.held_count for live in self._live.values() if live.phase is SharePartitionPhase.ACTIVE
        )

    @property
    def lock_expired_count(self) -> int:
        """The number of records that are no longer TX_PENDING because their lock expired."""
        return self._expired_in_dropped + sum(live.lock_expired_count for live in self._live.values())

    def _has_session(self, key: SharePartitionKey, member_id: str) -> bool:
        topic = self.image.topics_by_id.get(key.topic_id)
        leader = None if topic is None else topic.partitions[key.partition].leader
        if leader is None:
            return False
        session = SessionKey(key.group_id, member_id, leader)
        return self.sessions.fetches(session, TopicIdPartition(key.topic_id, key.partition))

    # Events.

    def drop_partitions(self, keys: Iterable[SharePartitionKey]) -> None:
        """Discards share partitions from memory after their stored state has been changed or deleted."""
        for key in keys:
            live = self._live.get(key)
            if live is not None:
                live.drop()

    def topic_deleted(self, topic_id: bytes) -> None:
        self.drop_partitions([key for key in self._live if key.topic_id == topic_id])

    def leader_epoch_changed(self, topic_id: bytes, index: int) -> None:
        """Discards a topic partition's share partitions after its leader epoch has changed."""
        self.drop_partitions([key for key in self._live if key.topic_id == topic_id and key.partition == index])

    def features_changed(self) -> None:
        """Discards all sessions and acquired records if share groups have been disabled. Otherwise updates the
        settings, because dead-letter queues may have been enabled or disabled."""
        if not has_share_groups(self.image):
            self.sessions.clear()
            self.drop_partitions(list(self._live))
        for live in self._live.values():
            live.take_settings()

    def group_config_changed(self, group_id: str) -> None:
        """Applies a group's changed settings, which take effect with the next decision."""
        self.settings.changed(group_id)
        for key, live in self._live.items():
            if key.group_id == group_id:
                live.take_settings()

    def stop(self) -> None:
        self.dead_letters.stop()
        self.drop_partitions(list(self._live))

    def _connection_closed(self, address: tuple[str, int]) -> None:
        for session in self.sessions.of_connection(address):
            self.end_session(session)
        for group_id in self._groups_of.pop(address):
            if not self.sessions.has_group(group_id):
                self.drop_partitions([key for key in self._live if key.group_id == group_id])

    def _note_producers(self, live: LiveSharePartition) -> None:
        self._loading.pop(live, None)
        for producer_id in live.producer_ids:
            self._pending_by.setdefault(producer_id, {})[live] = None

    def _forget_partition(self, live: LiveSharePartition) -> None:
        self._loading.pop(live, None)
        for producer_id in live.producer_ids:
            leaders = self._pending_by.get(producer_id, {})
            leaders.pop(live, None)
            if not leaders:
                self._pending_by.pop(producer_id, None)
        if self._live.get(live.key) is live:
            del self._live[live.key]
            self._expired_in_dropped += live.lock_expired_count


class ShareBroker(BrokerParts, Protocol):
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def auto_creation(self) -> TopicCreation: ...
    @property
    def share_coordinator(self) -> ShareCoordinator: ...
    @property
    def shares(self) -> SharePartitionManager: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...
    @property
    def two_phase(self) -> TwoPhaseProducers: ...
    @property
    def seals(self) -> Seals: ...
    @property
    def groups(self) -> GroupCoordinator: ...


def make_shares(broker: ShareBroker, steps: BrokerSteps) -> SharePartitionManager:
    image, config = broker.metadata.image, broker.config
    persister = LocalPersister(
        lambda: broker.share_coordinator,
        lambda: SHARE_GROUP_STATE in image.topics,
        broker.auto_creation.create_internal,
        broker.clock,
        broker.timers,
        write_timeout_ms=config.share_coordinator_write_timeout_ms,
    )
    wrapped = steps.persister(persister, image)
    settings = ShareGroupSettings(image, config.current_text)
    return SharePartitionManager(
        image,
        wrapped,
        settings,
        broker.clock,
        broker.timers,
        broker.workers,
        broker.loop.call_soon,
        max_sessions=config.group_share_max_share_sessions,
        overdue=OverdueTransactions(
            lambda: broker.transactions, broker.steady_clock, broker.timers, broker.two_phase.__contains__
        ),
        dead_letters=DeadLetterQueues(
            image,
            settings,
            broker.clock,
            broker.timers,
            broker.workers,
            broker.loop.call_soon,
            rules=lambda: QueueRules(
                config.errors_deadletterqueue_auto_create_topics_enable, config.errors_deadletterqueue_topic_name_prefix
            ),
            partitions=broker.partitions,
            topics=broker.auto_creation,
            persister=wrapped,
            must_sync=partial(_is_state_synced, broker),
            find=lambda key: broker.shares.find(key),
        ),
        lock_clock=broker.steady_clock,
    )


def _is_state_synced(broker: ShareBroker, key: SharePartitionKey) -> bool:
    """Returns whether writes to the share partition's state are answered only after an fdatasync."""
    index = broker.share_coordinator.partition_for(key)
    return broker.partitions.get(SHARE_GROUP_STATE, index).log.config.flush_messages != INT64_MAX
