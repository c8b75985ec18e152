"""The oracle kit beside the repository: a real Apache Kafka, directories that it wrote, and its exchanges with real
clients.

The kit is expected at `<repository>/../shared/oracle`, or at the path in the environment variable ODRADEK_ORACLE. Tests
that need the kit are marked `@needs_oracle`; tests that run Kafka are marked `@needs_kafka`.
"""

import gzip
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ORACLE = Path(os.environ.get("ODRADEK_ORACLE") or REPOSITORY.parent / "shared" / "oracle")
IS_THERE = (ORACLE / "exchanges").is_dir()
HAS_JAVA = shutil.which("java") is not None

needs_oracle = pytest.mark.skipif(not IS_THERE, reason=f"no oracle kit at {ORACLE}; set ODRADEK_ORACLE to its folder")
needs_kafka = pytest.mark.skipif(
    not (IS_THERE and HAS_JAVA), reason=f"needs Java and the oracle kit (looked at {ORACLE}; ODRADEK_ORACLE moves it)"
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded request and its response. The frames do not include their 4-byte length."""

    client: str
    client_id: str | None
    api: str
    key: int
    version: int
    request: bytes
    response: bytes | None  # None if the request had acks=0 or Kafka closed the connection
    request_json: dict[str, Any] | None  # the request as decoded by Kafka's own codec, or None if that fails
    response_json: dict[str, Any] | None
    request_same: bool  # whether Kafka's codec encodes the request to the same bytes
    response_same: bool
    errors: tuple[str, ...]
    failed: str | None  # reason why Kafka's codec cannot decode the request
    line: str  # file and line, for messages of failed tests

    def __str__(self) -> str:
        return f"{self.api} v{self.version} ({self.line})"


def exchanges(client: str | None = None) -> Iterator[Exchange]:
    """Yields every recorded exchange, or those in one file of the kit (`java`, `probe`, `kafka-python` …)."""
    folder = ORACLE / "exchanges"
    paths = [folder / f"{client}.jsonl.gz"] if client else sorted(folder.glob("*.jsonl.gz"))
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line)
                yield Exchange(
                    client=row["client"],
                    client_id=row.get("client_id"),
                    api=row["api"],
                    key=row["key"],
                    version=row["version"],
                    request=bytes.fromhex(row["request"]),
                    response=None if row["response"] is None else bytes.fromhex(row["response"]),
                    request_json=row.get("request_json"),
                    response_json=row.get("response_json"),
                    request_same=row.get("request_same", False),
                    response_same=row.get("response_same", False),
                    errors=tuple(row.get("errors", ())),
                    failed=row.get("failed"),
                    line=f"{path.name}:{number}",
                )


def directories() -> list[str]:
    """Returns the names of the recorded data directories."""
    return sorted(path.name.removesuffix(".tar.gz") for path in (ORACLE / "data").glob("*.tar.gz"))


def unpack(name: str, into: Path) -> Path:
    """Unpacks a recorded data directory, including its holes, below `into`. Returns the log directory."""
    with tarfile.open(ORACLE / "data" / f"{name}.tar.gz") as packed:
        packed.extractall(into, filter="data")
    return into / name


def served(name: str) -> dict[str, Any]:
    """Returns the contents that Kafka serves from a recorded directory, with the recording's settings and clock."""
    found: dict[str, Any] = json.loads((ORACLE / "data" / f"{name}.served.json").read_text())
    return found


def dump(name: str, kind: str) -> str:
    """Returns the output of DumpLogSegments for every file of one kind (`log`, `index`, `snapshot` …) in a recorded
    directory."""
    path = ORACLE / "data" / f"{name}.dump" / f"{kind}.txt"
    if path.exists():
        return path.read_text()
    with gzip.open(f"{path}.gz", "rt", encoding="utf-8") as text:
        return text.read()


def dump_kinds(name: str) -> list[str]:
    return sorted(path.name.split(".")[0] for path in (ORACLE / "data" / f"{name}.dump").iterdir())


def acknowledged(name: str) -> list[dict[str, Any]]:
    """Returns an entry for each record in an `unclean…` directory that Kafka had acknowledged."""
    with gzip.open(ORACLE / "data" / f"{name}.acknowledged.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def run_kafka(*arguments: object, timeout: float = 180, stdin: str | None = None) -> str:
    """Runs the kit's `kafka` script and returns its output. Fails with the output if the script fails."""
    command = [str(ORACLE / "kafka"), *map(str, arguments)]
    done = subprocess.run(
        command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}")
    return done.stdout
