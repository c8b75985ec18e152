"""The parts of a crash round for dual writes: application processes, databases, and a check of both sides."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.cimpl import TopicPartition as Assigned

from odradek.client.sync import Admin
from odradek.dualwrite import DualWrite
from tests.checker.dual_writes import (
    BlockStarted,
    BothSidesRead,
    Event,
    RecoveryEnded,
    RecoveryStarted,
    RowsReported,
    TransactionPrepared,
)
from tests.checker.history import Answer
from tests.crash.dual_writer import PARTITIONS, POSTGRESQL, SQLITE, TOPIC, TRANSACTIONAL_ID, Job
from tests.support.oracle import REPOSITORY
from tests.support.postgresql import PostgresqlProcess

PATIENCE_S = 90.0
END_TIMEOUT_S = 10.0
ANSWERS = {
    "COMMITTED": Answer.YES,
    "ROLLED_BACK": Answer.NO,
    "UNKNOWN": Answer.UNKNOWN,
}


class Nursery:
    """Runs one application at a time. `events` contains the applications' reports, as events for the checker."""

    def __init__(self, name: str, events: list[Event]) -> None:
        self._name = name
        self._events = events
        self._count = 0
        self._current = ""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.dual_writer"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._lines: Queue[dict[str, Any]] = Queue()
        Thread(target=self._listen, daemon=True).start()

    def begin(self, job: Job) -> None:
        self._write(job.to_json())

    def go_on(self) -> None:
        """Lets a waiting application continue."""
        self._write("")

    def until(self, *events: str) -> dict[str, Any]:
        """Returns the first reported event whose kind is one of these or "ended"."""
        while True:
            try:
                message = self._lines.get(timeout=PATIENCE_S)
            except Empty:
                os.killpg(self._process.pid, signal.SIGUSR1)  # makes the process write its stack to stderr
                time.sleep(1)
                raise RuntimeError(f"{self._name} says nothing any more:\n{self.log_text()}") from None
            self._take(message)
            if message["event"] in (*events, "ended"):
                return message

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # also kills an application that does not exit
            raise
        finally:
            self._log.close()

    def log_text(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-4000:]

    def _take(self, message: dict[str, Any]) -> None:
        match message["event"]:
            case "began":
                self._count += 1
                self._current = f"{self._name}-{self._count}"
                self._events.append(BlockStarted(self._current, tuple(message["values"])))
            case "prepared":
                self._events.append(TransactionPrepared(self._current))
            case "told":
                self._events.append(RowsReported(self._current, ANSWERS[message["rows"]]))
            case "recovery began":
                self._events.append(RecoveryStarted())
            case "recovered":
                self._events.append(RecoveryEnded())
            case "failed":
                raise RuntimeError(f"{self._name}: {message['error']}\n{self.log_text()}")

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))


class Database(ABC):
    kind: str
    address: str

    @abstractmethod
    def connect(self) -> Any: ...

    def __enter__(self) -> "Database":
        connection = self.connect()
        connection.execute("CREATE TABLE orders (name text)")
        connection.commit()
        connection.close()
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    def rows(self) -> tuple[str, ...]:
        connection = self.connect()
        try:
            return tuple(str(name) for (name,) in connection.execute("SELECT name FROM orders").fetchall())
        finally:
            connection.close()

    def kill9(self) -> None:
        raise NotImplementedError("it has no process of its own")

    def start(self) -> None:
        raise NotImplementedError("it has no process of its own")


class Sqlite(Database):
    kind = SQLITE

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="sqlite-")
        self.address = str(Path(self._folder, "orders.db"))

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.address, timeout=10)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class Postgresql(Database):
    kind = POSTGRESQL

    def __init__(self) -> None:
        self._server = PostgresqlProcess()
        self.address = self._server.conninfo

    def connect(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(self.address)

    def __enter__(self) -> Database:
        self._server.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def kill9(self) -> None:
        self._server.kill9()

    def start(self) -> None:
        self._server.start()


DATABASES: dict[str, Callable[[], Database]] = {SQLITE: Sqlite, POSTGRESQL: Postgresql}


def look(database: Database, bootstrap: str) -> BothSidesRead:
    """Reads both sides, first Kafka and then the database, so a message without its row is always a fault."""
    messages = tuple(value for _, _, value in committed_messages(bootstrap))
    return BothSidesRead(messages, is_open(bootstrap), database.rows())


def is_open(bootstrap: str) -> bool:
    """Returns whether the coordinator has an undecided transaction."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        return admin.describe_transactions([TRANSACTIONAL_ID])[TRANSACTIONAL_ID].state == "Ongoing"


def committed_messages(bootstrap: str) -> Iterator[tuple[int, int, str]]:
    """Yields the partition, offset and value of all committed messages up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    consumer.assign([Assigned(TOPIC, index, 0) for index in range(PARTITIONS)])
    at_end: set[int] = set()
    while len(at_end) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "the topic cannot be read"
        error = message.error()
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is None:
            assert partition is not None and offset is not None and value is not None  # noqa: PT018
            yield partition, offset, value.decode()
        elif error.code() == KafkaError._PARTITION_EOF:
            assert partition is not None
            at_end.add(partition)
        elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
            raise KafkaException(error)
    consumer.close()


def recover(database: Database, bootstrap: str, events: list[Event]) -> None:
    """Recovers with an instance that does nothing else, after all processes have been restarted."""
    events.append(RecoveryStarted())
    dual: DualWrite[Any] = DualWrite(
        connect=database.connect, bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID
    )
    with dual:
        pass
    events.append(RecoveryEnded())
