"""Fixtures for a Spark session with Spark's own Kafka connector. The session runs in the virtual environment created by
`make test-spark-connector`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.own_producers import TWO_PHASE
from tests.support.broker_process import Broker, new_broker
from tests.support.oracle import REPOSITORY

PLACE = REPOSITORY / ".make" / "spark-connector"


class Connector:
    def __init__(self, stderr: Path) -> None:
        words = [str(PLACE / "venv/bin/python"), str(Path(__file__).parent / "session.py"), str(PLACE / "jars")]
        self._stderr = stderr
        with stderr.open("wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._line() == "ready\n"

    def __call__(self, do: str, **more: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do} | more) + "\n")
        self._process.stdin.flush()
        answered = json.loads(self._line())
        assert "error" not in answered, answered["error"]
        return answered["answer"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._stderr.read_text(errors="replace")[-4000:]
        return line


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", TWO_PHASE) as running:
        yield running


@pytest.fixture(scope="session")
def connector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connector]:
    if not (PLACE / "jars").is_dir():
        pytest.skip("no connector: make test-spark-connector fetches it")
    made = Connector(tmp_path_factory.mktemp("connector") / "stderr")
    yield made
    made.close()
