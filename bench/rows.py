"""The benchmark's rows and their goals. One `Measurement` produces the figures of one or more `Row`s."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from bench import baselines, lifecycle
from bench.clients import EndToEndLatency, ProduceLatency, Throughput
from bench.groups import ConsumerGroup, Heartbeats, consumer_heartbeats, share_heartbeats, streams_heartbeats
from bench.heartbeat_groups import Stabilisation
from bench.python_clients import PythonProduce
from bench.python_consumers import MANY, ONE_BY_ONE, PythonConsume
from bench.raw import RawLoad
from bench.security import AuthorizedProduce, TlsThroughput, scram_logins
from bench.shares import ShareConsumers, ShareTransactions
from bench.streams_groups import StreamsGroup
from bench.subjects import Subject
from bench.transactions import LibrdkafkaTransactions, RawTransactions

Figures = Mapping[str, float]


class Comparison(Enum):
    """Determines whether a goal applies to Odradek's figure itself or to its ratio to another broker's figure. The
    values are the units shown in the table."""

    KAFKA = "×"
    KFAKE = "× kfake"
    ITSELF = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit for Odradek's figure, or for its ratio to another broker's figure in the same run."""

    bound: float
    at_least: bool
    against: Comparison = Comparison.KAFKA

    def is_met(self, value: float) -> bool:
        """Returns whether the goal is met. `value` is the ratio, or the figure itself."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{self.against.value}"


def at_least(ratio: float) -> Goal:
    return Goal(ratio, at_least=True)


def at_most(ratio: float) -> Goal:
    return Goal(ratio, at_least=False)


def at_least_of_kfake(ratio: float) -> Goal:
    return Goal(ratio, at_least=True, against=Comparison.KFAKE)


def no_more_than(figure: float) -> Goal:
    return Goal(figure, at_least=False, against=Comparison.ITSELF)


def no_less_than(figure: float) -> Goal:
    return Goal(figure, at_least=True, against=Comparison.ITSELF)


@dataclass(frozen=True, slots=True)
class Row:
    figure: str  # name of the figure in the measurement's result
    title: str
    unit: str
    goal: Goal | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement of one or more rows. `measure` and `baseline` accept the fraction of the full work to do: 1, or
    less for a quick check."""

    name: str
    measure: Callable[[Subject, float], Figures]
    rows: tuple[Row, ...]
    baseline: Callable[[float], Figures] | None = None
    rounds: int = 3
    kafka_rounds: int = 3
    kfake_rounds: int = 0
    warms_up: bool = False  # An extra round is run first and discarded.
    is_raw: bool = False  # needs the C programs


def throughput(name: str, load: Throughput, title: str, produce: Goal | None, consume: Goal | None) -> Measurement:
    against_kafka = load.compression == "none"
    return Measurement(
        name,
        load.measure,
        (
            Row("produce_mb_s", f"confluent-kafka produce {title}", "MB/s", produce),
            Row("produce_cpu_s_per_gb", "· broker CPU", "s/GB", at_most(1) if against_kafka else None),
            Row("consume_mb_s", f"confluent-kafka consume {title}", "MB/s", consume),
            Row("consume_cpu_s_per_gb", "· broker CPU", "s/GB", at_most(0.5) if against_kafka else None),
        ),
        baselines.loopback,
        warms_up=True,
    )


def transactions(
    name: str, load: LibrdkafkaTransactions | RawTransactions, title: str, goal: Goal | None, p99: Goal | None = None
) -> Measurement:
    return Measurement(
        name,
        load.measure,
        (
            Row("transactions_s", title, "transactions/s", goal),
            Row("p50_us", "· commit p50", "µs"),
            Row("p99_us", "· commit p99", "µs", p99),
            Row("cpu_us_per_transaction", "· broker CPU per transaction", "µs"),
        ),
        kfake_rounds=3,
        warms_up=True,
        is_raw=isinstance(load, RawTransactions),
    )


def share_consumers(name: str, load: ShareConsumers, title: str) -> Measurement:
    return Measurement(
        name,
        load.measure,
        (
            Row("records_s", f"share consumers, {title}", "records/s", at_least(1.5)),
            Row("cpu_us_per_record", "· broker CPU per record", "µs", at_most(0.5)),
        ),
        warms_up=True,
        is_raw=True,
    )


def share_consumers_in_transactions(name: str, load: ShareConsumers, title: str) -> Measurement:
    """Returns a measurement like `share_consumers` with explicit acknowledgements, except that each acknowledgement is
    in a transaction. Comparing the two measurements shows what transactions cost."""
    return Measurement(
        name,
        load.measure,
        (
            Row("records_s", f"share consumers, {title}", "records/s"),
            Row("cpu_us_per_record", "· broker CPU per record", "µs"),
        ),
        kafka_rounds=0,  # No release of Kafka supports acknowledgements in transactions.
        warms_up=True,
        is_raw=True,
    )


def share_transactions(name: str, load: ShareTransactions, title: str) -> Measurement:
    return Measurement(
        name,
        load.measure,
        (
            Row("transactions_s", f"TxnShareAcknowledge of one record, {title}", "transactions/s", no_less_than(1500)),
            Row("cpu_us_per_transaction", "· broker CPU per transaction", "µs"),
        ),
        kafka_rounds=0,  # No release of Kafka supports acknowledgements in transactions.
        warms_up=True,
        is_raw=True,
    )


def heartbeats(name: str, load: Heartbeats, title: str) -> Measurement:
    return Measurement(
        name,
        load.measure,
        (
            Row("heartbeats_s", f"heartbeats of {title} × 8", "heartbeats/s"),
            Row("cpu_us_per_heartbeat", "· broker CPU per heartbeat", "µs", at_most(1)),
        ),
        warms_up=True,
        is_raw=True,
    )


def python_clients(name: str, load: PythonProduce | PythonConsume, title: str) -> Measurement:
    return Measurement(
        name,
        load.measure,
        (
            Row("odradek", f"odradek.client {title}", "k records/s"),
            Row("aiokafka", "· aiokafka", "k records/s"),
            Row("kafka_python", "· kafka-python", "k records/s"),
            Row("ahead", "· odradek.client against the better of them", "×", no_less_than(1)),
        ),
        rounds=2,
        kafka_rounds=1,  # The figure hardly depends on the broker.
    )


def raw(name: str, load: RawLoad, title: str, *rows: Row, kfake_rounds: int = 0) -> Measurement:
    extra = (
        Row("cores", "· broker cores used", "cores"),
        Row("cpu_us_per_request", "· broker CPU per request", "µs"),
    )
    main = tuple(Row(row.figure, f"{title}{row.title}", row.unit, row.goal) for row in rows)
    return Measurement(
        name, load.measure, main + extra, load.baseline, kfake_rounds=kfake_rounds, warms_up=True, is_raw=True
    )


MEASUREMENTS: tuple[Measurement, ...] = (
    Measurement(
        "start",
        lifecycle.first_produce,
        (Row("ms", "exec → first produce acks=all", "ms", at_most(1 / 20)),),
        baselines.bare_interpreter,
        rounds=7,
        kafka_rounds=2,
    ),
    Measurement(
        "topics",
        lifecycle.many_topics,
        (
            Row("create_s", "1,000 topics: create", "s", no_more_than(0.3)),
            Row("clean_s", "· restart until all are led, clean", "s", no_more_than(0.5)),
            Row("killed_s", "· the same, killed", "s", no_more_than(1.0)),
        ),
        baselines.thousand_directories,
        kafka_rounds=1,
    ),
    Measurement(
        "idle",
        lifecycle.idle,
        (
            Row("rss_mib", "idle: RSS", "MiB", at_most(1 / 10)),
            Row("cpu_percent", "· CPU", "% of a core", at_most(1 / 10)),
        ),
        baselines.bare_interpreter,
        rounds=1,
        kafka_rounds=1,
    ),
    Measurement(
        "connections",
        lifecycle.idle_connections,
        (Row("kib", "RSS per idle connection", "KiB", no_more_than(4)),),
        rounds=1,
        kafka_rounds=1,
    ),
    throughput("clients_100b", Throughput(100, 600_000), "100 B", at_least(1.3), at_least(1.3)),
    throughput("clients_1k", Throughput(1024, 250_000), "1 KiB", at_least(1.4), at_least(1.3)),
    throughput("clients_10k", Throughput(10 * 1024, 40_000), "10 KiB", at_least(1.8), at_least(1.6)),
    throughput("clients_lz4", Throughput(1024, 250_000, "lz4"), "1 KiB, lz4", None, None),
    throughput("clients_zstd", Throughput(1024, 250_000, "zstd"), "1 KiB, zstd", None, None),
    python_clients("python_produce_100b", PythonProduce(100, 100_000), "produce 100 B"),
    python_clients("python_produce_1k", PythonProduce(1024, 50_000), "produce 1 KiB"),
    python_clients("python_consume_100b", PythonConsume(100, 200_000, ONE_BY_ONE), "consume 100 B one by one"),
    python_clients("python_consume_1k", PythonConsume(1024, 100_000, ONE_BY_ONE), "consume 1 KiB one by one"),
    python_clients("python_poll_100b", PythonConsume(100, 200_000, MANY), "consume 100 B by getmany"),
    python_clients("python_poll_1k", PythonConsume(1024, 100_000, MANY), "consume 1 KiB by getmany"),
    Measurement(
        "linger_0",
        ProduceLatency(3000).measure,
        (
            Row("p50_us", "produce, linger=0: p50", "µs", at_most(0.85)),
            Row("p99_us", "· p99", "µs", at_most(0.3)),
        ),
        baselines.echo,
        kfake_rounds=3,
        warms_up=True,
    ),
    Measurement(
        "end_to_end",
        EndToEndLatency(2000).measure,
        (
            Row("p50_us", "produce → consume: p50", "µs", at_most(0.45)),
            Row("p99_us", "· p99", "µs", at_most(0.15)),
        ),
        baselines.echo,
        kfake_rounds=3,
        warms_up=True,
    ),
    raw(
        "raw_1k_1",
        RawLoad(1024, 32, 1),
        "1 KiB frames, 32 connections × 1",
        Row("requests_s", "", "requests/s", at_least(1.15)),
        Row("p99_us", ": p99", "µs"),
        kfake_rounds=3,
    ),
    raw(
        "raw_1k_5",
        RawLoad(1024, 32, 5),
        "1 KiB frames, 32 connections × 5",
        Row("requests_s", "", "requests/s", at_least(1.6)),
        kfake_rounds=3,
    ),
    raw("raw_16k", RawLoad(16 * 1024, 32, 1), "16 KiB frames, 32 × 1", Row("mb_s", "", "MB/s", at_least(2))),
    raw("raw_1m", RawLoad(1_000_000, 4, 5), "1 MB frames, 4 × 5", Row("mb_s", "", "MB/s", at_least(2.5))),
    Measurement(
        "tls_1k",
        TlsThroughput(Throughput(1024, 250_000)).measure,
        (
            Row("produce_mb_s", "TLS: confluent-kafka produce 1 KiB", "MB/s", at_least(1)),
            Row("produce_cpu_s_per_gb", "· broker CPU", "s/GB", at_most(1)),
            Row("consume_mb_s", "TLS: confluent-kafka consume 1 KiB", "MB/s", at_least(1)),
            Row("consume_cpu_s_per_gb", "· broker CPU", "s/GB", at_most(1)),
        ),
        warms_up=True,
    ),
    Measurement(
        "scram_logins",
        scram_logins,
        (
            Row("logins_s", "logins with SCRAM-SHA-256, 8 at a time", "logins/s"),
            Row("cpu_us_per_login", "· broker CPU per login", "µs", at_most(1)),
        ),
        warms_up=True,
    ),
    Measurement(
        "raw_authorized",
        AuthorizedProduce(RawLoad(1024, 32, 1)).measure,
        (
            Row("requests_s", "produce allowed by ACLs: 1 KiB 32 × 1", "requests/s"),
            Row("cpu_us_per_request", "· broker CPU per request", "µs"),
            Row("more_cpu_percent", "· more CPU than without authorizer", "%", no_more_than(3)),
        ),
        kafka_rounds=0,
        warms_up=True,
        is_raw=True,
    ),
    Measurement(
        "synced_1k",
        RawLoad(1024, 32, 1, is_synced=True).measure,
        (
            Row("requests_s", "fsync per acknowledgement: 1 KiB 32 × 1", "requests/s", at_least(8)),
            Row("cpu_us_per_request", "· broker CPU per request", "µs"),
        ),
        baselines.fdatasync,
        warms_up=True,
        is_raw=True,
    ),
    Measurement(
        "synced_linger_0",
        ProduceLatency(1000, is_synced=True).measure,
        (
            Row("p50_us", "fsync per acknowledgement, linger=0: p50", "µs"),
            Row("p99_us", "· p99", "µs", at_most(0.3)),
        ),
        baselines.fdatasync,
        warms_up=True,
    ),
    transactions("txn_1", LibrdkafkaTransactions(1), "transactions, librdkafka × 1", at_least(2.3)),
    transactions("txn_8", LibrdkafkaTransactions(8), "transactions, librdkafka × 8", at_least(3), at_most(0.12)),
    transactions("txn_tv1_1", RawTransactions(1, 1), "transactions, raw TV1 × 1", at_least(3.3)),
    transactions("txn_tv1_8", RawTransactions(8, 1), "transactions, raw TV1 × 8", at_least(4.3)),
    # Kafka waits 20 ms for each transaction to end before it starts the next one. The goal is therefore a comparison
    # with kfake, which works in memory.
    transactions("txn_tv2_1", RawTransactions(1, 2), "transactions, raw TV2 × 1", at_least_of_kfake(1)),
    transactions("txn_tv2_8", RawTransactions(8, 2), "transactions, raw TV2 × 8", at_least_of_kfake(1)),
    transactions("txn_tv2_64", RawTransactions(64, 2), "transactions, raw TV2 × 64", None),
    Measurement(
        "group_100",
        Stabilisation(ConsumerGroup, 100, 200).measure,
        (
            Row("seconds", "consumer group (KIP-848) of 100: join → stable", "s", at_most(1)),
            Row("cpu_ms", "· broker CPU", "ms", at_most(1)),
        ),
        warms_up=True,
    ),
    heartbeats("heartbeat_group", Heartbeats(consumer_heartbeats), "a consumer group (KIP-848)"),
    Measurement(
        "streams_group_10",
        Stabilisation(StreamsGroup, 10, 1000).measure,
        (
            Row("seconds", "streams group (KIP-1071) of 10, 1,000 tasks: join → stable", "s", at_most(1)),
            Row("cpu_ms", "· broker CPU", "ms", at_most(1)),
        ),
        warms_up=True,
    ),
    heartbeats("heartbeat_streams", Heartbeats(streams_heartbeats), "a streams group (KIP-1071)"),
    heartbeats("heartbeat_share", Heartbeats(share_heartbeats), "a share group"),
    share_consumers("share_implicit_1", ShareConsumers(1, False, 600_000), "implicit × 1"),
    share_consumers("share_implicit_8", ShareConsumers(8, False, 600_000), "implicit × 8"),
    share_consumers("share_explicit_1", ShareConsumers(1, True, 400_000), "explicit × 1"),
    share_consumers("share_explicit_8", ShareConsumers(8, True, 400_000), "explicit × 8"),
    share_consumers_in_transactions(
        "share_explicit_txn_1",
        ShareConsumers(1, True, 400_000, is_in_transactions=True),
        "explicit, each acknowledgement in a transaction × 1",
    ),
    share_consumers_in_transactions(
        "share_explicit_txn_8",
        ShareConsumers(8, True, 400_000, is_in_transactions=True),
        "explicit, each acknowledgement in a transaction × 8",
    ),
    share_transactions("share_txn_1", ShareTransactions(1, 2_000), "× 1"),
    share_transactions("share_txn_8", ShareTransactions(8, 4_000), "× 8"),
    Measurement(
        "after_load",
        lifecycle.memory,
        (Row("rss_mib", "RSS after load", "MiB", at_most(1 / 8)),),
        baselines.bare_interpreter,
        rounds=1,
        kafka_rounds=1,
    ),
)
