"""The HTTP handlers of `POST` and `GET /api/topics/{topic}/records`, and of their OpenAPI document.

A POST needs the same setting as the page's actions (`odradek.http.actions`), and a body with a JSON media type. Unlike
the actions, it needs no token as protection against requests from other sites: browsers do not send a JSON body to
another site without a preflight request (CORS), and requests whose Host or Origin does not belong to this broker are
always refused.

A GET needs the same permission as the page's view of records. A client that is logged in as a broker user has that
user's rights.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from odradek.broker.http.json_answer import json_answer
from odradek.broker.http.logins import USER, client_of
from odradek.broker.http.page.record_grammar import invalid, parse_record
from odradek.broker.http.page.record_writing import (
    ALL,
    RecordResult,
    chosen_partitions_of,
    partition_count,
    produce,
    produce_unanswered,
)
from odradek.broker.http.page.routes import HEADERS
from odradek.broker.http.records.calls import (
    ACKS,
    EVENTS,
    JSON,
    LINES,
    MAX_WRITTEN_RECORDS,
    PATH,
    READ_CALL,
    WRITE,
    openapi_document,
)
from odradek.broker.http.records.reading import (
    MAX_READERS,
    ReaderLimit,
    ReadQuery,
    RecordReader,
    TooManyReaders,
    parse_query,
)
from odradek.broker.in_process.client import InProcessClient
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.api.dispatch import Dispatcher
    from odradek.broker.broker import Broker
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.http.measures import Traffic
    from odradek.broker.http.page.record_grammar import SentContent
    from odradek.broker.http.page.routes import PageRoutes

log = logging.getLogger("odradek.control")

SETTING: Final = "odradek.http.actions"
TICK_MS: Final = 1000  # interval at which a waiting reader checks its client's connection and rights
IDLE_MS: Final = 10_000  # time without an event after which a comment is sent to keep the stream open
TOP_FIELDS: Final = WRITE.body_names - {"records"}
HTTP_STATUS: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_RECORD: 400,
    ErrorCode.INVALID_TIMESTAMP: 400,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 400,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.RECORD_LIST_TOO_LARGE: 413,
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}
CONFLICT: Final = 409  # HTTP status of all other errors


def add_records(app: web.Application, page: PageRoutes, broker: Broker, traffic: Traffic) -> None:
    routes = RecordRoutes(broker, traffic.dispatcher, page)
    app.router.add_get("/openapi.json", page.guarded(routes.openapi))
    app.router.add_get(PATH, page.guarded(routes.read))
    app.router.add_post(PATH, page.guarded(routes.write))


class RecordRoutes:
    """The HTTP handlers of the calls for records. `page` checks who may read a topic, and finds the cluster that a
    query names."""

    def __init__(self, broker: Broker, dispatcher: Dispatcher[HandlerBroker], page: PageRoutes) -> None:
        self._broker = broker
        self._dispatcher = dispatcher
        self._require = page.require_read
        self._served_by = page.served_by
        self._stopping = page.stopping
        self._headers = HEADERS
        self._places = ReaderLimit()

    async def openapi(self, request: web.Request) -> web.Response:
        return json_answer(openapi_document(), headers=self._headers)

    async def write(self, request: web.Request) -> web.Response:
        if not self._broker.config.odradek_http_actions:
            words = f"writing records over HTTP is off: set {SETTING}=true in the configuration of the broker"
            return self._error(403, words)
        if request.content_type != JSON:
            return self._error(415, f"the body must be {JSON}: send the header Content-Type")
        try:
            body = json.loads(await request.read())
            json.dumps(body, ensure_ascii=False).encode()  # fails for lone surrogates, which cannot be encoded as UTF-8
        except (ValueError, RecursionError) as error:
            return self._error(400, f"the body is not JSON: {error}")
        identity = client_of(request, request.get(USER))
        client = InProcessClient(self._dispatcher, identity.client_host, 0, identity.principal)
        try:
            written = await self._written(client, request.match_info["topic"], body, identity)
        except KafkaError as error:
            return self._refused(error, identity.principal)
        finally:
            client.close()
        answer: dict[str, Any] = {"records": [_result(each, identity.principal) for each in written]}
        failed = next((each.error for each in written if each.error is not None), None)
        status = 202 if body.get("acks") == 0 else 200
        if failed is not None:
            answer |= {"error": _words(failed, identity.principal), "code": failed.code.name}
            status = HTTP_STATUS.get(failed.code, CONFLICT)
        return json_answer(answer, status=status, headers=self._headers)

    async def _written(
        self, client: InProcessClient, topic: str, body: object, reader: ConnectionInfo
    ) -> list[RecordResult]:
        """Writes the records of a request body. The ACLs that apply to `reader` determine which schemas can be used."""
        if not isinstance(body, Mapping):
            raise invalid("the body must be a JSON object: a record, or an object with the field records")
        common = {name: body[name] for name in TOP_FIELDS & body.keys()}
        given = {name: value for name, value in body.items() if name not in common}
        if "transactional_id" in given:
            raise invalid("transactions are not supported over HTTP: leave transactional_id out")
        acks = common.get("acks", "all")
        if acks not in ACKS or isinstance(acks, bool):
            raise invalid("acks must be all, 1 or 0")
        if "records" in given:
            rows = given.pop("records")
            if given:
                raise invalid(f"{min(given)} cannot be given together with records: put it into each record")
            if not isinstance(rows, list) or not 0 < len(rows) <= MAX_WRITTEN_RECORDS:
                raise invalid(f"records must be a list of 1 to {MAX_WRITTEN_RECORDS} records")
            records = [parse_record(row, f"records[{number}].") for number, row in enumerate(rows)]
        else:
            records = [parse_record(given)]
        keys = [await self._encoded(each.key, common.get("key_subject"), reader) for each in records]
        values = [await self._encoded(each.value, common.get("value_subject"), reader) for each in records]
        may_create = self._broker.config.auto_create_topics_enable
        places = chosen_partitions_of(records, keys, await partition_count(client.ask, topic, may_create=may_create))
        now_ms = self._broker.clock.now_ms()
        new = [each.with_bytes(key, value, now_ms) for each, key, value in zip(records, keys, values, strict=True)]
        if acks == 0:
            produce_unanswered(client, topic, places, new)
            return [RecordResult(partition, None) for partition in places]
        return await produce(client.ask, topic, places, new, ALL if acks == "all" else acks)

    async def _encoded(self, content: SentContent, subject: object, reader: ConnectionInfo) -> bytes | None:
        """Returns the bytes of a key or value, encoded with the latest schema of `subject` if a subject is given."""
        if subject is None or content.data is None:
            return content.data
        if not isinstance(subject, str) or not subject:
            raise invalid("key_subject and value_subject must be the names of subjects")
        if content.value is None:
            raise invalid("a key or value in base64 cannot be encoded with the schema of a subject")
        values = self._broker.schema_values
        if values is None:
            raise invalid("the schema registry is off: set odradek.schema.registry.enable=true")
        return await values.encode(subject, content.value, reader)

    async def read(self, request: web.Request) -> web.StreamResponse:
        topic = request.match_info["topic"]
        try:
            if unknown := sorted(request.query.keys() - READ_CALL.query_names):
                raise invalid(
                    f"there is no parameter {unknown[0]}; the parameters are {', '.join(sorted(READ_CALL.query_names))}"
                )
            self._require(request, topic, True)
            query = parse_query(topic, request.query, request.headers.get("Last-Event-ID", ""))
            reader = RecordReader(self._served_by(request), query)
            with self._places.place():
                accepted = request.headers.get("Accept", "")
                if EVENTS in accepted or LINES in accepted:
                    return await self._stream(request, reader, query, EVENTS if EVENTS in accepted else LINES)
                return await self._answer(request, reader, query)
        except TooManyReaders:
            return self._error(
                503, f"{MAX_READERS} requests are already reading records: try again later", {"Retry-After": "1"}
            )
        except KafkaError as error:
            return self._refused(error)

    async def _answer(self, request: web.Request, reader: RecordReader, query: ReadQuery) -> web.Response:
        clock = self._broker.steady_clock
        until_ms = clock.now_ms() + query.wait_ms
        found = await reader.read()
        while not found and (left_ms := until_ms - clock.now_ms()) > 0 and self._is_wanted(request):
            await reader.wait(min(left_ms, TICK_MS))
            self._require(request, query.topic, False)
            found = await reader.read()
        rest = json.dumps({"next": reader.next, "is_at_end": reader.is_at_end})
        text = f'{{"records": [{", ".join(found)}], {rest[1:]}\n'
        return web.Response(text=text, content_type=JSON, headers=self._headers)

    async def _stream(
        self, request: web.Request, reader: RecordReader, query: ReadQuery, media_type: str
    ) -> web.StreamResponse:
        """Sends records as soon as they are readable. Server-sent events end when the client disconnects. JSON lines
        also end if no record arrives within `wait_ms`."""
        is_events = media_type == EVENTS
        clock = self._broker.steady_clock
        response = web.StreamResponse(headers={**self._headers, "Content-Type": media_type})
        with suppress(ConnectionResetError):  # the client has disconnected
            await response.prepare(request)
            sent_ms = found_ms = clock.now_ms()
            while self._is_wanted(request):
                try:
                    found = await reader.read()
                    if found:
                        text = _events(found, reader.next) if is_events else _lines(found)
                        await response.write(text.encode())
                        sent_ms = found_ms = clock.now_ms()
                        continue
                    left_ms = TICK_MS if is_events else found_ms + query.wait_ms - clock.now_ms()
                    if left_ms > 0:
                        await reader.wait(min(left_ms, TICK_MS))
                    elif reader.is_at_end:
                        break
                    self._require(request, query.topic, False)
                except KafkaError as error:  # the topic has been deleted, or a permission has been withdrawn
                    row = {"error": _words(error), "code": error.code.name}
                    text = f"event: error\ndata: {json.dumps(row)}\n\n" if is_events else f"{json.dumps(row)}\n"
                    await response.write(text.encode())
                    break
                if is_events and clock.now_ms() - sent_ms >= IDLE_MS:
                    await response.write(b":\n\n")
                    sent_ms = clock.now_ms()
        return response

    def _is_wanted(self, request: web.Request) -> bool:
        transport = request.transport
        return not self._stopping.is_set() and transport is not None and not transport.is_closing()

    def _refused(self, error: KafkaError, principal: str = "") -> web.Response:
        body = {"error": _words(error, principal), "code": error.code.name}
        return json_answer(body, status=HTTP_STATUS.get(error.code, CONFLICT), headers=self._headers)

    def _error(self, status: int, words: str, headers: Mapping[str, str] | None = None) -> web.Response:
        return json_answer({"error": words}, status=status, headers={**self._headers, **(headers or {})})


WORDS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic or partition.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "{principal} may not do this. Without a login, a client is User:ANONYMOUS.",
}


def _words(error: KafkaError, principal: str = "") -> str:
    """Returns the error message to send to the client, which acts as the user `principal`."""
    words = WORDS.get(error.code, f"The request is refused: {error.code.name}.")
    return error.message or words.format(principal=principal)


def _result(written: RecordResult, principal: str) -> dict[str, object]:
    if written.error is not None:
        words = _words(written.error, principal)
        return {"partition": written.partition, "error": words, "code": written.error.code.name}
    if written.offset is None:
        return {"partition": written.partition}
    return {"partition": written.partition, "offset": written.offset}


def _lines(found: list[str]) -> str:
    return "".join(f"{each}\n" for each in found)


def _events(found: list[str], position: str) -> str:
    """Returns an event for each record. Only the last event has an id, so a client that resumes may receive some
    records again."""
    *others, last = found
    return "".join(f"data: {each}\n\n" for each in others) + f"id: {position}\ndata: {last}\n\n"
