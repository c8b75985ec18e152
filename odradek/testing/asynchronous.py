"""Controls Odradek from asyncio tests.

    async with await Odradek.start() as odradek, await odradek.cluster() as kafka:
        await kafka.fault({"match": {"api": "EndTxn"}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 3})
        await my_client(kafka.bootstrap)

Each method calls the method of the same name in `odradek.testing.sync` in a thread, so that the event loop is not
blocked. If a call is cancelled, its thread continues until the broker responds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from odradek.testing import sync
from odradek.testing.sync import Json

MAX_CALLS = 256  # maximum number of concurrent calls; additional calls wait

P = ParamSpec("P")
R = TypeVar("R")


class RunsInThreads(Protocol):
    threads: ThreadPoolExecutor

    @property
    def plain(self) -> object:
        """The corresponding object of the blocking interface."""


class InThread(Generic[P, R]):
    """Turns a method of the blocking interface into a coroutine function that runs it in a thread."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, one: RunsInThreads, owner: type) -> Callable[P, Coroutine[Any, Any, R]]:
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return await run(one.threads, partial(self._method, one.plain, *args, **kwargs))

        return call


async def run(threads: ThreadPoolExecutor, call: Callable[[], R]) -> R:
    return await asyncio.get_running_loop().run_in_executor(threads, call)


class Odradek:
    """An Odradek process with its control interface. `host` and `port` are the address of the process's HTTP port.

    Use `start` to run a new process, or the constructor to connect to a running one. When an `async with` statement
    exits, it stops a process created by `start`.
    """

    def __init__(self, host: str, port: int, *, token: str | None = None) -> None:
        self.plain = sync.Odradek(host, port, token=token)
        self.threads = ThreadPoolExecutor(MAX_CALLS, "odradek-testing")

    @classmethod
    async def start(cls, **settings: str) -> Odradek:
        """Starts `odradek serve --control` on free ports, with a temporary data directory that is removed when the
        process exits. `settings` are broker settings. Raises RuntimeError if the process does not start."""
        plain = await asyncio.to_thread(sync.Odradek.start, **settings)
        started = cls(plain.host, plain.port)
        started.plain = plain
        return started

    async def __aenter__(self) -> Odradek:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stops the process if `start` created it. Call this method last, because no other method works afterwards."""
        await run(self.threads, self.plain.stop)
        self.threads.shutdown(wait=False)

    @property
    def host(self) -> str:
        return self.plain.host

    @property
    def port(self) -> int:
        return self.plain.port

    call = InThread(sync.Odradek.call)
    stream = InThread(sync.Odradek.stream)

    @property
    async def default(self) -> Cluster:
        """The cluster that exists when the process starts. This property returns an awaitable."""
        return Cluster(self.threads, await run(self.threads, lambda: self.plain.default))

    async def cluster(
        self,
        *,
        settings: Mapping[str, Json] | None = None,
        fork: Cluster | None = None,
        ttl_s: int | None = None,
        nodes: int | Sequence[int] | None = None,
        topics: Mapping[str, int] | None = None,
        preset: str | tuple[str, Mapping[str, Json]] | None = None,
        emulate: str | None = None,
        listeners: Sequence[Mapping[str, Json]] | None = None,
        users: Mapping[str, str] | None = None,
        seed: str | Path | Mapping[str, Json] | None = None,
    ) -> Cluster:
        """Creates a fresh cluster, or a copy of the cluster `fork`. The arguments are those of
        `odradek.testing.sync.Odradek.cluster`."""
        source = None if fork is None else fork.plain
        make = partial(
            self.plain.cluster,
            settings=settings,
            fork=source,
            ttl_s=ttl_s,
            nodes=nodes,
            topics=topics,
            preset=preset,
            emulate=emulate,
            listeners=listeners,
            users=users,
            seed=seed,
        )
        return Cluster(self.threads, await run(self.threads, make))


class Cluster:
    """A cluster running in an Odradek process. It has the attributes and methods of `odradek.testing.sync.Cluster`, but
    its methods are coroutines.

    When an `async with` statement exits, it deletes the cluster and raises `Unused` if a fault rule had no effect.
    """

    def __init__(self, threads: ThreadPoolExecutor, plain: sync.Cluster) -> None:
        self.plain = plain
        self.threads = threads
        self.id = plain.id
        self.bootstrap = plain.bootstrap
        self.listeners = plain.listeners
        self.ca_certificate = plain.ca_certificate
        self.client_certificates = plain.client_certificates
        self.schema_registry = plain.schema_registry
        self.clock = Clock(threads, plain.clock)

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await run(self.threads, partial(self.plain.__exit__, kind, error, at))

    call = InThread(sync.Cluster.call)
    fault = InThread(sync.Cluster.fault)
    faults = InThread(sync.Cluster.faults)
    check_faults = InThread(sync.Cluster.check_faults)
    clear_faults = InThread(sync.Cluster.clear_faults)
    holds = InThread(sync.Cluster.holds)
    release = InThread(sync.Cluster.release)
    wait = InThread(sync.Cluster.wait)
    requests = InThread(sync.Cluster.requests)
    partitions = InThread(sync.Cluster.partitions)
    transactions = InThread(sync.Cluster.transactions)
    groups = InThread(sync.Cluster.groups)
    share_partitions = InThread(sync.Cluster.share_partitions)
    producers = InThread(sync.Cluster.producers)
    sessions = InThread(sync.Cluster.sessions)
    connections = InThread(sync.Cluster.connections)
    preset = InThread(sync.Cluster.preset)
    presets = InThread(sync.Cluster.presets)
    odd = InThread(sync.Cluster.odd)
    checkpoint = InThread(sync.Cluster.checkpoint)
    rewind = InThread(sync.Cluster.rewind)
    crash = InThread(sync.Cluster.crash)
    restart = InThread(sync.Cluster.restart)
    nodes = InThread(sync.Cluster.nodes)
    stop_node = InThread(sync.Cluster.stop_node)
    start_node = InThread(sync.Cluster.start_node)
    cut_off = InThread(sync.Cluster.cut_off)
    move_leader = InThread(sync.Cluster.move_leader)
    put_in_rack = InThread(sync.Cluster.put_in_rack)
    follow = InThread(sync.Cluster.follow)
    truncate = InThread(sync.Cluster.truncate)
    move_coordinator = InThread(sync.Cluster.move_coordinator)
    record = InThread(sync.Cluster.record)
    lease = InThread(sync.Cluster.lease)
    delete = InThread(sync.Cluster.delete)


class Clock:
    """A cluster's clock. Times are in milliseconds since the epoch."""

    def __init__(self, threads: ThreadPoolExecutor, plain: sync.Clock) -> None:
        self.plain = plain
        self.threads = threads

    @property
    def now_ms(self) -> Awaitable[int]:
        """The cluster's time. This property returns an awaitable."""
        return run(self.threads, lambda: self.plain.now_ms)

    freeze = InThread(sync.Clock.freeze)
    resume = InThread(sync.Clock.resume)
    advance = InThread(sync.Clock.advance)
    set = InThread(sync.Clock.set)
