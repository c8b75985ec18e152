"""Measures the cost of a request to another process: `python -m bench.process_hop`.

Two processes that use asyncio and uvloop, like the broker, are connected by a Unix socket. Requests are 1 KiB long and
responses 50 bytes. Requests are sent one at a time, and then 32 at a time. A broker with several processes would pay
this cost whenever one process needs another.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import cast

import uvloop

from bench.process_usage import cpu_seconds

REQUEST, ANSWER = bytes(1024), bytes(50)
HOPS, ROUNDS = 20_000, 5


class AnsweringServer(asyncio.BufferedProtocol):
    """A server that responds to each complete request."""

    def __init__(self) -> None:
        self._buffer = bytearray(1 << 16)
        self._have = 0
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's transport does not inherit from asyncio's.

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self._have += nbytes
        assert self._transport is not None
        while self._have >= len(REQUEST):
            self._have -= len(REQUEST)
            self._transport.write(ANSWER)


class AskingClient(asyncio.BufferedProtocol):
    """A client that keeps `in_flight` requests in flight until HOPS requests have been answered."""

    def __init__(self, in_flight: int) -> None:
        self._buffer = bytearray(1 << 16)
        self._have = 0
        self._in_flight = in_flight
        self._left = HOPS
        self._transport: asyncio.WriteTransport | None = None
        self.is_done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's transport does not inherit from asyncio's.
        for _ in range(self._in_flight):
            self._transport.write(REQUEST)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self._have += nbytes
        assert self._transport is not None
        while self._have >= len(ANSWER):
            self._have -= len(ANSWER)
            self._left -= 1
            if self._left == 0:
                self.is_done.set_result(None)
            elif self._left > 0:
                self._transport.write(REQUEST)


def serve(path: str) -> None:
    async def until_killed() -> None:
        await asyncio.get_running_loop().create_unix_server(AnsweringServer, path)
        await asyncio.Event().wait()

    uvloop.run(until_killed())


async def ask(path: str, in_flight: int) -> None:
    transport, protocol = await asyncio.get_running_loop().create_unix_connection(lambda: AskingClient(in_flight), path)
    await protocol.is_done
    transport.close()


def measure(path: str, server: int, in_flight: int) -> tuple[float, float, float]:
    """Returns the elapsed time, the client's CPU time and the server's CPU time per request, in µs. Each figure is the
    lowest of all rounds."""
    clocks: tuple[Callable[[], float], ...] = (
        time.perf_counter,
        time.process_time,
        lambda: cpu_seconds(server),
    )
    rounds = []
    for _ in range(ROUNDS):
        before = [clock() for clock in clocks]
        uvloop.run(ask(path, in_flight))
        rounds.append([(clock() - start) / HOPS * 1e6 for clock, start in zip(clocks, before, strict=True)])
    elapsed, asks, answers = (min(each) for each in zip(*rounds, strict=True))
    return elapsed, asks, answers


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        server = get_context("spawn").Process(target=serve, args=(path,))
        server.start()
        try:
            while not os.path.exists(path):
                time.sleep(0.01)
            assert server.pid is not None
            print("| requests at a time | elapsed | CPU of the client | CPU of the server |\n|---|---|---|---|")
            for in_flight in (1, 32):
                elapsed, asks, answers = measure(path, server.pid, in_flight)
                print(f"| {in_flight} | {elapsed:.1f} µs | {asks:.1f} µs | {answers:.1f} µs |")
        finally:
            server.kill()
            server.join()


if __name__ == "__main__":
    main()
