"""The broker's interface for handlers. It is implemented by the broker or, if the cluster has several nodes, by each
node's view of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Sequence

    from odradek.broker.api.served import OfferedVersions
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.configuration.listeners import Listener
    from odradek.broker.coordinators.group_coordinator import GroupCoordinator
    from odradek.broker.coordinators.share_coordinator import ShareCoordinator
    from odradek.broker.coordinators.steps import BrokerSteps
    from odradek.broker.coordinators.transaction_coordinator import ProducerIdSource, TransactionCoordinator
    from odradek.broker.coordinators.transaction_markers import TopicMarkerWriter
    from odradek.broker.coordinators.verification import Verifier
    from odradek.broker.fetch.sessions import FetchSessions
    from odradek.broker.metadata.cluster_metadata import ClusterMetadata
    from odradek.broker.metadata.topic_creation import TopicCreation
    from odradek.broker.partitions.registry import Partitions
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.broker.runtime.loop_watch import LoopWatch
    from odradek.broker.runtime.workers import DecompressionWorkers, Workers
    from odradek.broker.security.tls.certificates import ListenerCertificates
    from odradek.broker.shares.leader.shares import SharePartitionManager
    from odradek.broker.transactions.producers import Seals, TwoPhaseProducers
    from odradek.protocol.kafka_rules import KafkaRules
    from odradek.storage.log_directory import LogDirectory


class HandlerBroker(Protocol):
    """The parts of the broker that handlers use; `odradek.broker.broker.Broker` explains each part.

    This class does not inherit from the smaller protocols (`FetchBroker`, `ShareBroker` and so on), because they are
    compiled, and an interpreted class cannot inherit from a compiled protocol.
    """

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def node_id(self) -> int:
        """The id of the node that the client is connected to. Several nodes may share a log."""

    @property
    def advertised_listeners(self) -> Sequence[Listener]: ...
    @property
    def offered(self) -> OfferedVersions: ...
    @property
    def rules(self) -> KafkaRules: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def steady_clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def steps(self) -> BrokerSteps: ...
    @property
    def loop(self) -> AbstractEventLoop: ...
    @property
    def watch(self) -> LoopWatch: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def decompression_workers(self) -> DecompressionWorkers: ...
    @property
    def log_directory(self) -> LogDirectory: ...
    @property
    def metadata(self) -> ClusterMetadata: ...
    @property
    def auto_creation(self) -> TopicCreation: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def fetch_sessions(self) -> FetchSessions: ...
    @property
    def certificates(self) -> ListenerCertificates | None: ...
    @property
    def host_addresses(self) -> dict[str, tuple[str, ...]]: ...
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
    def markers(self) -> TopicMarkerWriter: ...
    @property
    def verifier(self) -> Verifier: ...
    @property
    def share_coordinator(self) -> ShareCoordinator: ...
    @property
    def shares(self) -> SharePartitionManager: ...
    def has_started(self, coordinator: str) -> bool:
        """Returns whether the given part of the broker, which is created on first use, already exists."""
