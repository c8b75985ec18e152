"""Measures clusters of `odradek serve --control`: `python -m bench clusters [--alive N] [--lives N] [--kafka]`.

calls       create, fork, checkpoint, rewind and delete over HTTP, and a new cluster's first response
memory      N clusters at the same time, some of them used by librdkafka and forked; then the deletion of all clusters
others      starting kfake and Apache Kafka 4.3.1, until the first response
control     CPU time of requests on a broker without control and on brokers with control but no rules, one of which also
            keeps recent requests
neighbours  the longest wait of one cluster's client during each call to another cluster, and the event loop's CPU time
            during the call: median and maximum of twelve calls
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.bystander import ASKING, Bystander, Waits, quantile
from bench.guard.comparison import cost
from bench.guard.operations import BURST, OPERATIONS, produced
from bench.kfake import KfakeProcess, built
from bench.process_usage import MIB, cpu_seconds, loop_seconds, rss_bytes
from bench.topics import DELETE_TOPICS_VERSION, create, wait_until_led
from bench.variants import NotThere
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.testing.sync import Cluster, Odradek
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess
from tests.support.oracle import HAS_JAVA, IS_THERE
from tests.support.wire import Wire

CALLS = 100  # number of calls of each kind
PARTITIONS, FILLED_BYTES = 100, 10_000_000  # partitions and bytes of the copied cluster
NEIGHBOURS = (100, 1_000)  # partition counts of the clusters that disturb another cluster
CALLS_BESIDE = 12
SETTLING_S = 0.02
TURNS, FIRST_TURNS = 60, 5
CONTROLLED = ("Produce of 1 KiB", "Fetch", "transaction")  # prefixes of the names of the guard's operations
STARTS = 3


@dataclass(frozen=True, slots=True)
class ControlledProcess:
    """A process with the control interface, and its process id."""

    odradek: Odradek
    pid: int

    def open_resources(self) -> tuple[int, int]:
        """Returns the process's numbers of file descriptors and threads."""
        return len(os.listdir(f"/proc/{self.pid}/fd")), len(os.listdir(f"/proc/{self.pid}/task"))


@dataclass(frozen=True, slots=True)
class BenchedCluster:
    """A cluster's address and process id, as a `Bystander` needs them."""

    bootstrap: str
    pid: int


@contextmanager
def controlled(work: Path) -> Iterator[ControlledProcess]:
    broker = BrokerProcess(work / "controlled", {"odradek.control.enable": "true"})
    with broker:
        assert broker.pid is not None
        yield ControlledProcess(Odradek("127.0.0.1", int(broker.ready["http_port"])), broker.pid)


def timed(action: Callable[[], object]) -> float:
    """Returns the duration of the call in milliseconds."""
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000


def print_times(name: str, times_ms: Sequence[float]) -> None:
    times_ms = sorted(times_ms)
    print(f"{name:54} {statistics.median(times_ms):9.2f} ms  p99 {quantile(0.99, times_ms):9.2f} ms", flush=True)


def first_answer(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        wire.send_bytes(ASKING)
        wire.receive_bytes()


def fill(cluster: Cluster, partitions: int = PARTITIONS) -> None:
    with Wire(cluster.bootstrap) as wire:
        create(wire, ["full"], partitions)
        wait_until_led(wire, ["full"])
        for partition in range(partitions):
            wire.send_bytes(produced("full", [partition], FILLED_BYTES // partitions))
            wire.receive_bytes()


def calls(process: ControlledProcess) -> None:
    odradek = process.odradek
    made: list[Cluster] = []
    odradek.cluster().delete()  # Creating the first cluster also imports modules, so it is not measured.
    creates = [timed(lambda: made.append(odradek.cluster())) for _ in range(CALLS)]
    print_times("create", creates)
    firsts = [timed(partial(first_answer, each.bootstrap)) for each in made]
    print_times("first answer of a new cluster, with its connection", firsts)
    print_times("delete", [timed(each.delete) for each in made])
    with odradek.cluster() as cluster:
        fill(cluster)
        forks: list[Cluster] = []
        size = f"{PARTITIONS} partitions, {FILLED_BYTES / 1e6:.0f} MB"
        print_times(f"fork of {size}", [timed(lambda: forks.append(odradek.cluster(fork=cluster))) for _ in range(20)])
        print_times("delete of such", [timed(each.delete) for each in forks])
        print_times(f"checkpoint of {size}", [timed(lambda: cluster.checkpoint("a")) for _ in range(20)])
        print_times(f"rewind to {size}", [timed(lambda: cluster.rewind("a")) for _ in range(20)])


def use(cluster: Cluster) -> None:
    """Writes a record and reads it back."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    producer.produce("orders", b"a")
    if producer.flush(30):
        raise RuntimeError("a record was not delivered")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    if message is None or message.value() != b"a":
        raise RuntimeError("the record was not read")


def alive(process: ControlledProcess, count: int, lives: int) -> None:
    """Measures the memory used by `count` clusters, of which the first `lives` are also used and forked."""
    odradek = process.odradek
    before, left = rss_bytes(process.pid), process.open_resources()
    made = [odradek.cluster() for _ in range(count)]
    idle = rss_bytes(process.pid)
    print(f"{count:,} clusters alive: RSS {idle / MIB:.0f} MiB, {(idle - before) / count / 1024:.0f} KiB each")
    for cluster in made[:lives]:
        use(cluster)
    used, threads = rss_bytes(process.pid), process.open_resources()[1]
    print(f"after {lives:,} of them were used: RSS {used / MIB:.0f} MiB, {threads:,} threads", flush=True)
    for cluster in made[:lives]:
        odradek.cluster(fork=cluster).delete()
    for cluster in made:
        cluster.delete()
    time.sleep(1)  # gives librdkafka time to close its sockets
    rss_mib, after = rss_bytes(process.pid) / MIB, process.open_resources()
    print(f"all deleted: RSS {rss_mib:.0f} MiB; descriptors, threads {left} → {after}")


def others(work: Path, with_kafka: bool) -> None:
    makers: list[tuple[str, Callable[[Path], Broker]]] = []
    try:
        built()
        makers.append(("start of kfake until its first answer", KfakeProcess))
    except NotThere as reason:
        print(f"kfake: {reason}")
    if with_kafka and IS_THERE and HAS_JAVA:
        makers.append(("start of Apache Kafka 4.3.1 until its first answer", KafkaProcess))
    makers.append(("start of odradek until its first answer", BrokerProcess))
    for name, make in makers:
        times = []
        for number in range(STARTS):
            broker = make(work / f"{name.replace(' ', '-')}-{number}")
            times.append(timed(lambda broker=broker: first_answer(broker.start().bootstrap)))  # type: ignore[misc]
            broker.kill9()
        print_times(name, times)


def control(work: Path) -> None:
    """Compares brokers without control, with control, and with control that keeps requests. The brokers take turns, and
    only each broker's quietest turns are compared."""
    with ExitStack() as stack:
        sides = [
            stack.enter_context(
                BrokerProcess(
                    work / f"control-{is_on}-{keeps}",
                    {"odradek.control.enable": is_on, "odradek.control.requests.enable": keeps},
                )
            )
            for is_on, keeps in (("false", "true"), ("true", "false"), ("true", "true"))
        ]
        for operation in OPERATIONS:
            if not operation.name.lower().startswith(tuple(each.lower() for each in CONTROLLED)):
                continue
            with ExitStack() as turns_stack:
                turns = [operation.begin(side.bootstrap, turns_stack) for side in sides]
                costs: list[list[float]] = [[] for _ in sides]
                for number in range(FIRST_TURNS + TURNS):
                    for side in range(len(sides)) if number % 2 else reversed(range(len(sides))):
                        pid = sides[side].pid
                        assert pid is not None
                        spent = cpu_seconds(pid)
                        done = turns[side]()
                        if number >= FIRST_TURNS:
                            costs[side].append((cpu_seconds(pid) - spent) / done * 1e6)
            off, on, keeping = (cost(each) for each in costs)
            print(
                f"{operation.name:34} control off {off:8.1f} µs, on {(on / off - 1) * 100:+5.1f} %,"
                f" on with requests kept {(keeping / off - 1) * 100:+5.1f} %"
            )


@dataclass(frozen=True, slots=True)
class Noise:
    """An activity that may disturb other clusters. `prepare` and `tidy` are not measured."""

    name: str
    make: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    tidy: Callable[[], object] = lambda: None


def noises(odradek: Odradek) -> Iterator[Noise]:
    """Yields activities in other clusters and cleans up each activity before the next one."""
    with odradek.cluster() as written, Wire(written.bootstrap) as wire:
        create(wire, ["noise"])
        wait_until_led(wire, ["noise"])
        burst = produced("noise", [0], 100_000) * BURST

        def write() -> None:
            wire.send_bytes(burst)
            for _ in range(BURST):
                wire.receive_bytes()

        yield Noise(f"{BURST} writes of 100 KB", write)
        yield Noise("a clock that advances by an hour", lambda: written.clock.advance(3_600_000))
    new: list[Cluster] = []
    yield Noise("create", lambda: new.append(odradek.cluster()), tidy=lambda: new.pop().delete())
    for partitions in NEIGHBOURS:
        with odradek.cluster() as busy:
            fill(busy, partitions)
            yield from noises_of(odradek, busy, f"{partitions:,} partitions")
        with odradek.cluster() as growing, Wire(growing.bootstrap) as wire:
            yield from noises_of_topics(wire, partitions)


def noises_of(odradek: Odradek, busy: Cluster, size: str) -> Iterator[Noise]:
    forks: list[Cluster] = []

    def fork() -> None:
        forks.append(odradek.cluster(fork=busy))

    yield Noise(f"checkpoint, {size}", lambda: busy.checkpoint("a"))
    yield Noise(f"rewind, {size}", lambda: busy.rewind("a"))
    yield Noise(f"fork, {size}", fork, tidy=lambda: forks.pop().delete())
    yield Noise(f"delete, {size}", lambda: forks.pop().delete(), prepare=fork)
    yield Noise(f"crash, {size}", busy.crash, tidy=busy.restart)
    yield Noise(f"start after a crash, {size}", busy.restart, prepare=busy.crash)
    yield Noise(f"restart, clean, {size}", busy.restart)


def noises_of_topics(wire: Wire, partitions: int) -> Iterator[Noise]:
    """Yields noises that create or delete one topic with many partitions, or many topics with one partition."""
    numbers = count()
    made: list[list[str]] = []

    def make(topics: int, size: int) -> None:
        made.append([f"many-{next(numbers)}" for _ in range(topics)])
        create(wire, made[-1], size)

    def delete() -> None:
        doomed = [DeleteTopicState(name=name) for name in made.pop()]
        wire.ask(DeleteTopicsRequest(topics=doomed, timeout_ms=60_000), DELETE_TOPICS_VERSION)

    for topics, size in ((1, partitions), (partitions, 1)):
        what = f"{topics:,} × {size:,} partitions"
        yield Noise(f"CreateTopics, {what}", partial(make, topics, size), tidy=delete)
        yield Noise(f"DeleteTopics, {what}", delete, prepare=partial(make, topics, size))


def neighbours(process: ControlledProcess, only: str) -> None:
    """Measures how long one cluster's client waits while another cluster is disturbed. Only noises whose names contain
    `only` are measured."""
    with (
        process.odradek.cluster() as quiet,
        Bystander(BenchedCluster(quiet.bootstrap, process.pid), loop_seconds) as bystander,
    ):
        for noise in noises(process.odradek):
            if only in noise.name:
                print_waits(noise.name, [beside(noise, bystander) for _ in range(1 + CALLS_BESIDE)][1:])


def beside(noise: Noise, bystander: Bystander) -> Waits:
    noise.prepare()
    time.sleep(SETTLING_S)
    since = bystander.count
    noise.make()
    waits = bystander.since(since)
    noise.tidy()
    return waits


def print_waits(name: str, waits: Sequence[Waits]) -> None:
    """Prints the median and maximum of the longest wait in each call."""
    wall, cpu = (
        f"{statistics.median(longest) * 1e3:5.1f} max {max(longest) * 1e3:5.1f} ms"
        for longest in ([each.wall[-1] for each in waits], [each.cpu[-1] for each in waits])
    )
    print(f"another cluster beside {name:46} waits {wall}; CPU of the loop {cpu}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], help="parts to measure, from the list above; default: all")
    parser.add_argument("--alive", type=int, default=1000)
    parser.add_argument("--lives", type=int, default=1000, help="number of these clusters to use")
    parser.add_argument(
        "--only", default="", help="for the neighbours: measure only calls whose names contain this text"
    )
    parser.add_argument("--kafka", action="store_true")
    options = parser.parse_args()

    def is_asked(part: str) -> bool:
        return not options.parts or part in options.parts

    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        work = Path(folder)
        for part, measure in (
            ("calls", calls),
            ("memory", lambda process: alive(process, options.alive, min(options.lives, options.alive))),
            ("neighbours", lambda process: neighbours(process, options.only)),
        ):
            if is_asked(part):
                with controlled(work / part) as process:
                    measure(process)
        if is_asked("others"):
            others(work, options.kafka)
        if is_asked("control"):
            control(work)


if __name__ == "__main__":
    main()
