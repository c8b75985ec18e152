"""Compiles load.c and sink.c on first use and runs them.

Generating the load in Python would use more CPU time than the broker being measured. Compiled programs are kept in the
user's cache directory under names that contain the hash of their source.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SOURCES = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek-bench"


class NoCompiler(Exception):
    """There is no C compiler, so the rows that need one cannot be measured."""


def compiled(name: str) -> Path:
    """Compiles `name`.c if necessary and returns the program's path. Raises NoCompiler."""
    source = SOURCES / f"{name}.c"
    program = CACHE / f"{name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if program.exists():
        return program
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompiler("raw rows are left out: their load generator is C, and neither gcc nor cc was found")
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = program.with_suffix(f".{os.getpid()}")
    subprocess.run([compiler, "-O2", "-o", str(unfinished), str(source)], check=True)
    unfinished.rename(program)
    return program


def run_load(
    port: int,
    frames: bytes,
    *,
    connections: int,
    in_flight: int,
    seconds: float,
    warm_up_s: float,
    error_at: int,
    pid: int,
) -> Mapping[str, float]:
    """Runs load.c, whose comments describe the arguments. Returns requests_s, p50_us, p99_us, and the number of CPU
    cores used by the process `pid`."""
    with tempfile.NamedTemporaryFile(prefix="bench-frames-") as file:
        file.write(frames)
        file.flush()
        words = [compiled("load"), port, file.name, connections, in_flight, seconds, warm_up_s, error_at, pid]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    result: dict[str, float] = json.loads(done.stdout)
    return result


@contextmanager
def running_sink(answer: bytes) -> Iterator[tuple[int, int]]:
    """Runs a process that stores every request and sends the same response to each. Yields the process's port and
    process id."""
    with tempfile.NamedTemporaryFile(prefix="bench-answer-") as file:
        file.write(answer)
        file.flush()
        command = [str(compiled("sink")), file.name, f"{file.name}.data"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            try:
                yield port, process.pid
            finally:
                process.kill()
