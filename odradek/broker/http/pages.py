"""The broker's HTTP server, which serves metrics, health checks, and the page. Imported at the first connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from socket import socket
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Middleware

from odradek.broker.http.access import Access, Refusal, is_login, refusal
from odradek.broker.http.connections import AddRoutes, HttpLimits, Stop, serve_http
from odradek.broker.http.exposition import CONTENT_TYPE, exposition
from odradek.broker.http.json_answer import JSON, json_answer, json_line
from odradek.broker.http.logins import CHALLENGE, USER, HttpLogins
from odradek.broker.http.measures import Traffic, measure
from odradek.broker.http.page.routes import CONTROLLED, add_page
from odradek.broker.http.records.calls import BODY_BYTES, PATH
from odradek.broker.http.records.routes import add_records
from odradek.broker.runtime.workers import in_thread
from odradek.broker.security.sasl.passwords import LoginRefused
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from logging import LogRecord

    from odradek.broker.broker import Broker


class Readiness(NamedTuple):
    """The broker's readiness.

    waiting_for  internal topics that have an offline partition, or whose coordinators are not loaded
    offline      partitions that cannot be used
    """

    waiting_for: tuple[str, ...]
    offline: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        return not self.waiting_for


def readiness(broker: Broker) -> Readiness:
    topics = broker.metadata.image.topics
    loaded = {
        GROUP_OFFSETS: broker.has_started("groups") and all(shard.is_loaded for shard in broker.groups.shards),
        TRANSACTION_STATE: broker.has_started("transactions") and broker.transactions.is_loaded,
        SHARE_GROUP_STATE: broker.has_started("share_coordinator")
        and all(shard.is_loaded for shard in broker.share_coordinator.shards),
    }
    offline = sorted(broker.partitions.offline)
    damaged = {topic for topic, _ in offline}
    return Readiness(
        waiting_for=tuple(
            topic for topic, is_loaded in loaded.items() if topic in topics and (not is_loaded or topic in damaged)
        ),
        offline=tuple(f"{topic}-{index}" for topic, index in offline),
    )


LIMITS = HttpLimits()


async def serve(
    broker: Broker,
    traffic: Traffic,
    warnings: Sequence[LogRecord],
    bound: socket,
    allowed: Access,
    context: ssl.SSLContext | None,
    add_routes: AddRoutes | None,
) -> Stop:
    """Serves the HTTP port on a socket. Returns a function that stops the server and closes the socket.

    context  None for HTTP without TLS
    """
    app = pages(broker, traffic, warnings, allowed)
    if add_routes is not None:
        add_routes(app)
    return await serve_http(app, bound, context, LIMITS)


def pages(broker: Broker, traffic: Traffic, warnings: Sequence[LogRecord], allowed: Access) -> web.Application:
    app = web.Application(middlewares=[access_guard(allowed, broker.config.odradek_http_token, HttpLogins(broker))])
    page = add_page(app, broker, traffic, warnings, partial(metrics, broker, traffic))
    add_records(app, page, broker, traffic)
    app.router.add_get("/healthz", partial(healthz, broker))
    app.router.add_get("/readyz", partial(readyz, broker))
    return app


class AccessRefused(web.HTTPException):
    """Raised to refuse a request before its handler runs. Becomes an HTTP response with the reason in `refusal`."""

    def __init__(self, refusal: Refusal) -> None:
        self.status_code = refusal.status
        self.refusal = refusal
        body = {"error": refusal.text} if refusal.code is None else {"error": refusal.text, "code": refusal.code}
        super().__init__(headers=refusal.headers, text=json_line(body), content_type=JSON)


def access_guard(allowed: Access, token: str | None, logins: HttpLogins) -> Middleware:
    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        tokens = [token] if token else []
        controlled = request.app.get(CONTROLLED)
        if controlled is not None:
            tokens += controlled.tokens(request.match_info.get("id"))
        authorization = request.headers.get("Authorization", "")
        if accepts_logins(request) and is_login(tokens, authorization):
            try:
                request[USER] = await logins.user_of(authorization)
            except LoginRefused as wrong:
                raise AccessRefused(Refusal(401, str(wrong), {"WWW-Authenticate": CHALLENGE})) from None
        else:
            refused = refusal(allowed, tokens, request.path, authorization)
            if refused is not None:
                raise AccessRefused(refused)
        if request.can_read_body:
            try:
                async with asyncio.timeout(LIMITS.request_timeout_s):
                    await request.read()  # aiohttp stores the body for the handler
            except TimeoutError:
                raise web.HTTPRequestTimeout from None
            except ConnectionResetError:  # the client has disconnected
                raise web.HTTPBadRequest from None
            except web.HTTPRequestEntityTooLarge:
                words = f"the body is larger than {BODY_BYTES >> 20} MiB"
                raise AccessRefused(Refusal(413, words, code=ErrorCode.MESSAGE_TOO_LARGE.name)) from None
        try:
            return await handler(request)
        except web.HTTPException as error:  # for example a 404 from aiohttp
            if error.text and not error.text.endswith("\n"):
                error.text += "\n"
            raise

    return guard


def accepts_logins(request: web.Request) -> bool:
    """Returns whether users of the broker may log in for this request. Only the calls for records accept logins."""
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical == PATH


async def metrics(broker: Broker, traffic: Traffic, request: web.Request) -> web.Response:
    measures = await measure(broker, traffic)
    text = await in_thread(broker.workers, lambda: exposition(measures))
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


async def healthz(broker: Broker, request: web.Request) -> web.Response:
    """Answers a liveness check: any response shows that the event loop is running."""
    return json_answer({"status": "ok", "offline_partitions": readiness(broker).offline})


async def readyz(broker: Broker, request: web.Request) -> web.Response:
    found = readiness(broker)
    body = {"ready": found.is_ready, "loading": found.waiting_for, "offline_partitions": found.offline}
    return json_answer(body, status=200 if found.is_ready else 503)
