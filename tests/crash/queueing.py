"""The parts of a crash round for the exactly-once queue: workers that can be killed, and a check of their work."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from examples.exactly_once_queue import GROUP, JOBS, RESULTS
from odradek.client import ClientError, ShareRecord, TopicPartition, UpgradeType
from odradek.client.sync import Admin, Consumer, Producer
from odradek.protocol.errors import ErrorCode
from tests.checker.queues import JobsFinished, JobsTaken, QueueHistory
from tests.clients.own_share_consumers import SETTINGS, poll, worker
from tests.clients.speakers import wait_for
from tests.crash.copying import Watcher
from tests.crash.queue_worker import GAVE_UP_STATUS, Job
from tests.support.broker_process import Broker
from tests.support.oracle import REPOSITORY

JOBS_PER_ROUND = 24
PARTITIONS = 2
NAMES = tuple(f"worker-{number}" for number in range(3))
VICTIMS = ("one worker", "one worker", "one worker", "all workers", "broker", "broker and worker")
PATIENCE_S = 90.0
BROKER = SETTINGS | {
    "num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": 3,
    "log.segment.bytes": 1_048_576,
    "group.share.session.timeout.ms": 2_000,  # A killed worker keeps its partitions from others for this long.
    "group.share.max.delivery.count.limit": 25,  # more deliveries than any job needs
}


class Workers:
    """Named workers, forked by one process, so that starting a worker costs almost nothing."""

    def __init__(self, folder: Path) -> None:
        self.gave_up = 0
        self._folder = folder
        self._jobs: dict[str, Job] = {}
        self._pids: dict[str, int] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.queue_worker"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
        )
        self._reports: Queue[dict[str, Any]] = Queue()
        Thread(target=self._listen, daemon=True).start()

    def start(self, bootstrap: str, name: str, kind: str = "as in the example") -> None:
        assert self._process.stdin is not None
        job = self._jobs[name] = Job(bootstrap, name, os.fspath(self._folder / f"{name}.journal"), kind)
        self._process.stdin.write(job.to_json().encode() + b"\n")
        while name not in self._pids:
            self._take(self._next())

    def kill9(self, name: str) -> None:
        """Kills a worker and waits for it to exit."""
        with suppress(KeyError, ProcessLookupError):  # The worker may have just exited with GAVE_UP_STATUS.
            os.kill(self._pids[name], signal.SIGKILL)
        self.wait(name)

    def wait(self, name: str) -> None:
        """Waits for the worker to exit."""
        while name in self._pids:
            self._take(self._next())

    def keep_up(self) -> None:
        """Restarts the workers that have exited with GAVE_UP_STATUS."""
        while not self._reports.empty():
            self._take(self._reports.get())
        for name, job in self._jobs.items():
            if name not in self._pids:
                self.start(job.bootstrap, name, job.kind)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._log.close()

    def history(self) -> tuple[list[JobsTaken], list[JobsFinished]]:
        """Returns the events, ordered by the processes' common clock."""
        taken, finished = [], []
        for path in self._folder.glob("*.journal"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                if row["event"] == "taken":
                    taken.append(JobsTaken(row["at"], tuple(row["jobs"])))
                else:
                    finished.append(JobsFinished(row["at"], tuple(row["jobs"])))
        return taken, finished

    def log_text(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-4000:]

    def _next(self) -> dict[str, Any]:
        try:
            return self._reports.get(timeout=PATIENCE_S)
        except Empty:
            raise RuntimeError(f"the workers say nothing any more:\n{self.log_text()}") from None

    def _take(self, message: dict[str, Any]) -> None:
        if message["event"] == "started":
            self._pids[message["name"]] = message["pid"]
            return
        name = next(name for name, pid in self._pids.items() if pid == message["pid"])
        del self._pids[name]
        self.gave_up += message["status"] == GAVE_UP_STATUS
        assert message["status"] in (GAVE_UP_STATUS, -signal.SIGKILL), f"{name} ended: {message}\n{self.log_text()}"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._reports.put(json.loads(line))


def values_of(bootstrap: str, topic: str, partitions: int) -> list[str]:
    """Returns the values of all committed records."""
    found: list[str] = []
    places = [TopicPartition(topic, index) for index in range(partitions)]
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.getmany(timeout_ms=100).values():
                found += [(record.value or b"").decode() for record in records]
    return found


def left(bootstrap: str) -> list[str]:
    """Describes unfinished work: jobs in the queue, open transactions, and staged acknowledgements."""
    found = []
    with Admin(bootstrap_servers=bootstrap) as admin:
        for place, offset in admin.list_share_group_offsets(GROUP).items():
            if offset.lag != 0:
                found.append(f"{offset.lag} jobs of partition {place.partition} are in the queue")
        for each in admin.list_transactions():
            if each.state not in ("Empty", "CompleteCommit", "CompleteAbort"):
                found.append(f"the transaction {each.transactional_id} is {each.state}")
        try:  # The broker refuses this downgrade while acknowledgements are staged.
            admin.update_features({"odradek.share.transactions": 0}, UpgradeType.SAFE_DOWNGRADE, validate_only=True)
        except ClientError as error:
            if error.code is not ErrorCode.FEATURE_UPDATE_FAILED:
                raise
            found.append(str(error))
    return found


def delivered(bootstrap: str, quiet_s: float) -> list[ShareRecord]:
    """Returns the records that a new member still receives within `quiet_s` after its partitions were assigned."""
    found: list[ShareRecord] = []
    with worker(bootstrap, JOBS, GROUP) as consumer:
        ends_at = time.monotonic() + PATIENCE_S
        while not consumer.assignment():
            assert time.monotonic() < ends_at, "no partition was assigned"
            found += poll(consumer)
        ends_at = time.monotonic() + quiet_s
        while not found and time.monotonic() < ends_at:
            found += poll(consumer)
    return found


def history_of(bootstrap: str, partitions: int, workers: Workers, watched_values: list[str]) -> QueueHistory:
    """Returns the queue's history. Queries the cluster, so all workers must have exited."""
    still_left = left(bootstrap)
    again = [f"{(each.value or b'').decode()} was delivered again" for each in delivered(bootstrap, 0.5)]
    taken, finished = workers.history()
    return QueueHistory(
        jobs=values_of(bootstrap, JOBS, partitions),
        results=values_of(bootstrap, RESULTS, partitions),
        seen=watched_values,
        taken=taken,
        finished=finished,
        left=still_left + again,
    )


def add_jobs(producer: Producer, number: int) -> None:
    """Sends a round's jobs without waiting for the broker, which may have been killed."""
    for each in range(number * JOBS_PER_ROUND, (number + 1) * JOBS_PER_ROUND):
        producer.send(JOBS, b"job %d" % each, partition=each % PARTITIONS)


def wait_for_results(workers: Workers, watcher: Watcher, count: int) -> None:
    def are_there() -> bool:
        time.sleep(0.005)
        workers.keep_up()
        return watcher.count >= count

    wait_for(f"{count} results", are_there, PATIENCE_S)


def kill_and_start(victims: str, broker: Broker, workers: Workers, kind: str, rng: random.Random) -> None:
    """Kills the victims and restarts them, both in random order. The survivors must recover on their own."""
    names = {"one worker": 1, "all workers": len(NAMES), "broker": 0, "broker and worker": 1}[victims]
    dead = rng.sample(NAMES, names)
    kills: list[Callable[[], object]] = [partial(workers.kill9, name) for name in dead]
    starts: list[Callable[[], object]] = [partial(workers.start, broker.bootstrap, name, kind) for name in dead]
    if victims.startswith("broker"):
        kills.append(broker.kill9)
        starts.append(broker.start)
    for steps in (kills, starts):
        rng.shuffle(steps)
        for step in steps:
            step()


def watched_values(watcher: Watcher) -> list[str]:
    return [value for values in watcher.values().values() for value in values]
