"""Tests responses whose records are sent from files, over real sockets with small buffers, on both event loops."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from odradek.broker.api.context import RequestContext
from odradek.broker.network.file_sender import MAX_BYTES_PER_TURN
from odradek.broker.network.server import Server, bind
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode
from odradek.protocol.file_slice import FileSlice, SendableFile
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.struct import Buffer
from odradek.storage.disk import RealDisk, RealFile
from tests.support.peer import Handler, server_with

uvloop = pytest.importorskip("uvloop")
pytestmark = pytest.mark.linux  # other systems send responses from memory

VERSION = 12
SMALL_BUFFER = 8 * 1024
CONTENT = random.Random(14).randbytes(3 * MAX_BYTES_PER_TURN + 12_345)

Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    main: Callable[..., None] = request.param
    return lambda test: main(asyncio.wait_for(test, 60))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(CONTENT)
    return path


class ColdFile:
    """A file whose pages are in the page cache only after they have been read."""

    def __init__(self, file: RealFile) -> None:
        self._file = file
        self.read: list[tuple[int, int]] = []

    def is_cached_at(self, size_bytes: int, position: int) -> bool:
        return (size_bytes, position) in self.read

    def read_at(self, size_bytes: int, position: int) -> Buffer:
        self.read.append((size_bytes, position))
        return self._file.read_at(size_bytes, position)

    def send_to(self, descriptor: int, size_bytes: int, position: int) -> int:
        return self._file.send_to(descriptor, size_bytes, position)


class Fetches:
    """A server whose fetches return parts of one file. The fetch offset is a position in the file, and the partition's
    byte limit is the size of the part."""

    def __init__(self, file: SendableFile) -> None:
        self._file = file
        self.fetch_count = 0

    async def serve(self) -> tuple[Server, socket.socket]:
        """Starts the server. Returns the server and a connected client's socket, which has a small receive buffer."""
        handlers = {
            ApiKey.FETCH: Handler(4, VERSION, call=self._fetch),
            ApiKey.HEARTBEAT: Handler(0, 4, call=lambda request, context, broker: HeartbeatResponse()),
        }
        server = server_with(handlers)
        listening = bind("127.0.0.1", 0)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        port = listening.getsockname()[1]
        await server.listen(listening)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
        return server, client

    def _fetch(self, request: FetchRequest, context: RequestContext, broker: object) -> FetchResponse:
        assert context.connection.sends_files
        self.fetch_count += 1
        partitions = [
            PartitionData(
                partition_index=one.partition,
                records=[FileSlice(self._file, one.fetch_offset, one.partition_max_bytes)],  # type: ignore[list-item]
            )
            for one in request.topics[0].partitions
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def fetch(correlation_id: int, *parts: tuple[int, int]) -> bytes:
    """Returns a fetch request.

    parts  position and size in bytes for each partition
    """
    partitions = [
        FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=size_bytes)
        for index, (position, size_bytes) in enumerate(parts)
    ]
    return request_bytes(
        FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions)]), VERSION, correlation_id, ""
    )


def heartbeat(correlation_id: int) -> bytes:
    return request_bytes(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, correlation_id, "")


async def received(client: socket.socket, size_bytes: int, *, at_once: int = 64 * 1024) -> bytes:
    """Reads `size_bytes` bytes in small portions. Returns fewer bytes if the server closes the connection."""
    loop, data = asyncio.get_running_loop(), bytearray()
    while len(data) < size_bytes:
        try:
            portion = await loop.sock_recv(client, min(at_once, size_bytes - len(data)))
        except ConnectionResetError:
            break
        if not portion:
            break
        data += portion
    return bytes(data)


async def next_answer(client: socket.socket) -> tuple[int, bytes]:
    """Reads the next response and returns its correlation id and its body."""
    size_bytes = int.from_bytes(await received(client, 4), "big")
    frame = await received(client, size_bytes)
    assert len(frame) == size_bytes
    return int.from_bytes(frame[:4], "big"), frame[5:]


def records(body: bytes) -> list[bytes]:
    (topic,) = decode(FetchResponse, VERSION, body).responses
    return [bytes(partition.records) for partition in topic.partitions]  # type: ignore[arg-type]


def descriptors() -> set[str]:
    """Returns the targets of this process's open descriptors after unreachable objects have been collected."""
    gc.collect()
    names = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listed directory itself is already closed
            names.add(os.readlink(f"/proc/self/fd/{name}"))
    return names


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def with_client(file: SendableFile, test: Callable[[Server, socket.socket, Fetches], Awaitable[None]]) -> None:
    fetches = Fetches(file)
    server, client = await fetches.serve()
    try:
        await test(server, client, fetches)
    finally:
        client.close()
        await server.stop(5)


def test_pipelined_answers_arrive_whole_and_in_order_through_a_small_buffer(run: Run, path: Path) -> None:
    parts = [(0, len(CONTENT)), (5, 100_000)]

    async def test(server: Server, client: socket.socket, fetches: Fetches) -> None:
        fetch_count = heartbeat(1) + fetch(2, *parts) + fetch(3, parts[1]) + heartbeat(4) + fetch(5, parts[1], parts[1])
        await asyncio.get_running_loop().sock_sendall(client, fetch_count)
        assert (await next_answer(client))[0] == 1
        for correlation_id, expected in ((2, parts), (3, parts[1:])):
            number, body = await next_answer(client)
            assert number == correlation_id
            assert records(body) == [CONTENT[position : position + size] for position, size in expected]
        assert (await next_answer(client))[0] == 4
        number, body = await next_answer(client)
        assert (number, records(body)) == (5, [CONTENT[5:100_005]] * 2)

    run(with_client(RealDisk().open(str(path)), test))


def test_nothing_more_is_asked_for_while_a_client_does_not_read_its_answer(run: Run, path: Path) -> None:
    async def test(server: Server, client: socket.socket, fetches: Fetches) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, fetch(1, (0, len(CONTENT))) * 10)
        await received(client, 100_000)
        await asyncio.sleep(0.05)
        assert fetches.fetch_count == 1

    run(with_client(RealDisk().open(str(path)), test))


def test_a_client_that_vanishes_half_way_leaves_no_descriptor_behind(run: Run, path: Path) -> None:
    async def test(server: Server, client: socket.socket, fetches: Fetches) -> None:
        await asyncio.get_running_loop().sock_sendall(client, fetch(1, (0, len(CONTENT))))
        await received(client, 100_000)
        client.close()
        await until(lambda: server.connection_count == 0)

    before = descriptors()
    run(with_client(RealDisk().open(str(path)), test))
    assert descriptors() == before


def test_a_file_that_is_deleted_meanwhile_is_sent_to_its_end(run: Run, path: Path) -> None:
    async def test(server: Server, client: socket.socket, fetches: Fetches) -> None:
        await asyncio.get_running_loop().sock_sendall(client, fetch(1, (0, len(CONTENT))))
        await until(lambda: fetches.fetch_count == 1)
        path.unlink()
        assert records((await next_answer(client))[1]) == [CONTENT]

    run(with_client(RealDisk().open(str(path)), test))


def test_a_file_that_is_cut_off_meanwhile_ends_the_connection(run: Run, path: Path) -> None:
    async def test(server: Server, client: socket.socket, fetches: Fetches) -> None:
        await asyncio.get_running_loop().sock_sendall(client, fetch(1, (0, len(CONTENT))))
        await until(lambda: fetches.fetch_count == 1)
        os.truncate(path, 1000)
        assert len(await received(client, len(CONTENT))) < len(CONTENT)
        await until(lambda: server.connection_count == 0)

    run(with_client(RealDisk().open(str(path)), test))


def test_records_that_are_not_in_memory_are_read_in_a_thread_before_they_are_sent(run: Run, path: Path) -> None:
    file = ColdFile(RealDisk().open(str(path)))

    async def test(server: Server, client: socket.socket, fetches: Fetches) -> None:
        await asyncio.get_running_loop().sock_sendall(client, fetch(1, (0, len(CONTENT))))
        assert records((await next_answer(client))[1]) == [CONTENT]
        assert file.read

    run(with_client(file, test))


def test_a_client_that_vanishes_while_a_thread_reads_for_it_is_forgotten(run: Run, path: Path) -> None:
    file = ColdFile(RealDisk().open(str(path)))

    async def test(server: Server, client: socket.socket, fetches: Fetches) -> None:
        await asyncio.get_running_loop().sock_sendall(client, fetch(1, (0, len(CONTENT))))
        await received(client, 100)
        client.close()
        await until(lambda: server.connection_count == 0)

    run(with_client(file, test))


def test_a_server_that_stops_lets_answers_leave_first(run: Run, path: Path) -> None:
    async def test(server: Server, client: socket.socket, fetches: Fetches) -> None:
        await asyncio.get_running_loop().sock_sendall(client, fetch(1, (0, len(CONTENT))))
        await received(client, 4)
        stopped = asyncio.get_running_loop().create_task(server.stop(30))
        frame = await received(client, 1 << 30)
        assert records(frame[5:]) == [CONTENT]
        await stopped

    run(with_client(RealDisk().open(str(path)), test))


def test_a_client_that_sends_no_more_gets_its_answer(run: Run, path: Path) -> None:
    async def test(server: Server, client: socket.socket, fetches: Fetches) -> None:
        await asyncio.get_running_loop().sock_sendall(client, fetch(1, (0, len(CONTENT))))
        client.shutdown(socket.SHUT_WR)
        assert records((await next_answer(client))[1]) == [CONTENT]
        assert await received(client, 1) == b""

    run(with_client(RealDisk().open(str(path)), test))
