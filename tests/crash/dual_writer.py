"""An application that writes to a database and to Kafka. A test can kill its process at a chosen step.

When this file runs as a module, it is a nursery. For each job (a line of JSON on stdin), the nursery forks an
application and waits for it to exit. Forking saves the import time. The application reports its steps as lines of JSON
on stdout. At a step where it must wait, it reads a line from stdin.
"""

import faulthandler
import json
import os
import signal
import sqlite3
import time
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import psycopg

from odradek.dualwrite import DualWrite, DualWriteError, Fate, Fenced, InDoubt, NotCommitted, Phase, Result, Step
from odradek.dualwrite import database as statements

TOPIC, PARTITIONS, TRANSACTIONAL_ID = "orders", 2, "orders-1"
SQLITE, POSTGRESQL = "sqlite", "postgresql"
PATIENCE_S = 60.0
PAUSE_S = 0.02
GAVE_UP_STATUS = 3


@dataclass(frozen=True, slots=True)
class Job:
    """The job of an application, which is interrupted at one step.

    blocks         values of each transaction
    at             name of the step
    when           "before" or "after" the step
    blocks_before  minimum number of blocks written before the interruption
    deed           "die": die by SIGKILL; "tell": report the step and continue; "wait": report it and wait for a line
    """

    database: str
    address: str  # path of the file, or psycopg's conninfo
    bootstrap: str
    blocks: list[list[str]]
    at: str = ""
    when: str = ""
    blocks_before: int = 0
    deed: str = ""
    timeout_ms: int = 20_000
    recovers: bool = True  # whether it continues after a failure, instead of exiting with a transaction in doubt
    planted: bool = False  # whether a bug is planted: the prepared state is not written to the row

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def connect(database: str, address: str) -> Any:
    return sqlite3.connect(address, timeout=10) if database == SQLITE else psycopg.connect(address)


class Application:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._number = 0  # number of the current block
        self._has_come_there = False

    def run(self) -> int:
        job = self._job
        dual: DualWrite[Any] = DualWrite(
            connect=lambda: connect(job.database, job.address),
            bootstrap_servers=job.bootstrap,
            transactional_id=TRANSACTIONAL_ID,
            timeout_ms=job.timeout_ms,
            observe=self._observe,
        )
        try:
            self._recover(dual)
            for self._number, values in enumerate(job.blocks):
                self._write(dual, values)
                if dual.phase is not Phase.READY:
                    if not job.recovers or dual.phase is Phase.FENCED:
                        return GAVE_UP_STATUS
                    self._recover(dual)
        except DualWriteError as error:
            say("gave up", error=repr(error), cause=repr(error.__cause__))
            return GAVE_UP_STATUS
        dual.close()
        return 0

    def _recover(self, dual: "DualWrite[Any]") -> None:
        """Retries the recovery until it succeeds, as a service would."""
        ends_at = time.monotonic() + PATIENCE_S
        while True:
            say("recovery began")
            try:
                dual.recover()
                break
            except Fenced:
                raise
            except DualWriteError:
                if not self._job.recovers or time.monotonic() > ends_at:
                    raise
            time.sleep(PAUSE_S)
        say("recovered")

    def _write(self, dual: "DualWrite[Any]", values: list[str]) -> None:
        mark = "?" if self._job.database == SQLITE else "%s"
        say("began", values=values)
        rows = Fate.COMMITTED
        try:
            with dual.transaction() as transaction:
                for number, value in enumerate(values):
                    transaction.execute(f"INSERT INTO orders VALUES ({mark})", (value,))
                    transaction.send(TOPIC, value.encode(), partition=number % PARTITIONS)
        except (InDoubt, Fenced) as error:
            rows = error.rows
        except (NotCommitted, sqlite3.Error, psycopg.Error):
            rows = Fate.ROLLED_BACK
        say("told", rows=rows.name)

    def _observe(self, step: Step, result: Result | None) -> None:
        if (step, result) == (Step.PREPARE_KAFKA, Result.DONE):
            say("prepared")
        job = self._job
        when = "before" if result is None else "after"
        is_there = (step.name, when) == (job.at, job.when) and self._number >= job.blocks_before
        if is_there and not self._has_come_there:
            self._has_come_there = True
            self._do()

    def _do(self) -> None:
        if self._job.deed == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        say("there", pid=os.getpid())
        if self._job.deed == "wait":
            read_line()


def say(event: str, **details: Any) -> None:
    """Reports an event in a single write, so that a kill cannot truncate it."""
    os.write(1, (json.dumps({"event": event, **details}) + "\n").encode())


def read_line() -> str:
    """Reads exactly one line, because the next one is meant for another process. Returns an empty string at the end of
    the input."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return ""
        line += byte
    return line.decode()


def fork_application(line: str) -> NoReturn:
    job = Job(**json.loads(line))
    if job.planted:
        statements.WRITE = statements.WRITE.replace("= ? WHERE", "= substr(?, 1, 0) WHERE")
    status = 1
    try:
        status = Application(job).run()
    except BaseException as error:
        say("failed", error=repr(error))
    finally:
        os._exit(status)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    while line := read_line():
        pid = os.fork()
        if pid == 0:
            fork_application(line)
        _, status = os.waitpid(pid, 0)
        say("ended", status=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
