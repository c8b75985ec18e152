"""Keeps a database and Kafka consistent, even if processes are killed between the two commits.

make example-dual-write  or: python examples/dual_write.py

Starts a broker in a temporary directory and creates a SQLite database. Separate processes write orders to both. Two of
these processes are killed, one of them between the database's commit and Kafka's, and the other before both commits.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.client import TopicPartition
from odradek.client.sync import Consumer
from odradek.dualwrite import DualWrite, Fate, Result, Step

TOPIC = "orders"
TRANSACTIONAL_ID = "order-service-1"
START_TIMEOUT_S = 30


# --- The application: this is all that your own program needs.


def place_order(database: str, bootstrap: str, item: str, killed_after: str | None) -> None:
    """Writes a row and a message, which are committed together or not at all."""

    def watch(step: Step, result: Result | None) -> None:
        if result is not None and step.name == killed_after:
            os.kill(os.getpid(), signal.SIGKILL)  # has the same effect as a power failure

    with (
        DualWrite(
            connect=lambda: sqlite3.connect(database),
            bootstrap_servers=bootstrap,
            transactional_id=TRANSACTIONAL_ID,
            observe=watch,  # only for this demonstration
        ) as dual,
        dual.transaction() as transaction,
    ):
        transaction.execute("INSERT INTO orders (item) VALUES (?)", (item,))
        transaction.send(TOPIC, item.encode())


# --- The demonstration.


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dual-write-") as folder:
        database = str(Path(folder, "orders.db"))
        with sqlite3.connect(database) as connection:
            connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT)")
        connection.close()
        with broker(Path(folder)) as bootstrap:
            say("1. A process orders tea, and nothing goes wrong.")
            run(database, bootstrap, "tea")
            look(database, bootstrap)

            say("2. A process orders milk, and is killed after the database has committed, before Kafka has.")
            run(database, bootstrap, "milk", killed_after=Step.COMMIT_DATABASE)
            look(database, bootstrap)
            print(
                "   The message is in the log, but nobody sees it: Kafka waits for a decision, however long it takes."
            )
            recover(database, bootstrap)
            look(database, bootstrap)

            say("3. A process orders sugar, and is killed when all is prepared, before the database has committed.")
            run(database, bootstrap, "sugar", killed_after=Step.WRITE_STATE)
            look(database, bootstrap)
            recover(database, bootstrap)
            look(database, bootstrap)

            assert rows(database) == messages(bootstrap) == ["tea", "milk"]
            say("The database and Kafka agree.")


def run(database: str, bootstrap: str, item: str, *, killed_after: Step | None = None) -> None:
    words = [sys.executable, __file__, "--order", item, "--database", database, "--bootstrap", bootstrap]
    if killed_after is not None:
        words += ["--killed-after", killed_after.name]
    status = subprocess.run(words, check=False).returncode
    print(f"   the process {'ended well' if status == 0 else f'was killed by {signal.Signals(-status).name}'}")


def recover(database: str, bootstrap: str) -> None:
    """Recovers as every program does when it starts, because `with DualWrite(...)` recovers automatically."""
    dual = DualWrite(
        connect=lambda: sqlite3.connect(database), bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID
    )
    found = dual.recover()
    dual.close()
    done = "committed" if found.messages is Fate.COMMITTED else "aborted"
    print(f"   recover(): open in Kafka {found.open_state!r}, stored in the database {found.stored_state!r}: {done}")


def look(database: str, bootstrap: str) -> None:
    print(f"   rows      {rows(database)}")
    print(f"   messages  {messages(bootstrap)}")


def rows(database: str) -> list[str]:
    connection = sqlite3.connect(database)
    try:
        return [item for (item,) in connection.execute("SELECT item FROM orders ORDER BY number")]
    finally:
        connection.close()


def messages(bootstrap: str) -> list[str]:
    """Returns the messages that read_committed consumers see."""
    partition = TopicPartition(TOPIC, 0)
    found: list[str] = []
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for records in consumer.getmany(timeout_ms=200).values():
                found += [record.value.decode() for record in records if record.value is not None]
    return found


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Starts a broker on a free port and yields its address."""
    ready = folder / "ready.json"
    words = [sys.executable, "-m", "odradek", "serve", "--port", "0", "--ready-file", str(ready)]
    words += ["--data-dir", str(folder / "log"), "--override", "transaction.two.phase.commit.enable=true"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends_at = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError("the broker did not start")
            time.sleep(0.01)
        at = json.loads(ready.read_text())
        yield f"{at['host']}:{at['port']}"
    finally:
        process.terminate()
        process.wait()


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--order", help="run as the application that orders this item")
    parser.add_argument("--database")
    parser.add_argument("--bootstrap")
    parser.add_argument("--killed-after", choices=[step.name for step in Step])
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    if given.order is None:
        main()
    else:
        place_order(given.database, given.bootstrap, given.order, given.killed_after)
