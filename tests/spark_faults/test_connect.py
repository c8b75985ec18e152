"""Tests that the source, the sink and the listener work with Spark Connect, whose client has no JVM."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.spark.names import Sink
from tests.spark.checks import ROWS, checked
from tests.spark_faults.drivers import LATE_STARTS, PATIENCE_S
from tests.support.broker_process import Broker
from tests.support.oracle import REPOSITORY
from tests.support.spark_session import NOT_STARTED

LAST_BATCH = 3


def test_a_query_of_spark_connect_is_written_once(
    broker: Broker, output: str, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs the packages of .make/spark-connect")
    words = [sys.executable, "-m", "tests.spark_faults.connected", broker.bootstrap, output, str(tmp_path / "c")]
    for _ in range(LATE_STARTS):
        done = subprocess.run(
            [*words, str(LAST_BATCH)],
            cwd=REPOSITORY,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if NOT_STARTED not in done.stdout + done.stderr:
            break
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["error"] is None
    assert "connect" in report["session"]
    assert [each for each in report["ended"] if each is None] == []
    last = asyncio.run(checked(broker.bootstrap, output, Sink("spark", report["query"])))
    assert last >= LAST_BATCH
    assert report["rows"] == (last + 1) * ROWS
