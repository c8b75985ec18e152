"""The broker: who there is, in which order they come to life, and in which they end.

start: lock the data directory → bind the ports → metadata log → partitions → coordinators → listen
stop:  no more requests → answer what is in flight → coordinators → write, sync → mark of a clean shutdown
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Coroutine
from random import randint
from typing import TYPE_CHECKING, Any

from broker.clock import LoopTimers, SystemClock
from broker.discards import Discards
from broker.dispatch import Dispatcher
from broker.features import TRANSACTION_VERSION
from broker.fetch_sessions import MAX_SESSION_ID, FetchSessions
from broker.group_commit import AppendFlush, SyncRounds
from broker.group_coordinator import OFFSETS_TOPIC, CoordinatorSettings, GroupCoordinator
from broker.limits import ConnectionLimits
from broker.listeners import advertise
from broker.metadata.cluster_metadata import ClusterMetadata
from broker.metadata.loading import CorruptMetadata
from broker.partitions import Partitions
from broker.producer_ids import ProducerIds
from broker.server import Server, bind
from broker.topic_creation import TopicCreation
from broker.transaction_coordinator import TRANSACTION_STATE, TransactionCoordinator, TransactionSettings
from broker.transaction_markers import LocalMarkerWriter
from broker.uuids import hex_text, random_uuid
from broker.workers import ThreadWorkers
from protocol.errors import KafkaError
from storage.checkpoints import topic_id_text
from storage.disk import DirectoryInUse, RealDisk
from storage.log_directory import Identity, LogDirectory, WrongDirectory
from storage.tail_cache import TailCache

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.housekeeping import Housekeeping
    from broker.listeners import Listener
    from broker.metadata.image import TopicImage
    from broker.shard import ShardLog

log = logging.getLogger("odradek")

WORKER_THREADS = 4
HOUSEKEEPING_AFTER_MS = 500  # so that its import does not stand in the way of the first requests
LOCAL_HOST = "localhost"  # what clients are told where the configuration names no host: one machine is what this is for


class CannotStart(Exception):
    """What keeps the broker from serving, in words for the person who started it."""


class Broker:
    """What handlers reach for.

    `start` brings it up in order, `stop` takes it down; in between only the metadata log changes what there is.
    """

    cluster_id: str
    bound: tuple[Listener, ...]  # where it listens: with the real ports, and a host that one can connect to
    advertised: tuple[Listener, ...]  # where clients are told to find it
    log_directory: LogDirectory
    metadata: ClusterMetadata
    partitions: Partitions
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: LocalMarkerWriter
    producer_ids: ProducerIds

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.loop = loop
        self.clock = SystemClock()
        self.timers = LoopTimers(loop)
        self.workers = ThreadWorkers(loop, WORKER_THREADS)
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, lambda: randint(1, MAX_SESSION_ID)
        )
        self.housekeeping: Housekeeping | None = None
        self._disk = RealDisk()
        self._flush = AppendFlush(loop.call_soon)
        self._syncs = SyncRounds(self.workers)
        self._servers: list[Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises CannotStart, OSError, KafkaError; nothing of it is left running then."""
        config = self.config
        # Before the directory is touched: a port that is taken must not cost it the mark of its clean shutdown.
        sockets = {listener.name: _bind(listener) for listener in config.serving}
        self.log_directory = self._open_log_directory()
        self.cluster_id = self.log_directory.meta.cluster_id
        ports = {name: bound.getsockname()[1] for name, bound in sockets.items()}
        self.bound = advertise(config.serving, None, ports, lambda: LOCAL_HOST)
        self.advertised = config.advertised(ports, lambda: LOCAL_HOST)
        self._open_metadata()
        self._open_partitions()
        self._start_groups()
        self._start_transactions()
        self.auto_creation = TopicCreation(self.metadata, config, random_uuid)
        self.metadata.add_listener(self)
        dispatcher = Dispatcher(self, self.clock)
        for name, bound in sockets.items():
            server = Server(dispatcher, _connection_limits(config), self.timers, self.loop, listener_name=name)
            self._servers.append(server)
            await server.listen(bound)
        self._housekeeping_timer = self.timers.after(HOUSEKEEPING_AFTER_MS, self._start_housekeeping)

    async def stop(self, in_flight_timeout_s: float) -> None:
        """Raises LogWriteFailed, OSError where the log could not be left clean; the next start then reads it again."""
        self._housekeeping_timer.cancel()
        if self.housekeeping is not None:
            self.housekeeping.stop()
        await asyncio.gather(*(server.stop(in_flight_timeout_s) for server in self._servers))
        self.transactions.stop()
        self.groups.stop()
        self._flush.flush()
        self.workers.close()
        await asyncio.sleep(0)  # what the threads have ended is settled on the loop
        self.metadata.close()
        self.log_directory.close(broker_epoch=self.metadata.broker_epoch)

    # What follows a commit to the metadata log, in this order.

    def topic_created(self, topic: TopicImage) -> None:
        self.partitions.topic_created(topic)
        if topic.name == OFFSETS_TOPIC:
            self.groups.offsets_topic_created(len(topic.partitions))
        elif topic.name == TRANSACTION_STATE:
            self.transactions.state_topic_created(len(topic.partitions))

    def partitions_added(self, topic: TopicImage) -> None:
        self.partitions.partitions_added(topic)
        if topic.name == OFFSETS_TOPIC:
            self.groups.offsets_topic_created(len(topic.partitions))

    def topic_deleted(self, topic: TopicImage) -> None:
        self.partitions.topic_deleted(topic)
        self.transactions.topic_deleted(topic.name)
        if topic.name == OFFSETS_TOPIC:
            self.groups.offsets_topic_deleted()
        else:
            self.groups.topic_deleted(topic.name, topic.topic_id)

    def topic_config_changed(self, topic: str) -> None:
        self.partitions.topic_config_changed(topic)

    def broker_config_changed(self) -> None:
        self.partitions.broker_config_changed()

    def _open_log_directory(self) -> LogDirectory:
        path = str(self.config.data_directory)
        identity = Identity(
            node_id=self.config.node_id,
            cluster_id=self.config.odradek_cluster_id,
            new_cluster_id=topic_id_text(random_uuid()),
            new_directory_id=topic_id_text(random_uuid()),
        )
        try:
            return LogDirectory.open(
                self._disk,
                path,
                identity,
                tail_cache=TailCache(self.config.odradek_tail_cache_bytes),
                jitter_ms=lambda limit_ms: randint(0, limit_ms - 1) if limit_ms > 0 else 0,
            )
        except DirectoryInUse:
            raise CannotStart(
                f"the data directory {path} is in use by another broker: stop that one, or choose another directory"
                " with --data-dir"
            ) from None
        except WrongDirectory as error:
            raise CannotStart(str(error)) from None
        except OSError as error:
            raise CannotStart(f"the data directory {path} cannot be used: {error}") from None

    def _open_metadata(self) -> None:
        try:
            self.metadata = ClusterMetadata.open(
                self._disk,
                self.log_directory,
                self.config,
                self.clock,
                self.workers,
                endpoints=self.advertised,
                new_uuid=random_uuid,
            )
        except (CorruptMetadata, KafkaError) as error:
            raise CannotStart(f"the cluster metadata in {self.log_directory.path} cannot be read: {error}") from error

    def _open_partitions(self) -> None:
        image = self.metadata.image
        self.partitions = Partitions(
            image,
            self.log_directory,
            node_id=self.config.node_id,
            log_config=lambda topic: self.config.log_config(image.topic_configs(topic)),
            clock=self.clock,
            flush=self._flush,
            syncs=self._syncs,
            discard=Discards(self._disk, self.timers, self.workers).discard,
            new_uuid=random_uuid,
        )
        self.partitions.open_all()
        self.producer_ids = ProducerIds(self.metadata)

    def _start_groups(self) -> None:
        self.groups = GroupCoordinator(
            CoordinatorSettings.of(self.config),
            self.clock,
            self.timers,
            open_log=self._offsets_log,
            spawn=self._spawn,
            new_uuid=lambda: hex_text(random_uuid()),
            topic_exists=lambda topic_id: topic_id in self.metadata.image.topics_by_id,
        )
        topic = self.metadata.image.topics.get(OFFSETS_TOPIC)
        self.groups.start(None if topic is None else len(topic.partitions))

    def _start_transactions(self) -> None:
        image = self.metadata.image
        self.markers = LocalMarkerWriter(self.partitions, self.groups, self.clock)
        self.transactions = TransactionCoordinator(
            TransactionSettings.of(self.config),
            self.clock,
            self.timers,
            open_log=self._transaction_log,
            coordinator_epoch=lambda index: image.topics[TRANSACTION_STATE].partitions[index].leader_epoch,
            marker_writer=self.markers,
            producer_ids=self.producer_ids,
            transaction_version=lambda: image.features.get(TRANSACTION_VERSION, 0),
            partition_exists=image.has_partition,
            spawn=self._spawn,
        )
        topic = image.topics.get(TRANSACTION_STATE)
        self.transactions.start(None if topic is None else len(topic.partitions))

    def _start_housekeeping(self) -> None:
        from broker.chores import chores
        from broker.housekeeping import Housekeeping

        self.housekeeping = Housekeeping(
            chores(self.config, self.log_directory, self.clock, self.timers, self.workers),
            lambda: self.partitions,
            self.clock,
            self.timers,
        )
        self.housekeeping.start(self.config.log_initial_task_delay_ms)

    def _offsets_log(self, index: int) -> ShardLog:
        from broker.shard_log import PartitionLog

        return PartitionLog(self.partitions.get(OFFSETS_TOPIC, index), self.workers)

    def _transaction_log(self, index: int) -> ShardLog:
        from broker.shard_log import PartitionLog

        return PartitionLog(self.partitions.get(TRANSACTION_STATE, index), self.workers)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        # Kept, since the loop alone would let a running task be collected.
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _bind(listener: Listener) -> socket.socket:
    try:
        return bind(listener.host, listener.port)
    except OSError as error:
        where = f"{listener.host or '*'}:{listener.port}"
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"port {listener.port} is taken ({where}), maybe by another broker: choose one with --port or"
                " `listeners`; --port 0 takes any that is free"
            ) from None
        raise CannotStart(f"cannot listen on {where}: {error.strerror}") from None


def _connection_limits(config: BrokerConfig) -> ConnectionLimits:
    idle_ms, queued_bytes = config.connections_max_idle_ms, config.queued_max_request_bytes
    return ConnectionLimits(
        max_request_bytes=config.socket_request_max_bytes,
        max_idle_ms=None if idle_ms < 0 else idle_ms,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=_by_address(config.max_connections_per_ip_overrides),
        queued_max_request_bytes=None if queued_bytes < 0 else queued_bytes,
        accept_backlog=config.socket_listen_backlog_size,
    )


def _by_address(overrides: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`, host:count pairs, with the addresses of hosts that are given by name."""
    limits = {}
    for pair in filter(None, (pair.strip() for pair in overrides.split(","))):
        host, _, count = pair.rpartition(":")
        if not host or not count.isdecimal():
            raise CannotStart(f"max.connections.per.ip.overrides={overrides}: {pair!r} is not of the form host:count")
        try:
            limits[socket.gethostbyname(host)] = int(count)
        except OSError as error:
            raise CannotStart(f"max.connections.per.ip.overrides: the host {host}: {error.strerror}") from None
    return limits
