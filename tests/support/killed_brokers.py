"""Detects broker processes killed by a signal, for example by the kernel when memory is exhausted.

A failed test alone does not reveal this cause, because its client only sees refused connections.
"""

import signal
import subprocess

_running: dict[int, subprocess.Popen[bytes]] = {}  # watched processes by pid


def watch(broker: subprocess.Popen[bytes]) -> None:
    _running[broker.pid] = broker


def leave(broker: subprocess.Popen[bytes]) -> None:
    """Stops watching a broker that the test itself is about to kill."""
    _running.pop(broker.pid, None)


def killed() -> list[str]:
    """Returns a line for each watched broker killed by a signal."""
    return [described(-each.returncode, pid) for pid, each in _running.items() if (each.poll() or 0) < 0]


def described(by: int, pid: int) -> str:
    memory = ", perhaps because memory ran out (`dmesg` tells)" if by == signal.SIGKILL else ""
    return f"the broker with process id {pid} was killed by {signal.Signals(by).name}{memory}"
