"""Tests that a broker exits and its files are deleted if the test process that started it is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from odradek.broker.control.clusters.copies import IN_MEMORY, parent_of_roots

STARTS = """
import signal
from odradek.testing.sync import Odradek
odradek = Odradek.start()
odradek.cluster()
print("started", flush=True)
signal.pause()
"""
PATIENCE_S = 60


def test_a_killed_process_takes_its_broker_along(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", STARTS], env=environment, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        (ephemeral,) = tmp_path.glob("odradek-ephemeral-*")
        broker = ephemeral.name.split("-")[2]
        parent = IN_MEMORY if parent_of_roots() == IN_MEMORY else tmp_path
        assert len(list(parent.glob(f"odradek-clusters-{broker}-*"))) == 1
        starter.kill()
    until_s = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{broker}").exists() or [*tmp_path.iterdir()]:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    assert list(parent.glob(f"odradek-clusters-{broker}-*")) == []
