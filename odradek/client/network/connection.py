"""One connection to one broker. Requests are sent in call order. Responses are matched to requests by correlation
id."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import odradek
from odradek.client.common.errors import AuthenticationFailed, ClientError, RetriableError
from odradek.client.metrics.client_metrics import ClientMetrics, NodeMeter
from odradek.client.network.backoff import Throttle
from odradek.client.security.settings import NO_SECURITY, Security
from odradek.client.security.tls import tls_failure
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode_chunks, is_flexible
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.frames import LENGTH, LENGTH_BYTES, REQUEST_START, response_has_tags
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.primitives import skip_tags
from odradek.protocol.struct import Buffer, Message

M = TypeVar("M", bound=Message)

MAX_RESPONSE_BYTES = 1 << 30  # less than "HTTP", the first bytes of a web server's response, read as a length
SHARED_BUFFER_BYTES = 1 << 16
TLS_RECORDS = frozenset({0x1503, 0x1603})  # the first bytes of a TLS alert or handshake, if read as a response's length
HTTP = int.from_bytes(b"HTTP", "big")
LARGEST_CORRELATION_ID = 2**31 - 1
ERROR_CODE_AT = 4  # position in an ApiVersions response of any version, after the correlation id
VERSION_OF_THE_FIRST_CLIENTS = 0
FIRST_VERSION_WITH_SOFTWARE = 3  # first version of ApiVersions that contains the name of the client's software
# A session is renewed after a random fraction of its lifetime within this range, as in Kafka's clients.
RENEWED_AFTER = (0.85, 0.95)
GREETINGS = 2  # number of ApiVersions responses that a broker may send before it closes an unauthenticated connection


@dataclass(frozen=True, slots=True)
class ServedVersions:
    """The request versions that a broker supports, and its features."""

    served: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # oldest and newest version, keyed by API key
    features_epoch: int = -1
    features: Mapping[str, int] = field(default_factory=dict)  # the finalized levels

    @classmethod
    def of(cls, answer: ApiVersionsResponse) -> ServedVersions:
        return cls(
            {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys},
            answer.finalized_features_epoch,
            {feature.name: feature.max_version_level for feature in answer.finalized_features},
        )

    def has_feature(self, name: str) -> bool:
        """Returns whether the feature is finalized above level 0."""
        return self.features.get(name, 0) > 0

    def newest_version(self, request: type[Message], max_version: int | None = None) -> int | None:
        """Returns the newest version, up to `max_version`, that both sides support, or None if there is no such
        version."""
        oldest, newest = self.served.get(request.API_KEY, (0, -1))
        version = min(newest, request.MAX_VERSION if max_version is None else min(max_version, request.MAX_VERSION))
        return version if version >= max(oldest, request.MIN_VERSION) else None


def _of_this_software() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="odradek", client_software_version=odradek.__version__)


class ExpectedBroker(NamedTuple):
    """The broker that a connection is expected to reach, according to the cluster's metadata (KIP-1242)."""

    cluster_id: str
    node_id: int


class WaitingRequest:
    """A request that has not been answered yet."""

    __slots__ = ("answer", "has_tags", "reply", "sent_at_s", "timeout", "version")

    def __init__(
        self,
        answer: type[Message],
        version: int,
        reply: asyncio.Future[Any],
        timeout: asyncio.TimerHandle,
        sent_at_s: float,
    ) -> None:
        """Creates a waiting request. `sent_at_s` is the time that the connection's meter returned."""
        self.sent_at_s = sent_at_s
        self.answer = answer
        self.version = version
        self.has_tags = response_has_tags(answer.API_KEY, answer, version)
        self.reply = reply
        self.timeout = timeout


class Connection(asyncio.BufferedProtocol):
    """A connection to a broker.

    If the connection is lost, for any reason, every waiting request fails with a RetriableError; the broker may or may
    not have processed it. A request that is not answered in time closes the connection, because all later responses
    would have to wait for its response.
    """

    def __init__(
        self,
        name: str,
        *,
        client_id: str,
        request_timeout_ms: float,
        meter: NodeMeter,
        expected: ExpectedBroker | None = None,
    ) -> None:
        self.name = name
        self._expected = expected
        self._meter = meter
        self._sent_at_s = 0.0  # time of the last request
        self.versions = ServedVersions()
        self._client_id = client_id.encode()
        self._timeout_s = request_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, WaitingRequest] = {}
        self._correlation_id = 0
        self._loss: ClientError | None = None
        self._closed_future = self._loop.create_future()
        # Writes requests either to the transport or, during a login or a throttle, to the list of held requests.
        self._writelines: Callable[[Iterable[Buffer]], None] = _not_connected
        self._held_requests: list[Buffer] = []
        self._is_logging_in = False
        self._throttle = Throttle()
        self._throttle_ends: asyncio.TimerHandle | None = None
        self._security = NO_SECURITY
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        # Received bytes go into the shared buffer. A frame that does not fit gets a separate buffer.
        self._shared = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self._filled = 0
        self._frame: bytearray | None = None
        self._frame_filled = 0

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        request_timeout_ms: float,
        security: Security = NO_SECURITY,
        meter: NodeMeter | None = None,
        expected: ExpectedBroker | None = None,
    ) -> Connection:
        """Opens a connection, negotiates versions, and logs in. Raises RetriableError, AuthenticationFailed, or
        ClientError if the broker has no version in common with the client.

        meter   measures requests and responses; if left out, measurements are discarded
        """
        name = f"{host}:{port}"
        meter = meter or ClientMetrics("client", client_id).node(host, port)
        connection = cls(
            name, client_id=client_id, request_timeout_ms=request_timeout_ms, meter=meter, expected=expected
        )
        connection._security = security
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(request_timeout_ms / 1000):
                await loop.create_connection(lambda: connection, host, port, ssl=security.tls_context)
        except TimeoutError:
            raise RetriableError(f"no connection to {name} could be opened within {request_timeout_ms:g} ms") from None
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if security.tls_context is None:
                raise _unreachable(name, error) from None
            raise tls_failure(name, error) from None
        except OSError as error:
            raise _unreachable(name, error) from None
        try:
            await connection._negotiate_versions()
            if security.has_sasl:
                await connection._log_in()
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def requests_in_flight(self) -> int:
        """The number of unanswered requests."""
        return len(self._pending)

    @property
    def is_open(self) -> bool:
        return self._loss is None and self._transport is not None

    def close(self) -> None:
        self._fail_requests(RetriableError(f"the connection to {self.name} was closed"))

    async def closed(self) -> None:
        """Waits until the transport is closed."""
        if self._transport is not None:
            await asyncio.shield(self._closed_future)

    def version(self, request: type[Message], max_version: int | None = None, min_version: int = 0) -> int:
        """Returns the version to use for a request on this connection. Raises ClientError (UNSUPPORTED_VERSION)."""
        version = self.versions.newest_version(request, max_version)
        if version is None or version < min_version:
            name, at_least = ApiKey(request.API_KEY).name, f" from {min_version} on" if min_version else ""
            raise ClientError(
                f"{self.name} supports no version of {name}{at_least} that this client supports",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return version

    def ask(
        self,
        request: Message,
        answer: type[M],
        *,
        max_version: int | None = None,
        min_version: int = 0,
        timeout_ms: float | None = None,
    ) -> asyncio.Future[M]:
        """Sends a request in the newest common version and returns a future for the response. Requests are sent in call
        order.

        The future fails with a RetriableError if the connection is lost or no response arrives in time.

        Raises RetriableError if the connection is already lost, and ClientError (UNSUPPORTED_VERSION) if there is no
        common version.
        """
        return self.send(request, self.version(type(request), max_version, min_version), answer, timeout_ms=timeout_ms)

    def send(
        self,
        request: Message,
        version: int,
        answer: type[M],
        *,
        timeout_ms: float | None = None,
        is_login: bool = False,
    ) -> asyncio.Future[M]:
        """Like `ask`, but with a given version. The timeout begins when the node's throttle time has passed.

        is_login   send this request before the requests being held back
        """
        correlation_id = self._write(request, version, is_login)
        reply: asyncio.Future[M] = self._loop.create_future()
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        held_s = self._throttle.left_s(self._loop.time())
        timeout = self._loop.call_later(held_s + timeout_s, self._on_timeout, type(request), timeout_s)
        self._pending[correlation_id] = WaitingRequest(answer, version, reply, timeout, self._sent_at_s)
        return reply

    def send_unanswered(self, request: Message, version: int) -> None:
        """Sends a Produce request with acks=0. Brokers do not respond to it."""
        self._write(request, version)

    def _write(self, request: Message, version: int, is_login: bool = False) -> int:
        if self._loss is not None:
            raise self._loss
        assert self._transport is not None
        self._correlation_id = correlation_id = (self._correlation_id + 1) & LARGEST_CORRELATION_ID
        head = bytearray(LENGTH_BYTES)
        head += REQUEST_START.pack(request.API_KEY, version, correlation_id, len(self._client_id))
        head += self._client_id
        if is_flexible(type(request), version):
            head.append(0)  # no tagged fields
        chunks: list[Buffer] = [head, *encode_chunks(request, version)]
        size_bytes = sum(map(len, chunks))
        LENGTH.pack_into(head, 0, size_bytes - LENGTH_BYTES)
        self._sent_at_s = self._meter.record_request(request.API_KEY, size_bytes)
        if is_login:
            self._transport.writelines(chunks)
        else:
            self._writelines(chunks)
        return correlation_id

    async def refresh_versions(self) -> None:
        """Requests the versions again, because raising a feature level may add APIs to a running broker. Raises
        RetriableError."""
        await self._negotiate_versions()

    async def _negotiate_versions(self) -> None:
        """Requests the versions. If the broker does not support the newest version of ApiVersions, retries with the
        version that the refusal names, or with the oldest version if it names none."""
        request = _of_this_software()
        if self._expected is not None:
            request.cluster_id, request.node_id = self._expected
        answer = await self.send(request, ApiVersionsRequest.MAX_VERSION, ApiVersionsResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION.value:
            versions = [api.max_version for api in answer.api_keys if api.api_key == ApiVersionsRequest.API_KEY]
            version = min([*versions, ApiVersionsRequest.MAX_VERSION]) if versions else VERSION_OF_THE_FIRST_CLIENTS
            request = _of_this_software() if version >= FIRST_VERSION_WITH_SOFTWARE else ApiVersionsRequest()
            answer = await self.send(request, version, ApiVersionsResponse)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED.value:
            raise RetriableError(
                f"{self.name} is no longer the broker {self._expected}", ErrorCode.REBOOTSTRAP_REQUIRED
            )
        if answer.error_code != 0:
            raise RetriableError(f"{self.name} does not report its versions: error {answer.error_code}")
        self.versions = ServedVersions.of(answer)

    # Login and session renewal.

    def hold_requests(self) -> None:
        """Holds requests back until `release_requests` is called, because a broker accepts no other requests during a
        login."""
        self._is_logging_in = True
        self._writelines = self._held_requests.extend

    def release_requests(self) -> None:
        self._is_logging_in = False
        self._send_held()

    def _send_held(self) -> None:
        """Sends the held requests, unless a login or a throttle is still in progress."""
        if self._is_logging_in or self._throttle_ends is not None or self._loss is not None:
            return
        assert self._transport is not None
        self._writelines = self._transport.writelines
        held_requests, self._held_requests = self._held_requests, []
        if held_requests:
            self._writelines(held_requests)

    def _apply_throttle(self, request: WaitingRequest, answer: Message) -> None:
        """Holds requests back for the throttle time of a response (KIP-219), even if no caller is still waiting for
        that response."""
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if self._throttle.note_throttle(answer.API_KEY, request.version, throttle_ms, self._loop.time()):
            self._writelines = self._held_requests.extend
            if self._throttle_ends is None:
                self._throttle_ends = self._loop.call_at(self._throttle.until_s, self._end_throttle_if_over)

    def _end_throttle_if_over(self) -> None:
        """Ends the throttle, unless a later response has extended it."""
        self._throttle_ends = None
        if self._throttle.left_s(self._loop.time()) > 0:
            self._throttle_ends = self._loop.call_at(self._throttle.until_s, self._end_throttle_if_over)
        self._send_held()

    async def _log_in(self) -> None:
        from odradek.client.network.login import log_in

        lifetime_ms = await log_in(self, self._security)
        if lifetime_ms > 0 and self._loss is None:
            after_s = lifetime_ms / 1000 * random.uniform(*RENEWED_AFTER)
            self._renewal = self._loop.call_later(after_s, self._start_renewal)

    def _start_renewal(self) -> None:
        # When the throttle ends, renew the session before the waiting requests are sent, because the session may have
        # expired by then.
        if self._throttle_ends is not None:
            self.hold_requests()
            self._renewal = self._loop.call_at(self._throttle.until_s, self._start_renewal)
            return
        self._renewing = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        """Renews the session. If the renewal fails, closes the connection; opening the next connection then raises the
        actual error."""
        try:
            await self._log_in()
        except ClientError as error:
            self._fail_requests(RetriableError(f"the session at {self.name} could not be renewed: {error}", error.code))

    def _on_timeout(self, request: type[Message], timeout_s: float) -> None:
        name = ApiKey(request.API_KEY).name
        message = f"{self.name} did not answer {name} in {timeout_s * 1000:g} ms"
        self._fail_requests(RetriableError(message, ErrorCode.REQUEST_TIMED_OUT))

    def _fail_requests(self, why: ClientError) -> None:
        if self._loss is not None:
            return
        self._loss = why
        for timer in (self._renewal, self._throttle_ends):
            if timer is not None:
                timer.cancel()
        if self._renewing is not None and self._renewing is not asyncio.current_task(self._loop):
            self._renewing.cancel()
        if self._transport is not None:
            self._meter.closed_connections.record()
            self._transport.abort()
        waiting, self._pending = self._pending, {}
        for request in waiting.values():
            request.timeout.cancel()
            if not request.reply.done():
                kind = AuthenticationFailed if isinstance(why, AuthenticationFailed) else RetriableError
                request.reply.set_exception(kind(str(why), why.code))

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Cast because uvloop's transport does not inherit from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._writelines = self._transport.writelines
        if self._loss is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail_requests(self._loss_reason(error))
        if not self._closed_future.done():
            self._closed_future.set_result(None)

    def _loss_reason(self, error: Exception | None) -> ClientError:
        """Returns the error for a lost connection. A broker that requires a login closes connections that have not
        logged in, often without sending an error."""
        if isinstance(error, ssl.SSLError) and isinstance(
            refused := tls_failure(self.name, error), AuthenticationFailed
        ):
            return refused
        reason = f": {error}" if error is not None else ""
        if self._pending and self._correlation_id - len(self._pending) < GREETINGS:
            reason += f": its listener may require TLS or SASL (security_protocol={self._security.security_protocol})"
        return RetriableError(f"the connection to {self.name} was lost{reason}", ErrorCode.NETWORK_EXCEPTION)

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return self._shared[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._frame is None:
                self._filled += nbytes
                self._take_frames()
            else:
                self._frame_filled += nbytes
                if self._frame_filled == len(self._frame):
                    frame, self._frame = self._frame, None
                    self._handle_response(frame)
        except (MalformedMessage, IndexError) as error:
            self._fail_requests(RetriableError(f"{self.name} does not speak Kafka's protocol: {error}"))

    def _take_frames(self) -> None:
        """Processes all complete frames in the shared buffer. If a frame does not fit into the buffer, moves the start
        of that frame to a separate buffer."""
        shared, position, filled = self._shared, 0, self._filled
        while filled - position >= LENGTH_BYTES:
            (size,) = LENGTH.unpack_from(shared, position)
            if size >> 16 in TLS_RECORDS and not self.versions.served:
                raise MalformedMessage("its listener requires TLS. Set security_protocol to SSL or SASL_SSL")
            if size == HTTP and not self.versions.served:
                raise MalformedMessage("the port serves HTTP")
            if not LENGTH_BYTES <= size <= MAX_RESPONSE_BYTES:
                raise MalformedMessage(f"it announced an answer of {size} bytes, which is not plausible")
            start = position + LENGTH_BYTES
            end = start + size
            if end > filled:
                if size > SHARED_BUFFER_BYTES - LENGTH_BYTES:
                    self._frame = bytearray(size)
                    self._frame[: filled - start] = shared[start:filled]
                    self._frame_filled = filled - start
                    position = filled
                break
            self._handle_response(bytearray(shared[start:end]))
            position = end
        left = filled - position
        if position and left:
            shared[:left] = bytes(shared[position:filled])
        self._filled = left

    def _handle_response(self, frame: bytearray) -> None:
        """Processes a response. `frame` has no length prefix, and must not be modified afterwards, because the response
        refers to it."""
        (correlation_id,) = LENGTH.unpack_from(frame)
        request = self._pending.pop(correlation_id, None)
        if request is None:
            raise MalformedMessage(f"it answered request {correlation_id}, which was not sent")
        request.timeout.cancel()
        try:
            answer = self._decode(request, frame)
        except (MalformedMessage, IndexError) as error:
            if not request.reply.done():
                request.reply.set_exception(RetriableError(f"{self.name} does not speak Kafka's protocol: {error}"))
            raise
        self._meter.record_response(
            answer.API_KEY, request.sent_at_s, len(frame) + LENGTH_BYTES, getattr(answer, "throttle_time_ms", 0)
        )
        self._apply_throttle(request, answer)
        if not request.reply.done():  # otherwise no caller is still waiting for the response
            request.reply.set_result(answer)

    def _decode(self, request: WaitingRequest, frame: bytearray) -> Message:
        position, version = LENGTH_BYTES, request.version
        if request.answer is ApiVersionsResponse and frame[ERROR_CODE_AT : ERROR_CODE_AT + 2] == _NOT_OUR_VERSION:
            version = VERSION_OF_THE_FIRST_CLIENTS
        if request.has_tags:
            position = skip_tags(frame, position + 1, frame[position])
        return decode(request.answer, version, frame, position)


_NOT_OUR_VERSION = ErrorCode.UNSUPPORTED_VERSION.value.to_bytes(2, "big")


def _unreachable(name: str, error: OSError) -> RetriableError:
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
    return RetriableError(f"no broker can be reached at {name}: {reason}")


def _not_connected(_chunks: Iterable[Buffer]) -> None:
    raise RetriableError("no connection has been opened yet")
