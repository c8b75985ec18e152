"""A queue whose jobs each produce exactly one result, even if workers and the broker are killed at random.

make example-queue  or: python examples/exactly_once_queue.py [--jobs 1200] [--kills 12] [--seed 1]

Starts a broker in a temporary directory, and four workers in one share group. Each worker takes jobs from one topic,
writes the results to another, and acknowledges the jobs in the same transaction (KIP-1289). While the jobs are being
processed, workers and the broker are killed with kill -9 and restarted.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.client import (
    AbortableError,
    AcknowledgeType,
    AlterOperation,
    ConfigChange,
    ConfigResource,
    ConfigType,
    NewTopic,
    RetriableError,
    ShareRecord,
    TopicPartition,
)
from odradek.client.sync import Admin, Consumer, Producer, ShareConsumer

JOBS, RESULTS, GROUP = "jobs", "results", "workers"
WORKERS = 4
START_TIMEOUT_S = 60
PATIENCE_S = 120
BEGAN = time.monotonic()


# --- The application: this is all that your own program needs.


def set_up(bootstrap: str) -> None:
    """Sets up the cluster once, as an administrator."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        # On the command line: odradek features upgrade --feature odradek.share.transactions=1
        admin.update_features({"odradek.share.transactions": 1})
        admin.create_topics([NewTopic(JOBS), NewTopic(RESULTS)])  # The workers can share a single partition.
        settings = {
            "share.auto.offset.reset": "earliest",
            # The broker gives up on a job after this many deliveries. A delivery counts even if the worker dies while
            # processing the job.
            "share.delivery.count.limit": "10",
        }
        changes = [ConfigChange(AlterOperation.SET, name, value) for name, value in settings.items()]
        admin.alter_configs({ConfigResource(ConfigType.GROUP, GROUP): changes})


class Worker:
    """Processes jobs until it is killed.

    name  transactional id. No two running workers have the same id, and a replacement gets the dead worker's id.
    more  additional settings for both clients
    """

    def __init__(self, bootstrap: str, name: str, **more: float) -> None:
        self.consumer = ShareConsumer(
            JOBS,
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            share_acknowledgement_mode="transactional",  # The producer acknowledges instead.
            share_acquire_mode="record_limit",
            max_poll_records=10,  # maximum number of jobs per transaction
            bootstrap_timeout_ms=START_TIMEOUT_S * 1000,
            **more,  # type: ignore[arg-type]
        )
        self.producer = Producer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            bootstrap_timeout_ms=START_TIMEOUT_S * 1000,
            **more,  # type: ignore[arg-type]
        )

    def run(self) -> None:
        with self.consumer, self.producer:
            # Aborts the dead worker's open transaction, so its jobs are delivered again.
            until_done(self.producer.init_transactions)
            while True:
                for jobs in self.consumer.getmany().values():
                    self.process(jobs)

    def process(self, jobs: list[ShareRecord]) -> bool:
        """Commits the jobs' results and acknowledgements together. Returns False if nothing was committed.

        A FatalError is not caught. It ends the process, and the replacement process starts with `init_transactions`.
        ProducerFenced, for example, is raised if the jobs' locks expired before the results were committed: the broker
        has then ended the transaction and given the jobs to another worker.
        """
        try:
            until_done(self.producer.begin_transaction)
            for job in jobs:
                self.producer.send(RESULTS, self.result_of(job), key=job.value)
            self.producer.send_share_acknowledgements_to_transaction(jobs, self.consumer.share_group_metadata())
            until_done(self.producer.commit_transaction)
        except AbortableError:  # Another worker now owns one of the jobs, or a write failed.
            until_done(self.producer.abort_transaction)
            for job in jobs:  # Otherwise the jobs would not be available until their locks expire.
                self.consumer.acknowledge(job, AcknowledgeType.RELEASE)
            return False
        return True

    def result_of(self, job: ShareRecord) -> bytes:
        """Does the actual work. It can run more than once per job, because a worker can die, but only one result
        counts."""
        time.sleep(0.02)
        return b"%s, %d. delivery" % (job.value, job.delivery_count)


def until_done(step: Callable[[], object]) -> None:
    """Retries a step until it succeeds.

    After a RetriableError, the outcome is unknown: even a commit may have succeeded. The step must therefore be retried
    before anything else is done.
    """
    while True:
        try:
            step()
            return
        except RetriableError:
            time.sleep(0.1)


# --- The demonstration.


def main(jobs: int, kills: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="queue-") as folder:
        broker = Broker(Path(folder))
        try:
            broker.start()
            set_up(broker.address)
            fill(broker.address, jobs)
            say(f"{jobs} jobs are in the queue, and {WORKERS} workers start.")
            show(broker, jobs, kills, random.Random(seed))
            give_verdict(broker.address, jobs)
        finally:
            broker.kill()


def show(broker: "Broker", jobs: int, kills: int, rng: random.Random) -> None:
    """Kills workers and the broker until there are at least as many results as jobs."""
    with workers(broker.address) as running:
        began = time.monotonic()
        while (done := len(results(broker.address, "read_committed"))) < jobs:
            if time.monotonic() - began > PATIENCE_S:
                raise SystemExit(f"only {done} of {jobs} results after {PATIENCE_S} s")
            if done == 0 and kills > 0:
                time.sleep(0.05)  # The first kill should follow soon after the first result.
                continue
            if kills == 0:
                time.sleep(0.3)
            elif kills % 4 == 2:
                say(f"{done:4} results. kill -9 the broker.")
                broker.kill()
                broker.start()
                kills -= 1
            else:
                number = rng.randrange(WORKERS)
                say(f"{done:4} results. kill -9 worker-{number}.")
                running[number].kill()
                running[number].wait()
                kills -= 1
            replace_dead(running, broker.address)
            time.sleep(rng.uniform(0.2, 1.0))
        # Results become visible before all markers have been written to the queue, and a dead worker's transaction
        # remains open until the worker is replaced.
        while left(broker.address) != (0, 0) and time.monotonic() - began < PATIENCE_S:
            replace_dead(running, broker.address)
            time.sleep(0.1)


def give_verdict(bootstrap: str, jobs: int) -> None:
    by_job = Counter(job for job, _ in results(bootstrap, "read_committed"))
    written = len(results(bootstrap, "read_uncommitted"))
    again = sum(not result.endswith(b" 1. delivery") for _, result in results(bootstrap, "read_committed"))
    say(f"{written} results were written, {written - by_job.total()} of them in transactions that were aborted.")
    say(f"At least {again} jobs were delivered more than once.")
    jobs_left, transactions = left(bootstrap)
    say(f"{jobs_left} jobs are left, and {transactions} transactions are open.")
    assert jobs_left == 0
    assert by_job == Counter(b"job %d" % number for number in range(jobs)), by_job
    say(f"{jobs} jobs have {by_job.total()} results, exactly one each.")


def left(bootstrap: str) -> tuple[int | None, int]:
    """Returns the number of unfinished jobs, or None if it is unknown, and the number of open transactions."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        (queue,) = admin.list_share_group_offsets(GROUP).values()
        return queue.lag, len(admin.list_transactions(states=["Ongoing"]))


def fill(bootstrap: str, jobs: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(jobs):
            producer.send(JOBS, b"job %d" % number)
        producer.flush()


def results(bootstrap: str, isolation_level: str) -> list[tuple[bytes | None, bytes]]:
    """Returns the key (the job) and the value of every result visible to a consumer with this isolation level."""
    partition = TopicPartition(RESULTS, 0)
    found: list[tuple[bytes | None, bytes]] = []
    with Consumer(bootstrap_servers=bootstrap, isolation_level=isolation_level) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for records in consumer.getmany(timeout_ms=200).values():
                found += [(record.key, record.value or b"") for record in records]
    return found


# --- Processes.


class Broker:
    """A broker that keeps its data directory and its port across restarts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        words = [sys.executable, "-m", "odradek", "serve", "--port", str(self._port), "--ready-file", str(ready)]
        words += ["--data-dir", str(self._folder / "log")]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ends_at = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError("the broker did not start")
            time.sleep(0.02)
        self._port = json.loads(ready.read_text())["port"]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def workers(bootstrap: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yields a list of running workers, in which the caller can replace dead workers."""
    running = [start_worker(bootstrap, number) for number in range(WORKERS)]
    try:
        yield running
    finally:
        for worker in running:
            worker.kill()
            worker.wait()


def replace_dead(running: list[subprocess.Popen[bytes]], bootstrap: str) -> None:
    for number, worker in enumerate(running):
        if worker.poll() is not None:  # The worker was killed, or a FatalError ended it.
            running[number] = start_worker(bootstrap, number)


def start_worker(bootstrap: str, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "--work", f"worker-{number}", "--bootstrap", bootstrap])


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:5.1f} s  {text}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1200, metavar="N", help="default: %(default)s")
    parser.add_argument("--kills", type=int, default=12, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="seed for the choice of victims")
    parser.add_argument("--work", metavar="NAME", help="run as this worker")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="broker that the worker uses")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    if given.work is None:
        main(given.jobs, given.kills, given.seed)
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the demonstration, which then kills its workers.
        Worker(given.bootstrap, given.work).run()
