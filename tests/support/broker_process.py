"""Runs a broker in its own process: either Odradek, or Apache Kafka as the reference. Both have the same interface.

If the environment variable `BROKER` is `kafka`, `new_broker` starts Apache Kafka, so that a suite can first be checked
against Kafka. If `RECORDINGS` names a folder, each Odradek records its clients' requests and responses there, for
`odradek judge`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.protocol.variant import PURE
from tests.support import killed_brokers, tracebacks
from tests.support.leash import Leash
from tests.support.oracle import ORACLE, REPOSITORY
from tests.support.reserved_port import ReservedPort
from tests.support.running_kafka import TAKEN

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0

RECORDINGS = os.environ.get("RECORDINGS")

REFERENCE = "4.4.0"  # the Kafka release whose behaviour Odradek follows unless it emulates another one
EMULATED: Mapping[str, str | None] = {"4.3.1": "4.3", REFERENCE: None}  # value of `--emulate` for each release


def without_abilities(which: str) -> dict[str, str]:
    """Returns the environment for a process that must run without some Linux features. tests/elsewhere/sitecustomize.py
    lists the values of `which`. `PYTHONPATH` keeps the paths of the variant under test."""
    paths = [str(REPOSITORY / "tests" / "elsewhere"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"WITHOUT": which, "PYTHONPATH": os.pathsep.join(paths)}


class Broker(ABC):
    """A broker on a data directory. It keeps its port across restarts, because clients expect the same address."""

    name: str

    def __init__(self, data_dir: Path, overrides: Mapping[str, object] | None = None, *, port: int = 0) -> None:
        """Prepares a broker without starting it.

        overrides  settings by Kafka's names
        port       0 chooses a free port at the first start
        """
        self.data_dir = data_dir
        self.overrides = {name: str(value) for name, value in (overrides or {}).items()}
        self.port = port
        self.pid: int | None = None
        self.host = "127.0.0.1"

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running():
            self.stop()

    def start(self) -> "Broker":
        """Starts the broker and waits until it accepts connections. Raises RuntimeError with the broker's output on
        failure."""
        assert not self.is_running(), "it runs already"
        self._start()
        return self

    def stop(self) -> None:
        """Sends SIGTERM and waits for the process to exit."""
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> "Broker":
        self.stop()
        return self.start()

    @abstractmethod
    def is_running(self) -> bool: ...

    @abstractmethod
    def log_text(self) -> str:
        """Returns everything that the broker has written to stderr since its first start."""

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _end(self, how: signal.Signals) -> None: ...


class BrokerProcess(Broker):
    name = "odradek"

    def __init__(
        self,
        data_dir: Path,
        overrides: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        source: Path = REPOSITORY,
        start_timeout_s: float = START_TIMEOUT_S,
        emulate: str | None = None,
        words: Sequence[str] = (),
    ) -> None:
        """Prepares a broker without starting it.

        source   checkout whose code runs
        emulate  release of Kafka to emulate, such as "4.3"
        words    additional arguments for `odradek serve`
        """
        super().__init__(data_dir, overrides, port=port)
        self._emulate = emulate
        self._words = tuple(words)
        self._source = source
        self._start_timeout_s = start_timeout_s
        self.ready: dict[str, Any] = {}
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved: ReservedPort | None = None
        self._stderr = data_dir.with_name(f"{data_dir.name}.stderr")

    def command(self, ready_file: Path) -> list[str]:
        words = [sys.executable, "-m", "odradek", "serve", "--port", str(self.port), "--ready-file", str(ready_file)]
        words += ["--data-dir", str(self.data_dir), *self._words]
        if self._emulate is not None:
            words += ["--emulate", self._emulate]
        if RECORDINGS:
            words += ["--record", str(Path(RECORDINGS) / f"{os.getpid()}-{time.monotonic_ns()}")]
        # If the test has chosen the port for Kafka clients, the broker would use the default HTTP port, which another
        # broker may be using. It therefore gets an arbitrary free HTTP port.
        for name, value in {"odradek.http.port": "0", **self.overrides}.items():
            words += ["--override", f"{name}={value}"]
        return words

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        return self._stderr.read_text(errors="replace") if self._stderr.exists() else ""

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Waits for the process to exit and returns its exit status."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def kill_while_starting(self, after_s: float) -> None:
        """Starts the broker and sends SIGKILL after `after_s` seconds, whether or not the broker is ready."""
        ready_file = self._launch()
        time.sleep(after_s)
        self._end(signal.SIGKILL)
        ready_file.unlink(missing_ok=True)

    def _launch(self) -> Path:
        if self.port == 0 and "listeners" not in self.overrides:
            self._reserved = ReservedPort()
            self.port = self._reserved.number
        ready_file = self.data_dir.with_name(f"{self.data_dir.name}.ready.json")
        ready_file.unlink(missing_ok=True)
        ready_file.parent.mkdir(parents=True, exist_ok=True)
        tracebacks.watch(self._stderr)
        with open(self._stderr, "ab") as stderr:
            self._process = subprocess.Popen(
                self.command(ready_file),
                cwd=self._source,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        killed_brokers.watch(self._process)
        return ready_file

    def _start(self) -> None:
        ready_file = self._launch()
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout_s
        while not ready_file.exists():
            if self._process.poll() is not None:
                if self._process.returncode < 0:
                    raise RuntimeError(killed_brokers.described(-self._process.returncode, self._process.pid))
                raise RuntimeError(
                    f"the broker ended with status {self._process.returncode}:\n{self.log_text()[-4000:]}"
                )
            if time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(
                    f"the broker was not ready in {self._start_timeout_s:g} s:\n{self.log_text()[-4000:]}"
                )
            time.sleep(0.005)
        self.ready = json.loads(ready_file.read_text())
        self.host, self.port, self.pid = self.ready["host"], self.ready["port"], self._process.pid
        asked_for = self._environment.get("ODRADEK_VARIANT", PURE)
        # The bench guard also starts brokers of earlier commits, whose ready file may have no variant.
        assert self.ready.get("variant", PURE) == asked_for, f"it is not the variant that was asked for, {asked_for}"

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        killed_by = self._process.poll()
        self._process.send_signal(how)
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"no end {STOP_TIMEOUT_S:g} s after SIGTERM:\n{self.log_text()[-4000:]}") from None
        finally:
            tracebacks.leave(self._stderr)
            killed_brokers.leave(self._process)
        if how is signal.SIGTERM and killed_by is not None and killed_by < 0:
            raise RuntimeError(killed_brokers.described(-killed_by, self._process.pid))
        if how is signal.SIGTERM and status != 0:
            raise RuntimeError(f"the broker ended with status {status} after SIGTERM:\n{self.log_text()[-4000:]}")


# The oracle kit's script removes runs that finished more than a day ago. If two instances of the script do so at the
# same time, one of them fails with this text in its output, and the start must be retried.
FORGOTTEN = "broker.json'"
ATTEMPTS = 3


class KafkaProcess(Broker):
    """Apache Kafka, started by the oracle kit's script. Formats the directory first if it has no `meta.properties`."""

    name = "kafka"

    def __init__(
        self,
        data_dir: Path,
        overrides: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        version: str = REFERENCE,
        heap: str = "-Xmx768M",
    ) -> None:
        super().__init__(data_dir, overrides, port=port)
        self.version, self._heap, self._log = version, heap, ""
        self._leash: Leash | None = None

    def is_running(self) -> bool:
        return self.pid is not None and _is_alive(self.pid)

    def log_text(self) -> str:
        return Path(self._log).read_text(errors="replace") if self._log else ""

    def _start(self) -> None:
        ready_file = self.data_dir.with_name(f"{self.data_dir.name}.ready.json")
        words = [
            str(ORACLE / "kafka"),
            "start",
            "--timeout",
            "180",
            "--version",
            self.version,
            "--port",
            str(self.port),
        ]
        words += ["--data", str(self.data_dir), "--ready-file", str(ready_file)]
        words += [f"--set={name}={value}" for name, value in self.overrides.items()]
        environment = {"KAFKA_HEAP_OPTS": self._heap, **os.environ}
        for attempt in range(ATTEMPTS):
            done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            if attempt == ATTEMPTS - 1 or (FORGOTTEN not in done.stderr and TAKEN not in done.stderr):
                raise RuntimeError(done.stderr)
        ready = json.loads(ready_file.read_text())
        self.port, self.pid, self._log = ready["port"], ready["pid"], ready["log"]
        self._leash = Leash(ready["pid"])

    def _end(self, how: signal.Signals) -> None:
        assert self.pid is not None
        assert self._leash is not None
        self._leash.release()
        os.kill(self.pid, how)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while _is_alive(self.pid):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                raise RuntimeError(f"Kafka did not end:\n{self.log_text()[-4000:]}")
            time.sleep(0.01)
        self.pid = None


def _is_alive(pid: int) -> bool:
    """Returns whether the process exists and is not a zombie. It is not our child process, so we cannot wait for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


IS_KAFKA = os.environ.get("BROKER") == "kafka"


def new_broker(data_dir: Path, overrides: Mapping[str, object] | None = None, *, like: str = REFERENCE) -> Broker:
    """Returns a broker that has not been started: Odradek, or Apache Kafka if BROKER=kafka.

    like  release of Kafka to run or to emulate; a key of EMULATED
    """
    if IS_KAFKA:
        return KafkaProcess(data_dir, overrides, version=like)
    return BrokerProcess(data_dir, overrides, emulate=EMULATED[like])
