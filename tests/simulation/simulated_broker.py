"""A broker process without sockets, threads or a real disk.

The dispatcher, the handlers, the coordinators, the partitions and the metadata log are the real ones, connected as in
`odradek.broker.broker`.

    broker = SimulatedBroker(disk, time, rng, config)      starts a broker on an existing disk
    broker.receive(frame, answered)                        passes one encoded request to the broker
    broker.disconnect(client)                              ends a client's connection
    broker.life.is_over = True                             has the effect of kill -9
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from random import Random
from typing import Any, cast

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.broker import OFFERED, Broker
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.configuration.listeners import Listener
from odradek.broker.coordinators.cluster_view import ImageView
from odradek.broker.coordinators.group_coordinator import CoordinatorSettings, GroupCoordinator
from odradek.broker.coordinators.partition_sync import LocalPartitionSync, PartitionSync
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.coordinators.shard_records import ShardLog
from odradek.broker.coordinators.share_coordinator import ShareCoordinator, ShareCoordinatorSettings
from odradek.broker.coordinators.steps import BrokerSteps
from odradek.broker.coordinators.stored_pending import stores_pending
from odradek.broker.coordinators.target_computations import TargetComputations
from odradek.broker.coordinators.transaction_coordinator import TransactionCoordinator, TransactionSettings
from odradek.broker.coordinators.transaction_markers import LocalMarkerWriter, MarkerWriter
from odradek.broker.coordinators.verification import Verifier
from odradek.broker.fetch.sessions import FetchSessions
from odradek.broker.handlers.by_api_key import fast_path_of, handler_of
from odradek.broker.handlers.handler_broker import HandlerBroker
from odradek.broker.metadata.cluster_metadata import ClusterMetadata
from odradek.broker.metadata.image import TopicImage
from odradek.broker.metadata.topic_creation import TopicCreation
from odradek.broker.partitions.group_commit import AppendFlush, LogSyncs
from odradek.broker.partitions.housekeeping import Housekeeping, chores
from odradek.broker.partitions.partition import CoordinatorLog, Partition
from odradek.broker.partitions.registry import DirectoryRemovals, Partitions
from odradek.broker.runtime.slices import run_to_end
from odradek.broker.runtime.workers import DecompressionWorkers
from odradek.broker.shares.leader.markers import ShareMarkers
from odradek.broker.shares.leader.shares import SharePartitionManager, make_shares
from odradek.broker.transactions.producers import Seals, TwoPhaseProducers
from odradek.protocol.file_slice import in_memory
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory
from tests.simulation.virtual_time import Life, VirtualTime, VirtualTimers, VirtualWorkers
from tests.support.fake_disk import FakeDisk

DATA = "/data"
LENGTH_BYTES = 4


def markers_here(writer: MarkerWriter, timers: VirtualTimers, rng: Random) -> MarkerWriter:
    return writer


def log_as_it_is(log: ShardLog) -> ShardLog:
    return log


def computing_at_once(timers: VirtualTimers) -> TargetComputations:
    """Returns computations that finish immediately. No group in the simulations is large enough for a delay."""
    return TargetComputations()


def computing_in_turns(timers: VirtualTimers) -> TargetComputations:
    """Returns computations that take one step per millisecond, even for the smallest group."""

    def run(steps: Iterator[None]) -> None:
        def turn() -> None:
            if next(steps, steps) is not steps:
                timers.after(1, turn)

        timers.after(1, turn)

    return TargetComputations(max_unsliced=0, run=run)


@dataclass(frozen=True, slots=True)
class Parts:
    """Collaborators that a test may replace, for example with faulty ones.

    markers         wraps the writer that sends markers to the partition leaders
    state_log       wraps the log of a partition of `__transaction_state`
    partition_sync  creates the object that syncs a transaction's records when it becomes a two-phase commit
    coordinator     creates the coordinator, with the arguments of TransactionCoordinator
    workers         creates the simulated threads
    targets         creates the computations of target assignments for streams groups
    """

    markers: Callable[[MarkerWriter, VirtualTimers, Random], MarkerWriter] = markers_here
    state_log: Callable[[ShardLog], ShardLog] = log_as_it_is
    partition_sync: Callable[[Partitions], PartitionSync] = LocalPartitionSync
    coordinator: Callable[..., TransactionCoordinator] = TransactionCoordinator
    workers: Callable[[VirtualTime, Life, Random], VirtualWorkers] = VirtualWorkers
    targets: Callable[[VirtualTimers], TargetComputations] = computing_at_once


class LogInTurns(CoordinatorLog):
    """A log that is read without a thread, in portions, so that other work can run in between."""

    async def read(self) -> AsyncIterator[bytes]:
        log = self._partition.log
        for portion in log.reader.scan(log.log_start_offset, log.log_end_offset, checked=True):
            await Turn()
            yield portion


class LoopOf:
    """The part of an event loop that a broker needs."""

    def __init__(self, timers: VirtualTimers) -> None:
        self.call_soon = timers.soon


class Turn:
    def __await__(self) -> Any:
        yield


class SimulatedBroker:
    def __init__(
        self,
        disk: FakeDisk,
        time: VirtualTime,
        rng: Random,
        config: BrokerConfig,
        *,
        log_changes: Mapping[str, Any],
        parts: Parts,
    ) -> None:
        """Starts a broker on the disk. `log_changes` replaces fields in the LogConfig of every topic."""
        self.disk = disk
        self.config = config
        self.node_id = config.node_id
        self.steps = BrokerSteps()
        self.offered = OFFERED
        self.rules = OFFERED.rules
        self.rng = rng
        self.life = Life()
        self.clock = self.steady_clock = time
        self.timers = VirtualTimers(time, self.life)
        self.workers = parts.workers(time, self.life, rng)
        self.decompression_workers = DecompressionWorkers(self.workers)
        self.certificates = None
        self.loop = LoopOf(self.timers)
        self.loading: list[Coroutine[Any, Any, None]] = []
        self._uuids = count(rng.randrange(1 << 40))
        identity = DirectoryId(config.node_id, None, "b2RyYWRlay1zaW11bGF0ZQ", "9DitBXe7pyoCRUwgpuuW-w")
        self.log_directory = LogDirectory.open(disk, DATA, identity)
        self.cluster_id = "b2RyYWRlay1zaW11bGF0ZQ"
        endpoints = (Listener("PLAINTEXT", "localhost", 9092),)
        self.advertised_listeners = self.bound = endpoints
        self.metadata = run_to_end(
            ClusterMetadata.opening(
                disk,
                self.log_directory,
                config,
                time,
                self.workers,
                endpoints=endpoints,
                new_uuid=self.new_uuid,
                later=self.timers.soon,
                stores_pending=lambda: stores_pending(disk, DATA, self.log_directory.partitions()),
            )
        )
        image = self.metadata.image
        self.two_phase = TwoPhaseProducers(are_all_known=TRANSACTION_STATE not in image.topics)
        self.seals = Seals()
        self.discards = DirectoryRemovals(disk, DATA, self.timers, self.workers)
        self.partitions = Partitions(
            image,
            self.log_directory,
            node_id=config.node_id,
            log_config=lambda topic: replace(self._log_config(topic), **log_changes),
            clock=time,
            flush=AppendFlush(self.timers.soon),
            syncs=LogSyncs(self.workers),
            discard=self.discards.discard,
            new_uuid=self.new_uuid,
            two_phase=self.two_phase,
            seals=self.seals,
        )
        self.partitions.open_all()
        self.producer_ids = ProducerIds(self.metadata, self.timers)
        self.auto_creation = TopicCreation(self.metadata, config, self.new_uuid)
        session_ids = count(1)
        self.fetch_sessions = FetchSessions(100, lambda: next(session_ids))
        self.metadata.prepare = self.partitions.prepare
        self.metadata.add_listener(self)
        self.groups = GroupCoordinator(
            CoordinatorSettings.of(config),
            time,
            self.timers,
            open_log=lambda index: LogInTurns(self.partitions.get(GROUP_OFFSETS, index), self.workers),
            spawn=self._spawn,
            new_uuid=self.new_uuid,
            cluster=ImageView(image, config.current_text, targets=parts.targets(self.timers)),
        )
        share_markers = ShareMarkers(
            lambda: self.share_coordinator, lambda: self.shares if self.has_started("shares") else None
        )
        self.markers = LocalMarkerWriter(self.partitions, self.groups, time, share_markers)
        self.transactions = parts.coordinator(
            TransactionSettings.of(config),
            time,
            self.timers,
            open_log=lambda index: parts.state_log(
                LogInTurns(self.partitions.get(TRANSACTION_STATE, index), self.workers)
            ),
            coordinator_epoch=lambda index: image.topics[TRANSACTION_STATE].partitions[index].leader_epoch,
            marker_writer=parts.markers(self.markers, self.timers, rng),
            partition_sync=parts.partition_sync(self.partitions),
            producer_ids=self.producer_ids,
            features=image.features,
            partition_exists=image.has_partition,
            spawn=self._spawn,
            two_phase=self.two_phase,
            seals=self.seals,
        )
        self.verifier = Verifier(
            config, time, self.timers, coordinator=lambda: self.transactions, two_phase=self.two_phase
        )
        # The cast is valid because this class has every attribute of Broker that the handlers use.
        self.dispatcher: Dispatcher[HandlerBroker] = Dispatcher(
            cast(Broker, self), time, handler_of, fast_path_of=fast_path_of
        )
        self._connections: dict[str, ConnectionInfo] = {}
        self._connection_ids = count(1)
        self.housekeeping = Housekeeping(
            chores(config, self.log_directory, time, self.timers, self.workers),
            lambda: self.partitions,
            time,
            self.timers,
        )
        self.housekeeping.start(config.log_initial_task_delay_ms)
        self.groups.start(self._partition_count(GROUP_OFFSETS))
        self.transactions.start(self._partition_count(TRANSACTION_STATE))
        if SHARE_GROUP_STATE in image.topics:
            self.timers.soon(self._begin_sharing)

    @cached_property
    def share_coordinator(self) -> ShareCoordinator:
        image = self.metadata.image
        coordinator = ShareCoordinator(
            ShareCoordinatorSettings.of(self.config),
            self.clock,
            self.timers,
            open_log=lambda index: LogInTurns(self.partitions.get(SHARE_GROUP_STATE, index), self.workers),
            spawn=self._spawn,
            topic_exists=image.topics_by_id.__contains__,
            partition_exists=image.has_partition_of_id,
            seals=self.seals,
        )
        coordinator.start(self._partition_count(SHARE_GROUP_STATE))
        return coordinator

    @cached_property
    def shares(self) -> SharePartitionManager:
        return make_shares(cast(Broker, self), self.steps)

    def has_started(self, coordinator: str) -> bool:
        return coordinator in vars(self)

    def _begin_sharing(self) -> None:
        assert self.share_coordinator

    def new_uuid(self) -> bytes:
        return next(self._uuids).to_bytes(16, "big")

    def receive(self, frame: bytes, answered: Callable[[bytes], None], client: str = "") -> None:
        """Handles one request and passes the response to `answered`, possibly before this method returns.

        frame   the request with its length prefix; the response has a length prefix too
        client  name of the connection
        """
        connection = self._connections.get(client)
        if connection is None:
            number = next(self._connection_ids)
            connection = self._connections[client] = ConnectionInfo(number, "127.0.0.1", 50_000 + number)
        reply = self.dispatcher.start(memoryview(bytearray(frame))[LENGTH_BYTES:], connection)
        if isinstance(reply, list):
            answered(b"".join(in_memory(reply)))
        else:
            parked = reply
            parked.when_done(lambda _: answered(b"".join(in_memory(parked.chunks()))))

    def disconnect(self, client: str) -> None:
        connection = self._connections.pop(client, None)
        if connection is not None:
            connection.notify_closed()

    def partition(self, topic: str, index: int) -> Partition:
        return self.partitions.get(topic, index)

    def kill(self) -> None:
        self.life.is_over = True
        for coroutine in self.loading:
            coroutine.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.loading.append(coroutine)

        def go_on() -> None:
            try:
                coroutine.send(None)
            except StopIteration:
                self.loading.remove(coroutine)
                return
            self.timers.after(self.rng.choice([0, 1, 20]), go_on)

        self.timers.after(self.rng.choice([0, 1, 20]), go_on)

    def _log_config(self, topic: str) -> LogConfig:
        return self.config.log_config(self.metadata.image.topic_configs(topic))

    def _partition_count(self, name: str) -> int | None:
        topic = self.metadata.image.topics.get(name)
        return None if topic is None else len(topic.partitions)

    # --- The effects of a commit to the metadata log, as in `odradek.broker.broker.Broker`.

    def topic_created(self, topic: TopicImage) -> Iterator[None]:
        yield from self.partitions.opening_topic(topic)
        if topic.name == GROUP_OFFSETS:
            self.groups.offsets_topic_created(len(topic.partitions))
        elif topic.name == TRANSACTION_STATE:
            self.transactions.state_topic_created(len(topic.partitions))
        elif topic.name == SHARE_GROUP_STATE and self.has_started("share_coordinator"):
            self.share_coordinator.state_topic_created(len(topic.partitions))

    def partitions_added(self, topic: TopicImage) -> Iterator[None]:
        yield from self.partitions.opening_topic(topic)

    def topic_deleted(self, topic: TopicImage) -> Iterator[None]:
        yield from self.partitions.deleting_topic(topic)
        self.metadata.hold_until(self.discards.sync_renames())
        self.metadata.hold_until(self.transactions.topic_deleted(topic.name))
        if self.has_started("shares"):
            self.shares.topic_deleted(topic.topic_id)
        if self.has_started("share_coordinator"):
            self.share_coordinator.topic_deleted(topic.name, topic.topic_id)
        self.groups.topic_deleted(topic.name, topic.topic_id)

    def topic_config_changed(self, topic: str) -> None:
        self.partitions.topic_config_changed(topic)

    def group_config_changed(self, group_id: str) -> None:
        if self.has_started("shares"):
            self.shares.group_config_changed(group_id)

    def broker_config_changed(self) -> None:
        self.partitions.broker_config_changed()

    def client_quotas_changed(self) -> None:
        pass

    def features_changed(self) -> None:
        if self.has_started("shares"):
            self.shares.features_changed()
