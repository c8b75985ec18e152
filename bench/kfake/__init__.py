"""Runs kfake, franz-go's in-memory broker, as a process. It shows how fast a compiled broker without a disk can be.

The server's source is main.go in this folder. The server is built with Go on first use and kept in the user's cache
directory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from bench.native import CACHE
from bench.variants import NotThere
from tests.support.broker_process import STOP_TIMEOUT_S, Broker

SOURCES = Path(__file__).parent
FILES = ("main.go", "go.mod", "go.sum")


def built() -> Path:
    """Builds the server if necessary and returns its path. Raises NotThere if Go is missing or the build fails."""
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in FILES)).hexdigest()
    program = CACHE / f"kfake-{digest[:16]}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise NotThere("Go is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = program.with_suffix(f".{os.getpid()}")
    words = ["go", "build", "-o", str(unfinished), "."]
    done = subprocess.run(words, cwd=SOURCES, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotThere(f"`go build` failed: {done.stderr.strip()}")
    unfinished.rename(program)
    return program


class KfakeProcess(Broker):
    """A kfake server. It stores nothing on disk and has no settings."""

    name = "kfake"

    def __init__(self, data_dir: Path, *, port: int = 0) -> None:
        super().__init__(data_dir, port=port)
        self._process: subprocess.Popen[str] | None = None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        return ""

    def _start(self) -> None:
        self._process = subprocess.Popen([built(), f"{self.host}:{self.port}"], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"kfake ended with status {self._process.wait()}")
        self.port, self.pid = int(line.rpartition(":")[2]), self._process.pid

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
