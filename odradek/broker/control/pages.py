"""The HTTP pages. Imported with the first connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from socket import socket
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Middleware

from odradek.broker.control.access import Access, refusal
from odradek.broker.control.exposition import CONTENT_TYPE, exposition
from odradek.broker.control.http_connections import AddRoutes, HttpLimits, Stop, serve_http
from odradek.broker.control.measures import Traffic, measure
from odradek.broker.control.page.routes import add_page, in_thread
from odradek.broker.control.readiness import readiness

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.control.recent import RecentWarnings

LIMITS = HttpLimits()


async def serve(
    broker: Broker,
    traffic: Traffic,
    warnings: RecentWarnings,
    bound: socket,
    allowed: Access,
    context: ssl.SSLContext | None,
    add_routes: AddRoutes | None,
) -> Stop:
    """Answer on `bound`, which is the server's from now on; returns what ends it. context: None for no TLS"""
    app = pages(broker, traffic, warnings, allowed)
    if add_routes is not None:
        add_routes(app)
    return await serve_http(app, bound, context, LIMITS)


def pages(broker: Broker, traffic: Traffic, warnings: RecentWarnings, allowed: Access) -> web.Application:
    app = web.Application(middlewares=[guarded(allowed, broker.config.odradek_http_token)])
    add_page(app, broker, traffic, warnings, partial(metrics, broker, traffic))
    app.router.add_get("/healthz", partial(healthz, broker))
    app.router.add_get("/readyz", partial(readyz, broker))
    return app


def guarded(allowed: Access, token: str | None) -> Middleware:
    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        refused = refusal(allowed, token, request.path, request.headers.get("Authorization", ""))
        if refused is not None:
            return web.json_response({"error": refused.text}, status=refused.status, headers=refused.headers)
        if request.can_read_body:
            try:
                async with asyncio.timeout(LIMITS.request_timeout_s):
                    await request.read()  # and keeps it for the handler
            except TimeoutError:
                raise web.HTTPRequestTimeout from None
            except ConnectionResetError:  # who asked has gone
                raise web.HTTPBadRequest from None
        return await handler(request)

    return guard


async def metrics(broker: Broker, traffic: Traffic, request: web.Request) -> web.Response:
    measures = await measure(broker, traffic)
    text = await in_thread(broker.workers, lambda: exposition(measures))
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


async def healthz(broker: Broker, request: web.Request) -> web.Response:
    """That this is answered is the news: the loop turns, and the listener was there before it."""
    return web.json_response({"status": "ok", "offline_partitions": readiness(broker).offline})


async def readyz(broker: Broker, request: web.Request) -> web.Response:
    found = readiness(broker)
    body = {"ready": found.is_ready, "loading": found.waiting_for, "offline_partitions": found.offline}
    return web.json_response(body, status=200 if found.is_ready else 503)
