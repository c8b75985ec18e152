"""The brokers that are measured: Odradek, and Kafka with the same settings."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.bench.process_usage import cpu_seconds, rss_bytes
from tests.support.broker_process import Broker, BrokerProcess, KafkaProcess

# Deleted topics leave the page cache soon, so that one row's data is not written back during the next row.
SETTINGS: Mapping[str, object] = {"log.segment.delete.delay.ms": 1000, "auto.create.topics.enable": "false"}
KAFKA_HEAP = "-Xmx1G -Xms1G"  # as Kafka's own start script


def new_odradek(data_dir: Path, port: int) -> Broker:
    # Modules are compiled once and kept, as `make run` does, whatever the environment says.
    return BrokerProcess(data_dir, SETTINGS, port=port, environment={"PYTHONDONTWRITEBYTECODE": ""})


def new_kafka(data_dir: Path, port: int) -> Broker:
    return KafkaProcess(data_dir, SETTINGS, port=port, heap=KAFKA_HEAP)


class Subject:
    """One kind of broker: a process that most rows share, and fresh ones for those that start and stop."""

    def __init__(self, name: str, make: Callable[[Path, int], Broker], work: Path) -> None:
        self.name = name
        self.is_warm = False  # whether the shared process has had load
        self.client_settings: Mapping[str, str] = {}  # of librdkafka, where they are not those of any client
        self._make = make
        self._work = work
        self._made: list[Broker] = []
        self._running: Broker | None = None
        self._variants: dict[str, Subject] = {}

    @property
    def broker(self) -> Broker:
        """The shared process; it is started when a row first asks for it."""
        if self._running is None:
            self._running = self.fresh().start()
        return self._running

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def pid(self) -> int:
        pid = self.broker.pid
        assert pid is not None
        return pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def rss_bytes(self) -> int:
        return rss_bytes(self.pid)

    def fresh(self, port: int = 0) -> Broker:
        """A broker on a new directory, not started."""
        broker = self._make(self._work / f"{self.name}-{len(self._made)}", port)
        self._made.append(broker)
        return broker

    def variant(self, name: str, overrides: Mapping[str, object], port: int) -> "Subject":
        """The same kind of broker with further settings, which lives as long: one for each name."""
        if name not in self._variants:

            def make(data_dir: Path, _port: int) -> Broker:
                broker = self._make(data_dir, port)
                broker.overrides |= {key: str(value) for key, value in overrides.items()}
                return broker

            self._variants[name] = Subject(f"{self.name}-{name}", make, self._work)
        return self._variants[name]

    def discard(self, broker: Broker) -> None:
        """End a broker that `fresh` made; its directory goes."""
        if broker.is_running():
            broker.kill9()
        shutil.rmtree(broker.data_dir, ignore_errors=True)

    def end(self) -> None:
        """Also of those that a failed row has left behind."""
        for variant in self._variants.values():
            variant.end()
        for broker in self._made:
            self.discard(broker)
