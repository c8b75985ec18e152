"""Measures the time until a command sends its first byte to a broker: `python -m bench.command_start`.

Compare CPU times, because elapsed times mean little on a busy machine. The first row is Python with only asyncio and a
connection, which every command needs.
"""

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

RUNS = 15
PYTHON_ALONE = """
import asyncio, sys

async def main():
    host, port = sys.argv[-1].split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b".")
    await writer.drain()
    await asyncio.sleep(60)

asyncio.run(main())
"""
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
    """Runs `python` with the arguments `words`. Returns its CPU time and the elapsed time until its first byte
    arrives."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        begin = time.perf_counter()
        command = subprocess.Popen(
            [sys.executable, *words, "-b", address],
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
    subjects = {"Python alone": ("-c", PYTHON_ALONE)}
    subjects |= {f"`odradek {' '.join(words)}`": ("-m", "odradek", *words) for words in COMMANDS}
    for name, words in subjects.items():
        runs = [start(words) for _ in range(RUNS)]
        cpu, elapsed = sorted(each.cpu_ms for each in runs), sorted(each.elapsed_ms for each in runs)
        print(f"| {name} | {least_and_median(cpu)} ms | {least_and_median(elapsed)} ms |")


def least_and_median(ordered: list[float]) -> str:
    return f"{ordered[0]:.0f} / {ordered[len(ordered) // 2]:.0f}"


if __name__ == "__main__":
    main()
