"""Enriches each order exactly once with a Spark streaming query, even if drivers and the broker are killed.

make example-pipeline  or: python examples/pipeline.py [--orders 20000]

Starts a broker in a temporary directory and writes orders to it, some of them in aborted transactions. A query in a
separate process writes the enriched orders to a second topic.

The query's driver is killed twice: first when a batch has been decided but Spark has not yet recorded the decision, and
then when a batch's tasks have written rows but nothing has been decided. The broker is killed once. At the end, both
topics are compared record by record.

With --bootstrap-server, the program uses a broker that is already running. It creates two topics on that broker and
does not kill it. With --master, the query runs on a Spark cluster. docker/compose.spark.yaml provides both.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from odradek.client import ClientError, TopicPartition
from odradek.client.administration.topics import NewTopic
from odradek.client.sync import Admin, Consumer, Producer
from odradek.spark.ledger import LEDGER_TOPIC, LedgerEntry
from odradek.spark.names import Sink, task_of

MASTER = "local[2,4]"  # unlike plain local[2], this master retries failed tasks
PARTITIONS = 2
ITEMS = {"tea": 320, "coffee": 290, "milk": 110, "sugar": 85, "scone": 240}  # prices in cents
PER_TRANSACTION = 250
BATCHES = 8  # approximate number of batches in the query
START_TIMEOUT_S = 60
RUN_TIMEOUT_S = 600
MAX_FAILURES = 5  # maximum number of failures of the query itself, for example because a broker was down for too long


@dataclass(frozen=True)
class Job:
    """The parameters of the query."""

    bootstrap: str
    master: str
    orders: str
    enriched: str
    checkpoint: str
    most_per_batch: int

    def sink(self) -> str | None:
        """Returns the name of the query's sink.

        Returns None until Spark has created the checkpoint, which contains the id of the query.
        """
        with suppress(FileNotFoundError, ValueError):
            return Sink("spark", json.loads(Path(self.checkpoint, "metadata").read_text())["id"]).name
        return None


# --- The query: this is all that your own program needs.


def enrich(job: Job) -> None:
    """Enriches all available orders and returns."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from odradek.spark.data_source import OdradekSource

    spark = SparkSession.builder.master(job.master).config("spark.ui.enabled", "false").getOrCreate()
    spark.dataSource.register(OdradekSource)
    orders = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.orders)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.most_per_batch)
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), "item string, count int")
    prices = F.create_map(*(F.lit(each) for pair in ITEMS.items() for each in pair))
    enriched = orders.select(
        "key",
        F.to_json(
            F.struct(
                F.col("key").cast("string").alias("order"),
                order["item"].alias("item"),
                (prices[order["item"]] * order["count"]).alias("cents"),
            )
        ).alias("value"),
    )
    query = (
        enriched.writeStream.format("odradek")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("topic", job.enriched)
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


# --- The demonstration.


def main(orders: int, master: str, bootstrap: str | None) -> int:
    with tempfile.TemporaryDirectory(prefix="pipeline-") as name:
        folder = Path(name)
        broker = None if bootstrap is not None else Broker(folder)
        try:
            if broker is not None:
                bootstrap = broker.start()
                say(f"a broker serves on {bootstrap}")
            assert bootstrap is not None
            # A broker that was already running may contain topics from an earlier run.
            topic = "orders" if broker is not None else f"orders-{uuid.uuid4().hex[:8]}"
            most_per_batch = max(1, orders // BATCHES)
            job = Job(bootstrap, master, topic, f"{topic}-enriched", str(folder / "checkpoint"), most_per_batch)
            aborted = write_orders(job, orders)
            say(f"{orders:,} {topic} are written, and {aborted:,} more in transactions that were aborted")
            killed = enrich_under_fire(job, broker, Query(job, folder / "spark.log"))
            return verify(job, killed)
        finally:
            if broker is not None:
                broker.end(signal.SIGTERM)


def write_orders(job: Job, count: int) -> int:
    """Writes orders. Returns the number of additional orders written in aborted transactions."""
    with Admin(bootstrap_servers=job.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=PARTITIONS) for topic in (job.orders, job.enriched)])
    rng = random.Random(7)
    aborted = 0
    with Producer(bootstrap_servers=job.bootstrap, transactional_id=f"shop-{job.orders}") as producer:
        producer.init_transactions()
        for first in range(0, count, PER_TRANSACTION):
            numbers = range(first, min(count, first + PER_TRANSACTION))
            if first // PER_TRANSACTION % 5 == 1:  # Writes other orders first, in a transaction that is aborted.
                send(producer, job.orders, numbers, rng)
                producer.flush()
                producer.abort_transaction()
                aborted += len(numbers)
            send(producer, job.orders, numbers, rng)
            producer.commit_transaction()
    return aborted


def send(producer: Producer, topic: str, numbers: range, rng: random.Random) -> None:
    producer.begin_transaction()
    for number in numbers:
        order = {"item": rng.choice(list(ITEMS)), "count": rng.randint(1, 9)}
        producer.send(topic, json.dumps(order).encode(), key=b"order-%07d" % number)


def enrich_under_fire(job: Job, broker: "Broker | None", query: "Query") -> "Killed":
    """Runs the query and kills processes while it is running. Returns once the query has finished."""
    killed = Killed()
    with Ledger(job) as ledger:
        query.start()
        decided = ledger.wait(lambda entry: entry.batch >= 1, query)
        query.kill()
        killed.drivers += 1
        noted = max((int(path.name) for path in Path(job.checkpoint).glob("commits/[0-9]*")), default=-1)
        say(f"KILLED the driver: batch {decided.batch} was decided, Spark had recorded batch {noted}")

        query.start()
        count = wait_for_open(job, query)
        query.kill()
        killed.drivers += 1
        say(f"KILLED the driver: {count} of its tasks had begun to write a batch that was not decided")

        query.start()
        if broker is not None:
            ledger.wait(lambda entry: entry.batch >= decided.batch + 1, query)
            broker.end(signal.SIGKILL)
            killed.brokers += 1
            say("KILLED the broker while the query was running")
            time.sleep(1)
            broker.start()
            say(f"the broker is back on {job.bootstrap}")
        query.wait(ledger)
        say("the query has read everything")
    return killed


def verify(job: Job, killed: "Killed") -> int:
    """Compares both topics in this process, with a new Spark session that is independent of the query."""
    from odradek.spark.audit import compare
    from odradek.spark.inputs import input_of
    from odradek.spark.jobs.session import session

    with session("verify", "local[2]", {"spark.sql.shuffle.partitions": "4"}) as spark:
        source, output = (
            input_of(f"kafka://{job.bootstrap}/{topic}").frame(spark) for topic in (job.orders, job.enriched)
        )
        field = "get_json_object(cast(value as string), '$.{}')"
        compared = compare(
            source,
            output,
            ["cast(key as string)", field.format("item")],
            output_on=[field.format("order"), field.format("item")],
        )
    with Admin(bootstrap_servers=job.bootstrap) as admin:
        left = len(open_tasks(admin, job))
    for example in compared.examples:
        print(f"   {example}")
    say(f"{compared}, {left} transactions left open; killed: {killed}")
    return 0 if compared.is_exact and not left else 1


class Killed:
    def __init__(self) -> None:
        self.drivers = self.brokers = 0

    def __str__(self) -> str:
        return f"driver {self.drivers}, broker {self.brokers}"


class Query:
    """The query's process, and the JVM that it starts."""

    def __init__(self, job: Job, log: Path) -> None:
        self._words = [sys.executable, __file__, "--query", json.dumps(asdict(job))]
        self._environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        if job.master.startswith("local"):
            self._environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._runs = self._failed = 0

    def start(self) -> None:
        self._runs += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, stdout=log, stderr=log, start_new_session=True, env=self._environment
            )
        say(f"the query starts, run {self._runs}")

    def kill(self) -> None:
        """Sends SIGKILL to Python and the JVM. Spark's Python workers survive and then exit on their own."""
        process = self._running()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait(self, ledger: "Ledger") -> None:
        """Waits until the query has finished successfully."""
        ends_at = time.monotonic() + RUN_TIMEOUT_S
        while self._running().poll() != 0:
            self.keep_running()
            ledger.look()
            if time.monotonic() > ends_at:
                self.kill()
                raise RuntimeError(f"the query did not end in time:\n{self.log_text()}")

    def keep_running(self) -> None:
        """Restarts the query if it has failed, as a supervisor would."""
        status = self._running().poll()
        if status is None:
            return
        self._failed += 1
        if status == 0 or self._failed > MAX_FAILURES:
            raise RuntimeError(f"the query ended too early, with exit status {status}:\n{self.log_text()}")
        say(f"the query failed with exit status {status}, and is started again")
        self.start()

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")[-4_000:]

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process


class Ledger:
    """Follows the decisions made by the query's sink."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._consumer: Consumer | None = None
        self._last: LedgerEntry | None = None

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def wait(self, is_enough: Callable[[LedgerEntry], bool], query: Query) -> LedgerEntry:
        ends_at = time.monotonic() + RUN_TIMEOUT_S
        while time.monotonic() < ends_at:
            if self._last is not None and is_enough(self._last):
                return self._last
            self.look()
            query.keep_running()
        raise RuntimeError(f"the query decided no batch in time:\n{query.log_text()}")

    def look(self) -> None:
        """Waits briefly for new decisions and prints them."""
        consumer = self._consumer or self._opened()
        if consumer is None:
            time.sleep(0.05)
            return
        try:
            brought = consumer.getmany(timeout_ms=50)
        except ClientError:  # The broker is down.
            time.sleep(0.05)
            return
        for record in (each for records in brought.values() for each in records):
            if record.value is None:
                continue
            entry = LedgerEntry.from_json(record.value)
            if entry.sink == self._job.sink() and (self._last is None or entry.batch > self._last.batch):
                say(f"batch {entry.batch} is decided: {entry.rows:,} orders in {len(entry.parts)} transactions")
                self._last = entry

    def _opened(self) -> Consumer | None:
        """Returns a consumer of the ledger, or None if the ledger does not exist yet. The first decision creates it."""
        with Admin(bootstrap_servers=self._job.bootstrap) as admin:
            if LEDGER_TOPIC not in admin.list_topics(include_internal=True):
                return None
            described = admin.describe_topics([LEDGER_TOPIC])[LEDGER_TOPIC]
        self._consumer = consumer = Consumer(bootstrap_servers=self._job.bootstrap, isolation_level="read_committed")
        consumer.start()
        consumer.assign([TopicPartition(LEDGER_TOPIC, each.partition) for each in described.partitions])
        consumer.seek_to_beginning()
        return consumer


def wait_for_open(job: Job, query: Query) -> int:
    """Waits until an undecided batch's tasks have open transactions. Returns the number of these transactions."""
    ends_at = time.monotonic() + RUN_TIMEOUT_S
    with Admin(bootstrap_servers=job.bootstrap) as admin:
        before = open_tasks(admin, job)
        while time.monotonic() < ends_at:
            if count := len(open_tasks(admin, job) - before):
                return count
            query.keep_running()
            time.sleep(0.005)
    raise RuntimeError(f"the query wrote nothing in time:\n{query.log_text()}")


def open_tasks(admin: Admin, job: Job) -> set[str]:
    """Returns the transactional ids of the query's tasks that have open transactions."""
    sink = job.sink()
    ids = {each.transactional_id for each in admin.list_transactions(states=["Ongoing"])}
    return {each for each in ids if (task := task_of(each)) is not None and task.sink == sink}


class Broker:
    """A broker that keeps its port when it is killed and restarted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def start(self) -> str:
        """Starts the broker and returns its address."""
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        words = [sys.executable, "-m", "odradek", "serve", "--port", str(self._port), "--ready-file", str(ready)]
        words += ["--data-dir", str(self._folder / "data"), "--override", "transaction.two.phase.commit.enable=true"]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ends_at = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError("the broker did not start")
            time.sleep(0.01)
        self._port = json.loads(ready.read_text())["port"]
        return f"127.0.0.1:{self._port}"

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()


BEGUN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGUN:6.1f} s  {text}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--orders", type=int, default=20_000, help="number of orders; default: %(default)s")
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="a running broker with KIP-939 enabled; default: a new broker",
    )
    parser.add_argument("--master", default=MASTER, help="where the query runs; default: %(default)s")
    # For internal use: runs the query in a separate process.
    parser.add_argument("--query", metavar="JOB", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    if given.query:
        enrich(Job(**json.loads(given.query)))
    else:
        sys.exit(main(given.orders, given.master, given.bootstrap_server))
