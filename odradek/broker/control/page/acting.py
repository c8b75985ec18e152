"""HTTP of the actions: `GET /api/actions` lists them, `POST /api/actions/<name>` does one.

A POST is refused unless `odradek.http.actions` is true, its Host and Origin are this broker's (`guard`), its body is
JSON, and the header X-Odradek-Token holds the token that this process drew when it began. A page elsewhere can neither
read the token nor send the header, which browsers ask about beforehand. Source: OWASP, Cross-Site Request Forgery
Prevention, "custom request headers".
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.control.page.actions import ACTIONS
from odradek.broker.control.page.fields import Fields
from odradek.broker.control.page.in_process import InProcessClient
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.api.dispatch import Dispatcher
    from odradek.broker.broker import Broker

log = logging.getLogger("odradek.control")

TOKEN_HEADER = "X-Odradek-Token"
SETTING = "odradek.http.actions"
JSON = "application/json"
REFUSED = 409
HTTP_STATUS: Mapping[ErrorCode, int] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}


class Acting:
    """token: None where actions are off."""

    def __init__(self, dispatcher: Dispatcher[Broker], headers: Mapping[str, str], *, is_on: bool) -> None:
        self._dispatcher = dispatcher
        self._headers = headers
        self.token = secrets.token_urlsafe(32) if is_on else None

    async def listing(self, request: web.Request) -> web.Response:
        """What can be done, and the token; a page elsewhere may ask for this, but not read the answer."""
        offered = {} if self.token is None else {name: sorted(action.fields) for name, action in ACTIONS.items()}
        return web.json_response({"token": self.token, "actions": offered}, headers=self._headers)

    async def act(self, request: web.Request) -> web.Response:
        name = request.match_info["action"]
        if self.token is None:
            return self._error(403, f"actions are off: {SETTING}=true in the configuration of the broker allows them")
        given = request.headers.get(TOKEN_HEADER, "")
        if not secrets.compare_digest(given.encode(errors="surrogatepass"), self.token.encode()):
            return self._error(403, f"the header {TOKEN_HEADER} does not hold the token, which GET /api/actions tells")
        if request.content_type != JSON:
            return self._error(415, f"the body has to be {JSON}")
        if name not in ACTIONS:
            return self._error(404, f"there is no action {name}; actions are {', '.join(ACTIONS)}")
        try:
            body = json.loads(await request.read())
            json.dumps(body, ensure_ascii=False).encode()  # half a pair of surrogates is no text
        except (ValueError, RecursionError) as error:
            return self._error(400, f"the body is not JSON: {error}")
        return await self._done(name, body, request)

    async def _done(self, name: str, body: object, request: web.Request) -> web.Response:
        action = ACTIONS[name]
        client = InProcessClient(self._dispatcher, request.remote or "", 0)
        try:
            done = await action.run(client.ask, Fields(body, action.fields))
        except KafkaError as error:
            words = error.message or error.code.name
            return self._error(HTTP_STATUS.get(error.code, REFUSED), words, error.code)
        finally:
            client.close()
        log.info("page: %s %s, asked for by %s", name, json.dumps(body), request.remote)
        return web.json_response(done, headers=self._headers)

    def _error(self, status: int, words: str, code: ErrorCode | None = None) -> web.Response:
        body = {"error": words} if code is None else {"error": words, "code": code.name}
        return web.json_response(body, status=status, headers=self._headers)
