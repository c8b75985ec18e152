"""The resources of a process, as Linux counts them."""

import time
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
CPU_CLOCK = 2  # CPUCLOCK_SCHED: user and system time, exact where /proc/PID/stat counts ticks of 10 ms


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, also of those that have ended.

    Raises OSError for a process that has ended. Source: clock_getcpuclockid(3).
    """
    return time.clock_gettime_ns(~pid << 3 | CPU_CLOCK) / 1e9


def loop_seconds(pid: int) -> float:
    """CPU time of its first thread, in which a broker's loop runs. Raises OSError for a process that has ended."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no VmRSS: it has ended")
