"""The worker of examples/exactly_once_queue.py as a process that can be killed, and workers with planted mistakes.

`python -m tests.crash.queue_worker` imports everything once, and then forks a worker for each line of its input. A line
is a JSON object with the fields of `Job`. The process reports when each worker starts and exits. Workers keep a
journal, one JSON line per event, so that even SIGKILL does not destroy the evidence.
"""

import json
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from enum import Enum

from examples.exactly_once_queue import RESULTS, Worker, until_done
from odradek.client import (
    AbortableError,
    AcknowledgedRange,
    AcknowledgeType,
    ClientError,
    FatalError,
    ShareRecord,
    TopicPartition,
)

GAVE_UP_STATUS = 3
WORK_S = 0.001
LOCK_S = 1.0  # the group's lock duration with slow workers
SLOW_S = 1.2 * LOCK_S
# numbers of the transactions that are slow before their acknowledgements, and before their commit
SLOW_TO_ACKNOWLEDGE, SLOW_TO_COMMIT = 2, 4
REAP_S = 0.05
POISON_LIMIT = 4  # maximum number of deliveries per job


class Poison(Enum):
    KILLS_BEFORE = 0
    KILLS_AFTER = 1
    ABORTS = 2


def poison(job: bytes) -> Poison | None:
    """Returns the way in which a job kills its workers, or None. Every 24th job is poisonous, and each way is equally
    common."""
    number = int(job.split()[-1])
    return Poison(number // 24 % 3) if number % 24 == 7 else None


class Rejection(Enum):
    """The ways in which RejectingWorker rejects a job."""

    PLAIN = 0  # rejects the job outside any transaction
    COMMITTED = 1  # rejects the job in a transaction that commits
    ABORTED = 2  # rejects the job in a transaction that aborts, and gives the job a result at its next delivery


def rejection(job: bytes) -> Rejection | None:
    """Returns the way in which a job is rejected, or None. Every second job is rejected, and each way is equally
    common."""
    number = int(job.split()[-1])
    return Rejection(number // 2 % 3) if number % 2 else None


@dataclass(frozen=True, slots=True)
class Job:
    """The configuration of a worker. `kind` is one of WORKERS."""

    bootstrap: str
    name: str
    journal: str
    kind: str = "as in the example"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class JournallingWorker(Worker):
    def __init__(self, job: Job) -> None:
        super().__init__(job.bootstrap, job.name, retry_backoff_ms=20, retry_backoff_max_ms=200)
        self._journal = os.open(job.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def process(self, jobs: list[ShareRecord]) -> bool:
        self._note("taken", jobs)
        is_final = self.finish(jobs)
        if is_final:
            self._note("finished", jobs)
        return is_final

    def finish(self, jobs: list[ShareRecord]) -> bool:
        return super().process(jobs)

    def result_of(self, job: ShareRecord) -> bytes:
        time.sleep(WORK_S)
        return job.value or b""

    def _note(self, event: str, jobs: list[ShareRecord]) -> None:
        row = {"at": time.monotonic_ns(), "event": event, "jobs": [(job.value or b"").decode() for job in jobs]}
        os.write(self._journal, json.dumps(row).encode() + b"\n")


class SlowWorker(JournallingWorker):
    """Works like the example, but sometimes takes longer than its jobs' lock duration. If a lock expires before the
    worker has acknowledged the jobs, the worker must abort. If a lock expires before the commit, the worker is
    fenced."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._count = 0

    def finish(self, jobs: list[ShareRecord]) -> bool:
        self._count += 1
        try:
            until_done(self.producer.begin_transaction)
            for job in jobs:
                self.producer.send(RESULTS, self.result_of(job), key=job.value)
            time.sleep(SLOW_S if self._count == SLOW_TO_ACKNOWLEDGE else 0)
            self.producer.send_share_acknowledgements_to_transaction(jobs, self.consumer.share_group_metadata())
            time.sleep(SLOW_S if self._count == SLOW_TO_COMMIT else 0)
            until_done(self.producer.commit_transaction)
        except AbortableError:
            until_done(self.producer.abort_transaction)
            for job in jobs:
                self.consumer.acknowledge(job, AcknowledgeType.RELEASE)
            return False
        return True


class WrongWorker(JournallingWorker):
    """Dies in the middle of its first jobs, exactly when its mistake has an effect."""

    def send(self, jobs: list[ShareRecord]) -> None:
        until_done(self.producer.begin_transaction)
        for job in jobs:
            self.producer.send(RESULTS, self.result_of(job), key=job.value)

    def acknowledge(self, jobs: list[ShareRecord]) -> None:
        for job in jobs:
            self.consumer.acknowledge(job, AcknowledgeType.ACCEPT)
        assert set(self.consumer.commit().values()) == {None}


class AcknowledgesAfterwards(WrongWorker):
    """Acknowledges outside the transaction, after the commit."""

    def finish(self, jobs: list[ShareRecord]) -> bool:
        self.send(jobs)
        until_done(self.producer.commit_transaction)
        die()
        self.acknowledge(jobs)
        return True


class AcknowledgesBefore(WrongWorker):
    """Acknowledges outside the transaction, before the commit."""

    def finish(self, jobs: list[ShareRecord]) -> bool:
        self.send(jobs)
        self.acknowledge(jobs)
        die()
        until_done(self.producer.commit_transaction)
        return True


class StagesAndDies(WrongWorker):
    """Dies after staging its acknowledgements. This is not a mistake if another worker replaces it."""

    def finish(self, jobs: list[ShareRecord]) -> bool:
        self.send(jobs)
        self.producer.send_share_acknowledgements_to_transaction(jobs, self.consumer.share_group_metadata())
        die()
        return False


class PoisonedWorker(JournallingWorker):
    """Never finishes poisonous jobs (see `poison`). The worker dies before or after it has staged the acknowledgement,
    or it aborts and releases the job. The broker must not deliver a job more often than POISON_LIMIT."""

    def finish(self, jobs: list[ShareRecord]) -> bool:
        assert max(job.delivery_count for job in jobs) <= POISON_LIMIT
        kinds = [kind for job in jobs if (kind := poison(job.value or b"")) is not None]
        if not kinds:
            return super().finish(jobs)
        try:
            until_done(self.producer.begin_transaction)
            for job in jobs:
                self.producer.send(RESULTS, self.result_of(job), key=job.value)
            if kinds[0] is Poison.KILLS_BEFORE:
                die()
            self.producer.send_share_acknowledgements_to_transaction(jobs, self.consumer.share_group_metadata())
            if kinds[0] is Poison.KILLS_AFTER:
                die()
        except AbortableError:
            pass
        until_done(self.producer.abort_transaction)
        for job in jobs:
            self.consumer.acknowledge(job, AcknowledgeType.RELEASE)
        return False


class RejectingWorker(JournallingWorker):
    """Rejects jobs as `rejection` specifies. Every job that is not rejected outside any transaction gets a result."""

    def finish(self, jobs: list[ShareRecord]) -> bool:
        plain = [job for job in jobs if rejection(job.value or b"") is Rejection.PLAIN]
        others = [job for job in jobs if job not in plain]
        is_rejected = self._reject(plain)
        return (not others or self._finish_others(others)) and is_rejected

    def _reject(self, jobs: list[ShareRecord]) -> bool:
        for job in jobs:
            self.consumer.acknowledge(job, AcknowledgeType.REJECT)
        try:
            return not any(self.consumer.commit().values())
        except ClientError:  # The jobs will be delivered again.
            return False

    def _finish_others(self, others: list[ShareRecord]) -> bool:
        aborts = any(rejection(job.value or b"") is Rejection.ABORTED and job.delivery_count == 1 for job in others)
        try:
            until_done(self.producer.begin_transaction)
            for job in others:
                self.producer.send(RESULTS, self.result_of(job), key=job.value)
            self.producer.send_share_acknowledgements_to_transaction(
                self._fates(others, rejects_all=aborts), self.consumer.share_group_metadata()
            )
            if not aborts:
                until_done(self.producer.commit_transaction)
                return True
        except AbortableError:
            pass
        until_done(self.producer.abort_transaction)
        for job in others:
            self.consumer.acknowledge(job, AcknowledgeType.RELEASE)
        return False

    def _fates(self, jobs: list[ShareRecord], *, rejects_all: bool) -> dict[TopicPartition, list[AcknowledgedRange]]:
        found: dict[TopicPartition, list[AcknowledgedRange]] = {}
        for job in jobs:
            is_rejected = rejects_all or rejection(job.value or b"") is Rejection.COMMITTED
            fate = AcknowledgeType.REJECT if is_rejected else AcknowledgeType.ACCEPT
            place = TopicPartition(job.topic, job.partition)
            found.setdefault(place, []).append(AcknowledgedRange(job.offset, job.offset, fate))
        return found


WORKERS = {
    "as in the example": JournallingWorker,
    "slow": SlowWorker,
    "acknowledges afterwards": AcknowledgesAfterwards,
    "acknowledges before": AcknowledgesBefore,
    "stages and dies": StagesAndDies,
    "poisoned": PoisonedWorker,
    "rejecting": RejectingWorker,
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(job: Job) -> int:
    try:
        WORKERS[job.kind](job).run()
    except FatalError as error:
        print(f"{job.name} gave up: {error!r}", file=sys.stderr)
        return GAVE_UP_STATUS
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def fork_worker(job: Job) -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(run(job))
    return pid


def say(**fields: object) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


def main() -> None:
    pids: set[int] = set()
    begun = b""
    while True:
        readable, _, _ = select.select([0], [], [], REAP_S)
        if readable:
            read = os.read(0, 1 << 16)
            if not read:
                break
            *lines, begun = (begun + read).split(b"\n")
            for line in lines:
                job = Job(**json.loads(line))
                pid = fork_worker(job)
                pids.add(pid)
                say(event="started", name=job.name, pid=pid)
        while pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            pids.discard(pid)
            say(event="ended", pid=pid, status=os.waitstatus_to_exitcode(status))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
