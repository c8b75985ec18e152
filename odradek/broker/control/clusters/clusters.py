"""Runs many clusters in one process. Each cluster has its own broker, ports, directory, clock and faults.

The broker that `odradek serve` starts is the cluster `default`. All other clusters store their files in one temporary
directory of the process, which is removed when the process stops. The directory is in memory if the machine has
/dev/shm.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, TypeAlias
from weakref import ref

from odradek.broker.broker import OFFERED
from odradek.broker.configuration.broker_settings import BROKER_SETTINGS
from odradek.broker.configuration.config import BrokerConfig, ConfigError, configure
from odradek.broker.configuration.listener_settings import setting_named
from odradek.broker.control.clusters.chosen_listeners import ListenersAndUsers, parse_listeners_and_users
from odradek.broker.control.clusters.copies import Copy, copy, fresh_root, nothing_more, remove
from odradek.broker.control.clusters.releases import Release
from odradek.broker.control.faults.faults import Faults
from odradek.broker.control.faults.steps import ControlledSteps
from odradek.broker.control.nodes.nodes import Nodes, ids_of_nodes
from odradek.broker.control.problems import Problem, invalid_field, unknown_field
from odradek.broker.network.controlled_connection import ControlledConnection
from odradek.broker.runtime.allocator import FrozenObjects, return_freed_memory
from odradek.broker.runtime.clock import LoopTimers, TimerHandle
from odradek.broker.runtime.controlled_time import ControlledTime
from odradek.broker.runtime.slices import work_in_slices
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.serving import Prepare, ServingBroker
from odradek.protocol.errors import KafkaError
from odradek.storage.disk import ChangeTrackingDisk
from odradek.storage.log import LogFailed
from odradek.storage.log_state import CopiedLogs, CopiedLogState

if TYPE_CHECKING:
    from odradek.broker.control.recording.recorder import Recorder
    from odradek.broker.http.connections import AddRoutes
    from odradek.broker.in_process.client import InProcessClient
    from odradek.protocol.topic_partition import TopicPartition

log = logging.getLogger("odradek.clusters")

DEFAULT = "default"
MAX_CLUSTERS = 2000
MAX_CHECKPOINTS = 100  # maximum number of checkpoints per cluster
CLOSED_BROKERS_PER_RETURN = 50  # freed memory is returned to the kernel after this many brokers have stopped
RETURN_MS = 1_000  # delay before memory is returned, to include the memory of brokers that stop during the delay
# Delay before the parts of a closed broker are released, because its connections' callbacks may still run. After a
# second delay of the same length, the broker object should have been freed.
RELEASE_DELAY_MS = 500
CopiedLogStates: TypeAlias = "Mapping[TopicPartition, CopiedLogState]"
REGISTRY_PORT = "odradek.schema.registry.port"
# Default settings of clusters created by tests. If the schema registry is enabled, it gets a free port, like a
# listener.
TEST_CLUSTER_DEFAULTS = {"odradek.control.requests.enable": "true", REGISTRY_PORT: "0"}
# number of idle turns of the loop after which a broker is considered idle, because one turn can leave work for the next
QUIET_TURNS = 3
LISTENER_SETTINGS = frozenset({"listeners", "listener.security.protocol.map"})
OWNED = LISTENER_SETTINGS | {"log.dirs", "log.dir", "odradek.port", "odradek.http.port", "odradek.control.enable"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    now_ms: int
    copied_states: CopiedLogStates


@dataclass(slots=True)
class Cluster:
    id: str
    settings: Mapping[str, str]
    directory: Path
    time: ControlledTime
    faults: Faults
    release: Release | None = None  # the release of Kafka that the cluster emulates
    serving: ServingBroker | None = None  # None after a crash and during a restart
    nodes: Nodes | None = None
    node_ids: Sequence[int] = ()  # the broker's own id is the first
    listeners_and_users: ListenersAndUsers = field(default_factory=ListenersAndUsers)
    ports: dict[tuple[int, str], int] = field(default_factory=dict)  # by node and listener; kept across restarts
    registry_port: int = 0  # port of the schema registry; kept across restarts; 0 if the cluster has no registry
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    copied_states: CopiedLogStates = field(
        default_factory=dict
    )  # log states of the copied files, so that the next start need not read the logs
    is_cut_off: bool = False  # whether a crash in progress has already disconnected the clients
    lease: TimerHandle | None = None
    ttl_s: int | None = None
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    preset_clients: list[InProcessClient] = field(default_factory=list)
    token: str = field(default_factory=token_urlsafe)  # authorizes calls to this cluster only
    disk: ChangeTrackingDisk = field(default_factory=ChangeTrackingDisk)
    end: str | None = None  # reason the cluster is gone or being removed; None while it exists

    @property
    def running(self) -> ServingBroker:
        """The cluster's broker. Raises Problem if the broker is not running."""
        if self.serving is None:
            raise self._not_running()
        return self.serving

    @property
    def running_nodes(self) -> Nodes:
        """The running broker's nodes. Raises Problem if the broker is not running."""
        if self.nodes is None:
            raise self._not_running()
        return self.nodes

    def _not_running(self) -> Problem:
        self.require_there()
        if self.is_restarting:
            return Problem(409, f"cluster {self.id} is restarting: try again")
        return Problem(409, f"cluster {self.id} has crashed: restart it first")

    @property
    def is_restarting(self) -> bool:
        """True if the broker is down because a call is starting, stopping or restarting it."""
        return self.serving is None and self.changing.locked()

    def require_there(self) -> None:
        """Raises Problem with the reason if the cluster no longer exists."""
        if self.end is not None:
            raise Problem(404, f"cluster {self.id} no longer exists: {self.end}")

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Allows only one call at a time to change the cluster. Raises Problem if the cluster was removed while the
        call waited for its turn."""
        async with self.changing:
            self.require_there()
            yield

    async def wait_until_idle(self, gives_up: Callable[[], bool] = bool) -> None:
        """Waits until the broker has nothing to do except wait for clients and timers.

        gives_up  called in each turn of the event loop; the wait ends when it returns True
        """
        quiet = 0
        while quiet < QUIET_TURNS and self.serving is not None and not gives_up():
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.serving.broker.is_settled else 0

    def as_json(self) -> dict[str, object]:
        nodes = [] if self.nodes is None else [node.as_json() for node in self.nodes]
        registry = None if self.serving is None else self.serving.registry
        return {
            "id": self.id,
            "bootstrap": ",".join(f"{each['host']}:{each['port']}" for each in nodes),
            "nodes": nodes,
            "listeners": [] if self.nodes is None else [*self._listeners(self.nodes)],
            "ca_certificate": None if self.listeners_and_users.issued is None else self.listeners_and_users.issued.ca,
            "schema_registry": None if registry is None else registry.url,
            "state": "crashed" if self.serving is None else "running",
            "emulates": None if self.release is None else self.release.name,
            "checkpoints": sorted(self.checkpoints),
        }

    def _listeners(self, nodes: Nodes) -> Iterator[dict[str, object]]:
        sasl = self.running.broker.sasl_listeners
        for first, *others in zip(*(node.listeners for node in nodes), strict=True):
            yield {
                "name": first.name,
                "protocol": first.security_protocol,
                "bootstrap": ",".join(f"{each.host}:{each.port}" for each in (first, *others)),
                "mechanisms": list(sasl.offers(first.name)) if sasl is not None and first.name in sasl else [],
            }


class Clusters:
    """All clusters in the process. Not thread-safe: all methods must be called in the event loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        return_memory: Callable[[], object] = return_freed_memory,
        *,
        copy: Copy = copy,
    ) -> None:
        """Creates an empty collection of clusters.

        return_memory  returns freed memory to the kernel; called after many brokers have stopped
        copy           copies a cluster's files; tests replace it with a function that fails
        """
        self._loop = loop
        self._return_memory = return_memory
        self._copy = copy
        self._system = LoopTimers(loop)
        self._clusters: dict[str, Cluster] = {}
        self._numbers = 0
        self._copies = count(1)
        self._objects = FrozenObjects()
        self._released_brokers = 0  # number of brokers that have stopped since memory was last returned
        self._root: Path | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def start_default(
        self,
        config: BrokerConfig,
        add_routes: AddRoutes,
        recorder: Recorder | None = None,
        release: Release | None = None,
        prepare: Prepare | None = None,
    ) -> ServingBroker:
        """Starts the process's broker as the cluster `default`. Raises the same errors as `ServingBroker.start`.

        add_routes  a function that adds the control interface to the broker's HTTP port
        recorder    records the exchanges as the clients see them
        release     the release of Kafka that the broker emulates
        prepare     see `ServingBroker`
        """
        time = ControlledTime(self._loop)
        cluster = Cluster(DEFAULT, {}, config.data_directory, time, Faults(time, self._loop.time, recorder), release)
        steps = ControlledSteps(cluster.faults, cluster.time)
        serving = self._serving(cluster, config, steps, add_routes, prepare)
        cluster.node_ids = (config.node_id,)
        self._clusters[DEFAULT] = cluster
        await self._start(cluster, serving, steps)
        return serving

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self._clusters.values())

    def find(self, name: str | None) -> Cluster | None:
        return None if name is None else self._clusters.get(name)

    def get(self, name: str) -> Cluster:
        """Returns the cluster with this name. Raises Problem if the cluster does not exist."""
        cluster = self.find(name)
        if cluster is None:
            raise Problem(404, f"there is no cluster {name}")
        return cluster

    async def create(
        self,
        settings: Mapping[str, object],
        fork: str | None,
        ttl_s: int | None,
        nodes: int | Sequence[int] | None = None,
        release: Release | None = None,
        listeners: object = None,
        users: object = None,
    ) -> Cluster:
        """Creates and starts a cluster. Raises Problem.

        fork       name of a cluster to copy. The new cluster has the same logs, coordinators, clock, listeners and
                   users, but other ports
        ttl_s      the lease: the cluster is deleted after this time unless the lease is renewed; None for no lease
        nodes      the number of nodes, or their ids; None for the forked cluster's nodes, or for one node if `fork` is
                   None
        release    the release of Kafka to emulate; must be None for a fork, which emulates the release of its source
        listeners  a list of objects, see `chosen_listeners.py`; None for the listeners of the forked cluster, or one
                   listener without TLS and SASL if `fork` is None
        users      passwords by user name; None for the users of the forked cluster
        """
        if len(self._clusters) >= MAX_CLUSTERS:
            raise Problem(409, f"at most {MAX_CLUSTERS} clusters can exist at a time: delete one first")
        source = None if fork is None else self.get(fork)
        if source is not None and release is not None:
            raise Problem(400, "a fork emulates the same release as its source: leave out emulate", field="emulate")
        checked = _checked_settings(settings)
        node_ids = ids_of_nodes(nodes, checked, None if source is None else source.node_ids)
        chosen = parse_listeners_and_users(
            listeners, users, len(node_ids), None if source is None else source.listeners_and_users
        )
        self._numbers += 1
        name = f"c{self._numbers}"
        time = ControlledTime(self._loop, None if source is None else source.time.now_ms())
        if source is not None:
            # The registry's port is not inherited, because the source's registry is still listening on it.
            inherited = {each: value for each, value in source.settings.items() if each != REGISTRY_PORT}
        else:
            inherited = {} if release is None else dict(release.defaults)
        cluster = Cluster(name, {**inherited, **checked}, self._directory(name), time, Faults(time, self._loop.time))
        cluster.release = release if source is None else source.release
        cluster.node_ids = node_ids
        cluster.listeners_and_users, cluster.ports = chosen, chosen.ports(node_ids)
        self._clusters[name] = cluster
        async with cluster.changing:
            try:
                if source is not None:
                    await self._fork(source, cluster)
                await self._start_again(cluster)
                if chosen.users:
                    await cluster.running_nodes.decide(chosen.scram_decision)
            except (Problem, OSError, KafkaError):
                await self._end(cluster)
                await self._remove_cluster(cluster)
                raise
        self.set_lease(cluster, ttl_s)
        return cluster

    def set_lease(self, cluster: Cluster, ttl_s: int | None) -> None:
        """Deletes the cluster after `ttl_s` seconds of system time, unless `set_lease` is called again first.

        ttl_s  None to end the lease
        """
        if cluster.lease is not None:
            cluster.lease.cancel()
        cluster.ttl_s = ttl_s
        cluster.lease = (
            None if ttl_s is None else self._system.after(ttl_s * 1000, lambda: self._delete_expired(cluster))
        )

    async def delete(self, name: str, why: str = "it was deleted") -> None:
        """Deletes a cluster and its files. Raises Problem.

        why  the reason reported to calls still waiting for this cluster
        """
        cluster = self.require_own(name)
        cluster.require_there()
        cluster.end = why
        async with cluster.changing:
            await self._end(cluster)
        await self._remove_cluster(cluster)

    async def crash(self, name: str) -> None:
        """Kills the broker and leaves its files as `kill -9` would: with all written data but without buffered data.

        Raises Problem if the files cannot be copied. The broker then continues to run, unless clients were already
        disconnected. In that case, the broker is stopped cleanly and can be restarted.
        """
        cluster = self.require_own(name)
        async with cluster.change():
            left = self._next_directory(cluster)
            # Clients are disconnected in the same turn of the event loop as the copy is made, because the copy would
            # lack any writes acknowledged later.
            cut = partial(_abort_connections, cluster, cluster.running_nodes)
            try:
                await self._copy_files(cluster, left, flushes=False, and_then=cut)
            except Problem:
                if cluster.is_cut_off:
                    await self._end(cluster, keeps_data=True)
                raise
            await self._continue_copy(left, cluster)

    async def restart(self, name: str, *, is_clean: bool) -> Cluster:
        """Stops a running cluster, either cleanly or by a crash, and starts it again with its data. Raises Problem."""
        cluster = self.require_own(name)
        if not is_clean and cluster.serving is not None:
            await self.crash(name)
        async with cluster.change():
            await self._end(cluster, keeps_data=True)
            await self._start_again(cluster)
        return cluster

    async def checkpoint(self, name: str, mark: str) -> None:
        """Copies a cluster's files as the checkpoint `mark`, which replaces any older checkpoint of that name. Raises
        Problem."""
        cluster = self.get(name)
        if len(cluster.checkpoints) >= MAX_CHECKPOINTS:
            raise Problem(
                409, f"a cluster has at most {MAX_CHECKPOINTS} checkpoints: reuse the name of one to replace it"
            )
        async with cluster.change():
            await cluster.wait_until_idle()
            cluster.checkpoints.pop(mark, None)
            cluster.checkpoints[mark] = await self._copy_files(cluster, self._checkpoint(cluster, mark))

    async def rewind(self, name: str, mark: str) -> Cluster:
        """Restarts a cluster with a checkpoint's files and time.

        Raises Problem. If the checkpoint cannot be copied, the cluster continues to run.
        """
        cluster = self.require_own(name)
        if mark not in cluster.checkpoints:
            raise unknown_field("name", mark, cluster.checkpoints)
        checkpoint = cluster.checkpoints[mark]
        async with cluster.change():
            copied = self._next_directory(cluster)
            await self._write_copy(cluster, self._checkpoint(cluster, mark), copied)
            await self._continue_copy(copied, cluster)
            self._set_to(cluster, checkpoint, is_frozen=cluster.time.is_frozen)
            await self._start_again(cluster)
        return cluster

    async def close(self) -> None:
        """Deletes all clusters except `default`. The process stops the broker of `default` itself."""
        for cluster in list(self._clusters.values()):
            if cluster.id != DEFAULT and cluster.end is None:
                await self.delete(cluster.id, "its process is stopping")
        self._clusters.pop(DEFAULT, None)
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)

    def _serving(
        self,
        cluster: Cluster,
        config: BrokerConfig,
        steps: ControlledSteps,
        add_routes: AddRoutes | None = None,
        prepare: Prepare | None = None,
    ) -> ServingBroker:
        cluster.faults.exchanges.are_kept = config.odradek_control_requests_enable
        copied_states, cluster.copied_states = cluster.copied_states, {}
        return ServingBroker(
            config,
            self._loop,
            time=cluster.time,
            add_routes=add_routes,
            is_alone=cluster.id == DEFAULT,
            make_connection=ControlledConnection,
            disk=cluster.disk,
            steps=steps,
            offered=OFFERED if cluster.release is None else cluster.release.offered,
            copied_states=copied_states,
            prepare=prepare,
        )

    async def _start_again(self, cluster: Cluster) -> None:
        node_id = cluster.node_ids[0]
        own = {"log.dirs": str(cluster.directory), "odradek.http.port": "-1", "node.id": str(node_id)}
        listener_settings = cluster.listeners_and_users.settings(node_id, cluster.ports)
        own |= {name: listener_settings[name] for name in LISTENER_SETTINGS & listener_settings.keys()}
        if cluster.registry_port:
            own[REGISTRY_PORT] = str(cluster.registry_port)
        began = self._objects.cluster_starting()
        try:
            settings = {**TEST_CLUSTER_DEFAULTS, **listener_settings, **cluster.settings, **own}
            config, _ = configure({}, {}, settings, brokers=len(cluster.node_ids))
            steps = ControlledSteps(cluster.faults, cluster.time)
            await self._start(cluster, self._serving(cluster, config, steps), steps)
        except (CannotStart, ConfigError, KafkaError, OSError) as error:
            raise Problem(400, f"the cluster cannot start: {error}", field="settings") from error
        finally:
            self._objects.cluster_started(began)

    async def _start(self, cluster: Cluster, serving: ServingBroker, steps: ControlledSteps) -> None:
        await serving.start()
        cluster.serving, cluster.is_cut_off = serving, False
        cluster.registry_port = 0 if serving.registry is None else serving.registry.port
        nodes = steps.nodes = Nodes(serving, cluster.node_ids, cluster.ports)
        try:
            await nodes.open()
        except (CannotStart, OSError, KafkaError):
            await nodes.close()
            await serving.stop(0)
            cluster.serving = None
            raise
        cluster.nodes = nodes
        cluster.faults.attach(serving, nodes)

    async def _end(self, cluster: Cluster, *, keeps_data: bool = False) -> None:
        serving, cluster.serving = cluster.serving, None
        nodes, cluster.nodes = cluster.nodes, None
        cluster.faults.detach()
        for client in cluster.preset_clients:
            client.close()
        cluster.preset_clients.clear()
        if nodes is not None:
            await nodes.close()
        if serving is not None:
            try:
                await serving.stop(0, keeps_data=keeps_data)
            except (LogFailed, OSError) as error:
                log.warning(
                    "cluster %s could not stop cleanly, so its next start has to recover its logs: %s",
                    cluster.id,
                    error,
                )
            self._system.after(RELEASE_DELAY_MS, partial(self._release_broker, serving))
        cluster.time.stop()

    async def _fork(self, source: Cluster, cluster: Cluster) -> None:
        async with source.change():
            begins = await self._copy_files(source, cluster.directory)
            self._set_to(cluster, begins, is_frozen=source.time.is_frozen)

    def _set_to(self, cluster: Cluster, checkpoint: Checkpoint, *, is_frozen: bool) -> None:
        cluster.copied_states = checkpoint.copied_states
        cluster.time = ControlledTime(self._loop, checkpoint.now_ms, is_frozen=is_frozen)
        cluster.faults.use_clock(cluster.time)

    async def _copy_files(
        self, cluster: Cluster, to: Path, *, flushes: bool = True, and_then: Callable[[], None] = nothing_more
    ) -> Checkpoint:
        """Copies a cluster's files as they are at a single turn of the event loop.

        If the copy fails, it is removed, and Problem is raised.

        flushes   whether to write the appended but unwritten records before the copy is made
        and_then  called in the same turn of the event loop
        """
        serving, disk = cluster.serving, cluster.disk
        logs = CopiedLogs({} if serving is None else serving.broker.log_directory.logs)

        now_ms = cluster.time.now_ms()

        def changed() -> list[str]:
            nonlocal now_ms
            now_ms = cluster.time.now_ms()
            if serving is not None and flushes:
                serving.broker.flush_appends()
            return [*disk.end_notes(), *logs.look_again()]

        disk.begin_notes()
        try:
            await work_in_slices(logs.examining())
            await self._write_copy(cluster, cluster.directory, to, changed, and_then)
        finally:
            disk.end_notes()
        return Checkpoint(now_ms, logs.states)

    async def _write_copy(
        self,
        cluster: Cluster,
        directory: Path,
        to: Path,
        changed: Callable[[], list[str]] = list,
        and_then: Callable[[], None] = nothing_more,
    ) -> None:
        try:
            await self._copy(directory, to, changed=changed, and_then=and_then)
        except OSError as error:
            await remove([to])
            raise Problem(507, f"the files of cluster {cluster.id} cannot be copied: {error}") from error

    async def _continue_copy(self, copied: Path, cluster: Cluster) -> None:
        """Stops a cluster's broker and replaces its files with a copy.

        No directory is renamed, because Windows cannot rename a directory while a file in it is open, and a removed
        segment may still be open.
        """
        await self._end(cluster)
        removed, cluster.directory = cluster.directory, copied
        await remove([removed])

    async def _remove_cluster(self, cluster: Cluster) -> None:
        self.set_lease(cluster, None)
        self._clusters.pop(cluster.id, None)
        await remove([cluster.directory, *(self._checkpoint(cluster, mark) for mark in cluster.checkpoints)])

    def _release_broker(self, serving: ServingBroker) -> None:
        serving.release_parts()
        self._system.after(RELEASE_DELAY_MS, partial(self._objects.broker_ended, ref(serving.broker), self._clusters))
        self._released_brokers += 1
        if self._released_brokers == CLOSED_BROKERS_PER_RETURN:
            self._system.after(RETURN_MS, self._return_memory_soon)

    def _return_memory_soon(self) -> None:
        self._released_brokers = 0
        self._return_memory()

    def _delete_expired(self, cluster: Cluster) -> None:
        if cluster.end is not None:
            return
        task = self._loop.create_task(self.delete(cluster.id, f"its lease of {cluster.ttl_s} s has ended"))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def require_own(self, name: str) -> Cluster:
        if name == DEFAULT:
            raise Problem(
                409, "the cluster default is the broker of the process itself: create another cluster for this"
            )
        return self.get(name)

    def _directory(self, name: str) -> Path:
        if self._root is None:
            self._root = fresh_root()
        return self._root / name

    def _next_directory(self, cluster: Cluster) -> Path:
        """Returns a new path for a copy that becomes the cluster's directory."""
        return self._directory(f"{cluster.id}-{next(self._copies)}")

    def _checkpoint(self, cluster: Cluster, mark: str) -> Path:
        return self._directory(f"{cluster.id}-at-{mark.encode().hex()}")


def _checked_settings(settings: Mapping[str, object]) -> dict[str, str]:
    checked = {}
    for name, value in settings.items():
        if name.removeprefix("advertised.") in OWNED:
            raise Problem(
                400,
                f"settings.{name} cannot be set, because each cluster chooses its own value",
                field=f"settings.{name}",
            )
        if setting_named(name) is None:
            raise unknown_field(f"settings.{name}", name, BROKER_SETTINGS)
        if isinstance(value, dict | list) or value is None:
            raise invalid_field(f"settings.{name}", "a string, a number, true or false")
        checked[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return checked


def _abort_connections(cluster: Cluster, nodes: Nodes) -> None:
    cluster.is_cut_off = True
    for client in cluster.preset_clients:
        client.close()
    cluster.preset_clients.clear()
    for server, _, _ in nodes.running_servers():
        server.abort_connections()
