"""Measures another client's waits and the broker's memory during attacks with hostile requests.

make hostile               all attacks, also on Apache Kafka 4.3.1 (Java 17): the table in docs/using-security.md
make hostile ARGS=--quick  only this broker, a tenth of the work, and each array of each API (a step of .ci/run)

The measurement fails if a broker stops responding. The other client's waits are only shown, because they are meaningful
only on an idle machine. For the arrays, the broker's CPU time during the waits must stay within a limit.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from multiprocessing.synchronize import Event
from pathlib import Path

from bench import long_arrays as long_arrays_bench
from bench.hostile_contents import Content, contents
from bench.lifecycle import free_port
from bench.process_usage import MIB, rss_bytes
from bench.subjects import KAFKA, PURE, Subject, maker
from bench.variants import NotThere
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.records import NewRecord, build_batch
from tests.support.batches import changed
from tests.support.long_requests import (
    KNOWN,
    KNOWN_PARTITIONS,
    KNOWN_TOPIC,
    UNKNOWN,
    LongArray,
    long_arrays,
    long_request,
)
from tests.support.requests import produce_request
from tests.support.wire import ClosedByBroker, Wire

PATIENCE_S = 120.0  # response timeout, after which the broker is considered unresponsive
PAUSE_S = 0.002  # pause between the other client's requests
SETTLES_S = 1.0
API_VERSIONS = 3
PRODUCE = 9  # a Produce version with topic names
BOMB_BYTES = 500 * MIB
# Number of connections. A broker decompresses two batches at a time, so with more than two connections some must wait.
BOMBERS = 4
GZIP = 1
SLOW_CONNECTIONS = 250
HEAD = b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\n"  # a request that never ends
LIVE = b"GET /live/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"  # a request whose response never ends

# These APIs only read. Requests for other APIs would leave state behind.
ASKED = (
    ApiKey.METADATA,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.DESCRIBE_PRODUCERS,
)

CROWDED = ("METADATA-topics", "FETCH-topics.partitions", "DESCRIBE_CONFIGS-resources", "OFFSET_COMMIT-topics")
CROWDED_ENTRIES = 5_000


@dataclass(frozen=True, slots=True)
class Extent:
    """The amount of work. `crowd` is the number of connections that send requests at the same time."""

    entries: int
    max_entries: int
    seconds: float
    bombs: int
    crowd: int


FULL = Extent(entries=100_000, max_entries=1_000_000, seconds=5.0, bombs=1_000, crowd=500)
QUICK = Extent(entries=10_000, max_entries=100_000, seconds=1.0, bombs=20, crowd=50)


@dataclass(frozen=True, slots=True)
class Target:
    bootstrap: str
    pid: int
    http_port: int | None


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack on a broker. `prepare` does the attacker's own slow work and returns the part that is measured.

    settings  settings for a separate broker, or None to use the broker that most attacks share
    is_ours   whether Kafka is left out because it does not support the request or cannot be set up in the same way
    """

    name: str
    prepare: Callable[[Target], Callable[[], None]]
    is_http: bool = False
    settings: Mapping[str, object] | None = None
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """The other client's waits in ms, and the memory growth in MiB."""

    p50: float
    p99: float
    worst: float
    peak: float
    after: float

    def __str__(self) -> str:
        return f"{self.p50:.1f} · {self.p99:.0f} · {self.worst:.0f} | {self.peak:.0f} · {self.after:.0f}"


def attacks(extent: Extent) -> Iterator[Attack]:
    for array in long_arrays():
        if array.api_key in ASKED and len(array.path) <= 2:
            yield Attack(f"{array}, {extent.entries:,} unknown", long(array, extent.entries))
    for array in long_arrays():
        if array.api_key in ASKED[:3] and array.path[-1] in ("topics", "partitions"):
            yield Attack(f"{array}, {extent.max_entries:,} unknown", long(array, extent.max_entries))
    yield Attack(f"ApiVersions back to back, {extent.seconds:g} s", pipelined(extent.seconds))
    for array in long_arrays():
        if str(array) in CROWDED:
            name = f"{extent.crowd} that request {array}, {CROWDED_ENTRIES:,} entries each, and read nothing"
            yield Attack(name, crowd(array, extent.crowd, extent.seconds))
    yield Attack(f"{extent.bombs:,} gzip batches of 500 MiB each", bombs(extent.bombs))
    limited = {"max.decompressed.message.bytes": 1024 * 1024}
    name = f"{extent.bombs:,} such batches, with records limited to 1 MiB"
    yield Attack(name, bombs(extent.bombs), settings=limited)
    yield Attack(
        f"{SLOW_CONNECTIONS} HTTP connections that never complete their request", slow_http(HEAD), is_http=True
    )
    yield Attack(f"{SLOW_CONNECTIONS} pages that are kept up to date", slow_http(LIVE), is_http=True)
    for content in contents():
        yield Attack(content.name, by_content(content, extent), settings=content.settings, is_ours=content.is_ours)


def by_content(content: Content, extent: Extent) -> Callable[[Target], Callable[[], None]]:
    return lambda target: content.prepare(target.bootstrap, extent.seconds)


def long(array: LongArray, entries: int) -> Callable[[Target], Callable[[], None]]:
    def prepare(target: Target) -> Callable[[], None]:
        frame = request_bytes(long_request(array, entries, UNKNOWN), array.version, 1, "hostile")

        def run() -> None:
            with Wire(target.bootstrap, timeout_s=PATIENCE_S) as wire, suppress(ClosedByBroker):
                wire.send_bytes(frame)
                wire.receive_bytes()

        return run

    return prepare


def crowd(array: LongArray, count: int, seconds: float) -> Callable[[Target], Callable[[], None]]:
    def prepare(target: Target) -> Callable[[], None]:
        frame = request_bytes(long_request(array, CROWDED_ENTRIES, KNOWN), array.version, 1, "hostile")

        def run() -> None:
            with ExitStack() as connections:
                for _ in range(count):
                    connections.enter_context(Wire(target.bootstrap, timeout_s=PATIENCE_S)).send_bytes(frame)
                time.sleep(seconds)

        return run

    return prepare


def pipelined(seconds: float) -> Callable[[Target], Callable[[], None]]:
    def prepare(target: Target) -> Callable[[], None]:
        frames = asking() * 1_000
        host, _, port = target.bootstrap.rpartition(":")

        def run() -> None:
            with socket.create_connection((host, int(port)), PATIENCE_S) as attacker:
                attacker.setblocking(False)
                deadline, rest = time.monotonic() + seconds, b""
                while time.monotonic() < deadline:
                    rest = rest or frames
                    with suppress(BlockingIOError):
                        rest = rest[attacker.send(rest) :]
                    with suppress(BlockingIOError):
                        attacker.recv(1 << 20)

        return run

    return prepare


def bombs(count: int) -> Callable[[Target], Callable[[], None]]:
    """Sends batches that the broker must reject, because they decompress to more than the limit and their headers claim
    one record too many."""

    def prepare(target: Target) -> Callable[[], None]:
        create_known_topic(target.bootstrap)
        batch = build_batch([NewRecord(None, bytes(BOMB_BYTES), time.time_ns() // 1_000_000, ())])
        header, records = batch[:61], gzip.compress(memoryview(batch)[61:], 6)
        del batch
        packed = changed(
            header + records, attributes=GZIP, batch_length=49 + len(records), record_count=2, last_offset_delta=1
        )
        request = produce_request(KNOWN_TOPIC, bytes(packed), acks=1)
        frame = request_bytes(request, PRODUCE, 1, "hostile")

        def send(bombs: int) -> None:
            with Wire(target.bootstrap, timeout_s=PATIENCE_S) as wire:
                for _ in range(bombs):
                    wire.send_bytes(frame)
                    wire.receive_bytes()

        def run() -> None:
            with ThreadPoolExecutor(BOMBERS) as senders:
                list(senders.map(send, [count // BOMBERS] * BOMBERS))

        return run

    return prepare


def slow_http(sent: bytes) -> Callable[[Target], Callable[[], None]]:
    """Opens slow connections and checks that /healthz and /readyz still respond."""

    def prepare(target: Target) -> Callable[[], None]:
        port = target.http_port
        assert port is not None

        def run() -> None:
            with ExitStack() as connections:
                for _ in range(SLOW_CONNECTIONS):
                    connection = connections.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
                    connection.sendall(sent)
                for path in ("/healthz", "/readyz"):
                    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as asking_health:
                        asking_health.request("GET", path)
                        if asking_health.getresponse().status != 200:
                            raise RuntimeError(f"{path} does not answer")

        return run

    return prepare


def asking() -> bytes:
    return request_bytes(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), API_VERSIONS, 1, "w"
    )


def watch(bootstrap: str, is_over: Event, writer: multiprocessing.connection.Connection) -> None:
    """Runs the other client in a separate process. Sends the waits in seconds, or an error, through `writer`."""
    waits = []
    try:
        with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
            while not is_over.is_set():
                begun = time.perf_counter()
                wire.send_bytes(asking())
                wire.receive_bytes()
                waits.append(time.perf_counter() - begun)
                time.sleep(PAUSE_S)
    except (OSError, ClosedByBroker) as error:
        writer.send(str(error) or type(error).__name__)
    else:
        writer.send(waits)


def cost(attack: Attack, target: Target) -> Cost:
    """Measures one attack. Raises RuntimeError if the other client does not get a response."""
    run = attack.prepare(target)
    fork = multiprocessing.get_context("fork")
    is_over, (heard, writer) = fork.Event(), fork.Pipe(duplex=False)
    before = rss_bytes(target.pid)
    Path(f"/proc/{target.pid}/clear_refs").write_text("5")  # Writing 5 resets the peak memory.
    watcher = fork.Process(target=watch, args=(target.bootstrap, is_over, writer))
    watcher.start()
    time.sleep(0.2)
    try:
        run()
    finally:
        time.sleep(0.2)
        is_over.set()
        found = heard.recv() if heard.poll(PATIENCE_S) else "nothing was heard"
        watcher.join()
    if isinstance(found, str):
        raise RuntimeError(f"another client got no answer: {found}")
    time.sleep(SETTLES_S)
    waits = sorted(each * 1_000 for each in found)
    peak, after = (peak_bytes(target.pid) - before) / MIB, (rss_bytes(target.pid) - before) / MIB
    return Cost(statistics.median(waits), waits[len(waits) * 99 // 100], waits[-1], peak, after)


def peak_bytes(pid: int) -> int:
    """Returns the peak memory of a process, or 0 if the process has exited."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


@contextmanager
def own_target(name: str, work: Path, settings: Mapping[str, object]) -> Iterator[Target]:
    """Yields a broker with these settings. Raises NotThere if the broker is not available."""
    subject = Subject(name, maker(name), Path(tempfile.mkdtemp(dir=work)))
    try:
        ports = [int(each.rpartition(":")[2]) for each in str(settings.get("listeners", "")).split(",") if each]
        own = subject.variant("hostile", settings, ports[0] if ports else free_port())
        yield Target(own.bootstrap, own.pid, None)
    finally:
        subject.end()


@contextmanager
def target_of(name: str, work: Path) -> Iterator[Target]:
    """Yields a broker that has the topic KNOWN_TOPIC. Raises NotThere if the broker is not available."""
    subject = Subject(name, maker(name), work)
    try:
        broker = subject.broker
        create_known_topic(subject.bootstrap)
        ready = getattr(broker, "ready", {})
        yield Target(subject.bootstrap, subject.pid, ready.get("http_port"))
    finally:
        subject.end()


def create_known_topic(bootstrap: str) -> None:
    topic = CreatableTopic(name=KNOWN_TOPIC, num_partitions=KNOWN_PARTITIONS, replication_factor=1)
    with Wire(bootstrap) as wire:
        wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, CreateTopicsResponse)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench hostile", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="do a tenth of the work, and leave out Kafka")
    parser.add_argument("--only", default="", metavar="WORDS", help="run only attacks whose name contains these words")
    parser.add_argument("--brokers", default="", metavar="NAMES", help="brokers to attack, from pure,compiled,kafka")
    parser.add_argument("--bombs", type=int, help="number of batches of 500 MiB")
    options = parser.parse_args()
    extent = QUICK if options.quick else FULL
    if options.bombs:
        extent = replace(extent, bombs=options.bombs)
    names = options.brokers.split(",") if options.brokers else [PURE] if options.quick else [PURE, KAFKA]
    failures = []
    print("waits of another client in ms (median · 99 % · worst), and the increase in memory in MiB (peak · after)\n")
    print(f"| attack | {' | '.join(f'{name}: ms | MiB' for name in names)} |")
    print(f"|---|{'---|' * 2 * len(names)}")
    with tempfile.TemporaryDirectory() as work, ExitStack() as brokers:
        try:
            targets = {name: brokers.enter_context(target_of(name, Path(work))) for name in names}
        except NotThere as error:
            parser.error(str(error))
        for attack in attacks(extent):
            if options.only not in attack.name:
                continue
            cells = []
            for name, target in targets.items():
                if (attack.is_http and target.http_port is None) or (attack.is_ours and name == KAFKA):
                    cells.append(" | ")
                    continue
                try:
                    if attack.settings is None:
                        cells.append(str(cost(attack, target)))
                        continue
                    with own_target(name, Path(work), attack.settings) as own:
                        cells.append(str(cost(attack, own)))
                except (RuntimeError, OSError, ClosedByBroker) as error:
                    cells.append(f"{error or type(error).__name__} | ")
                    if name != KAFKA:
                        failures.append(f"{attack.name}: {error or type(error).__name__}")
            print(f"| {attack.name} | {' | '.join(cells)} |", flush=True)
    for each in failures:
        print(each, file=sys.stderr)
    if options.quick and not options.only:
        print()
        failures += ["arrays"] * long_arrays_bench.main(["--sizes", "10000", "--kinds", UNKNOWN, "--judge"])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
