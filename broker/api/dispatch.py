"""Dispatch: from a frame to its handler. HANDLERS is the only list of what is served, and what ApiVersions answers.

A handler lives in `broker/handlers/<api key in lower case>.py` as a function of the same name:

    def metadata(request: MetadataRequest, context: RequestContext, broker: Broker) -> MetadataResponse

It returns the response, a `Deferred` of it (parked), a coroutine (cold paths only: it costs a task), or `NO_RESPONSE`.
It is imported at the first request for its API, so that starting up does not pay for it. It may raise `KafkaError` for
the whole request; the error is translated here, once, and `broker.api.error_replies` knows its form in each API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from struct import Struct as Packing
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from broker.api.context import AllowAll, Authorizer, ConnectionInfo, RequestContext
from broker.runtime.clock import Clock
from broker.runtime.delayed import NO_RESPONSE, CloseConnection, Deferred, NoResponse, Parked
from protocol.api_keys import ApiKey
from protocol.codec import reader
from protocol.errors import ErrorCode, KafkaError, MalformedMessage
from protocol.frames import read_client_id, request_header_version, response_writer
from protocol.messages import request_class, response_class
from protocol.struct import Buffer, Message

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.produce.fast_path import LoneBatch

log = logging.getLogger("odradek.dispatch")

KEY_AND_VERSION = Packing(">hh")
MOST_BITS = 64  # of a time in µs
REQUEST_START = Packing(">Iih")  # API key and version in one number, correlation id, size of the client id

Shortcut: TypeAlias = Callable[[Buffer, int, int], "LoneBatch | None"]  # frame, correlation id, size of the client id
Answer: TypeAlias = Message | NoResponse | Deferred[Any] | Coroutine[Any, Any, Message | NoResponse]
HandlerCall: TypeAlias = Callable[[Any, RequestContext, "Broker"], Answer]


@dataclass(frozen=True, slots=True)
class Handler:
    """The versions that ApiVersions shows, which are those of Kafka 4.3.1.

    `served_from`: older ones are shown but disconnected (Kafka lists Produce 0-2 only for the sake of librdkafka).
    `keeps_frame`: the handler holds on to `records` views after it returned, so the frame's bytes must be its own.
    `shortcut`: the module with a quicker way for its ordinary requests; see broker/produce/fast_path.py.
    `waits_for_others`: its answer may wait for time or other clients, and a broker that stops does not wait with it.
    `call`: the function itself, where it is not to be imported from its place.
    """

    min_version: int
    max_version: int
    served_from: int = 0
    keeps_frame: bool = False
    shortcut: str | None = None
    waits_for_others: bool = False
    call: HandlerCall | None = None

    def serves(self, version: int) -> bool:
        return max(self.min_version, self.served_from) <= version <= self.max_version


HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.PRODUCE: Handler(0, 13, served_from=3, keeps_frame=True, shortcut="broker.produce.fast_path"),
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
    ApiKey.INIT_PRODUCER_ID: Handler(0, 6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: Handler(0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Handler(0, 4),
    ApiKey.END_TXN: Handler(0, 5),
    ApiKey.WRITE_TXN_MARKERS: Handler(1, 2),
    ApiKey.TXN_OFFSET_COMMIT: Handler(0, 5),
    ApiKey.DESCRIBE_CONFIGS: Handler(1, 4),
    ApiKey.ALTER_CONFIGS: Handler(0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Handler(1, 5),
    ApiKey.CREATE_PARTITIONS: Handler(0, 3),
    ApiKey.DELETE_GROUPS: Handler(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(0, 1),
    ApiKey.OFFSET_DELETE: Handler(0, 0),
    ApiKey.UPDATE_FEATURES: Handler(0, 2),
    ApiKey.DESCRIBE_CLUSTER: Handler(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Handler(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Handler(0, 0),
    ApiKey.LIST_TRANSACTIONS: Handler(0, 2),
    ApiKey.LIST_CONFIG_RESOURCES: Handler(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(0, 0),
}


class Way:
    """One version of one API: from a frame to the handler. Made at its first request.

    It counts, for who looks at metrics (broker/control): requests and their bytes, how long they took until they were
    answered or parked (`local_s`), how long the parked ones then waited (`remote_s`), and how many of the answered ones
    took so long in all: those of `answered_in[n]` less than 2 to the power of n µs, and not less than half of that.
    """

    __slots__ = (
        "answered_in",
        "api_key",
        "call",
        "encode",
        "has_tags",
        "key",
        "local_s",
        "read",
        "remote_s",
        "request_bytes",
        "requests",
        "shortcut",
        "version",
        "waits_for_others",
    )

    def __init__(self, api_key: ApiKey, version: int, handler: Handler, call: HandlerCall) -> None:
        self.api_key = api_key
        self.key = api_key.value
        self.version = version
        self.call = call
        self.waits_for_others = handler.waits_for_others
        self.has_tags = request_header_version(self.key, version) == 2
        self.requests = self.request_bytes = 0
        self.shortcut: Shortcut | None = None
        self.local_s = self.remote_s = 0.0
        self.answered_in = [0] * MOST_BITS
        if handler.serves(version):
            self.read = reader(request_class(self.key), version)
            self.encode = response_writer(self.key, response_class(self.key), version)
        else:  # ApiVersions in a version of the future
            self.read = _unread
            self.encode = response_writer(self.key, response_class(self.key), 0)


class Exchange(RequestContext):
    """A request whose answer is not there yet, with what it takes to give it."""

    __slots__ = ("_dispatcher", "_request", "_way", "deferred", "parked_s", "size_bytes", "started_s")

    deferred: Deferred[Message]
    started_s: float  # when it came; of the counter that `Way.local_s` sums up
    parked_s: float

    def __init__(
        self,
        dispatcher: Dispatcher,
        way: Way,
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
        connection: ConnectionInfo,
        size_bytes: int,
    ) -> None:
        self.api_key = way.api_key
        self.api_version = way.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.now_ms = now_ms
        self.connection = connection
        self.authorizer = dispatcher.authorizer
        self.size_bytes = size_bytes  # of the frame
        self._dispatcher = dispatcher
        self._way = way

    @property
    def overlapping_key(self) -> int | None:
        """The API key of the requests that need not wait for this answer."""
        return self._way.key if self.deferred.overlaps else None

    @property
    def waits_for_others(self) -> bool:
        return self._way.waits_for_others

    @property
    def is_done(self) -> bool:
        return self.deferred.is_done

    def when_done(self, action: Callable[[object], None]) -> None:
        self.deferred.when_done(action)

    def abandon(self) -> None:
        self.deferred.abandon()

    def chunks(self) -> list[Buffer]:
        """The answer in bytes, once `deferred` is done; empty where there is none. Raises CloseConnection."""
        way, now_s = self._way, perf_counter()
        way.remote_s += now_s - self.parked_s
        way.answered_in[int((now_s - self.started_s) * 1e6).bit_length()] += 1
        try:
            answer = self.deferred.outcome()
        except Exception as error:
            answer = self._dispatcher.error_answer(error, self._request, self)
        return self._encoded(answer)

    def begin(self, frame: Buffer, position: int) -> list[Buffer] | Exchange:
        """The answer, or this, when it is parked. Raises MalformedMessage, CloseConnection."""
        way, dispatcher = self._way, self._dispatcher
        self._request = request = way.read(frame, position)[0]
        try:
            answer = way.call(request, self, dispatcher.broker)
        except Exception as error:
            answer = dispatcher.error_answer(error, request, self)
        if isinstance(answer, Deferred):
            self.deferred = answer
            return self
        if isinstance(answer, Message) or answer is NO_RESPONSE:
            return self._encoded(answer)
        self.deferred = dispatcher.run(answer)
        return self

    def _encoded(self, answer: Message | NoResponse) -> list[Buffer]:
        if answer is NO_RESPONSE:
            return []
        encode = self._way.encode
        try:
            return encode(self.correlation_id, answer)
        except Exception as error:
            return encode(self.correlation_id, self._dispatcher.error_answer(error, self._request, self))


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
        self.broker = broker
        self.authorizer = authorizer if authorizer is not None else AllowAll()
        self.now_ms = clock.now_ms
        self._handlers = {key.value: (key, handler) for key, handler in handlers.items()}
        self.errors: dict[tuple[ApiKey, ErrorCode], int] = {}  # how often a whole request was refused, and why
        self._ways: dict[int, Way] = {}  # by API key and version, as they stand together at the head of a request
        # Of those whose handlers go on using the bytes of a frame, so that these must not be overwritten.
        self.keeping_keys = frozenset(key.value for key, handler in handlers.items() if handler.keeps_frame)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, frame: Buffer, connection: ConnectionInfo) -> list[Buffer] | Parked:
        """Handle one request. Raises MalformedMessage or CloseConnection where Kafka hangs up."""
        started_s = perf_counter()
        size_bytes = len(frame)
        if size_bytes < REQUEST_START.size:
            raise MalformedMessage(f"a request of {size_bytes} bytes")
        kind, correlation_id, client_id_size = REQUEST_START.unpack_from(frame)
        way = self._ways.get(kind) or self.find_way(frame, kind)
        reply: list[Buffer] | Parked
        lone = way.shortcut(frame, correlation_id, client_id_size) if way.shortcut is not None else None
        if lone is not None:
            lone.started_s = started_s
            lone.parked_s = ended_s = perf_counter()
            reply = lone
        else:
            client_id, position = read_client_id(frame, client_id_size, way.has_tags)
            exchange = Exchange(self, way, correlation_id, client_id, self.now_ms(), connection, size_bytes)
            reply = exchange.begin(frame, position)
            exchange.started_s = started_s
            exchange.parked_s = ended_s = perf_counter()
            if isinstance(reply, list):
                way.answered_in[int((ended_s - started_s) * 1e6).bit_length()] += 1
        way.requests += 1
        way.request_bytes += size_bytes
        way.local_s += ended_s - started_s
        return reply

    @property
    def ways(self) -> Iterable[Way]:
        """What has been asked for so far, by API and version."""
        return self._ways.values()

    def find_way(self, frame: Buffer, kind: int) -> Way:
        number, version = KEY_AND_VERSION.unpack_from(frame)
        api_key, handler = self._handlers.get(number, (None, None))
        if api_key is None or handler is None:
            raise MalformedMessage(f"it asked for API key {number}, which is not served")
        if handler.serves(version):
            way = Way(api_key, version, handler, handler.call or _imported(api_key))
            if handler.shortcut is not None:
                found = import_module(handler.shortcut).shortcut(way, self)
                way.shortcut = None if found is None else found.begin
            self._ways[kind] = way
            return way
        if api_key is not ApiKey.API_VERSIONS:
            raise MalformedMessage(f"it asked for {api_key.name} v{version}, which is not served")
        return Way(api_key, version, handler, _refuse_api_versions)  # not kept: there are too many such versions

    def error_answer(self, error: Exception, request: Message, context: RequestContext) -> Message:
        """What the client is told when its whole request failed."""
        from broker.api.error_replies import code_for, error_reply  # here: most brokers live long without it

        match error:
            case CloseConnection():
                raise error
            case KafkaError():
                code, message = code_for(context.api_key, context.api_version, error.code), error.message
            case _:
                log.error("bug while answering %r with %r", context, request, exc_info=error)
                code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        self.errors[context.api_key, code] = self.errors.get((context.api_key, code), 0) + 1
        return error_reply(context.api_key, context.api_version, request, code, message)

    def run(self, coroutine: Coroutine[Any, Any, Message | NoResponse]) -> Deferred[Message]:
        """A task for a handler that takes its time."""
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


def _imported(api_key: ApiKey) -> HandlerCall:
    name = api_key.name.lower()
    return cast(HandlerCall, getattr(import_module(f"broker.handlers.{name}"), name))


def _unread(data: Buffer, position: int) -> tuple[None, int]:
    return None, position


def _refuse_api_versions(request: None, context: RequestContext, broker: Broker) -> Message:
    """KIP-511: a client that speaks a newer ApiVersions learns from a version 0 body what to ask with."""
    from protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse

    served = HANDLERS[ApiKey.API_VERSIONS]
    row = ApiVersion(api_key=ApiKey.API_VERSIONS.value, min_version=served.min_version, max_version=served.max_version)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.value, api_keys=[row])
