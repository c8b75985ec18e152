"""Tests that a failed test's report shows whether a signal killed the test's broker."""

import subprocess
import sys

from tests.support.killed_brokers import killed, leave, watch


def test_a_broker_that_a_signal_has_ended_is_named_until_the_test_ends_it() -> None:
    command = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    with subprocess.Popen(command) as broker:
        watch(broker)
        broker.wait(30)
        (line,) = killed()
        assert line.startswith(f"the broker with process id {broker.pid} was killed by SIGKILL, perhaps because memory")
        leave(broker)
        assert killed() == []


def test_a_broker_that_ends_by_itself_was_not_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"]) as broker:
        watch(broker)
        broker.wait(30)
        assert killed() == []
        leave(broker)
