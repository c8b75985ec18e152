"""Runs Spark drivers and a standalone cluster as processes that a test can kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.clients.speakers import wait_for
from tests.spark.faults import RAISE, Plan
from tests.spark_faults.driver import Job
from tests.support.broker_process import Broker
from tests.support.oracle import REPOSITORY
from tests.support.spark_session import JAVA, NOT_STARTED

PATIENCE_S = 600.0
WORKERS = ("127.0.0.2", "127.0.0.3")  # Spark considers these addresses two hosts.
WORKER_MEMORY = "700M"
DAEMON_MEMORY = "128m"
LATE_STARTS = 10
APPLICATION = "--app-id"  # an option in an executor's command line; its value starts with the time


class Driver:
    """The driver process for one start of a query."""

    def __init__(self, job: Job, environment: Mapping[str, str]) -> None:
        self.job = job
        with open(f"{job.report}.stderr", "wb") as stderr:
            words = [sys.executable, "-m", "tests.spark_faults.driver", job.to_json()]
            self._process = subprocess.Popen(
                words, cwd=REPOSITORY, env=os.environ | environment, stdout=stderr, stderr=stderr
            )

    @property
    def plan(self) -> Plan:
        return Plan(**self.job.plan)

    def report(self) -> dict[str, Any]:
        with suppress(FileNotFoundError):
            return dict(json.loads(Path(self.job.report).read_text(encoding="utf-8")))
        return {}

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill9(self) -> None:
        """Kills the JVM and its Python process. Paused workers survive."""
        pids = self.report().get("pids") or [self._process.pid]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def ended(self) -> dict[str, Any]:
        """Waits until the driver exits and returns its report."""
        wait_for(f"the end of {self.job.report}", lambda: not self.is_running(), PATIENCE_S)
        assert "over" in self.report(), self.log_text()
        return self.report()

    def is_late(self) -> bool:
        """Returns whether the query failed only because the machine was too slow for Spark's limit of ten seconds."""
        return NOT_STARTED in str(self.report().get("error"))

    def log_text(self) -> str:
        return Path(f"{self.job.report}.stderr").read_text(encoding="utf-8", errors="replace")[-4000:]


class Query:
    """A query with its checkpoint and its drivers. At most two drivers run at the same time."""

    def __init__(self, broker: Broker, output: str, folder: Path, environment: Mapping[str, str], **more: Any) -> None:
        """`more` contains additional fields of the Job."""
        self._broker = broker
        self._output = output
        self._folder = folder
        self._environment = environment
        self._more = more
        self.drivers: list[Driver] = []

    @property
    def checkpoint(self) -> Path:
        return self._folder / "checkpoint"

    def start(self, at: str = "never", how: str = RAISE, *, last_batch: int = 1_000_000, **plan: Any) -> Driver:
        marks = self._folder / f"marks-{len(self.drivers)}"
        marks.mkdir()
        job = Job(
            bootstrap=self._broker.bootstrap,
            output=self._output,
            checkpoint=str(self.checkpoint),
            report=str(self._folder / f"driver-{len(self.drivers)}.json"),
            plan=asdict(Plan(at, how, str(marks), **({"batch": None} | plan))),
            last_batch=last_batch,
            **self._more,
        )
        self.drivers.append(Driver(job, self._environment))
        return self.drivers[-1]

    def start_until_fault(self, at: str, how: str, **more: Any) -> Driver:
        """Starts a driver and returns it when its fault has happened."""
        for _ in range(LATE_STARTS):
            driver = self.start(at, how, **more)
            wait_for(
                f"{at} of {driver.job.report}",
                lambda driver=driver: driver.plan.count > 0 or not driver.is_running(),  # type: ignore[misc]
                PATIENCE_S,
            )
            if driver.plan.count > 0 or not driver.is_late():
                break
        assert driver.plan.count > 0, driver.log_text()
        return driver

    def finished(self, driver: Driver) -> dict[str, Any]:
        """Waits for the driver to exit and returns its report. Restarts a driver that failed because the machine was
        slow."""
        for _ in range(LATE_STARTS):
            ended = driver.ended()
            if not driver.is_late():
                break
            driver = self.start(last_batch=driver.job.last_batch)
        return ended

    def run(self, last_batch: int) -> dict[str, Any]:
        return self.finished(self.start(last_batch=last_batch))

    def last_done(self) -> int:
        """Returns the last batch that Spark considers done, or -1 before the first one."""
        names = [path.name for path in (self.checkpoint / "commits").glob("*") if path.name.isdecimal()]
        return max(map(int, names), default=-1)

    def id(self) -> str:
        return str(json.loads((self.checkpoint / "metadata").read_text(encoding="utf-8"))["id"])

    def close(self) -> None:
        for driver in self.drivers:
            driver.plan.go_on()
            if driver.is_running():
                driver.kill9()


class Cluster:
    """A master and two workers with one core each. The workers start the executors."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._home = Path(environment["SPARK_HOME"])
        # Each worker has its own address, which `--host` sets.
        self._environment = {name: value for name, value in environment.items() if name != "SPARK_LOCAL_IP"}
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"

    def start(self) -> None:
        port = self.master.rpartition(":")[2]
        self._start("master.Master", "master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        # A worker that finds no master waits ten seconds before it retries.
        wait_for("the master", lambda: self._has_logged("master", b"New state: ALIVE"), PATIENCE_S)
        for host in WORKERS:
            words = ["--host", host, "-c", "1", "-m", WORKER_MEMORY, "--webui-port", "0"]
            self._start("worker.Worker", host, *words, "-d", str(self._folder / host), self.master)
        for host in WORKERS:
            wait_for(f"the worker on {host}", lambda host=host: self._is_up(host), PATIENCE_S)  # type: ignore[misc]

    def executors(self) -> list[int]:
        """Returns the process ids of the newest application's executors. A killed driver's executors survive for a
        moment, so there may be several applications."""
        workers = {process.pid for process in self._processes[1:]}
        found: dict[str, list[int]] = {}
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if folder.name.isdecimal() and parent(int(folder.name)) in workers:
                    words = (folder / "cmdline").read_text(encoding="utf-8").split("\0")
                    if APPLICATION in words:
                        found.setdefault(words[words.index(APPLICATION) + 1], []).append(int(folder.name))
        return found[max(found)] if found else []

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(PATIENCE_S)

    def _is_up(self, host: str) -> bool:
        return self._has_logged(host, b"Successfully registered")

    def _has_logged(self, name: str, text: bytes) -> bool:
        return text in (self._folder / f"{name}.log").read_bytes()

    def _start(self, kind: str, name: str, *words: str) -> None:
        environment = self._environment | {
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": JAVA,
            "SPARK_LOCAL_DIRS": str(self._folder),
        }
        with open(self._folder / f"{name}.log", "wb") as log:
            command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *words]
            self._processes.append(subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log))


def jvm_of(worker_pid: int) -> int:
    """Returns the process id of a Python worker's executor, which is the parent of the daemon that forked the
    worker."""
    return parent(parent(worker_pid))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
