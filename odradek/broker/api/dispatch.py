"""Dispatches requests: passes each frame to the handler of its API and encodes the handler's response.

A handler is a function in `odradek/broker/handlers` with the API's name. Handlers for the same subject share a file.
For example:

    def metadata(request: MetadataRequest, context: RequestContext, broker: Broker) -> MetadataResponse

A handler returns the response, a `Deferred` that resolves to the response (the request is then parked), a coroutine, or
`NO_RESPONSE`. A coroutine is started here and runs immediately up to its first wait, without a task of the event loop
(`odradek.broker.runtime.waiting`). If the whole request fails, the handler raises `KafkaError`, and
`odradek.broker.api.error_replies` builds the response.
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
from odradek.broker.runtime.loop_watch import LONG_S
from odradek.broker.runtime.replies import NO_RESPONSE, CloseConnection, NoResponse, ParkedRequest
from odradek.broker.runtime.slices import rotation
from odradek.broker.runtime.waiting import Deferred, start_coroutine
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

MAX_BITS: Final = 64  # number of histogram buckets, one for each possible bit length of a time in µs
REQUEST_START: Final = Packing(">Iih")  # API key and version as a single number, correlation id, size of the client id

B = TypeVar("B")  # the type of the handlers' `broker` parameter
Answer: TypeAlias = Message | NoResponse | Deferred[Any] | Coroutine[Any, Any, Message | NoResponse]
HandlerCall: TypeAlias = Callable[[Any, RequestContext, B], Answer]


class TimedReply(ParkedRequest, Protocol):
    """A parked request that adds its times to the counters of its `Route` when it is answered."""

    started_s: float
    parked_s: float


class FastPath(Protocol):
    """A faster way to handle ordinary requests of one API version. It never refuses a request (docs/adr/0012)."""

    def start_request(
        self, frame: memoryview, correlation_id: int, client_id_size: int, connection: ConnectionInfo
    ) -> TimedReply | None:
        """Starts handling a request. Returns None, without having changed anything, if `PendingRequest` must handle the
        request."""


class MakePendingRequest(Protocol):
    """The class `PendingRequest`, or a subclass with the same constructor parameters."""

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
    """Selects the requests whose usage is measured; implemented by `odradek.broker.api.metered.Throttling`."""

    def metered(self, frame: Buffer, client_id_size: int, connection: ConnectionInfo) -> MakePendingRequest | None:
        """Returns the factory of metered requests if a quota applies to the client, otherwise None."""


class Route(Generic[B]):
    """The route from the frames of one API version to their handler. Created by the first request.

    Contains the counters for `/metrics`: the number of requests and their total size in bytes; the time until requests
    were answered or parked (`local_s`); the time that parked requests then waited (`remote_s`); and a histogram of the
    total times. `answered_in[n]` counts responses that took at least 2^(n-1) and less than 2^n µs.
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
        self.throttled_ms = 0  # total of the throttle times in responses
        self.fast_path: FastPath | None = None
        self.local_s = self.remote_s = 0.0
        self.answered_in = [0] * MAX_BITS
        if served.serves(version):
            self.read = reader(request_class(self.key), version)
            self.encode = response_writer(self.key, response_class(self.key), version)
        else:  # an ApiVersions request with an unknown version
            self.read = _unread
            self.encode = response_writer(self.key, response_class(self.key), 0)


class PendingRequest(RequestContext, Generic[B]):
    """A request that has not been answered yet, with everything needed to answer it."""

    __slots__ = ("_chunks", "_dispatcher", "_request", "_route", "deferred", "parked_s", "size_bytes", "started_s")

    deferred: Deferred[Message | NoResponse]
    started_s: float  # arrival time of the request, from `perf_counter`
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
        self.size_bytes = size_bytes  # size of the frame
        self._dispatcher = dispatcher
        self._route = route
        self._chunks: list[Chunk] | None = None  # encoded response, if the request or the response is long

    @property
    def overlapping_key(self) -> int | None:
        """The API key of requests that need not wait for this response, or None if all requests must wait for it."""
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
        """Encodes the response once `deferred` is done. Returns an empty list if the request has no response. Raises
        CloseConnection if the request failed with that error."""
        route, now_s = self._route, perf_counter()
        route.remote_s += now_s - self.parked_s
        route.answered_in[int((now_s - self.started_s) * 1e6).bit_length()] += 1
        if self._chunks is not None:
            return self._chunks
        try:
            answer = self.deferred.outcome()
        except CloseConnection:
            raise
        except Exception as error:
            answer = self._dispatcher.error_answer(error, self._request, self)
        return self._encode(answer)

    def handle(self, frame: Buffer, position: int) -> list[Chunk] | PendingRequest[B]:
        """Handles the request. Returns the encoded response, or this object if the request is parked. Raises
        MalformedMessage or CloseConnection."""
        route, workers = self._route, self._dispatcher.workers
        is_long = self.size_bytes > LONG_REQUEST_BYTES
        is_long = is_long and (not route.keeps_frame or has_many_partitions(frame, position, route.version))
        if is_long and workers is not None:
            self._read_long(frame if route.keeps_frame else bytes(frame), position, workers)
            return self
        self._request = route.read(frame, position)[0]
        answer = self._call_or_refuse()
        if not isinstance(answer, Deferred):
            return self._encode(answer)
        if not route.is_sliced or workers is None:
            self.deferred = answer
            return self
        self.deferred = Deferred()  # a response that took several slices to build also takes long to encode
        self.deferred.on_disconnect(answer.abandon)
        answer.when_done(self._long_request_answered)
        return self

    def _call_or_refuse(self) -> Message | NoResponse | Deferred[Any]:
        """Calls the handler. Returns an error response if the handler fails."""
        try:
            return self._call()
        except Exception as error:
            return self._dispatcher.error_answer(error, self._request, self)

    def _call(self) -> Message | NoResponse | Deferred[Any]:
        answer = self._route.call(self._request, self, self._dispatcher.broker)
        if isinstance(answer, (Message, Deferred)) or answer is NO_RESPONSE:
            return answer
        return start_coroutine(answer)

    # A worker decodes a long request, the loop handles it, and a worker encodes the response, which the loop sends. A
    # long response to a short request is built on the loop, encoded in a worker and sent on the loop.

    def _read_long(self, frame: Buffer, position: int, workers: Workers) -> None:
        frames = [frame]  # emptied if the client disconnects, so that a waiting job does not keep the frame in memory
        self.deferred = Deferred()
        if not self._route.keeps_frame:  # a Produce is handled even if its client disconnects, because acks may be 0
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
            answer.when_done(self._long_request_answered)
        else:
            self._encode_long(answer)

    def _long_request_answered(self, answered: Deferred[Any]) -> None:
        try:
            answer = answered.outcome()
        except Exception as error:
            self._refuse_long(error)
        else:
            self._encode_long(answer)

    def _refuse_long(self, error: Exception) -> None:
        """Responds with an error. A thread builds the response, because it may contain every entry in the request."""
        from odradek.broker.api.error_replies import error_answer

        workers, request = self._dispatcher.workers, self._request
        assert workers is not None, "long requests need worker threads"
        if isinstance(error, CloseConnection):
            self.deferred.fail(error)
            return
        self._dispatcher.count_failure(error, request, self)
        workers.run(partial(error_answer, error, request, self), lambda made: self._encode_long(made.result()))

    def _encode_long(self, answer: Message | NoResponse) -> None:
        workers = self._dispatcher.workers
        assert workers is not None, "long requests need worker threads"
        if answer is NO_RESPONSE:
            self.deferred.resolve(answer)
            return
        self._throttle(answer)
        workers.run(lambda: self._bytes_of(answer), self._long_encoded)

    def _long_encoded(self, encoded: JobResult[list[Chunk]]) -> None:
        self._chunks = encoded.result()
        self.deferred.resolve(NO_RESPONSE)

    def _throttle(self, answer: Message) -> None:
        """Does nothing, because no quota applies to this client. `MeteredRequest` overrides this method. Called on the
        loop before the response is encoded."""

    def refuse(self, frame: Buffer, position: int, error: KafkaError) -> list[Chunk]:
        """Returns a response with this error without handling the request. Raises MalformedMessage."""
        self._request = self._route.read(frame, position)[0]
        return self._encode(self._dispatcher.error_answer(error, self._request, self))

    def _encode(self, answer: Message | NoResponse) -> list[Chunk]:
        return [] if answer is NO_RESPONSE else self._bytes_of(answer)

    def _bytes_of(self, answer: Message) -> list[Chunk]:
        encode = self._route.encode
        try:
            return encode(self.correlation_id, answer)
        except Exception as error:
            return encode(self.correlation_id, self._dispatcher.error_answer(error, self._request, self))


class Dispatcher(Generic[B]):
    """Finds the handler for each frame and encodes the handler's response.

    broker        passed to handlers
    handler_of    finds an API's handler on the first request for that API, so that startup does not import all handlers
    fast_path_of  returns a route's fast path, or None if the route has none
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
        self.workers: Workers | None = None  # None if long requests are decoded on the loop
        self.throttling: MeteredRequests | None = None  # None while no client quota is configured
        # Called for requests that took LONG_S or longer.
        self.on_long_request: Callable[[ApiKey, float], None] = lambda api_key, time_s: None
        self.errors: dict[tuple[ApiKey, ErrorCode], int] = {}  # number of refused requests, by API and error code
        self._handler_of = handler_of
        self._fast_path_of = fast_path_of
        self._served = by_number(served)
        self._routes: dict[int, Route[B]] = {}  # keyed by a request's first bytes: the API key and version

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        """Handles one request. A read-only frame may be overwritten after this method returns; any other frame belongs
        to the request. Raises MalformedMessage or CloseConnection if Kafka would close the connection."""
        started_s = perf_counter()
        size_bytes = len(frame)
        if size_bytes < REQUEST_START.size:
            raise MalformedMessage(f"the request is too short: it has only {size_bytes} bytes")
        kind, correlation_id, client_id_size = REQUEST_START.unpack_from(frame)
        route = self._routes.get(kind) or self.find_route(frame, kind)
        reply: list[Chunk] | ParkedRequest
        fast_path = route.fast_path
        make: MakePendingRequest = PendingRequest
        if self.throttling is not None:
            metered = self.throttling.metered(frame, client_id_size, connection)
            if metered is not None:
                fast_path, make = None, metered
        quick = (
            fast_path.start_request(frame, correlation_id, client_id_size, connection)
            if fast_path is not None
            else None
        )
        if quick is not None:
            quick.started_s = started_s
            quick.parked_s = ended_s = perf_counter()
            reply = quick
        else:
            if route.keeps_frame and frame.readonly:
                frame = memoryview(bytearray(frame))
            client_id, position = read_client_id(frame, client_id_size, route.has_tags)
            pending = make(self, route, correlation_id, client_id, self.now_ms(), connection, size_bytes)
            reply = pending.handle(frame, position)
            pending.started_s = started_s
            pending.parked_s = ended_s = perf_counter()
            if isinstance(reply, list):
                route.answered_in[int((ended_s - started_s) * 1e6).bit_length()] += 1
        route.requests += 1
        route.request_bytes += size_bytes
        took_s = ended_s - started_s
        route.local_s += took_s
        if took_s >= LONG_S:
            self.on_long_request(route.api_key, took_s)
        return reply

    # On listeners without SASL, connections pass their frames to the dispatcher. On listeners with SASL, connections
    # pass their frames to `SaslRequests`, which has its own implementation of the next three members.

    logins = None

    def connected(self, connection: ConnectionInfo) -> None:
        """Does nothing, because the client's principal is already set when it connects."""

    def too_long(self, reason: str, connection: ConnectionInfo) -> ParkedRequest | None:
        """Returns None, so that the connection is closed without a response."""
        return None

    def refusal(self, frame: Buffer, connection: ConnectionInfo, code: ErrorCode) -> list[Chunk]:
        """Returns a response with this error code for the whole request, without handling the request. Raises
        MalformedMessage."""
        if len(frame) < REQUEST_START.size:
            raise MalformedMessage(f"the request is too short: it has only {len(frame)} bytes")
        kind, correlation_id, client_id_size = REQUEST_START.unpack_from(frame)
        route = self._routes.get(kind) or self.find_route(frame, kind)
        client_id, position = read_client_id(frame, client_id_size, route.has_tags)
        pending = PendingRequest(self, route, correlation_id, client_id, self.now_ms(), connection, len(frame))
        return pending.refuse(frame, position, KafkaError(code))

    def serves(self, number: int, version: int) -> bool:
        """Returns whether the dispatcher supports this version of the API."""
        return number in self._served and self._served[number][1].serves(version)

    @property
    def routes(self) -> Iterable[Route[B]]:
        """The routes that requests have used so far."""
        return self._routes.values()

    def find_route(self, frame: Buffer, kind: int) -> Route[B]:
        number, version = KEY_AND_VERSION.unpack_from(frame)
        api_key, served = self._served.get(number, (None, None))
        if api_key is None or served is None:
            raise MalformedMessage(f"the client requested API key {number}, which is not supported")
        if served.serves(version):
            route = Route(api_key, version, served, self._handler_of(api_key))
            if self._fast_path_of is not None:
                route.fast_path = self._fast_path_of(route, self)
            self._routes[kind] = route
            return route
        if api_key is not ApiKey.API_VERSIONS:
            raise MalformedMessage(f"the client requested {api_key.name} v{version}, which is not supported")
        refuse: HandlerCall[B] = partial(_refuse_api_versions, served)
        return Route(api_key, version, served, refuse)  # not cached, because there are too many unknown versions

    def error_answer(self, error: Exception, request: Message, context: RequestContext) -> Message:
        """Returns the response to a request that failed as a whole."""
        from odradek.broker.api.error_replies import error_answer  # imported here because most brokers do not need it

        self.count_failure(error, request, context)
        return error_answer(error, request, context)

    def count_failure(self, error: Exception, request: Message, context: RequestContext) -> None:
        """Counts an error that failed an entire request, and logs the error if it is a bug. Re-raises CloseConnection
        instead of counting it."""
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
    """Responds to an ApiVersions request with an unknown version. As KIP-511 requires, the response has version 0 and
    lists the supported versions."""
    from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse

    row = ApiVersion(api_key=ApiKey.API_VERSIONS.value, min_version=served.min_version, max_version=served.max_version)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.value, api_keys=[row])
