"""The programs of examples/, run as they stand."""

import subprocess
import sys

from tests.support.oracle import REPOSITORY

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
