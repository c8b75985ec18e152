"""Copiers as processes that can be killed, a consumer that watches their copies, and the history of copiers and
consumers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.cimpl import TopicPartition as Assigned

from odradek.client import TopicPartition
from odradek.client.sync import Consumer as OwnConsumer
from tests.checker.history import (
    Answer,
    CommitAnswered,
    CommitRequested,
    ConsumerPositioned,
    Event,
    ReachedEnd,
    RecordSent,
    RecordsPolled,
)
from tests.crash.copier import GAVE_UP_STATUS, RECONNECT, Job
from tests.support.oracle import REPOSITORY

STOP_TIMEOUT_S = 60.0
Timed = tuple[int, Event]  # time of the machine's monotonic clock in ns, and the event
Given = tuple[int, int, str]  # partition, offset and value of a record


def python(module: str) -> tuple[str, ...]:
    """Returns a command that runs a module of this repository."""
    return sys.executable, "-m", module


class CopierProcess:
    def __init__(self, job: Job, command: Sequence[str] = python("tests.crash.copier")) -> None:
        """Prepares a copier. Each `start` creates a process; all its processes share one journal and one stderr. The
        command gets the job as its last argument."""
        self.job = job
        self._command = command
        self._stderr = Path(f"{job.journal}.stderr")
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self.gave_up = 0

    def start(self) -> None:
        self._starts += 1
        job = replace(self.job, seed=self.job.seed + 1000 * self._starts)
        with open(self._stderr, "ab") as stderr:
            words = [*self._command, job.to_json()]
            self._process = subprocess.Popen(words, cwd=REPOSITORY, stderr=stderr, stdin=subprocess.DEVNULL)

    def kill9(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Sends SIGTERM. A process that has just started has no handler yet, so death by SIGTERM is accepted."""
        status = self._end(signal.SIGTERM)
        assert status in (0, -signal.SIGTERM), (
            f"{self.job.transactional_id} ended with status {status}:\n{self.log_text()}"
        )

    def check(self) -> None:
        """Checks that the process is running. Restarts it if it has exited with GAVE_UP_STATUS."""
        assert self._process is not None
        status = self._process.poll()
        if status == GAVE_UP_STATUS:
            self.gave_up += 1
            self.start()
            return
        assert status is None, f"{self.job.transactional_id} ended with status {status}:\n{self.log_text()}"

    def log_text(self) -> str:
        return self._stderr.read_text(errors="replace")[-4000:]

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class Watcher(threading.Thread):
    """Reads all of a topic's committed records, from the start and as they are written, and keeps a record of those
    received."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._servers, self._topic, self._partitions = bootstrap, topic, partitions
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._events: list[Timed] = []
        self._count = 0

    def run(self) -> None:
        start = time.monotonic_ns()
        self._events += [
            (start, ConsumerPositioned(self.name, (self._topic, index), 0)) for index in range(self._partitions)
        ]
        for given in self._reads():
            found: dict[int, list[tuple[int, str]]] = {}
            for partition, offset, value in given:
                found.setdefault(partition, []).append((offset, value))
            now = time.monotonic_ns()
            with self._lock:
                for partition, records in found.items():
                    self._events.append((now, RecordsPolled(self.name, (self._topic, partition), records)))
                    self._count += len(records)

    def _reads(self) -> Iterable[list[Given]]:
        """Yields the records of each librdkafka poll until the watch ends."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self.name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # Committed records must neither disappear nor move.
                **RECONNECT,
            }
        )
        consumer.assign([Assigned(self._topic, index, 0) for index in range(self._partitions)])
        while not self._over.is_set():
            given: list[Given] = []
            for message in consumer.consume(500, 0.1):
                partition, offset, value = message.partition(), message.offset(), message.value()
                if message.error() is None and partition is not None and offset is not None and value is not None:
                    given.append((partition, offset, value.decode()))
            yield given
        consumer.close()

    @property
    def count(self) -> int:
        """Returns the number of records received so far."""
        return self._count

    def finish(self, *, reached_end: bool) -> None:
        self._over.set()
        self.join(60)
        assert not self.is_alive()
        if reached_end:
            now = time.monotonic_ns()
            self._events += [(now, ReachedEnd(self.name, (self._topic, index))) for index in range(self._partitions)]

    def history(self) -> list[Timed]:
        return self._events

    def values(self) -> dict[int, list[str]]:
        """Returns the received values by partition, in order of arrival."""
        found: dict[int, list[str]] = {index: [] for index in range(self._partitions)}
        for _, event in self._events:
            if isinstance(event, RecordsPolled):
                found[event.partition[1]] += [str(value) for _, value in event.records]
        return found


class OwnWatcher(Watcher):
    """A watcher based on Odradek's client, which delivers each record once even when the leader epoch changes."""

    def _reads(self) -> Iterable[list[Given]]:
        with OwnConsumer(
            bootstrap_servers=self._servers, auto_offset_reset="none", retry_backoff_ms=20, retry_backoff_max_ms=200
        ) as consumer:
            partitions = [TopicPartition(self._topic, index) for index in range(self._partitions)]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            while not self._over.is_set():
                found = consumer.getmany(timeout_ms=100, max_records=500)
                yield [
                    (each.partition, each.offset, each.value.decode())
                    for records in found.values()
                    for each in records
                    if each.value is not None
                ]


def journal_of(path: Path, topic: str) -> list[Timed]:
    """Returns a copier's events. Its records count as written only if their transaction was committed."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    committed = {row["transaction"] for row in rows if row["event"] == "answer" and row["committed"]}
    found: list[Timed] = []
    for row in rows:
        transaction = row["transaction"]
        match row["event"]:
            case "send":
                answer = Answer.YES if transaction in committed else Answer.UNKNOWN
                sent = RecordSent(transaction, (topic, row["partition"]), row["value"], answer, transaction)
                found.append((row["at"], sent))
            case "ask":
                found.append((row["at"], CommitRequested(transaction)))
            case "answer":
                answer = Answer.YES if row["committed"] else Answer.NO
                found.append((row["at"], CommitAnswered(transaction, answer)))
    return found


def journal(folder: Path, transactional_id: str) -> str:
    return os.fspath(folder / f"{transactional_id}.journal")


def history(copiers: list[CopierProcess], *watchers: Watcher) -> list[Event]:
    """Returns the events of copiers and watchers, ordered by their common clock."""
    timed: list[Timed] = []
    for copier in copiers:
        timed += journal_of(Path(copier.job.journal), copier.job.target)
    for watcher in watchers:
        timed += watcher.history()
    return [event for _, event in sorted(timed, key=lambda one: one[0])]


def first_difference(found: list[str], expected: list[str]) -> object:
    """Returns the first position where the lists differ, with the next values of both. Returns the two lengths if one
    list is longer, or None if the lists are equal."""
    for place, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return place, found[place : place + 5], expected[place : place + 5]
    return None if len(found) == len(expected) else (len(found), len(expected))
