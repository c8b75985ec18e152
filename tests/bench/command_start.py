"""What a command costs until its first byte is sent to a broker: `python -m tests.bench.command_start`.

The time on the CPU is the one to compare: on a machine that does other work the elapsed time says little.
"""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

RUNS = 15
COMMANDS = (
    ("topics", "list"),
    ("produce", "-t", "t"),
    ("consume", "-t", "t"),
    ("groups", "describe", "g"),
    ("transactions", "list"),
)


class Start(NamedTuple):
    cpu_ms: float
    elapsed_ms: float


def start(words: tuple[str, ...]) -> Start:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        begin = time.perf_counter()
        command = subprocess.Popen(
            [sys.executable, "-m", "odradek", *words, "-b", address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        connection, _ = server.accept()
        with connection:
            connection.recv(1)
            elapsed_ms = (time.perf_counter() - begin) * 1000
            on_cpu_ns = int(Path(f"/proc/{command.pid}/schedstat").read_text().split()[0])
        command.kill()
        command.wait()
    return Start(on_cpu_ns / 1e6, elapsed_ms)


def main() -> None:
    print("| command | CPU until the first byte, least / median | elapsed, least / median |\n|---|---|---|")
    for words in COMMANDS:
        runs = [start(words) for _ in range(RUNS)]
        cpu, elapsed = sorted(each.cpu_ms for each in runs), sorted(each.elapsed_ms for each in runs)
        print(f"| `{' '.join(words)}` | {least_and_median(cpu)} ms | {least_and_median(elapsed)} ms |")


def least_and_median(ordered: list[float]) -> str:
    return f"{ordered[0]:.0f} / {ordered[len(ordered) // 2]:.0f}"


if __name__ == "__main__":
    main()
