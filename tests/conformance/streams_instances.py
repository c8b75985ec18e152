"""Instances of a Kafka Streams application, each in its own JVM. They run java/Streamed.java with one release's
jars."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.client_lab.installing import install_kafka_streams
from tests.clients.admin import create_topic

SOURCE = Path(__file__).parent / "java" / "Streamed.java"
PATIENCE_S = 120.0
PAUSE_S = 0.05
PARTITIONS = 3
NEWEST, BEFORE = "4.4.0", "4.3.1"  # releases of kafka-streams
QUICK_JVM = ("-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# An instance that takes over the tasks of a killed instance waits until the killed instance's transaction is aborted.
TRANSACTION_TIMEOUT_MS = 4000
BROKER_SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.min.heartbeat.interval.ms": 200,
    "group.streams.heartbeat.interval.ms": 200,
    "group.streams.min.session.timeout.ms": 3000,
    "group.streams.session.timeout.ms": 3000,
    "group.streams.num.standby.replicas": 1,
}


def class_path(release: str, classes: Path) -> str:
    """Compiles the program into `classes`. Returns a class path with `classes` and the kafka-streams jars."""
    jars = install_kafka_streams(release)
    classes.mkdir(exist_ok=True)
    words = ["javac", "-nowarn", "-Xlint:-deprecation", "-cp", jars, "-d", str(classes), str(SOURCE)]
    subprocess.run(words, check=True, capture_output=True)
    return f"{classes}{os.pathsep}{jars}"


class Instance:
    """One process of the application. `lines` is its output so far."""

    def __init__(self, name: str, words: list[str], log: Path) -> None:
        self.name = name
        self.lines: list[str] = []
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, encoding="utf-8"
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def tasks(self) -> tuple[frozenset[str], frozenset[str]]:
        """Returns the active and standby tasks that the instance printed most recently."""
        printed = [line for line in list(self.lines) if line.startswith("tasks ")] or ["tasks  standby "]
        active, _, standby = printed[-1].removeprefix("tasks ").partition(" standby ")
        return frozenset(filter(None, active.split(","))), frozenset(filter(None, standby.split(",")))

    @property
    def failures(self) -> list[str]:
        return [line.removeprefix("failed ") for line in list(self.lines) if line.startswith("failed ")]

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_for_end(self) -> int:
        """Waits for the process to exit and returns its exit status."""
        status = self._process.wait(PATIENCE_S)
        self._reader.join()
        return status

    def close(self, how: str = "close") -> None:
        """Stops the instance cleanly. If `how` is `leave`, the instance also leaves the group permanently."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{how}\n")
        self._process.stdin.flush()
        assert self.wait_for_end() == 0, self.lines
        assert "closed true" in self.lines, self.lines  # The process may exit before it reports the state NOT_RUNNING.

    def kill9(self) -> None:
        self._process.kill()
        self.wait_for_end()


@dataclass(slots=True)
class Application:
    """The word count application with its own topics. `counts` holds the number of times that each word was
    produced."""

    bootstrap: str
    name: str
    folder: Path
    class_path: str
    running: list[Instance]
    counts: dict[str, int]

    @property
    def source(self) -> str:
        return f"{self.name}-lines"

    @property
    def results(self) -> str:
        return f"{self.name}-words"

    def make_topics(self) -> None:
        for topic in (self.source, self.results):
            create_topic(self.bootstrap, topic, PARTITIONS, exact=True)

    def start(self, name: str, shape: str = "counts", **settings: object) -> Instance:
        """Starts an instance. A restarted instance has the same directory as before. Setting names use `_` in place of
        `.`."""
        every = {
            "bootstrap.servers": self.bootstrap,
            "application.id": self.name,
            "state.dir": self.folder / name,
            "group.protocol": "streams",
            "processing.guarantee": "exactly_once_v2",
            "auto.offset.reset": "earliest",
            "commit.interval.ms": 100,
            "statestore.cache.max.bytes": 0,  # so that every update of a count is written
            "num.stream.threads": 1,
            "producer.transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        words = ["java", *QUICK_JVM, "-cp", self.class_path, "Streamed", self.source, self.results, shape]
        words += [f"{key}={value}" for key, value in every.items()]
        instance = Instance(name, words, self.folder / f"{name}.stderr")
        self.running.append(instance)
        return instance

    def say(self, *words: str, times: int = 1) -> None:
        """Produces a line with these words to every partition, `times` times."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        for _ in range(times):
            for partition in range(PARTITIONS):
                producer.produce(self.source, " ".join(words), partition=partition)
        assert producer.flush(PATIENCE_S) == 0
        for word in words:
            self.counts[word] = self.counts.get(word, 0) + times * PARTITIONS

    def updates(self) -> dict[str, list[int]]:
        """Reads committed updates until each word has reached its final count. Returns the updates by word, in
        order."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": f"{self.name}-reader"})
        consumer.assign([TopicPartition(self.results, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        found: dict[str, list[int]] = {word: [] for word in self.counts}
        deadline = time.monotonic() + PATIENCE_S
        try:
            while any(not counted or counted[-1] < self.counts[word] for word, counted in found.items()):
                assert time.monotonic() < deadline, (found, [(each.name, each.lines) for each in self.running])
                message = consumer.poll(1)
                if message is None:
                    continue
                error, key, value = message.error(), message.key(), message.value()
                assert error is None or error.code() == KafkaError._TRANSPORT, error
                if error is None:
                    assert key is not None
                    assert value is not None
                    found[key.decode()].append(int(value))
            return found
        finally:
            consumer.close()

    def assert_counted_once_in_order(self) -> None:
        assert self.updates() == {word: list(range(1, count + 1)) for word, count in self.counts.items()}

    def end(self) -> None:
        for each in self.running:
            if each.is_running():
                each.kill9()


def wait_until(what: str, is_so: Callable[[], bool], *instances: Instance) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        last_lines = [(each.name, each.lines[-10:]) for each in instances]
        assert time.monotonic() < deadline, f"{what}: {last_lines}"
        time.sleep(PAUSE_S)


def wait_for_tasks(*instances: Instance) -> None:
    """Waits until the instances share six active tasks. If there are several instances, each counting task must also
    have a standby task."""
    standbys = PARTITIONS if len(instances) > 1 else 0

    def is_spread() -> bool:
        active = [task for each in instances for task in each.tasks[0]]
        standby = [task for each in instances for task in each.tasks[1]]
        is_fair = all(each.tasks[0] for each in instances)
        return len(active) == len(set(active)) == 2 * PARTITIONS and len(standby) == standbys and is_fair

    wait_until("tasks of every partition", is_spread, *instances)
