"""Tests that a transactional copy equals its source, without duplicates and in order, while leaders and coordinators
move and nodes stop.

Copiers based on several clients run against a controlled cluster. They consume, transform and produce records, and
commit offsets in the same transaction. MOVES=200 sets the number of moves; SEED repeats the choices of a run. A history
checker examines the events of copiers and readers.

librdkafka can hang in send_offsets_to_transaction when the group's coordinator disappears from the metadata (its issue
5511), and can give up when it aborts (issue 4849). Its copiers are then restarted, as an application would be. Copiers
based on other clients must not give up, because no move loses data.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.testing.sync import Cluster, Odradek
from tests.checker.anomalies import anomalies
from tests.clients.admin import create_topic
from tests.clients.speakers import wait_for
from tests.conformance.tools import JAVA_SOURCES, QUICK_JVM
from tests.crash.copier import Job, copied
from tests.crash.copying import CopierProcess, OwnWatcher, Watcher, first_difference, history, journal, python
from tests.support.oracle import HAS_JAVA, IS_THERE, run_kafka

MOVES = int(os.environ.get("MOVES") or 15)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
NODES = (1, 4, 9)
PARTITIONS = 4
PER_MOVE = 60  # number of records added before each move
MAX_RECORDS_BEHIND = 4 * PER_MOVE  # maximum number of uncopied records when a leader or coordinator moves
PER_TRANSACTION = 25
PATIENCE_S = 90.0
HANGS_S = 20.0  # longer than the nine seconds after which the cluster notices an unclean stop
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 3,
    "group.min.session.timeout.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
}
GO = Path(__file__).parent / "go"


class Command:
    """The commands that start the copier of each client. Copiers in Java and Go are compiled first."""

    def __init__(self, built: Path) -> None:
        self._built = built

    def of(self, client: str) -> Sequence[str]:
        match client:
            case "librdkafka":
                return python("tests.crash.copier")
            case "odradek.client":
                return python("tests.crash.own_copier")
            case "aiokafka":
                return python("tests.crash.aio_copier")
            case "kafka-clients":
                return self._java()
            case "franz-go":
                return self._go()
            case _:
                raise AssertionError(client)

    def _java(self) -> Sequence[str]:
        if not (IS_THERE and HAS_JAVA):
            pytest.skip("needs Java and the oracle kit")
        classpath = run_kafka("classpath").strip()
        source = str(JAVA_SOURCES / "Copier.java")
        subprocess.run(["javac", "-nowarn", "-cp", classpath, "-d", str(self._built), source], check=True)
        return "java", *QUICK_JVM, "-cp", f"{self._built}{os.pathsep}{classpath}", "Copier"

    def _go(self) -> Sequence[str]:
        if shutil.which("go") is None:
            pytest.skip("needs Go")
        program = str(self._built / "copier")
        done = subprocess.run(["go", "build", "-o", program, "./copier"], cwd=GO, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return (program,)


class Source:
    """The topic being copied. It grows before each move, so the copiers always have records to copy."""

    def __init__(self, bootstrap: str) -> None:
        self.values: dict[int, list[str]] = {index: [] for index in range(PARTITIONS)}
        self.count = 0
        quiet = {"log_level": 2}  # Without this setting, the client would log every stopped node.
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, **quiet})
        self._refused: list[object] = []

    def grow(self) -> None:
        for _ in range(PER_MOVE):
            partition, value = self.count % PARTITIONS, f"{self.count % PARTITIONS}:{self.count}"
            self.values[partition].append(value)
            self._producer.produce(
                "source",
                value,
                partition=partition,
                on_delivery=lambda error, _: self._refused.append(error) if error else None,
            )
            self.count += 1
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        assert self._refused == []


class Mover:
    """Moves a leader or coordinator, or stops or starts a node, one step at a time. At most one node is stopped, so
    every request can be answered."""

    def __init__(self, kafka: Cluster, rng: random.Random, transactional_ids: Sequence[str]) -> None:
        self._kafka = kafka
        self._rng = rng
        self._transactional_ids = transactional_ids
        self._stopped: int | None = None
        self.counts: Counter[str] = Counter()

    def move(self) -> None:
        kinds: list[Callable[[], str]] = [self._leader, self._leader, self._group, self._transaction]
        kinds.append(self._stop if self._stopped is None else self._start)
        self.counts[self._rng.choice(kinds)()] += 1

    def finish(self) -> None:
        if self._stopped is not None:
            self._start()

    def _node(self) -> int:
        return self._rng.choice([node for node in NODES if node != self._stopped])

    def _leader(self) -> str:
        topic = self._rng.choice(("source", "copy"))
        self._kafka.move_leader(topic, self._rng.randrange(PARTITIONS), self._node())
        return f"leaders of {topic}"

    def _group(self) -> str:
        self._kafka.move_coordinator("group", "copiers", self._node())
        return "group coordinators"

    def _transaction(self) -> str:
        self._kafka.move_coordinator("transaction", self._rng.choice(self._transactional_ids), self._node())
        return "transaction coordinators"

    def _stop(self) -> str:
        """Stops a node. One stop in four is unclean, so that the other nodes notice it only after nine seconds."""
        self._stopped, is_clean = self._node(), self._rng.random() < 0.75
        self._kafka.stop_node(self._stopped, clean=is_clean)
        return "clean stops" if is_clean else "unclean stops"

    def _start(self) -> str:
        assert self._stopped is not None
        self._kafka.start_node(self._stopped)
        self._stopped = None
        return "starts"


@pytest.fixture(scope="module")
def odradek() -> Iterator[Odradek]:
    with Odradek.start() as started:
        yield started


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    with odradek.cluster(nodes=NODES, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize(
    ("client", "protocol", "copiers"),
    [
        ("librdkafka", "classic", 2),
        ("kafka-clients", "classic", 2),
        ("kafka-clients", "consumer", 2),
        ("franz-go", "classic", 2),
        ("franz-go", "consumer", 2),
        ("aiokafka", "classic", 1),
        ("odradek.client", "classic", 2),
        ("odradek.client", "consumer", 2),
    ],
)
def test_the_copy_equals_its_source_once_and_in_order(
    kafka: Cluster, command: Command, tmp_path: Path, client: str, protocol: str, copiers: int
) -> None:
    bootstrap = ",".join(f"{each['host']}:{each['port']}" for each in kafka.nodes())
    names = [f"copier-{number}" for number in range(copiers)]
    words = command.of(client)
    may_hang = client == "librdkafka"
    processes = [
        CopierProcess(
            Job(
                bootstrap=bootstrap,
                source="source",
                target="copy",
                group="copiers",
                transactional_id=name,
                journal=journal(tmp_path, name),
                per_transaction=PER_TRANSACTION,
                aborts=0.1,
                seed=SEED + number,
                protocol=protocol,
            ),
            words,
        )
        for number, name in enumerate(names)
    ]
    for topic in ("source", "copy"):
        create_topic(bootstrap, topic, PARTITIONS, exact=True)
    rng = random.Random(SEED)
    source, mover = Source(bootstrap), Mover(kafka, rng, names)
    watcher = OwnWatcher(bootstrap, "copy", PARTITIONS, "watcher")
    watcher.start()
    began = time.monotonic()
    try:
        for process in processes:
            process.start()
        source.grow()
        # From here on, there are coordinators to move.
        wait_for_copies(watcher, processes, source.count, may_hang=may_hang)
        for _ in range(MOVES):
            source.grow()
            wait_for_copies(watcher, processes, source.count - MAX_RECORDS_BEHIND, may_hang=may_hang)
            time.sleep(rng.uniform(0.0, 0.2))  # The move may happen at any point in a transaction.
            mover.move()
        mover.finish()
        source.finish()
        wait_for_copies(watcher, processes, source.count, may_hang=may_hang)
        for process in () if may_hang else processes:
            process.stop()
    finally:
        print(f"SEED={SEED}: {client}, {protocol}: {dict(mover.counts)} in {time.monotonic() - began:.1f} s;", end=" ")
        print(f"{source.count} records, {sum(each.gave_up for each in processes)} copiers gave up")
        for process in processes:
            process.kill9()
        watcher.finish(reached_end=False)  # The next watcher detects any additional copies.
    last = Watcher(bootstrap, "copy", PARTITIONS, "last")
    last.start()
    wait_for_copies(last, [], source.count)
    time.sleep(1.0)  # leaves time for unexpected copies
    last.finish(reached_end=True)
    expected = {index: [copied(value) for value in values] for index, values in source.values.items()}
    assert anomalies(history(processes, watcher, last), once=True)[:20] == []
    assert {index: first_difference(last.values()[index], expected[index]) for index in expected} == dict.fromkeys(
        expected
    )
    assert watcher.values() == last.values()
    if not may_hang:
        assert [each.log_text() for each in processes if each.gave_up] == []


def wait_for_copies(watcher: Watcher, copiers: Sequence[CopierProcess], count: int, *, may_hang: bool = False) -> None:
    """Waits until the watcher has seen `count` copies.

    may_hang  kills and restarts the copiers when there has been no new copy for HANGS_S
    """
    seen, since = watcher.count, time.monotonic()

    def are_there() -> bool:
        nonlocal seen, since
        time.sleep(0.002)
        for copier in copiers:
            copier.check()
        if watcher.count != seen:
            seen, since = watcher.count, time.monotonic()
        elif may_hang and time.monotonic() - since > HANGS_S:
            print(f"no copy for {HANGS_S} s: the copiers are started again")
            for copier in copiers:
                copier.kill9()
                copier.start()
            since = time.monotonic()
        return watcher.count >= count

    wait_for(f"{count} copies; there are {watcher.count}", are_there, PATIENCE_S)
