"""The HTTP routes of the page.

`/` is the page. `/api/<view>` returns a view's facts as JSON, and `/live/<view>` sends these facts as server-sent
events. `/download` returns the bytes of one key, value or header. `/api/actions` lists the actions. A view accepts the
query parameters that its function documents, and `cluster` if control is on. Source: HTML, 9.2, for server-sent events.

A POST is accepted only if `odradek.http.actions` is true, its Host and Origin belong to this broker (`guard`), its body
is JSON, and the X-Odradek-Token header contains the token that this process created at startup. A page from another
site cannot read the token. Such a page cannot send the header either, because browsers first send a preflight request,
which this broker does not grant. Source: OWASP, Cross-Site Request Forgery Prevention, "custom request headers".
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from aiohttp import web

from odradek.broker.api.context import Audit, Authorizer
from odradek.broker.http.guard import LOCAL, refusal
from odradek.broker.http.json_answer import JSON, json_answer
from odradek.broker.http.logins import USER, client_of
from odradek.broker.http.page.actions import ACTIONS as DATA_ACTIONS
from odradek.broker.http.page.actions import Fields, PageAction
from odradek.broker.http.page.clusters import cluster, clusters
from odradek.broker.http.page.document import document
from odradek.broker.http.page.groups import group, groups
from odradek.broker.http.page.overview import connections, overview, warnings
from odradek.broker.http.page.records import content_at, decoded_json, is_decoded, record, records
from odradek.broker.http.page.rights import Right, of_cluster, require_right
from odradek.broker.http.page.security import acls, quotas, users
from odradek.broker.http.page.security_actions import SECURITY_ACTIONS
from odradek.broker.http.page.served import ControlledClusters, Query, SchemaDecoder, Show, View, ViewedBroker
from odradek.broker.http.page.shares import shares
from odradek.broker.http.page.topics import partition, topic, topics
from odradek.broker.http.page.transactions import transaction, transactions
from odradek.broker.in_process.client import InProcessClient
from odradek.broker.runtime.workers import in_thread
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from logging import LogRecord

    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.api.dispatch import Dispatcher
    from odradek.broker.broker import Broker
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.http.measures import Traffic

CLUSTER = of_cluster(ApiKey.DESCRIBE_CLUSTER)
READ_TOPIC = Right(ApiKey.FETCH, Operation.READ, ResourceType.TOPIC, "topic")
VIEWS: Mapping[str, tuple[Show, Right]] = {
    "overview": (overview, CLUSTER),
    "topics": (topics, of_cluster(ApiKey.METADATA)),
    "topic": (topic, Right(ApiKey.METADATA, Operation.DESCRIBE, ResourceType.TOPIC, "name")),
    "partition": (partition, READ_TOPIC),
    "records": (records, READ_TOPIC),
    "record": (record, READ_TOPIC),
    "groups": (groups, of_cluster(ApiKey.LIST_GROUPS)),
    "group": (group, Right(ApiKey.DESCRIBE_GROUPS, Operation.DESCRIBE, ResourceType.GROUP, "id")),
    "shares": (shares, of_cluster(ApiKey.LIST_GROUPS)),
    "transactions": (transactions, of_cluster(ApiKey.LIST_TRANSACTIONS)),
    "transaction": (
        transaction,
        Right(ApiKey.DESCRIBE_TRANSACTIONS, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "id"),
    ),
    "acls": (acls, of_cluster(ApiKey.DESCRIBE_ACLS)),
    "users": (users, of_cluster(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)),
    "quotas": (quotas, Right(ApiKey.DESCRIBE_CLIENT_QUOTAS, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)),
    "connections": (connections, CLUSTER),
    "warnings": (warnings, CLUSTER),
    "clusters": (clusters, CLUSTER),
    "cluster": (cluster, CLUSTER),
}
ACTIONS: Mapping[str, PageAction] = {**DATA_ACTIONS, **SECURITY_ACTIONS}
CONTROLLED: web.AppKey[ControlledClusters] = web.AppKey("controlled")  # only present if control is on


log = logging.getLogger("odradek.control")

TOKEN_HEADER = "X-Odradek-Token"
SETTING = "odradek.http.actions"
REFUSED = 409
HTTP_STATUS: Mapping[ErrorCode, int] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}


class ActionRoutes:
    """The HTTP handlers of the actions.

    token  None if actions are off
    """

    def __init__(self, dispatcher: Dispatcher[HandlerBroker], headers: Mapping[str, str], *, is_on: bool) -> None:
        self._dispatcher = dispatcher
        self._headers = headers
        self.token = secrets.token_urlsafe(32) if is_on else None

    async def listing(self, request: web.Request) -> web.Response:
        """Returns the actions and the token. Pages from other sites can send this request, but cannot read its
        response."""
        offered = {} if self.token is None else {name: sorted(action.fields) for name, action in ACTIONS.items()}
        return json_answer({"token": self.token, "actions": offered}, headers=self._headers)

    async def act(self, request: web.Request) -> web.Response:
        name = request.match_info["action"]
        if self.token is None:
            return self._error(403, f"actions are off: set {SETTING}=true in the configuration of the broker")
        given = request.headers.get(TOKEN_HEADER, "")
        if not secrets.compare_digest(given.encode(errors="surrogatepass"), self.token.encode()):
            return self._error(403, f"the header {TOKEN_HEADER} must contain the token that GET /api/actions returns")
        if request.content_type != JSON:
            return self._error(415, f"the body must be {JSON}")
        if name not in ACTIONS:
            return self._error(404, f"there is no action {name}; the actions are {', '.join(ACTIONS)}")
        try:
            body = json.loads(await request.read())
            json.dumps(body, ensure_ascii=False).encode()  # fails for lone surrogates, which cannot be encoded as UTF-8
        except (ValueError, RecursionError) as error:
            return self._error(400, f"the body is not JSON: {error}")
        return await self._done(name, body, request)

    async def _done(self, name: str, body: Mapping[str, object], request: web.Request) -> web.Response:
        action = ACTIONS[name]
        client = InProcessClient(self._dispatcher, request.remote or "", 0)
        try:
            done = await action.run(client.ask, Fields(body, action.fields))
        except KafkaError as error:
            words = error.message or error.code.name
            return self._error(HTTP_STATUS.get(error.code, REFUSED), words, error.code)
        finally:
            client.close()
        shown = {each: value for each, value in body.items() if each not in action.hidden} if action.hidden else body
        log.info("page: %s %s, requested by %s", name, json.dumps(shown), request.remote)
        return json_answer(done, headers=self._headers)

    def _error(self, status: int, words: str, code: ErrorCode | None = None) -> web.Response:
        body = {"error": words} if code is None else {"error": words, "code": code.name}
        return json_answer(body, status=status, headers=self._headers)


Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
EVERY_S = 1.0
BEGIN = "overview"
FORBIDDEN, NOT_FOUND = 403, 404
DENIED = frozenset(code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED"))
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def add_page(
    app: web.Application, broker: Broker, traffic: Traffic, warnings: Sequence[LogRecord], metrics: Handler
) -> PageRoutes:
    acting = ActionRoutes(traffic.dispatcher, HEADERS, is_on=broker.config.odradek_http_actions)
    page = PageRoutes(broker, ViewedBroker(broker, traffic, warnings), acting.token, traffic.dispatcher.authorizer)
    app.router.add_get("/", page.guarded(page.document))
    app.router.add_get("/api/actions", page.guarded(acting.listing))
    app.router.add_post("/api/actions/{action}", page.guarded(acting.act))
    app.router.add_get("/api/{view}", page.guarded(page.api))
    app.router.add_get("/live/{view}", page.guarded(page.live))
    app.router.add_get("/download", page.guarded(page.download))
    app.router.add_get("/metrics", page.metrics_by(metrics))
    app.on_shutdown.append(page.stop)
    return page


class PageRoutes:
    """The HTTP handlers of the page and its views.

    token  the token that actions need; None if actions are off
    """

    def __init__(self, broker: Broker, served: ViewedBroker, token: str | None, authorizer: Authorizer) -> None:
        self._token = token
        self._authorizer = authorizer
        self._broker = broker
        self._served = served
        self._names = frozenset(each.host.lower() for each in broker.advertised_listeners) | {
            broker.config.odradek_http_host
        }
        self.stopping = asyncio.Event()

    def guarded(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            why = refusal(request.headers.get("Host", LOCAL), request.headers.get("Origin"), self._names)
            if why is not None:
                return json_answer({"error": why}, status=403)
            return await handler(request)

        return handle

    def metrics_by(self, handler: Handler) -> Handler:
        """Wraps the metrics handler so that it requires the same permission as a view, because metrics contain the
        names of topics and groups.

        If a token is configured, every request has already presented it, so any host name is allowed.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                self._require(CLUSTER, request)
            except KafkaError as error:
                return json_answer({"error": str(error), "code": error.code.name}, status=FORBIDDEN)
            return await handler(request)

        return handle if self._broker.config.odradek_http_token else self.guarded(handle)

    async def document(self, request: web.Request) -> web.Response:
        first: View
        try:
            show, right = VIEWS[BEGIN]
            self._require(right, request)
            first = await self._view(show, request)
        except KafkaError as error:
            first = {"error": str(error), "code": error.code.name}
        return web.Response(text=document(first, self._token), content_type="text/html", headers=HEADERS)

    async def api(self, request: web.Request) -> web.Response:
        name = request.match_info["view"]
        if name not in VIEWS:
            return json_answer({"error": f"there is no view {name}", "views": sorted(VIEWS)}, status=404)
        try:
            show, right = VIEWS[name]
            self._require(right, request)
            return json_answer(await self._view(show, request), headers=HEADERS)
        except KeyError as missing:
            return json_answer({"error": f"the view {name} needs the parameter {missing}"}, status=400)
        except KafkaError as error:
            status = FORBIDDEN if error.code in DENIED else NOT_FOUND
            return json_answer({"error": str(error), "code": error.code.name}, status=status)

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Sends a view immediately and after each change, at most once a second. Empty comments keep the connection
        open."""
        name = request.match_info["view"]
        if name not in VIEWS:
            return json_answer({"error": f"there is no view {name}"}, status=404)
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        before = ""
        with suppress(ConnectionResetError):  # the browser has closed the page, possibly before the first event
            await response.prepare(request)
            while not self.stopping.is_set():
                now = await self._text(name, request, is_first=not before)
                await response.write(f"data: {now}\n\n".encode() if now != before else b":\n\n")
                before = now
                with suppress(TimeoutError):
                    async with asyncio.timeout(EVERY_S):
                        await self.stopping.wait()
        return response

    async def download(self, request: web.Request) -> web.Response:
        """Returns the bytes of a key, value or header, or the JSON of a key or value, as a file. Accepts the parameters
        of the view `record`."""
        query = request.query
        try:
            self._require(READ_TOPIC, request)
            served = self.served_by(request)
            _, data = await in_thread(self._broker.workers, content_at(served, query))
            if is_decoded(query):
                data = (await decoded_json(served, query, data)).encode()
        except KeyError as missing:
            return json_answer({"error": f"the parameter {missing} is missing"}, status=400)
        except KafkaError as error:
            status = FORBIDDEN if error.code in DENIED else NOT_FOUND
            return json_answer({"error": str(error), "code": error.code.name}, status=status)
        name = quote("-".join(query[each] for each in ("topic", "partition", "offset") if each in query))
        suffix, media_type = (".json", JSON) if is_decoded(query) else ("", "application/octet-stream")
        disposition = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}{suffix}"}
        return web.Response(body=data or b"", content_type=media_type, headers=HEADERS | disposition)

    async def stop(self, app: web.Application) -> None:
        self.stopping.set()

    def require_read(self, request: web.Request, topic: str, is_first: bool) -> None:
        """Raises KafkaError if the client is not allowed to read a topic's records.

        is_first  whether the authorizer logs the decision
        """
        self._require(READ_TOPIC, request, Audit.CHECK if is_first else Audit.QUIET, {"topic": topic})

    def _require(
        self, needed: Right, request: web.Request, audit: Audit = Audit.CHECK, query: Query | None = None
    ) -> None:
        """Checks that the client has a permission. Raises the same errors as `require_right`.

        query  the query that names the resource; None for the request's own query

        If a token is configured, a request without a login has already presented the token, and may see everything.
        """
        client = self._restricted(request)
        if client is not None:
            now_ms = self._broker.clock.now_ms()
            require_right(
                needed, request.query if query is None else query, client, self._authorizer, now_ms, audit=audit
            )

    def _restricted(self, request: web.Request) -> ConnectionInfo | None:
        """Returns the client that sent a request if ACLs determine what the client is allowed to see. Returns None if
        the request contains the token, since the token permits everything."""
        user = request.get(USER)
        has_token = user is None and bool(self._broker.config.odradek_http_token)
        return None if has_token else client_of(request, user)

    async def _text(self, name: str, request: web.Request, *, is_first: bool) -> str:
        try:
            show, right = VIEWS[name]
            self._require(right, request, Audit.CHECK if is_first else Audit.QUIET)
            return json.dumps(await self._view(show, request))
        except KeyError as missing:
            return json.dumps({"error": f"the view {name} needs the parameter {missing}"})
        except KafkaError as error:
            return json.dumps({"error": str(error), "code": error.code.name})

    async def _view(self, show: Show, request: web.Request) -> View:
        """Returns a view of the cluster that the query names, or of the process's own broker if the query names no
        cluster.

        Raises KafkaError, or KeyError with the name of a missing parameter.
        """
        shown = show(self.served_by(request), request.query)
        if isinstance(shown, Awaitable):
            shown = await shown
        return await in_thread(self._broker.workers, shown) if callable(shown) else shown

    def served_by(self, request: web.Request) -> ViewedBroker:
        """Returns the broker of the cluster that the query names, with a decoder for this client if the broker has a
        schema registry. Raises KafkaError if the cluster does not exist."""
        controlled = request.app.get(CONTROLLED)
        if controlled is not None:
            served = controlled.broker_of(request.query.get("cluster", ""), self._served)
        elif "cluster" in request.query:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Control is off, so there is only one cluster.")
        else:
            served = self._served
        values = served.broker.schema_values
        if values is None:
            return served
        return replace(served, decoder=SchemaDecoder(values, self._restricted(request)))
