"""Dispatch: from a frame to the handler of its API, and from the handler's response to bytes.

A handler lives in `odradek/broker/handlers`, in a file with others of its subject, as a function with the API's name:

    def metadata(request: MetadataRequest, context: RequestContext, broker: Broker) -> MetadataResponse

It returns the response, a `Deferred` of it (parked), a coroutine, or `NO_RESPONSE`. A coroutine is started here, runs
up to its first wait at once, and costs no task of the event loop (`odradek.broker.runtime.waiting`). It may raise
`KafkaError` for the whole request, whose form `odradek.broker.api.error_replies` knows for each API.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from struct import Struct as Packing
from time import perf_counter
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from odradek.broker.api.context import AllowAll, Authorizer, ConnectionInfo, RequestContext
from odradek.broker.api.long_requests import LONG_REQUEST_BYTES, check_entries, has_many_partitions, read_long
from odradek.broker.api.served import SERVED, ServedApi, by_number
from odradek.broker.runtime.clock import Clock
from odradek.broker.runtime.delayed import NO_RESPONSE, CloseConnection, Deferred, NoResponse, Parked
from odradek.broker.runtime.loop_watch import LONG_S
from odradek.broker.runtime.slices import rotation
from odradek.broker.runtime.waiting import started
from odradek.broker.runtime.workers import JobResult, Workers
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import reader
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.file_slice import Chunk
from odradek.protocol.frames import KEY_AND_VERSION, read_client_id, request_header_version, response_writer
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.quoting import quoted
from odradek.protocol.struct import Buffer, Message

log = logging.getLogger("odradek.dispatch")

MOST_BITS: Final = 64  # of a time in µs
REQUEST_START: Final = Packing(">Iih")  # API key and version in one number, correlation id, size of the client id

B = TypeVar("B")  # what handlers get as `broker`
Answer: TypeAlias = Message | NoResponse | Deferred[Any] | Coroutine[Any, Any, Message | NoResponse]
HandlerCall: TypeAlias = Callable[[Any, RequestContext, B], Answer]


class TimedReply(Parked, Protocol):
    """A parked reply that adds its times to the counters of its `Route` when it is answered."""

    started_s: float
    parked_s: float


class FastPath(Protocol):
    """A quicker way for the ordinary requests of one version of an API; it refuses nothing (docs/adr/0012)."""

    def begin(
        self, frame: memoryview, correlation_id: int, client_id_size: int, connection: ConnectionInfo
    ) -> TimedReply | None:
        """None where the general way has to be taken; then nothing has happened yet that it would not do again."""


class MakePendingRequest(Protocol):
    """`PendingRequest`, or a class of the same arguments."""

    def __call__(
        self,
        dispatcher: Dispatcher[B],
        route: Route[B],
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
        connection: ConnectionInfo,
        size_bytes: int,
    ) -> PendingRequest[B]: ...


class MeteredRequests(Protocol):
    """`odradek.broker.api.metered.Throttling`."""

    def metered(self, frame: Buffer, client_id_size: int, connection: ConnectionInfo) -> MakePendingRequest | None:
        """Returns what makes the exchange of a client that some quota applies to; None for the others."""


class Route(Generic[B]):
    """One version of one API: from a frame to the handler. Made at its first request.

    Keeps the counters behind `/metrics`: requests and their bytes, how long they took until they were
    answered or parked (`local_s`), how long the parked ones then waited (`remote_s`), and how many of the answered ones
    took so long in all: those of `answered_in[n]` less than 2 to the power of n µs, and not less than half of that.
    """

    __slots__ = (
        "answered_in",
        "api_key",
        "call",
        "encode",
        "fast_path",
        "has_tags",
        "is_sliced",
        "keeps_frame",
        "key",
        "local_s",
        "read",
        "remote_s",
        "request_bytes",
        "requests",
        "throttled_ms",
        "version",
        "waits_for_others",
    )

    def __init__(self, api_key: ApiKey, version: int, served: ServedApi, call: HandlerCall[B]) -> None:
        self.api_key = api_key
        self.key = api_key.value
        self.version = version
        self.call = call
        self.keeps_frame = served.keeps_frame
        self.is_sliced = served.is_sliced
        self.waits_for_others = served.waits_for_others
        self.has_tags = request_header_version(self.key, version) == 2
        self.requests = self.request_bytes = 0
        self.throttled_ms = 0  # what clients were told
        self.fast_path: FastPath | None = None
        self.local_s = self.remote_s = 0.0
        self.answered_in = [0] * MOST_BITS
        if served.serves(version):
            self.read = reader(request_class(self.key), version)
            self.encode = response_writer(self.key, response_class(self.key), version)
        else:  # ApiVersions in a version of the future
            self.read = _unread
            self.encode = response_writer(self.key, response_class(self.key), 0)


class PendingRequest(RequestContext, Generic[B]):
    """A request whose answer is not there yet, with what it takes to give it."""

    __slots__ = ("_answer", "_dispatcher", "_request", "_route", "deferred", "parked_s", "size_bytes", "started_s")

    deferred: Deferred[Message | NoResponse]
    started_s: float  # when it came; of the counter that `Route.local_s` sums up
    parked_s: float

    def __init__(
        self,
        dispatcher: Dispatcher[B],
        route: Route[B],
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
        connection: ConnectionInfo,
        size_bytes: int,
    ) -> None:
        self.api_key = route.api_key
        self.api_version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.now_ms = now_ms
        self.connection = connection
        self.authorizer = dispatcher.authorizer
        self.size_bytes = size_bytes  # of the frame
        self._dispatcher = dispatcher
        self._route = route
        self._answer: list[Chunk] | None = None  # of a long request or answer, as soon as it is encoded

    @property
    def overlapping_key(self) -> int | None:
        """The API key of the requests that need not wait for this answer."""
        return self._route.key if self.deferred.overlaps else None

    @property
    def waits_for_others(self) -> bool:
        return self._route.waits_for_others

    @property
    def is_done(self) -> bool:
        return self.deferred.is_done

    def when_done(self, action: Callable[[object], None]) -> None:
        self.deferred.when_done(action)

    def abandon(self) -> None:
        self.deferred.abandon()

    def chunks(self) -> list[Chunk]:
        """The answer in bytes, once `deferred` is done; empty where there is none. Raises CloseConnection."""
        route, now_s = self._route, perf_counter()
        route.remote_s += now_s - self.parked_s
        route.answered_in[int((now_s - self.started_s) * 1e6).bit_length()] += 1
        if self._answer is not None:
            return self._answer
        try:
            answer = self.deferred.outcome()
        except CloseConnection:
            raise
        except Exception as error:
            answer = self._dispatcher.error_answer(error, self._request, self)
        return self._encoded(answer)

    def begin(self, frame: Buffer, position: int) -> list[Chunk] | PendingRequest[B]:
        """The answer, or this, when it is parked. Raises MalformedMessage, CloseConnection."""
        route, workers = self._route, self._dispatcher.workers
        is_long = self.size_bytes > LONG_REQUEST_BYTES
        is_long = is_long and (not route.keeps_frame or has_many_partitions(frame, position, route.version))
        if is_long and workers is not None:
            self._read_long(frame if route.keeps_frame else bytes(frame), position, workers)
            return self
        self._request = route.read(frame, position)[0]
        answer = self._called()
        if not isinstance(answer, Deferred):
            return self._encoded(answer)
        if not route.is_sliced or workers is None:
            self.deferred = answer
            return self
        self.deferred = Deferred()  # what took several slices is as long to encode
        self.deferred.on_disconnect(answer.abandon)
        answer.when_done(self._long_answered)
        return self

    def _called(self) -> Message | NoResponse | Deferred[Any]:
        """Calls the handler; the answer says so if it fails."""
        try:
            return self._call()
        except Exception as error:
            return self._dispatcher.error_answer(error, self._request, self)

    def _call(self) -> Message | NoResponse | Deferred[Any]:
        answer = self._route.call(self._request, self, self._dispatcher.broker)
        if isinstance(answer, (Message, Deferred)) or answer is NO_RESPONSE:
            return answer
        return started(answer)

    # A long request: worker, loop, worker, loop. A long answer: loop, worker, loop.

    def _read_long(self, frame: Buffer, position: int, workers: Workers) -> None:
        frames = [frame]  # empty when the client has gone, so that what waits for a thread holds no memory
        self.deferred = Deferred()
        if not self._route.keeps_frame:  # a Produce may ask for no answer, and its client need not wait
            self.deferred.on_disconnect(frames.clear)
        decode = partial(workers.run, partial(read_long, self._route.read, frames, position))
        rotation().decode(self.size_bytes, decode, self._long_read)

    def _long_read(self, read: JobResult[tuple[Message, int] | None]) -> None:
        try:
            found = read.result()
        except MalformedMessage as malformed:
            self.deferred.fail(CloseConnection(str(malformed)))
            return
        if found is None:
            return
        try:
            self._request, entries = found
            check_entries(entries, is_sliced=self._route.is_sliced)
            answer = self._call()
        except Exception as error:
            self._refuse_long(error)
            return
        if isinstance(answer, Deferred):
            self.deferred.on_disconnect(answer.abandon)
            answer.when_done(self._long_answered)
        else:
            self._encode_long(answer)

    def _long_answered(self, answered: Deferred[Any]) -> None:
        try:
            answer = answered.outcome()
        except Exception as error:
            self._refuse_long(error)
        else:
            self._encode_long(answer)

    def _refuse_long(self, error: Exception) -> None:
        """The answer may name each entry, so it is made in a thread as well."""
        from odradek.broker.api.error_replies import error_answer

        workers, request = self._dispatcher.workers, self._request
        assert workers is not None, "it was read by one"
        if isinstance(error, CloseConnection):
            self.deferred.fail(error)
            return
        self._dispatcher.note(error, request, self)
        workers.run(partial(error_answer, error, request, self), lambda made: self._encode_long(made.result()))

    def _encode_long(self, answer: Message | NoResponse) -> None:
        workers = self._dispatcher.workers
        assert workers is not None, "it was read by one"
        if answer is NO_RESPONSE:
            self.deferred.resolve(answer)
            return
        self._settle(answer)
        workers.run(lambda: self._bytes_of(answer), self._long_encoded)

    def _long_encoded(self, encoded: JobResult[list[Chunk]]) -> None:
        self._answer = encoded.result()
        self.deferred.resolve(NO_RESPONSE)

    def _settle(self, answer: Message) -> None:
        """Does on the loop what belongs to an answer besides its bytes."""

    def refuse(self, frame: Buffer, position: int, error: KafkaError) -> list[Chunk]:
        """The answer to a request that is not handled. Raises MalformedMessage."""
        self._request = self._route.read(frame, position)[0]
        return self._encoded(self._dispatcher.error_answer(error, self._request, self))

    def _encoded(self, answer: Message | NoResponse) -> list[Chunk]:
        return [] if answer is NO_RESPONSE else self._bytes_of(answer)

    def _bytes_of(self, answer: Message) -> list[Chunk]:
        encode = self._route.encode
        try:
            return encode(self.correlation_id, answer)
        except Exception as error:
            return encode(self.correlation_id, self._dispatcher.error_answer(error, self._request, self))


class Dispatcher(Generic[B]):
    """The way from a frame to its answer.

    broker        what handlers get
    handler_of    finds the handler of an API at its first request, so that starting up does not import them all
    fast_path_of  finds the fast path of a route; None where it has none
    """

    def __init__(
        self,
        broker: B,
        clock: Clock,
        handler_of: Callable[[ApiKey], HandlerCall[B]],
        *,
        fast_path_of: Callable[[Route[B], Dispatcher[B]], FastPath | None] | None = None,
        served: Mapping[ApiKey, ServedApi] = SERVED,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.broker = broker
        self.authorizer = authorizer if authorizer is not None else AllowAll()
        self.now_ms = clock.now_ms
        self.workers: Workers | None = None  # None: long requests are decoded on the loop
        self.throttling: MeteredRequests | None = None  # None while no quota of clients is configured
        self.took_long: Callable[[ApiKey, float], None] = lambda api_key, time_s: None  # told of requests over LONG_S
        self.errors: dict[tuple[ApiKey, ErrorCode], int] = {}  # how often a whole request was refused, and why
        self._handler_of = handler_of
        self._fast_path_of = fast_path_of
        self._served = by_number(served)
        self._routes: dict[int, Route[B]] = {}  # by API key and version, as they begin a request together

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | Parked:
        """Handle one request. A read-only frame may be overwritten when this has returned; another one belongs to the
        request. Raises MalformedMessage or CloseConnection where Kafka hangs up."""
        started_s = perf_counter()
        size_bytes = len(frame)
        if size_bytes < REQUEST_START.size:
            raise MalformedMessage(f"a request of {size_bytes} bytes")
        kind, correlation_id, client_id_size = REQUEST_START.unpack_from(frame)
        route = self._routes.get(kind) or self.find_route(frame, kind)
        reply: list[Chunk] | Parked
        fast_path = route.fast_path
        make: MakePendingRequest = PendingRequest
        if self.throttling is not None:
            metered = self.throttling.metered(frame, client_id_size, connection)
            if metered is not None:
                fast_path, make = None, metered
        quick = fast_path.begin(frame, correlation_id, client_id_size, connection) if fast_path is not None else None
        if quick is not None:
            quick.started_s = started_s
            quick.parked_s = ended_s = perf_counter()
            reply = quick
        else:
            if route.keeps_frame and frame.readonly:
                frame = memoryview(bytearray(frame))
            client_id, position = read_client_id(frame, client_id_size, route.has_tags)
            exchange = make(self, route, correlation_id, client_id, self.now_ms(), connection, size_bytes)
            reply = exchange.begin(frame, position)
            exchange.started_s = started_s
            exchange.parked_s = ended_s = perf_counter()
            if isinstance(reply, list):
                route.answered_in[int((ended_s - started_s) * 1e6).bit_length()] += 1
        route.requests += 1
        route.request_bytes += size_bytes
        took_s = ended_s - started_s
        route.local_s += took_s
        if took_s >= LONG_S:
            self.took_long(route.api_key, took_s)
        return reply

    logins = None  # nobody logs in without SASL

    def connected(self, connection: ConnectionInfo) -> None:
        """Nothing to do: who a client of such a listener is was known when it connected."""

    def too_long(self, reason: str, connection: ConnectionInfo) -> Parked | None:
        return None

    def refusal(self, frame: Buffer, connection: ConnectionInfo, code: ErrorCode) -> list[Chunk]:
        """The answer that says `code` for a whole request, which is not handled. Raises MalformedMessage."""
        if len(frame) < REQUEST_START.size:
            raise MalformedMessage(f"a request of {len(frame)} bytes")
        kind, correlation_id, client_id_size = REQUEST_START.unpack_from(frame)
        route = self._routes.get(kind) or self.find_route(frame, kind)
        client_id, position = read_client_id(frame, client_id_size, route.has_tags)
        exchange = PendingRequest(self, route, correlation_id, client_id, self.now_ms(), connection, len(frame))
        return exchange.refuse(frame, position, KafkaError(code))

    def serves(self, number: int, version: int) -> bool:
        """Tells whether requests of this API key and version reach a handler."""
        return number in self._served and self._served[number][1].serves(version)

    @property
    def routes(self) -> Iterable[Route[B]]:
        """Routes that requests have used so far, by API and version."""
        return self._routes.values()

    def find_route(self, frame: Buffer, kind: int) -> Route[B]:
        number, version = KEY_AND_VERSION.unpack_from(frame)
        api_key, served = self._served.get(number, (None, None))
        if api_key is None or served is None:
            raise MalformedMessage(f"it asked for API key {number}, which is not served")
        if served.serves(version):
            route = Route(api_key, version, served, self._handler_of(api_key))
            if self._fast_path_of is not None:
                route.fast_path = self._fast_path_of(route, self)
            self._routes[kind] = route
            return route
        if api_key is not ApiKey.API_VERSIONS:
            raise MalformedMessage(f"it asked for {api_key.name} v{version}, which is not served")
        refuse: HandlerCall[B] = partial(_refuse_api_versions, served)
        return Route(api_key, version, served, refuse)  # not kept: there are too many such versions

    def error_answer(self, error: Exception, request: Message, context: RequestContext) -> Message:
        """Builds what the client is told when its whole request failed."""
        from odradek.broker.api.error_replies import error_answer  # here: most brokers live long without it

        self.note(error, request, context)
        return error_answer(error, request, context)

    def note(self, error: Exception, request: Message, context: RequestContext) -> None:
        """Counts why a whole request failed, and logs it if it is a bug. Raises CloseConnection."""
        from odradek.broker.api.error_replies import code_of

        match error:
            case CloseConnection():
                raise error
            case KafkaError():
                self.count(context.api_key, code_of(error, context))
            case _:
                log.error("bug while answering %r with %s", context, quoted(request), exc_info=error)
                self.count(context.api_key, ErrorCode.UNKNOWN_SERVER_ERROR)

    def count(self, api_key: ApiKey, code: ErrorCode) -> None:
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + 1


def _unread(data: Buffer, position: int) -> tuple[None, int]:
    return None, position


def _refuse_api_versions(served: ServedApi, request: None, context: RequestContext, broker: object) -> Message:
    """KIP-511: a client that speaks a newer ApiVersions learns from a version 0 body what to ask with."""
    from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse

    row = ApiVersion(api_key=ApiKey.API_VERSIONS.value, min_version=served.min_version, max_version=served.max_version)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.value, api_keys=[row])
