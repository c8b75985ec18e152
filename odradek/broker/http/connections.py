"""Accepts connections to the HTTP port and limits their number. Imported at the first connection.

Connections in a TLS handshake count toward the limit. A peer that stalls in its handshake or in its request is
disconnected after the same timeout, and sending single bytes does not extend the timeout.
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

from odradek.broker.http.access import PUBLIC_PATHS
from odradek.broker.http.json_answer import json_answer

log = logging.getLogger("odradek.control")
bugs = logging.getLogger("odradek.control.http")  # aiohttp logs handlers' exceptions here

SHUTDOWN_TIMEOUT_S = 1.0
PAUSE_S = 1.0  # delay after a failed accept, for example when no file descriptors are left
Stop: TypeAlias = Callable[[], Awaitable[None]]
AddRoutes: TypeAlias = Callable[[web.Application], None]
Reserved: TypeAlias = dict[object, asyncio.BaseTransport]  # transports of reserved connections, keyed by protocol


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one HTTP port.

    max_connections    maximum number of ordinary connections
    reserve            number of additional connections, which serve only health checks, so that monitoring works even
                       if all ordinary connections are in use. When these are in use too, a new connection closes the
                       oldest of them
    request_timeout_s  timeout for a TLS handshake, and for a request's head. The timeout for the head starts when the
                       connection opens or the previous response has been sent
    max_headers        maximum number of headers per request
    max_line_bytes     maximum size of each header and of the request line
    """

    max_connections: int = 200
    reserve: int = 8
    request_timeout_s: float = 30.0
    max_headers: int = 64
    max_line_bytes: int = 8190  # large, since browsers send every localhost server's cookies to all of them


def is_ours(record: logging.LogRecord) -> bool:
    """Returns whether a log record reports a bug in our code. Log records about malformed requests are dropped, so that
    peers cannot fill the log."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


bugs.addFilter(is_ours)


async def serve_http(app: web.Application, bound: socket, context: ssl.SSLContext | None, limits: HttpLimits) -> Stop:
    """Serves `app` on a socket. Returns a function that stops the server and closes the socket.

    context  None for HTTP without TLS
    """
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
        max_headers=limits.max_headers,
    )
    await runner.setup()
    assert runner.server is not None
    bound.listen(limits.max_connections)
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
        if request.path not in PUBLIC_PATHS:
            refused = json_answer({"error": "too many connections"}, status=503)
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
        self._reserved = reserved  # oldest first
        # Tasks of the newest reserved connections; at most `reserve`.
        self._in_reserve: deque[asyncio.Task[None]] = deque()

    async def accept(self) -> None:
        while True:
            try:
                peer, _ = await self._loop.sock_accept(self._bound)
            except OSError as error:
                log.warning("the HTTP port could not accept a connection; trying again: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            connection_count = len(self._making) + len(self._server.connections)
            is_reserved = connection_count >= self._limits.max_connections
            task = self._loop.create_task(self._add_connection(peer, is_reserved=is_reserved))
            if is_reserved:
                self._in_reserve.append(task)
                if len(self._in_reserve) > self._limits.reserve:
                    self._in_reserve.popleft().cancel()
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    def give_up(self) -> None:
        """Cancels the connections that are still being set up."""
        for task in self._making:
            task.cancel()

    async def _add_connection(self, peer: socket, *, is_reserved: bool) -> None:
        timeout_s = None if self._context is None else self._limits.request_timeout_s
        try:
            transport, protocol = await self._loop.connect_accepted_socket(
                self._server, peer, ssl=self._context, ssl_handshake_timeout=timeout_s
            )
            if is_reserved:
                self._reserve(protocol, transport)
        except OSError as error:  # the TLS handshake failed or timed out
            log.debug("a connection to the HTTP port failed: %s", error)

    def _reserve(self, protocol: asyncio.BaseProtocol, transport: asyncio.BaseTransport) -> None:
        for closing in [each for each, ended in self._reserved.items() if ended.is_closing()]:
            del self._reserved[closing]
        self._reserved[protocol] = transport
        if len(self._reserved) > self._limits.reserve:
            self._reserved.pop(next(iter(self._reserved))).close()
