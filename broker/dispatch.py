"""HANDLERS is the only list of what we serve: ApiVersions prints it, and a request that is not in it is not answered.

A handler lives in `broker/handlers/<api key in lower case>.py` as a function of the same name:

    def metadata(request: MetadataRequest, context: RequestContext, broker: Broker) -> MetadataResponse

and returns the response, a `Deferred` of it (parked), a coroutine (cold paths only: it costs a task), or `NO_RESPONSE`.
It is imported at the API's first request, so that starting up does not pay for it. It may raise `KafkaError` for
the whole request, which is translated here, once; `broker.error_replies` knows what that looks like in each API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from importlib import import_module
from struct import Struct as Packing
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from broker.clock import Clock
from broker.context import AllowAll, Authorizer, ConnectionInfo, RequestContext
from broker.delayed import NO_RESPONSE, CloseConnection, Deferred, NoResponse
from protocol.api_keys import ApiKey
from protocol.codec import decode
from protocol.errors import ErrorCode, KafkaError, MalformedMessage
from protocol.frames import read_request_header, response_chunks
from protocol.messages import request_class
from protocol.struct import Buffer, Message

if TYPE_CHECKING:
    from broker.broker import Broker

log = logging.getLogger("odradek.dispatch")

REQUEST_START = Packing(">hh")  # API key, API version

Answer: TypeAlias = Message | NoResponse | Deferred[Any] | Coroutine[Any, Any, Message | NoResponse]
HandlerCall: TypeAlias = Callable[[Any, RequestContext, "Broker"], Answer]


@dataclass(frozen=True, slots=True)
class Handler:
    """The versions that ApiVersions shows, which are those of Kafka 4.3.1.

    `served_from`: older ones are shown but disconnected (Kafka lists Produce 0-2 only for the sake of librdkafka).
    `keeps_frame`: the handler holds on to `records` views after it returned, so the frame's bytes must be its own.
    `waits_for_others`: its answer may wait for time or other clients, and a broker that stops does not wait with it.
    `call`: the function itself, where it is not to be imported from its place.
    """

    min_version: int
    max_version: int
    served_from: int = 0
    keeps_frame: bool = False
    waits_for_others: bool = False
    call: HandlerCall | None = None


HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.PRODUCE: Handler(0, 13, served_from=3, keeps_frame=True),
    ApiKey.FETCH: Handler(4, 18, waits_for_others=True),
    ApiKey.LIST_OFFSETS: Handler(1, 11),
    ApiKey.METADATA: Handler(0, 13),
    ApiKey.OFFSET_COMMIT: Handler(2, 10),
    ApiKey.OFFSET_FETCH: Handler(1, 10),
    ApiKey.FIND_COORDINATOR: Handler(0, 6),
    ApiKey.JOIN_GROUP: Handler(0, 9, waits_for_others=True),
    ApiKey.HEARTBEAT: Handler(0, 4),
    ApiKey.LEAVE_GROUP: Handler(0, 5),
    ApiKey.SYNC_GROUP: Handler(0, 5, waits_for_others=True),
    ApiKey.DESCRIBE_GROUPS: Handler(0, 6),
    ApiKey.LIST_GROUPS: Handler(0, 5),
    ApiKey.API_VERSIONS: Handler(0, 4),
    ApiKey.CREATE_TOPICS: Handler(2, 7),
    ApiKey.DELETE_TOPICS: Handler(1, 6),
    ApiKey.DELETE_RECORDS: Handler(0, 2),
    ApiKey.INIT_PRODUCER_ID: Handler(0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(2, 4),
    ApiKey.DESCRIBE_CONFIGS: Handler(1, 4),
    ApiKey.ALTER_CONFIGS: Handler(0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Handler(1, 5),
    ApiKey.CREATE_PARTITIONS: Handler(0, 3),
    ApiKey.DELETE_GROUPS: Handler(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(0, 1),
    ApiKey.OFFSET_DELETE: Handler(0, 0),
    ApiKey.DESCRIBE_CLUSTER: Handler(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Handler(0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Handler(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(0, 0),
}


class Route:
    """One API: its handler row, and what is imported when its first request comes."""

    __slots__ = ("api_key", "call", "first_version", "handler", "request_class")

    def __init__(self, api_key: ApiKey, handler: Handler) -> None:
        self.api_key = api_key
        self.handler = handler
        self.first_version = max(handler.min_version, handler.served_from)
        self.call: HandlerCall = handler.call if handler.call is not None else self._import_first
        self.request_class: type[Message] | None = None

    def _import_first(self, request: Message, context: RequestContext, broker: Broker) -> Answer:
        name = self.api_key.name.lower()
        self.call = cast(HandlerCall, getattr(import_module(f"broker.handlers.{name}"), name))
        return self.call(request, context, broker)


class Parked:
    """A request whose answer is not there yet."""

    __slots__ = ("_dispatcher", "_request", "context", "deferred", "waits_for_others")

    def __init__(
        self,
        dispatcher: Dispatcher,
        request: Message,
        context: RequestContext,
        deferred: Deferred[Message],
        waits_for_others: bool,
    ) -> None:
        self._dispatcher = dispatcher
        self._request = request
        self.context = context
        self.deferred = deferred
        self.waits_for_others = waits_for_others

    def chunks(self) -> list[Buffer]:
        """The answer in bytes, once `deferred` is done; empty where there is none. Raises CloseConnection."""
        try:
            message = self.deferred.outcome()
        except Exception as error:
            message = self._dispatcher.error_answer(error, self._request, self.context)
        return self._dispatcher.encoded(message, self._request, self.context)


class Dispatcher:
    """From a frame to its handler, and from what the handler says to bytes."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        *,
        handlers: Mapping[ApiKey, Handler] = HANDLERS,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._authorizer = authorizer if authorizer is not None else AllowAll()
        self._routes = {key.value: Route(key, handler) for key, handler in handlers.items()}
        self._keeping_api_keys = {key.value for key, handler in handlers.items() if handler.keeps_frame}
        self._tasks: set[asyncio.Task[None]] = set()

    def keeps_frame(self, frame: memoryview) -> bool:
        """Whether the frame's handler goes on using its bytes, so that they must not be overwritten."""
        return len(frame) >= REQUEST_START.size and REQUEST_START.unpack_from(frame)[0] in self._keeping_api_keys

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Buffer] | Parked:
        """Handle one request. Raises MalformedMessage or CloseConnection where Kafka hangs up."""
        if len(frame) < REQUEST_START.size:
            raise MalformedMessage(f"a request of {len(frame)} bytes has no header")
        api_key, api_version = REQUEST_START.unpack_from(frame)
        route = self._routes.get(api_key)
        if route is None:
            raise MalformedMessage(f"it asked for API key {api_key}, which is not served")
        is_served = route.first_version <= api_version <= route.handler.max_version
        if not is_served and route.api_key is not ApiKey.API_VERSIONS:
            raise MalformedMessage(f"it asked for {route.api_key.name} v{api_version}, which is not served")
        header, body_position = read_request_header(frame)
        now_ms = self._clock.now_ms()
        context = RequestContext(
            route.api_key, api_version, header.correlation_id, header.client_id, now_ms, connection, self._authorizer
        )
        if route.request_class is None:
            route.request_class = request_class(api_key)
        if not is_served:
            return self._refuse_api_versions(context)
        request = decode(route.request_class, api_version, frame, body_position)
        try:
            answer = route.call(request, context, self._broker)
        except Exception as error:
            answer = self.error_answer(error, request, context)
        if isinstance(answer, Message) or answer is NO_RESPONSE:
            return self.encoded(answer, request, context)
        deferred = answer if isinstance(answer, Deferred) else self._run(answer)
        return Parked(self, request, context, deferred, route.handler.waits_for_others)

    def encoded(self, message: Message | NoResponse, request: Message, context: RequestContext) -> list[Buffer]:
        if isinstance(message, NoResponse):
            return []
        key, version, correlation_id = context.api_key.value, context.api_version, context.correlation_id
        try:
            return response_chunks(key, version, correlation_id, message)
        except Exception as error:
            reply = self.error_answer(error, request, context)
            return response_chunks(key, version, correlation_id, reply)

    def error_answer(self, error: Exception, request: Message, context: RequestContext) -> Message:
        """What the client is told when its whole request failed."""
        from broker.error_replies import error_reply  # here: most brokers live long without it

        match error:
            case CloseConnection():
                raise error
            case KafkaError():
                code, message = error.code, error.message
            case _:
                log.error("bug while answering %r with %r", context, request, exc_info=error)
                code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        return error_reply(context.api_key, context.api_version, request, code, message)

    def _refuse_api_versions(self, context: RequestContext) -> list[Buffer]:
        """KIP-511: a client that speaks a newer ApiVersions learns from a version 0 body what to ask with."""
        from protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse

        handler = self._routes[ApiKey.API_VERSIONS.value].handler
        reply = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION.value,
            api_keys=[
                ApiVersion(
                    api_key=ApiKey.API_VERSIONS.value,
                    min_version=handler.min_version,
                    max_version=handler.max_version,
                )
            ],
        )
        return response_chunks(ApiKey.API_VERSIONS.value, 0, context.correlation_id, reply)

    def _run(self, coroutine: Coroutine[Any, Any, Message | NoResponse]) -> Deferred[Message]:
        deferred: Deferred[Message] = Deferred()

        async def answer() -> None:
            try:
                deferred.resolve(await coroutine)
            except Exception as error:
                deferred.fail(error)

        # Kept: the loop alone would let a running task be collected. Not cancelled when the client goes: a topic that
        # was asked for is made.
        task = asyncio.get_running_loop().create_task(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return deferred
