"""The HTTP pages. Imported with the first connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from socket import socket
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.control.exposition import CONTENT_TYPE, exposition
from odradek.broker.control.measures import Traffic, measure
from odradek.broker.control.page.routes import add_page, in_thread
from odradek.broker.control.readiness import readiness

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.control.recent import RecentWarnings

SHUTDOWN_TIMEOUT_S = 1.0
Stop = Callable[[], Awaitable[None]]


async def serve(broker: Broker, traffic: Traffic, warnings: RecentWarnings, bound: socket) -> Stop:
    """Answer on `bound`, which is the server's from now on; returns what ends it."""
    runner = web.AppRunner(pages(broker, traffic, warnings), access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    return runner.cleanup


def pages(broker: Broker, traffic: Traffic, warnings: RecentWarnings) -> web.Application:
    app = web.Application()
    add_page(app, broker, traffic, warnings)
    app.router.add_get("/metrics", partial(metrics, broker, traffic))
    app.router.add_get("/healthz", partial(healthz, broker))
    app.router.add_get("/readyz", partial(readyz, broker))
    return app


async def metrics(broker: Broker, traffic: Traffic, request: web.Request) -> web.Response:
    measures = measure(broker, traffic)
    text = await in_thread(broker.workers, lambda: exposition(measures))
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


async def healthz(broker: Broker, request: web.Request) -> web.Response:
    """That this is answered is the news: the loop turns, and the listener was there before it."""
    return web.json_response({"status": "ok", "offline_partitions": readiness(broker).offline})


async def readyz(broker: Broker, request: web.Request) -> web.Response:
    found = readiness(broker)
    body = {"ready": found.is_ready, "loading": found.waiting_for, "offline_partitions": found.offline}
    return web.json_response(body, status=200 if found.is_ready else 503)
