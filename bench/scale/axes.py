"""The scale benchmark's axes, and the requests measured at each size."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.clients import percentiles
from bench.coordinators import GROUP, TRANSACTION, await_coordinator
from bench.guard.comparison import cost
from bench.process_usage import cpu_seconds
from bench.scale.sparse_log import write_sparse_log
from bench.subjects import Subject
from bench.topics import create, wait_until_led
from bench.transactions import RawTransactions
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.records import NewRecord, build_batch
from tests.support.broker_process import Broker
from tests.support.requests import produce_request
from tests.support.wire import Wire

PRODUCE_VERSION, JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = 9, 3, 3, 4
PER_TOPIC = 1_000  # partitions per topic
CONNECTIONS = 32  # number of connections in measurements that vary something else
IN_FLIGHT = 32
TURNS, PER_TURN = 40, 192  # requests that measure CPU time, many in flight; only the quietest turns are used
ROUNDS, PER_ROUND = 8, 500  # requests that measure p99, one at a time; only the quietest round is used
SESSION_TIMEOUT_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class Load:
    """The broker's CPU time per request and the p99 latency of its responses."""

    cpu_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the scale benchmark.

    measure  creates `size` objects on the subject's broker and measures requests
    is_back  waits until a restarted broker serves these objects again
    """

    name: str
    title: str
    request: str
    sizes: tuple[int, ...]
    measure: Callable[[Subject, int], Load]
    is_back: Callable[[Wire, int], None]


class Requests:
    """Sends requests over the connections in turn. The error code in each response is `error_at` bytes after its
    length."""

    def __init__(self, wires: Sequence[Wire], frames: Sequence[bytes], error_at: int) -> None:
        self._wires, self._frames, self._error_at = wires, frames, error_at
        self._next = 0

    def measure(self, broker: Broker) -> Load:
        assert broker.pid is not None
        self._run(max(len(self._wires), len(self._frames)))  # uses each connection and request once
        turns = []
        for _ in range(TURNS):
            before = cpu_seconds(broker.pid)
            self._run(PER_TURN)
            turns.append((cpu_seconds(broker.pid) - before) / PER_TURN * 1e6)
        rounds = [percentiles([self._probe() for _ in range(PER_ROUND)])["p99_us"] for _ in range(ROUNDS)]
        return Load(cost(turns), min(rounds))

    def _run(self, count: int) -> None:
        left = count
        while left > 0:
            used = [self._send() for _ in range(min(IN_FLIGHT, left))]
            for wire in used:
                self._check(wire.receive_bytes())
            left -= len(used)

    def _probe(self) -> float:
        began = time.perf_counter()
        wire = self._send()
        self._check(wire.receive_bytes())
        return time.perf_counter() - began

    def _send(self) -> Wire:
        wire = self._wires[self._next % len(self._wires)]
        wire.send_bytes(self._frames[self._next % len(self._frames)])
        self._next += 1
        return wire

    def _check(self, answer: bytes) -> None:
        code = int.from_bytes(answer[self._error_at : self._error_at + 2], signed=True)
        if code:
            raise RuntimeError(f"a request was answered with error {code}")


def connections(subject: Subject, count: int) -> Load:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(subject.bootstrap)) for _ in range(count)]
        _create(wires[0], 8)
        return _produce(wires, 8).measure(subject.broker)


def partitions(subject: Subject, count: int) -> Load:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(subject.bootstrap, timeout_s=300)) for _ in range(CONNECTIONS)]
        _create(wires[0], count)
        return _produce(wires, count).measure(subject.broker)


def producers(subject: Subject, count: int) -> Load:
    """Runs one transaction at a time per producer, each producer on a separate connection. p99 is the latency of
    EndTxn, including the time that it spends in queues."""
    runs = [RawTransactions(count, 2).measure(subject, 0.5) for _ in range(3)]
    return Load(min(run["cpu_us_per_transaction"] for run in runs), min(run["p99_us"] for run in runs))


def log(subject: Subject, size_mb: int) -> Load:
    """Measures Produce requests to a large log. The log is written while the broker is stopped, and the broker recovers
    it before the measurement."""
    broker = subject.broker
    with Wire(broker.bootstrap) as wire:
        _create(wire, 1)
    broker.kill9()
    directory = broker.data_dir / f"{_topic(0)}-0"
    write_sparse_log(directory, size_mb)
    broker.start()
    forget_cached(directory)
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(subject.bootstrap)) for _ in range(CONNECTIONS)]
        return _produce(wires, 1).measure(broker)


def forget_cached(directory: Path) -> None:
    """Removes a log from the page cache. Otherwise its zeros would fill the cache."""
    for path in directory.glob("*.log"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def groups(subject: Subject, count: int) -> Load:
    """Measures heartbeats to classic groups with one member each."""
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(subject.bootstrap)) for _ in range(CONNECTIONS)]
        frames = [_member(wires[0], f"group-{number}") for number in range(count)]
        # The sum covers correlation id, tags and throttle time.
        return Requests(wires, frames, 4 + 1 + 4).measure(subject.broker)


def _topic(number: int) -> str:
    """Returns the name of a topic. All names have the same length."""
    return f"scale-{number:03d}"


def _create(wire: Wire, count: int) -> None:
    """Creates `count` partitions in topics with at most PER_TOPIC partitions each, because the number of partitions per
    request is limited."""
    for number, first in enumerate(range(0, count, PER_TOPIC)):
        create(wire, [_topic(number)], min(PER_TOPIC, count - first))
    _await_partitions(wire, count)


def _await_partitions(wire: Wire, count: int) -> None:
    wait_until_led(wire, [_topic(number) for number in range(-(-count // PER_TOPIC))])


def _produce(wires: Sequence[Wire], count: int) -> Requests:
    """Prepares 1 KiB Produce requests with acks=all, one for each partition."""
    batch = build_batch([NewRecord(None, os.urandom(1024), time.time_ns() // 1_000_000)])
    frames = [
        request_bytes(
            produce_request(_topic(index // PER_TOPIC), batch, partition=index % PER_TOPIC),
            PRODUCE_VERSION,
            1,
            "scale",
        )
        for index in range(count)
    ]
    # The sum covers correlation id, tags, number of topics, name with its length, number of partitions, and index.
    return Requests(wires, frames, 4 + 1 + 1 + 1 + len(_topic(0)) + 1 + 4)


def _member(wire: Wire, group_id: str) -> bytes:
    """Joins a group and returns the member's heartbeat."""
    await_coordinator(wire, GROUP, group_id)
    join = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    deadline = time.monotonic() + 60
    while (joined := wire.ask(join, JOIN_VERSION, JoinGroupResponse)).error_code and time.monotonic() < deadline:
        time.sleep(0.01)  # The coordinator is still loading.
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id)]
    sync = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=assignments,
    )
    wire.ask(sync, SYNC_VERSION)
    heartbeat = HeartbeatRequest(group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id)
    return request_bytes(heartbeat, HEARTBEAT_VERSION, 1, "scale")


AXES = (
    Axis(
        "connections",
        "Connections",
        "a Produce of 1 KiB over each connection in turn, 32 at a time; p99: one at a time",
        (1, 10, 100, 1_000, 10_000),
        connections,
        lambda wire, _: _await_partitions(wire, 8),
    ),
    Axis(
        "partitions",
        "Partitions",
        "a Produce of 1 KiB to each partition in turn, 32 at a time; p99: one at a time",
        (1, 10, 100, 1_000, 10_000),
        partitions,
        _await_partitions,
    ),
    Axis(
        "producers",
        "Transactional producers",
        "a transaction of one record (version 2), all producers at the same time; p99: EndTxn under that load",
        (1, 4, 16, 64, 256),
        producers,
        lambda wire, _: await_coordinator(wire, TRANSACTION, "bench"),
    ),
    Axis(
        "log",
        "Size of a log",
        "a Produce of 1 KiB to its end, 32 at a time; p99: one at a time",
        (10, 100, 1_000, 10_000, 50_000),
        log,
        lambda wire, _: _await_partitions(wire, 1),
    ),
    Axis(
        "groups",
        "Groups",
        "a heartbeat of each classic group in turn, 32 at a time; p99: one at a time",
        (1, 10, 100, 1_000),
        groups,
        lambda wire, _: await_coordinator(wire, GROUP, "group-0"),
    ),
)
