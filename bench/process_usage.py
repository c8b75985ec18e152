"""Reads a process's resource usage from Linux."""

import time
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
# CPUCLOCK_SCHED measures user and system time exactly, whereas /proc/PID/stat counts ticks of 10 ms.
CPU_CLOCK = 2


def cpu_seconds(pid: int) -> float:
    """Returns the user and system time of all threads, including those that have exited. Raises OSError if the process
    has exited.

    The source is clock_getcpuclockid(3).
    """
    return time.clock_gettime_ns(~pid << 3 | CPU_CLOCK) / 1e9


def loop_seconds(pid: int) -> float:
    """Returns the CPU time of the first thread, which runs the broker's event loop. Raises OSError if the process has
    exited."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no VmRSS: it has ended")
