"""Tests HTTP peers that are slow or too numerous, or that send too much. The tests advance the loop's clock."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from odradek.broker.http.connections import HttpLimits, serve_http
from odradek.broker.network.server import bind
from tests.support.certificates import Authority

LIMITS = HttpLimits(max_connections=10)
BEGINNING = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = BEGINNING + b"\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK"
FULL = b"HTTP/1.1 503 Service Unavailable"
TLS_BEGINS = b"\x16\x03\x01"


class AheadLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is `ahead_s` seconds ahead of the real clock."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class Port:
    """An HTTP port that answers every request with `hello`."""

    def __init__(self, loop: AheadLoop, port: int) -> None:
        self._loop = loop
        self._port = port

    async def connect(self) -> tuple[StreamReader, StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)

    def pass_(self, seconds: float) -> None:
        self._loop.ahead_s += seconds

    async def answer(self, head: bytes = WHOLE) -> bytes:
        """Sends a request on a new connection. Returns the first line of the response, or b"" if the server closes the
        connection without a response."""
        reader, writer = await self.connect()
        writer.write(head)
        try:
            return (await reader.readline()).rstrip()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


def at_port(scene: Callable[[Port], Awaitable[None]], context: ssl.SSLContext | None = None) -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/", hello)
        app.router.add_get("/healthz", hello)
        bound = bind("127.0.0.1", 0)
        port = bound.getsockname()[1]
        stop = await serve_http(app, bound, context, LIMITS)
        await scene(Port(loop, port))
        await stop()

    loop = AheadLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def test_a_head_that_trickles_in_has_thirty_seconds_and_no_more() -> None:
    async def scene(port: Port) -> None:
        late, late_writer = await port.connect()
        in_time, in_time_writer = await port.connect()
        for writer in (late_writer, in_time_writer):
            writer.write(BEGINNING)
        for _ in range(29):
            port.pass_(1)
            late_writer.write(b"X")
            assert await port.answer() == OK  # other peers are still served, because the loop is not blocked
        in_time_writer.write(b"\r\n")
        assert (await in_time.readline()).rstrip() == OK
        port.pass_(1.1)
        assert await late.read() == b""

    at_port(scene)


def test_each_request_of_a_connection_has_its_own_thirty_seconds() -> None:
    async def scene(port: Port) -> None:
        reader, writer = await port.connect()
        port.pass_(20)
        writer.write(WHOLE)
        assert (await reader.readuntil(b"hello")).startswith(OK)
        port.pass_(20)
        writer.write(WHOLE)
        assert (await reader.readuntil(b"hello")).startswith(OK)
        writer.write(BEGINNING)
        port.pass_(30.1)
        assert await reader.read() == b""

    at_port(scene)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 2 * LIMITS.max_line_bytes + b" HTTP/1.1\r\n\r\n",
        BEGINNING + b"X: " + b"a" * 2 * LIMITS.max_line_bytes + b"\r\n\r\n",
        BEGINNING + b"".join(b"X-%d: a\r\n" % number for number in range(LIMITS.max_headers)) + b"\r\n",
    ],
    ids=["long line", "long header", "many headers"],
)
def test_a_head_that_is_too_large_is_refused_and_not_logged(head: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(port: Port) -> None:
        assert (await port.answer(head)).split()[1] == b"400"
        assert await port.answer() == OK

    at_port(scene)
    assert caplog.text == ""


def test_a_connection_too_many_is_closed_and_its_place_comes_back() -> None:
    async def scene(port: Port) -> None:
        slow = [await port.connect() for _ in range(LIMITS.max_connections)]
        for reader, writer in slow:  # each slow peer keeps its place
            writer.write(WHOLE)
            assert (await reader.readuntil(b"hello")).startswith(OK)
            writer.write(BEGINNING)
        assert await port.answer() == FULL
        slow[0][1].close()
        while await port.answer() != OK:  # until the server has noticed that a peer has disconnected
            pass
        port.pass_(30.1)
        for reader, writer in slow[1:]:
            assert await reader.read() == b""
            writer.close()

    at_port(scene)


def test_health_is_served_while_all_connections_are_in_use() -> None:
    """Checks that health is reported while all connections are in use. Further connections use a reserve, in which a
    new connection replaces the oldest one."""

    async def scene(port: Port) -> None:
        slow = [await port.connect() for _ in range(LIMITS.max_connections + 3 * LIMITS.reserve)]
        for _, writer in slow:
            writer.write(BEGINNING)
        for _ in range(3):
            assert await port.answer(HEALTH) == OK
        assert await port.answer() == FULL
        for reader, writer in slow[LIMITS.max_connections : -LIMITS.reserve]:
            with suppress(ConnectionResetError):  # the server closes the connection with unread bytes
                assert await reader.read() == b""
            writer.close()

    at_port(scene)


def test_unfinished_tls_handshakes_are_closed_after_thirty_seconds(tmp_path: Path) -> None:
    authority = Authority.make("authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("broker").write(tmp_path / "broker.pem"))
    trusting = ssl.create_default_context(cadata=authority.pem)

    async def answer(port: Port) -> bytes:
        reader, writer = await port.connect()
        try:
            await writer.start_tls(trusting, server_hostname="localhost")
            writer.write(WHOLE)
            return (await reader.readline()).rstrip()
        except (OSError, EOFError):
            return b""
        finally:
            writer.close()

    async def scene(port: Port) -> None:
        assert await answer(port) == OK
        half_open = []
        for _ in range(LIMITS.max_connections):
            half_open.append(await port.connect())
            half_open[-1][1].write(TLS_BEGINS)
        assert await answer(port) == FULL
        port.pass_(30.1)
        for reader, writer in half_open:
            assert await reader.read() == b""
            writer.close()
        assert await answer(port) == OK

    at_port(scene, context)
