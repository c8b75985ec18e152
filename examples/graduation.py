"""Moves a data directory from Odradek to Apache Kafka and back. Nothing is copied, converted or lost.

make example-graduation  or: python examples/graduation.py --kafka kafka_2.13-4.4.0/libs [--payments 1000]

Starts Odradek on a new directory and writes payments in transactions, some of which are aborted. A consumer group reads
some of the payments, and one transaction is left open.

Odradek is then stopped, and Apache Kafka 4.4.0 is started on the same directory and address. The group continues from
its position, and the client that began the open transaction commits it. The program writes the same number of payments
to Kafka and leaves another transaction open.

Finally, Odradek takes over the directory again, and every payment is counted. The program needs Java 17. `make`
downloads Kafka's jars with Maven.
"""

import argparse
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from odradek.client import ClientError, NewTopic, OffsetAndMetadata, RetriableError, TopicPartition
from odradek.client.sync import Admin, Consumer, Producer

TOPIC, GROUP = "payments", "ledger"
PARTITIONS = 3
PER_TRANSACTION = 50
LEFT_OPEN = 10  # payments in a transaction that remains open while another broker takes over
TRANSACTION_TIMEOUT_MS = 600_000  # longer than it takes another broker to take over
START_TIMEOUT_S = 120
PATIENCE_S = 60
BEGAN = time.monotonic()

Seen = TypeVar("Seen")


# --- The application, which does not know which broker it uses.


def set_up(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, partitions=PARTITIONS)])


def pay(bootstrap: str, numbers: range) -> int:
    """Writes these payments, and additional ones in aborted transactions. Returns the number of aborted payments."""
    aborted = 0
    with Producer(bootstrap_servers=bootstrap, transactional_id="shop") as producer:
        until_done(producer.init_transactions)
        for count, first in enumerate(range(numbers.start, numbers.stop, PER_TRANSACTION)):
            payments = range(first, min(numbers.stop, first + PER_TRANSACTION))
            if count % 5 == 1:
                send(producer, (-number - 1 for number in payments))
                producer.flush()
                until_done(producer.abort_transaction)
                aborted += len(payments)
            send(producer, payments)
            until_done(producer.commit_transaction)
    return aborted


class OpenTransaction:
    """A transaction that begins on one broker and ends on the other. Its client exists as long as the transaction."""

    def __init__(self, bootstrap: str, name: str, payments: range) -> None:
        self._producer = Producer(
            bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        self._producer.__enter__()
        until_done(self._producer.init_transactions)
        send(self._producer, payments)
        self._producer.flush()

    def commit(self) -> None:
        until_done(self._producer.commit_transaction)
        self._producer.close()


def send(producer: Producer, payments: Iterable[int]) -> None:
    until_done(producer.begin_transaction)
    for number in payments:
        producer.send(TOPIC, b"payment %d" % number, key=b"%d" % number)


def book(bootstrap: str, count: int) -> list[bytes | None]:
    """Reads `count` payments as a member of the group and commits the group's position."""
    found: list[bytes | None] = []
    ends_at = time.monotonic() + PATIENCE_S
    with Consumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    ) as consumer:
        while len(found) < count:
            if time.monotonic() > ends_at:
                raise SystemExit(f"only {len(found)} of {count} payments arrived within {PATIENCE_S} s")
            for records in consumer.getmany(timeout_ms=200, max_records=count - len(found)).values():
                found += [record.value for record in records]
        consumer.commit()
    return found


def until_done(step: Callable[[], object]) -> None:
    """Retries a step until it succeeds. After a RetriableError, the outcome is unknown, so the step must be retried
    before anything else is done."""
    ends_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            step()
            return
        except RetriableError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.1)


def seen(look: Callable[[], Seen], expected: Seen) -> Seen:
    """Calls `look` until it returns the expected value or time runs out. Returns the last value.

    This is necessary because a broker responds to a commit before it has written the markers, and Kafka lists
    transactions before it has loaded all of them.
    """
    ends_at = time.monotonic() + PATIENCE_S
    while (found := look()) != expected and time.monotonic() < ends_at:
        time.sleep(0.1)
    return found


# --- The demonstration.


def main(kafka_jars: Path, payments: int) -> None:
    with tempfile.TemporaryDirectory(prefix="graduation-") as name:
        folder = Path(name)
        address = f"127.0.0.1:{free_port()}"
        odradek, kafka = Odradek(folder, address), Kafka(folder, address, kafka_jars)
        try:
            show(odradek, kafka, payments)
        finally:
            odradek.kill()
            kafka.kill()


def show(odradek: "Broker", kafka: "Broker", payments: int) -> None:
    ledger = Ledger(odradek.address)
    odradek.start()
    set_up(odradek.address)
    ledger.fill(odradek.name, payments)
    of_odradek = ledger.leave_open(odradek.name)

    odradek.stop()
    kafka.start()
    ledger.check(kafka.name)
    ledger.end(kafka.name, of_odradek)
    ledger.fill(kafka.name, payments)
    of_kafka = ledger.leave_open(kafka.name)

    kafka.stop()
    odradek.start()
    ledger.check(odradek.name)
    ledger.end(odradek.name, of_kafka)
    ledger.fill(odradek.name, payments)
    ledger.close(odradek.name)


class Ledger:
    """Keeps track of the payments on either broker. Every method prints what it found."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._next = 0  # number of the next payment
        self._committed: list[int] = []
        self._open: list[int] = []
        self._booked: list[bytes | None] = []
        self._offsets: dict[TopicPartition, OffsetAndMetadata] = {}

    def fill(self, broker: str, count: int) -> None:
        """Writes `count` payments and has the group read half of those that it has not read yet."""
        aborted = pay(self._address, self._take(count, self._committed))
        say(f"{broker}: {count:,} more payments were committed, and {aborted:,} others were aborted.")
        self._book((len(self._committed) - len(self._booked)) // 2)
        say(
            f"{broker}: the group has read {len(self._booked):,} of {len(self._committed):,} and committed its offsets."
        )

    def leave_open(self, broker: str) -> OpenTransaction:
        payments = self._take(LEFT_OPEN, self._open)
        say(f"{broker}: a transaction with {LEFT_OPEN} payments is left open.")
        return OpenTransaction(self._address, f"left-open-{payments.start}", payments)

    def end(self, broker: str, transaction: OpenTransaction) -> None:
        transaction.commit()
        self._committed += self._open
        self._open.clear()
        say(f"{broker}: the open transaction is committed by the client that began it on the other broker.")
        self._compare()

    def check(self, broker: str) -> None:
        """Checks that the broker that took over has the same payments, offsets and open transactions."""
        self._compare()
        state = (1, self._offsets)
        assert seen(self._state, state) == state, "the open transaction or the group's offsets differ"
        say(f"{broker}: {len(self._committed):,} payments, the group's offsets and 1 open transaction are there.")

    def close(self, broker: str) -> None:
        self._book(len(self._committed) - len(self._booked))
        self._compare()
        assert Counter(self._booked) == Counter(b"payment %d" % number for number in self._committed)
        state = (0, self._offsets)
        assert seen(self._state, state) == state, "a transaction is open, or the group's offsets differ"
        say(f"{broker}: the group has read all {len(self._booked):,} payments, each once; no transaction is open.")

    def _take(self, count: int, into: list[int]) -> range:
        numbers = range(self._next, self._next + count)
        self._next = numbers.stop
        into += numbers
        return numbers

    def _book(self, count: int) -> None:
        self._booked += book(self._address, count)
        _, self._offsets = self._state()

    def _state(self) -> tuple[int, dict[TopicPartition, OffsetAndMetadata]]:
        """Returns the number of open transactions and the group's committed offsets."""
        with Admin(bootstrap_servers=self._address) as admin:
            return len(admin.list_transactions(states=["Ongoing"])), admin.list_group_offsets(GROUP)

    def _compare(self) -> None:
        """Checks that a new consumer reads each committed payment once and nothing else."""
        committed: Counter[bytes | None] = Counter(b"payment %d" % number for number in self._committed)
        assert seen(lambda: Counter(committed_values(self._address)), committed) == committed, "the payments differ"


def committed_values(bootstrap: str) -> list[bytes | None]:
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found: list[bytes | None] = []
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        # With read_committed, the end offset is the offset at which the first open transaction begins.
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for records in consumer.getmany(timeout_ms=200).values():
                found += [record.value for record in records]
    return found


# --- Processes.


class Broker(ABC):
    """A broker on a data directory. The directory may be new, or another broker may have used it."""

    name: str

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        began = time.monotonic()
        log = self.folder / "broker.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(self.command(), stdout=output, stderr=output)
        while not answers(self.address):
            if self._process.poll() is not None or time.monotonic() - began > START_TIMEOUT_S:
                raise RuntimeError(f"{self.name} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
        say(f"{self.name} serves {self.data.name}/ on {self.address} after {time.monotonic() - began:.1f} s.")

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(START_TIMEOUT_S)
        files = [path for path in self.data.rglob("*") if path.is_file()]
        used_kb = sum(path.stat().st_blocks for path in files) // 2
        say(f"{self.name} is stopped; it leaves {len(files)} files with {used_kb:,} KB.")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @abstractmethod
    def command(self) -> list[str]: ...


class Odradek(Broker):
    name = "Odradek"

    def command(self) -> list[str]:
        port = self.address.rpartition(":")[2]
        return [sys.executable, "-m", "odradek", "serve", "--port", port, "--data-dir", str(self.data)]


class Kafka(Broker):
    """Apache Kafka with the node id and cluster id from the directory, which need not be formatted for Kafka."""

    name = "Apache Kafka"

    def __init__(self, folder: Path, address: str, jars: Path) -> None:
        super().__init__(folder, address)
        self._jars = jars

    def command(self) -> list[str]:
        lines = (self.data / "meta.properties").read_text().splitlines()
        node_id = next(line.partition("=")[2] for line in lines if line.startswith("node.id="))
        controller = f"127.0.0.1:{free_port()}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": f"{node_id}@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data,
        }
        properties = self.folder / "kafka.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        options = ["-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]  # for a fast start on two cores
        return ["java", *options, "-cp", f"{self._jars}/*", "kafka.Kafka", str(properties)]


def answers(address: str) -> bool:
    try:
        with Admin(bootstrap_servers=address, default_api_timeout_ms=2_000) as admin:
            return bool(admin.describe_cluster().brokers)
    except ClientError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:5.1f} s  {text}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kafka", type=Path, required=True, metavar="DIR", help="the folder libs of a Kafka release")
    parser.add_argument(
        "--payments", type=int, default=1000, metavar="N", help="payments in each turn; default: %(default)s"
    )
    options = parser.parse_args()
    if not any(options.kafka.glob("kafka_*.jar")):
        parser.error(f"{options.kafka} contains no Kafka: give the folder libs of an unpacked release")
    if shutil.which("java") is None:
        parser.error("Java 17 or later is needed")
    return options


if __name__ == "__main__":
    given = arguments()
    main(given.kafka, given.payments)
