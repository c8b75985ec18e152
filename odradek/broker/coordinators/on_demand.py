"""Creates a broker's coordinators when they are first needed. Their modules are a third of the code that a broker would
otherwise import at startup.

If a coordinator's topic exists, the coordinator is created as soon as the broker is listening. Otherwise the first
request that needs the coordinator creates it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Protocol

from odradek.broker.coordinators.cluster_view import ImageView
from odradek.broker.coordinators.group_coordinator import CoordinatorSettings, GroupCoordinator
from odradek.broker.coordinators.partition_sync import LocalPartitionSync
from odradek.broker.coordinators.share_coordinator import ShareCoordinator, ShareCoordinatorSettings
from odradek.broker.coordinators.transaction_coordinator import (
    ProducerIdSource,
    TransactionCoordinator,
    TransactionSettings,
)
from odradek.broker.coordinators.transaction_markers import (
    LocalMarkerWriter,
    MarkerRound,
    MarkerWriter,
    ShareGroupMarkers,
)
from odradek.broker.coordinators.verification import Verifier
from odradek.broker.partitions.partition import CoordinatorLog
from odradek.broker.partitions.registry import BrokerParts
from odradek.broker.runtime.uuids import random_below, random_uuid
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.broker.coordinators.steps import BrokerSteps
    from odradek.broker.transactions.producers import Seals, TwoPhaseProducers
    from odradek.protocol.kafka_rules import KafkaRules


class CoordinatedBroker(BrokerParts, Protocol):
    """The broker's parts that coordinators need."""

    @property
    def rules(self) -> KafkaRules: ...
    @property
    def producer_ids(self) -> ProducerIdSource: ...
    @property
    def two_phase(self) -> TwoPhaseProducers: ...
    @property
    def seals(self) -> Seals: ...
    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...
    @property
    def markers(self) -> MarkerWriter: ...
    @property
    def steps(self) -> BrokerSteps: ...
    @property
    def share_markers(self) -> ShareGroupMarkers: ...
    def load(self, coroutine: Coroutine[None, None, None], topic: str) -> None:
        """Starts a task that runs a coroutine to load partitions of this topic."""


def start_groups(broker: CoordinatedBroker) -> GroupCoordinator:
    groups = GroupCoordinator(
        CoordinatorSettings.of(broker.config, broker.rules),
        broker.clock,
        broker.timers,
        open_log=lambda index: _log(broker, GROUP_OFFSETS, index),
        spawn=lambda loading: broker.load(loading, GROUP_OFFSETS),
        new_uuid=random_uuid,
        member_id=broker.steps.member_id,
        first_epoch=broker.steps.first_epoch,
        random_below=random_below,
        cluster=ImageView(broker.metadata.image, broker.config.current_text),
    )
    groups.start(_partition_count(broker, GROUP_OFFSETS))
    return groups


def make_markers(broker: CoordinatedBroker) -> LocalMarkerWriter:
    return LocalMarkerWriter(broker.partitions, broker.groups, broker.clock, broker.share_markers)


def start_transactions(broker: CoordinatedBroker) -> TransactionCoordinator:
    image = broker.metadata.image
    transactions = TransactionCoordinator(
        TransactionSettings.of(broker.config),
        broker.clock,
        broker.timers,
        open_log=lambda index: _log(broker, TRANSACTION_STATE, index),
        coordinator_epoch=lambda index: image.topics[TRANSACTION_STATE].partitions[index].leader_epoch,
        marker_writer=broker.markers,
        partition_sync=LocalPartitionSync(broker.partitions),
        producer_ids=broker.producer_ids,
        features=image.features,
        partition_exists=image.has_partition,
        spawn=lambda loading: broker.load(loading, TRANSACTION_STATE),
        two_phase=broker.two_phase,
        seals=broker.seals,
        new_round=broker.steps.marker_round(MarkerRound),
    )
    transactions.start(_partition_count(broker, TRANSACTION_STATE))
    return transactions


def start_share_coordinator(broker: CoordinatedBroker) -> ShareCoordinator:
    image = broker.metadata.image
    coordinator = ShareCoordinator(
        ShareCoordinatorSettings.of(broker.config, broker.rules),
        broker.clock,
        broker.timers,
        open_log=lambda index: _log(broker, SHARE_GROUP_STATE, index),
        spawn=lambda loading: broker.load(loading, SHARE_GROUP_STATE),
        topic_exists=image.topics_by_id.__contains__,
        partition_exists=image.has_partition_of_id,
        seals=broker.seals,
    )
    coordinator.start(_partition_count(broker, SHARE_GROUP_STATE))
    return coordinator


def make_verifier(broker: CoordinatedBroker) -> Verifier:
    topics = broker.metadata.image.topics
    return Verifier(
        broker.config,
        broker.clock,
        broker.timers,
        coordinator=lambda: broker.transactions if TRANSACTION_STATE in topics else None,
        two_phase=broker.two_phase,
    )


def _log(broker: CoordinatedBroker, topic: str, index: int) -> CoordinatorLog:
    return CoordinatorLog(broker.partitions.get(topic, index), broker.workers)


def _partition_count(broker: CoordinatedBroker, name: str) -> int | None:
    topic = broker.metadata.image.topics.get(name)
    return None if topic is None else len(topic.partitions)
