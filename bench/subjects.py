"""The brokers to measure: both variants of Odradek, Kafka with the same settings, and kfake."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from bench.kfake import KfakeProcess, built
from bench.process_usage import cpu_seconds, rss_bytes
from bench.variants import PURE_ENVIRONMENT, NotThere, VariantProcess, compiled_environment
from tests.support.broker_process import Broker, KafkaProcess
from tests.support.oracle import HAS_JAVA, IS_THERE, ORACLE

# Deleted topics' files are removed soon, so that the kernel does not write one row's data to disk during the next row.
SETTINGS: Mapping[str, object] = {"log.segment.delete.delay.ms": 1000, "auto.create.topics.enable": "false"}
KAFKA_HEAP = "-Xmx1G -Xms1G"  # the heap size that Kafka's own start script sets
KAFKA_RELEASE = "4.3.1"  # the release whose figures are in docs/performance.md


PURE, COMPILED, KAFKA, KFAKE = "pure", "compiled", "kafka", "kfake"
OURS = (PURE, COMPILED)
Make: TypeAlias = Callable[[Path, int], Broker]  # the arguments are a data directory and a port


def maker(name: str, kafka_release: str = KAFKA_RELEASE) -> Make:
    """Returns a function that creates brokers of this kind. Raises NotThere if the kind is not available."""
    match name:
        case "pure":
            return _variant(PURE, PURE_ENVIRONMENT)
        case "compiled":
            return _variant(COMPILED, compiled_environment())
        case "kafka":
            if not (IS_THERE and HAS_JAVA):
                raise NotThere(f"needs Java and the oracle kit (looked at {ORACLE}; ODRADEK_ORACLE moves it)")
            return lambda data_dir, port: KafkaProcess(
                data_dir, SETTINGS, port=port, heap=KAFKA_HEAP, version=kafka_release
            )
        case "kfake":
            built()
            return lambda data_dir, port: KfakeProcess(data_dir, port=port)
        case _:
            raise ValueError(name)


def _variant(name: str, environment: Mapping[str, str]) -> Make:
    return lambda data_dir, port: VariantProcess(data_dir, SETTINGS, port=port, variant=name, environment=environment)


class Subject:
    """One kind of broker. Most rows share one process, but rows that start and stop brokers get new ones."""

    def __init__(self, name: str, make: Make, work: Path) -> None:
        self.name = name
        self.is_warm = False  # whether the shared process has already been under load
        self.client_settings: Mapping[str, str] = {}  # settings for librdkafka, if the broker requires any
        self._make = make
        self._work = work
        self._made: list[Broker] = []
        self._running: Broker | None = None
        self._variants: dict[str, Subject] = {}

    @property
    def broker(self) -> Broker:
        """The shared process, which is started on first use."""
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
        """Returns a broker with a new directory, without starting it."""
        broker = self._make(self._work / f"{self.name}-{len(self._made)}", port)
        self._made.append(broker)
        return broker

    def variant(self, name: str, overrides: Mapping[str, object], port: int) -> "Subject":
        """Returns a subject of the same kind with additional settings. Later calls with the same name return the same
        subject. It is stopped together with this subject."""
        if name not in self._variants:

            def make(data_dir: Path, _port: int) -> Broker:
                broker = self._make(data_dir, port)
                broker.overrides |= {key: str(value) for key, value in overrides.items()}
                return broker

            self._variants[name] = Subject(f"{self.name}-{name}", make, self._work)
        return self._variants[name]

    def discard(self, broker: Broker) -> None:
        """Kills a broker created by `fresh`. Its directory is kept until the run ends.

        When ext4 looks for a free inode, it skips inodes freed within the last few minutes. If directories were removed
        earlier, a row that creates many files would therefore take longer.
        """
        if broker.is_running():
            broker.kill9()

    def end(self) -> None:
        """Stops all brokers, including those that a failed row has left running."""
        for variant in self._variants.values():
            variant.end()
        for broker in self._made:
            self.discard(broker)
