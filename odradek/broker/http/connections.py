"""The connections of the HTTP port, and what each may cost. Imported with the first one.

A connection that is being made counts too: a peer that begins a TLS handshake and stops takes a place for as long as
one that begins a request and stops, and no longer. Bytes that trickle in put nothing off.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from socket import socket
from typing import TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from odradek.broker.http.access import FOR_EVERYBODY

log = logging.getLogger("odradek.control")
bugs = logging.getLogger("odradek.control.http")  # exceptions of handlers, by aiohttp

SHUTDOWN_TIMEOUT_S = 1.0
PAUSE_S = 1.0  # before a connection is accepted again, after the process had no file descriptor left for one
Stop: TypeAlias = Callable[[], Awaitable[None]]
AddRoutes: TypeAlias = Callable[[web.Application], None]
Reserved: TypeAlias = dict[object, asyncio.BaseTransport]  # by the protocol of the connection


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one HTTP port.

    request_timeout_s  until a TLS handshake is over, and until the head of a request is there: from the connection, or
                       from the answer before it
    reserve            connections beyond the most, for FOR_EVERYBODY alone: who watches the broker gets an answer
                       although the others are taken. The oldest of them makes room for one more
    most_headers       of a request; each, and the request line, has at most `max_line_bytes`
    """

    most_connections: int = 200
    reserve: int = 8
    request_timeout_s: float = 30.0
    most_headers: int = 64
    max_line_bytes: int = 8190  # browsers send the cookies of every server on localhost


def is_ours(record: logging.LogRecord) -> bool:
    """Says whether this exception is a bug, and no nonsense from a peer, who could fill the log with that."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


bugs.addFilter(is_ours)


async def serve_http(app: web.Application, bound: socket, context: ssl.SSLContext | None, limits: HttpLimits) -> Stop:
    """Answer on `bound`, which is the server's from now on; returns what ends it. context: None for no TLS"""
    reserved: Reserved = {}
    app.middlewares.insert(0, reserving(reserved))
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=bugs,
        shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        keepalive_timeout=limits.request_timeout_s,
        max_line_size=limits.max_line_bytes,
        max_field_size=limits.max_line_bytes,
        max_headers=limits.most_headers,
    )
    await runner.setup()
    assert runner.server is not None
    bound.listen(limits.most_connections)
    connections = HttpConnections(runner.server, bound, context, limits, reserved)
    accepting = asyncio.get_running_loop().create_task(connections.accept())

    async def stop() -> None:
        accepting.cancel()
        await asyncio.wait([accepting])
        bound.close()
        connections.give_up()
        await runner.cleanup()

    return stop


def reserving(reserved: Reserved) -> Middleware:
    @web.middleware
    async def only_health(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.protocol not in reserved:
            return await handler(request)
        if request.path not in FOR_EVERYBODY:
            refused = web.json_response({"error": "too many connections"}, status=503)
            refused.force_close()
            return refused
        answer = await handler(request)
        answer.force_close()
        return answer

    return only_health


class HttpConnections:
    def __init__(
        self, server: web.Server, bound: socket, context: ssl.SSLContext | None, limits: HttpLimits, reserved: Reserved
    ) -> None:
        self._server = server
        self._bound = bound
        self._context = context
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._making: set[asyncio.Task[None]] = set()
        self._reserved = reserved  # the oldest first
        self._in_reserve: deque[asyncio.Task[None]] = deque()  # being made, or at most `reserve` behind

    async def accept(self) -> None:
        while True:
            try:
                peer, _ = await self._loop.sock_accept(self._bound)
            except OSError as error:
                log.warning("the HTTP port accepts no connection for the moment: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            taken = len(self._making) + len(self._server.connections)
            is_reserved = taken >= self._limits.most_connections
            task = self._loop.create_task(self._make(peer, is_reserved=is_reserved))
            if is_reserved:
                self._in_reserve.append(task)
                if len(self._in_reserve) > self._limits.reserve:
                    self._in_reserve.popleft().cancel()
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    def give_up(self) -> None:
        """Cancels the connections that are being made."""
        for task in self._making:
            task.cancel()

    async def _make(self, peer: socket, *, is_reserved: bool) -> None:
        timeout_s = None if self._context is None else self._limits.request_timeout_s
        try:
            transport, protocol = await self._loop.connect_accepted_socket(
                self._server, peer, ssl=self._context, ssl_handshake_timeout=timeout_s
            )
            if is_reserved:
                self._reserve(protocol, transport)
        except OSError as error:  # TLS that failed, or took too long
            log.debug("a connection to the HTTP port failed: %s", error)

    def _reserve(self, protocol: asyncio.BaseProtocol, transport: asyncio.BaseTransport) -> None:
        for gone in [each for each, ended in self._reserved.items() if ended.is_closing()]:
            del self._reserved[gone]
        self._reserved[protocol] = transport
        if len(self._reserved) > self._limits.reserve:
            self._reserved.pop(next(iter(self._reserved))).close()
