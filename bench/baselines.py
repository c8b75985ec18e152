"""Trivial programs that do comparable work without a broker, to measure what the machine is capable of right now.

A broker's figure divided by its baseline can be compared across machines, whereas the figure alone cannot.
"""

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread

from bench.clients import percentiles
from bench.process_usage import MIB, rss_bytes
from bench.raw import RawLoad

CHUNK = bytes(64 * 1024)
FILES_OF_A_LOG = ("00000000000000000000.log", "00000000000000000000.index", "partition.metadata")


def bare_interpreter(share: float) -> Mapping[str, float]:
    """Starts Python with asyncio and uvloop and opens a port. Measures the time until the port is open and the
    process's memory at that moment."""
    program = (
        "import asyncio, uvloop, sys\n"
        "async def main():\n"
        "    await asyncio.get_running_loop().create_server(asyncio.Protocol, '127.0.0.1', 0)\n"
        "    print('ready', flush=True); await asyncio.sleep(9)\n"
        "uvloop.run(main())\n"
    )
    begun = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        took_s = time.perf_counter() - begun
        rss_mib = rss_bytes(process.pid) / MIB
        process.kill()
    return {"ms": took_s * 1000, "rss_mib": rss_mib}


def loopback(share: float) -> Mapping[str, float]:
    """Measures a TCP connection that transfers 64 KiB pieces between two threads. The receiver appends the bytes to a
    file in the first run and discards them in the second."""
    with tempfile.TemporaryFile() as file:
        produced_s = _through(int(3e8 * share), file.write)
    consumed_s = _through(int(1e9 * share), len)
    return {"produce_mb_s": 300 * share / produced_s, "consume_mb_s": 1000 * share / consumed_s}


def _through(size_bytes: int, keep: Callable[[memoryview], object]) -> float:
    """Transfers `size_bytes` bytes and returns the duration in seconds."""
    receiver, sender = _connected()

    def receive() -> None:
        buffer, left = memoryview(bytearray(len(CHUNK))), size_bytes
        while left > 0:
            count = receiver.recv_into(buffer)
            keep(buffer[:count])
            left -= count

    thread = Thread(target=receive)
    begun = time.perf_counter()
    thread.start()
    for _ in range(-(-size_bytes // len(CHUNK))):
        sender.sendall(CHUNK)
    thread.join()
    took_s = time.perf_counter() - begun
    sender.close()
    receiver.close()
    return took_s


def echo(share: float) -> Mapping[str, float]:
    """Measures requests of 100 bytes between two C programs, one at a time. Raises NoCompiler."""
    return RawLoad(100, connections=1, in_flight=1).baseline(share)


def fdatasync(share: float) -> Mapping[str, float]:
    """Repeatedly appends 1 KiB to a file and syncs it, in one thread."""
    times = []
    with tempfile.TemporaryFile(dir=Path(tempfile.gettempdir())) as file:
        for _ in range(int(1000 * share)):
            begun = time.perf_counter()
            os.write(file.fileno(), b"x" * 1024)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return {"requests_s": len(times) / sum(times), **percentiles(times)}


def thousand_directories(share: float) -> Mapping[str, float]:
    """Creates one directory with three small files per topic, and then reads all files.

    The directories are kept until the program exits; `Subject.discard` explains why.
    """
    parent = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, parent)
    begun = time.perf_counter()
    for number in range(int(1000 * share)):
        directory = f"{parent}/topic-{number}-0"
        os.mkdir(directory)
        for name in FILES_OF_A_LOG:
            with open(f"{directory}/{name}", "wb") as file:
                file.write(b"version: 0\n")
    written = time.perf_counter()
    for directory in os.listdir(parent):
        for name in FILES_OF_A_LOG:
            with open(f"{parent}/{directory}/{name}", "rb") as file:
                file.read()
    read_s = time.perf_counter() - written
    return {"create_s": written - begun, "clean_s": read_s, "killed_s": read_s}


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other
