"""Assembles the parts of a broker and starts and stops them in order. `serving.py` adds the sockets for clients.

open:  lock the data directory → metadata log → partitions; `begin`: coordinators, housekeeping
close: housekeeping → coordinators → write, sync → mark of a clean shutdown
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from odradek.broker.api.served import SERVED, OfferedVersions
from odradek.broker.configuration.listeners import Listener, advertise
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.coordinators.steps import BrokerSteps
from odradek.broker.metadata.cluster_metadata import ClusterMetadata
from odradek.broker.metadata.replaying import CorruptMetadata
from odradek.broker.metadata.supported_features import FIRST_LEVELS, SHARE_TRANSACTIONS, SUPPORTED_FEATURES
from odradek.broker.metadata.topic_creation import TopicCreation
from odradek.broker.partitions.group_commit import PARALLEL_SYNCS, AppendFlush, LogSyncs
from odradek.broker.partitions.registry import DirectoryRemovals, Partitions
from odradek.broker.runtime.clock import Clock, LoopTimers, SteadyClock, SystemClock, Timers
from odradek.broker.runtime.loop_watch import LoopWatch, WatchedTimers
from odradek.broker.runtime.slices import work_in_slices
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.runtime.uuids import random_below, random_uuid
from odradek.broker.runtime.workers import DecompressionWorkers, ThreadWorkers, join
from odradek.broker.transactions.producers import Seals, TwoPhaseProducers
from odradek.files.checkpoints import topic_id_text
from odradek.protocol.errors import KafkaError
from odradek.protocol.kafka_rules import KafkaRules
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, TopicPartition
from odradek.storage.disk import DirectoryInUse, RealDisk
from odradek.storage.log import LogFailed
from odradek.storage.log_directory import DirectoryId, LogDirectory, WrongDirectory
from odradek.storage.staging import TailCache
from odradek.system.processes import this_user

if TYPE_CHECKING:
    from odradek.broker.api.schema_values import SchemaValues
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.coordinators.group_coordinator import GroupCoordinator
    from odradek.broker.coordinators.share_coordinator import ShareCoordinator
    from odradek.broker.coordinators.transaction_coordinator import ProducerIdSource, TransactionCoordinator
    from odradek.broker.coordinators.transaction_markers import TopicMarkerWriter
    from odradek.broker.coordinators.verification import Verifier
    from odradek.broker.fetch.sessions import FetchSessions
    from odradek.broker.metadata.image import TopicImage
    from odradek.broker.metadata.token_expiry import TokenExpiry
    from odradek.broker.partitions.housekeeping import Housekeeping
    from odradek.broker.runtime.clock import TimerHandle
    from odradek.broker.runtime.slices import Steps
    from odradek.broker.security.sasl.setup import SaslListeners
    from odradek.broker.security.tls.certificates import ListenerCertificates
    from odradek.broker.shares.leader.markers import ShareMarkers
    from odradek.broker.shares.leader.shares import SharePartitionManager
    from odradek.storage.disk import Disk
    from odradek.storage.log_state import CopiedLogState

log = logging.getLogger("odradek.broker")

OFFERED = OfferedVersions(SERVED, SUPPORTED_FEATURES, FIRST_LEVELS)
WORKER_THREADS = 4
# Each thread holds the decompressed records of one batch, up to DECOMPRESSED_LIMIT_BYTES. Other batches wait for a free
# thread.
DECOMPRESSION_THREADS = 2
HOUSEKEEPING_AFTER_MS = 500  # delay before housekeeping starts, so that its import does not slow down requests
# The host advertised to clients if no host is configured, because Odradek usually runs on the same machine as its
# clients.
LOCAL_HOST = "localhost"


class Broker:
    """The parts of a broker used by request handlers.

    `open` and `begin` start the broker, and `close` stops it. While it runs, topics and settings change only through
    the metadata log.
    """

    cluster_id: str
    bound: tuple[Listener, ...]  # the listeners with their actual ports and a host that clients can connect to
    advertised_listeners: tuple[Listener, ...]  # the addresses that the broker sends to clients
    log_directory: LogDirectory
    metadata: ClusterMetadata
    partitions: Partitions
    producer_ids: ProducerIdSource
    two_phase: TwoPhaseProducers
    seals: Seals

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock | None = None,
        timers: Timers | None = None,
        steady_clock: Clock | None = None,
        is_alone: bool = True,
        disk: Disk | None = None,
        steps: BrokerSteps | None = None,
        offered: OfferedVersions = OFFERED,
        copied_states: Mapping[TopicPartition, CopiedLogState] | None = None,
    ) -> None:
        """Creates a broker that is not open yet.

        clock, timers  the broker's clock and timers; None for the system's clock and timers
        steady_clock   a clock that cannot be set; None for a clock that follows the loop's time
        is_alone       whether no other broker runs in the process, so that objects created at startup live as long as
                       the process
        disk           the disk that holds the data directory; None for the system's disk
        steps          hooks between the broker's steps; None for Kafka's behaviour
        offered        the APIs and features that the broker supports and lists; fewer than usual if it emulates an
                       older release
        copied_states  the state of each log if the directory is a copy of another broker's directory; the logs need not
                       be re-read
        """
        self.config = config
        self.steps: BrokerSteps = steps or BrokerSteps()
        self.offered: OfferedVersions = offered
        self._copied_states: Mapping[TopicPartition, CopiedLogState] = copied_states or {}
        self.loop = loop
        self.clock: Clock = clock or SystemClock()
        self.schema_values: SchemaValues | None = None  # set by the schema registry if it is enabled
        self.timers: Timers = timers or LoopTimers(loop)
        self.steady_clock: Clock = steady_clock or SteadyClock(self.clock, loop.time)
        self.is_alone = is_alone
        self.watch = LoopWatch(LoopTimers(loop))
        self.workers = ThreadWorkers(
            loop, WORKER_THREADS, watched=partial(self.watch.time_action, "what threads ended")
        )
        # More threads would not make decoding faster, because only one thread at a time runs Python, and the loop
        # competes with these threads. They would also use more memory, because decoded requests wait until the loop
        # handles them.
        self.codec_thread = ThreadWorkers(loop, 1, "codec", partial(self.watch.time_action, "long requests"))
        self._decompression_threads = ThreadWorkers(
            loop, DECOMPRESSION_THREADS, "opener", watched=partial(self.watch.time_action, "what threads ended")
        )
        self.decompression_workers = DecompressionWorkers(self._decompression_threads)
        self.housekeeping: Housekeeping | None = None
        self._housekeeping_timer: TimerHandle | None = None
        self._token_expiry: TokenExpiry | None = None
        self.certificates: ListenerCertificates | None = None  # None unless a listener uses TLS
        self.sasl_listeners: SaslListeners | None = None
        self._disk: Disk = disk or RealDisk()
        self._flush = AppendFlush(loop.call_soon, partial(self.watch.time_action, "writes"))
        self._sync_threads = ThreadWorkers(
            loop, PARALLEL_SYNCS, "sync", partial(self.watch.time_action, "acknowledgements")
        )
        self.syncs = LogSyncs(self._sync_threads)
        self.limits_changed: Callable[[], None] = lambda: None  # called when settings or client quotas have changed
        self.host_addresses: dict[str, tuple[str, ...]] = {}  # resolved addresses of the hosts named in quotas
        self._tasks: set[asyncio.Task[None]] = set()
        self._loading = 0  # number of coordinator partitions being loaded

    def open(self, ports: Mapping[str, int]) -> None:
        """Opens the data directory, the metadata log and the partitions.

        `ports` maps each listener's name to the port that it is bound to. If opening fails, everything is rolled back
        before CannotStart, OSError or KafkaError is raised.
        """
        for _ in self.opening(ports):
            pass

    def opening(self, ports: Mapping[str, int]) -> Iterator[None]:
        """Does the work of `open` in steps, so that other tasks of the event loop can run between the steps."""
        config = self.config
        self.log_directory = self._open_log_directory()
        self.cluster_id = self.log_directory.meta.cluster_id
        self.bound = advertise(config.serving, None, ports, lambda: LOCAL_HOST)
        self.advertised_listeners = config.advertise_listeners(ports, lambda: LOCAL_HOST)
        try:
            yield
            yield from self._open_metadata()
            yield
            yield from self._open_partitions()
        except BaseException:
            for _ in self.log_directory.steps_of_abandon():
                pass
            raise
        self.auto_creation = TopicCreation(self.metadata, config, random_uuid, self.rules)
        self.metadata.prepare = self.partitions.prepare
        self.metadata.add_listener(self)

    def begin(self) -> None:
        """Starts the broker's background work. Called once clients can connect."""
        topics = self.metadata.image.topics
        if GROUP_OFFSETS in topics:
            self.loop.call_soon(lambda: self.groups)
        if TRANSACTION_STATE in topics:
            self.loop.call_soon(lambda: self.transactions)
        if SHARE_GROUP_STATE in topics:
            self.loop.call_soon(lambda: self.share_coordinator)
        if self.config.delegation_token_secret_key:
            # Imported here because most brokers have no tokens.
            from odradek.broker.metadata.token_expiry import TokenExpiry

            interval_ms = self.config.delegation_token_expiry_check_interval_ms
            self._token_expiry = TokenExpiry(self.metadata, self.clock, self.timers, interval_ms)
        self._housekeeping_timer = self.timers.after(HOUSEKEEPING_AFTER_MS, self._start_housekeeping)

    def end_housekeeping(self) -> None:
        if self._token_expiry is not None:
            self._token_expiry.stop()
        if self._housekeeping_timer is not None:
            self._housekeeping_timer.cancel()
        self.watch.stop()
        if self.housekeeping is not None:
            self.housekeeping.stop()

    async def close(self, *, keeps_data: bool = True) -> None:
        """Stops the broker's parts. Called after the last request has arrived.

        `keeps_data` is true if the directory will be used for another start. Raises LogFailed or OSError if the log
        could not be closed cleanly. In that case, the next start re-reads the log.
        """
        if self.has_started("shares"):
            self.shares.stop()
        if self.has_started("share_coordinator"):
            self.share_coordinator.repeat_markers()
            self.share_coordinator.stop()
        if self.has_started("transactions"):
            self.transactions.record_completions()
            self.transactions.stop()
        if self.has_started("groups"):
            self.groups.stop()
        self._flush.flush()
        pools = (self._sync_threads, self.codec_thread, self._decompression_threads, self.workers)
        threads = [thread for pool in pools for thread in pool.end()]
        if threads and not self.is_alone:
            await asyncio.to_thread(join, threads)
        join(threads)
        # If many thread jobs have finished, the loop handles their results over several turns. A result may start
        # another job: when a sync finishes, the next waiting partition is synced.
        while not all(pool.is_idle for pool in pools):
            await asyncio.sleep(0)
        if not keeps_data:
            self.metadata.abandon()
            await self._work(self.log_directory.steps_of_abandon())
            return
        try:
            await self._work(self.metadata.closing())
        except (LogFailed, OSError):
            await self._work(self.log_directory.steps_of_abandon())
            raise
        await self._work(self.log_directory.closing(self.metadata.broker_epoch))

    async def _work(self, steps: Iterator[None]) -> None:
        """Runs all steps. If the process runs other brokers too, they can serve their clients between the steps."""
        if not self.is_alone:
            await work_in_slices(steps)
        for _ in steps:  # without pauses, because no other broker runs in this process
            pass

    def release_parts(self) -> None:
        """Drops the broker's references to its parts. Called some time after `close`.

        The broker and its parts refer to one another. Without this call, only a garbage collection could free the
        parts, and a collection would pause the other brokers in this process. Does nothing while any of the broker's
        tasks is still running.
        """
        if not self._tasks:
            self._flush.end()
            vars(self).clear()

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @cached_property
    def fetch_sessions(self) -> FetchSessions:
        return self.new_fetch_sessions()

    def new_fetch_sessions(self) -> FetchSessions:
        from random import randint

        from odradek.broker.fetch.sessions import MAX_SESSION_ID, FetchSessions

        slots = self.config.max_incremental_fetch_session_cache_slots
        return FetchSessions(slots, lambda: self.steps.session_id(randint(1, MAX_SESSION_ID)))

    @cached_property
    def groups(self) -> GroupCoordinator:
        from odradek.broker.coordinators.on_demand import start_groups

        return start_groups(self)

    @cached_property
    def transactions(self) -> TransactionCoordinator:
        from odradek.broker.coordinators.on_demand import start_transactions

        return start_transactions(self)

    @cached_property
    def markers(self) -> TopicMarkerWriter:
        from odradek.broker.coordinators.on_demand import make_markers

        return self.steps.markers(make_markers(self))

    @cached_property
    def verifier(self) -> Verifier:
        from odradek.broker.coordinators.on_demand import make_verifier

        return self.steps.verifier(make_verifier(self))

    @cached_property
    def share_coordinator(self) -> ShareCoordinator:
        from odradek.broker.coordinators.on_demand import start_share_coordinator

        return start_share_coordinator(self)

    @cached_property
    def shares(self) -> SharePartitionManager:
        from odradek.broker.shares.leader.shares import make_shares

        return make_shares(self, self.steps)

    @cached_property
    def share_markers(self) -> ShareMarkers:
        from odradek.broker.shares.leader.markers import ShareMarkers

        return ShareMarkers(lambda: self.share_coordinator, lambda: self.shares if self.has_started("shares") else None)

    @property
    def rules(self) -> KafkaRules:
        """The Kafka release whose rules this broker follows if releases differ."""
        return self.offered.rules

    @property
    def is_settled(self) -> bool:
        """True if the broker has no work in progress, except for requests waiting for clients or for time to pass."""
        threads = (self.workers, self.codec_thread, self._decompression_threads, self._sync_threads)
        return self._loading == 0 and all(each.is_idle for each in threads)

    def flush_appends(self) -> None:
        """Writes the appended batches now instead of at the end of this turn of the loop, so that the files contain
        everything in the logs."""
        self._flush.flush()

    def has_started(self, coordinator: str) -> bool:
        """Returns whether a lazily created part of the broker exists. Accessing its attribute would create the part."""
        return coordinator in vars(self)

    # The following methods are called after a commit to the metadata log, in the order of the committed records. A
    # coordinator that has not started yet does not need these calls, because it reads the metadata when it starts.

    def topic_created(self, topic: TopicImage) -> Iterator[None]:
        yield from self.partitions.opening_topic(topic)
        self._notify_coordinator(topic)

    def partitions_added(self, topic: TopicImage) -> Iterator[None]:
        yield from self.topic_created(topic)

    def topic_deleted(self, topic: TopicImage) -> Iterator[None]:
        yield from self.partitions.deleting_topic(topic)
        # no topic can be created with this name before the sync
        self.metadata.hold_until(self._discards.sync_renames())
        if self.has_started("transactions"):
            self.metadata.hold_until(self.transactions.topic_deleted(topic.name))
        if self.has_started("markers"):
            self.markers.topic_deleted(topic.name)
        if self.has_started("shares"):
            self.shares.topic_deleted(topic.topic_id)
        if self.has_started("share_coordinator"):
            self.share_coordinator.topic_deleted(topic.name, topic.topic_id)
        if self.has_started("groups") and topic.name == GROUP_OFFSETS:
            self.groups.offsets_topic_deleted()
        elif self.has_started("groups"):
            self.groups.topic_deleted(topic.name, topic.topic_id)

    def _notify_coordinator(self, topic: TopicImage) -> None:
        if topic.name == GROUP_OFFSETS and self.has_started("groups"):
            self.groups.offsets_topic_created(len(topic.partitions))
        elif topic.name == TRANSACTION_STATE and self.has_started("transactions"):
            self.transactions.state_topic_created(len(topic.partitions))
        elif topic.name == SHARE_GROUP_STATE and self.has_started("share_coordinator"):
            self.share_coordinator.state_topic_created(len(topic.partitions))

    def topic_config_changed(self, topic: str) -> None:
        self.partitions.topic_config_changed(topic)

    def group_config_changed(self, group_id: str) -> None:
        if self.has_started("shares"):
            self.shares.group_config_changed(group_id)

    def broker_config_changed(self) -> None:
        self.partitions.broker_config_changed()
        if self.certificates is not None:
            self.certificates.refresh()
        if self.sasl_listeners is not None:
            self.sasl_listeners.refresh()
        self.limits_changed()

    def client_quotas_changed(self) -> None:
        self.limits_changed()

    def features_changed(self) -> None:
        if self.has_started("shares"):
            self.shares.features_changed()

    def _open_log_directory(self) -> LogDirectory:
        path = self.config.data_directory.as_posix()
        identity = DirectoryId(
            node_id=self.config.node_id,
            cluster_id=self.config.odradek_cluster_id,
            new_cluster_id=topic_id_text(random_uuid()),
            new_directory_id=topic_id_text(random_uuid()),
        )
        try:
            directory = LogDirectory.open(
                self._disk,
                path,
                identity,
                tail_cache=TailCache(self.config.odradek_tail_cache_bytes),
                jitter_ms=random_below,
            )
            directory.register_copied_states(self._copied_states)
            self._copied_states = {}
            return directory
        except DirectoryInUse:
            raise CannotStart(
                f"the data directory {path} is in use by another broker: stop that broker, or choose another"
                " directory with --data-dir"
            ) from None
        except WrongDirectory as error:
            raise CannotStart(str(error)) from None
        except OSError as error:
            raise CannotStart(f"the data directory {path} cannot be used: {error}{_way_out(error)}") from None

    def _stores_pending(self) -> Steps[bool]:
        from odradek.broker.coordinators.stored_pending import stores_pending

        return stores_pending(self._disk, self.log_directory.path, self.log_directory.partitions())

    def _open_metadata(self) -> Iterator[None]:
        if self.config.odradek_share_transactions and SHARE_TRANSACTIONS not in self.offered.features:
            raise CannotStart(
                f"{SHARE_TRANSACTIONS}=1 cannot be combined with the emulation of a release of Kafka, because no"
                " release of Kafka has this feature. Remove one of the two"
            )
        try:
            self.metadata = yield from ClusterMetadata.opening(
                self._disk,
                self.log_directory,
                self.config,
                self.clock,
                self.workers,
                endpoints=self.advertised_listeners,
                new_uuid=random_uuid,
                later=self.loop.call_soon,
                first_levels=self.offered.first_levels,
                rules=self.rules,
                placed=self.steps.adapt_decision,
                stores_pending=self._stores_pending,
            )
        except (CorruptMetadata, KafkaError) as error:
            raise CannotStart(f"the cluster metadata in {self.log_directory.path} cannot be read: {error}") from error

    def _open_partitions(self) -> Iterator[None]:
        image = self.metadata.image
        self.two_phase = TwoPhaseProducers(are_all_known=TRANSACTION_STATE not in image.topics)
        self.seals = Seals()
        self._discards = DirectoryRemovals(self._disk, self.log_directory.path, self.timers, self.workers)
        self.partitions = Partitions(
            image,
            self.log_directory,
            node_id=self.config.node_id,
            log_config=lambda topic: self.config.log_config(image.topic_configs(topic), self.rules),
            clock=self.clock,
            flush=self._flush,
            syncs=self.syncs,
            discard=self._discards.discard,
            new_uuid=random_uuid,
            two_phase=self.two_phase,
            seals=self.seals,
            on_created=self.steps.log_created,
        )
        yield from self.partitions.opening()
        self.producer_ids = self.steps.producer_ids(ProducerIds(self.metadata, self.timers))

    def _start_housekeeping(self) -> None:
        try:
            from odradek.broker.partitions.housekeeping import Housekeeping, chores
            from odradek.broker.runtime.allocator import keep_freed_memory
        except OSError as error:  # clients may have used up the file descriptors, and an import needs one
            log.warning("housekeeping could not start; trying again: %s", error)
            self._housekeeping_timer = self.timers.after(HOUSEKEEPING_AFTER_MS, self._start_housekeeping)
            return
        self.housekeeping = Housekeeping(
            chores(self.config, self.log_directory, self.clock, self.timers, self.workers),
            lambda: self.partitions,
            self.clock,
            WatchedTimers(self.timers, self.watch, "housekeeping"),
        )
        self.housekeeping.start(self.config.log_initial_task_delay_ms)
        keep_freed_memory()

    def load(self, coroutine: Coroutine[Any, Any, None], topic: str) -> None:
        """Starts loading partitions of a coordinator's topic."""
        self.steps.load(topic, partial(self._load_now, coroutine))

    def _load_now(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine that loads partitions. The loaded objects stay in memory, so the garbage collector is
        disabled while they are created. If no other broker runs in the process, later collections skip these objects
        too."""
        gc.disable()
        self._loading += 1
        self.spawn(coroutine).add_done_callback(self._loaded)

    def _loaded(self, _: asyncio.Task[None]) -> None:
        self._loading -= 1
        if self._loading == 0:
            if self.is_alone:
                gc.freeze()
            gc.enable()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs a coroutine as a task on the loop."""
        # The loop holds only a weak reference to the task. Without a reference here, a running task could be
        # garbage-collected.
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _way_out(error: OSError) -> str:
    """Returns advice for an operator if this process cannot write to the data directory, otherwise an empty string."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"; let the user of this process ({this_user()}) write to it, or choose another with --data-dir"
    if error.errno == errno.EROFS:
        return "; mount its file system for writing, or choose another directory with --data-dir"
    return ""
