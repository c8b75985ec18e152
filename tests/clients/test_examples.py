"""Tests that the programs in examples/ run unchanged."""

import subprocess
import sys

import pytest

from tests.support.oracle import REPOSITORY

pytestmark = pytest.mark.slow  # runs in `make test-slow`

TIMEOUT_S = 120


def test_the_dual_write_recovers_from_both_crashes() -> None:
    done = subprocess.run(
        [sys.executable, "examples/dual_write.py"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert [line for line in lines if line.startswith("the process")] == [
        "the process ended well",
        "the process was killed by SIGKILL",
        "the process was killed by SIGKILL",
    ]
    assert [line.rpartition(": ")[2] for line in lines if line.startswith("recover()")] == ["committed", "aborted"]
    assert lines[-1] == "The database and Kafka agree."


def test_each_job_of_the_queue_gives_one_result_although_workers_and_the_broker_are_killed() -> None:
    done = subprocess.run(
        [sys.executable, "examples/exactly_once_queue.py", "--jobs", "300", "--kills", "2"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition(" s  ")[2] for line in done.stdout.splitlines()]
    assert any("kill -9" in line for line in lines)
    assert "0 jobs are left, and 0 transactions are open." in lines
    assert lines[-1] == "300 jobs have 300 results, exactly one each."
