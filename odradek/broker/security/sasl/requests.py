"""Authenticates connections to a SASL listener and passes their other requests to the dispatcher.

The response to a failed authentication is delayed by `connection.failed.authentication.delay.ms`, after which the
connection is closed. Listeners without SASL use the dispatcher directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from odradek.broker.network.connection_host import LoginCounts
from odradek.broker.runtime.replies import CloseConnection, ParkedRequest
from odradek.broker.security.sasl.authentication import Answer, Authentication, Failure, HangUp, PassThrough
from odradek.broker.security.sasl.tables import State
from odradek.protocol.errors import ErrorCode
from odradek.protocol.file_slice import Chunk, in_memory

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.runtime.clock import Clock, TimerHandle, Timers
    from odradek.broker.security.sasl.mechanism import Offers
    from odradek.protocol.struct import Buffer


class RequestDispatch(Protocol):
    """Handles requests after authentication. Implemented by `odradek.broker.api.dispatch.Dispatcher`."""

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest: ...

    def serves(self, number: int, version: int) -> bool: ...

    def refusal(self, frame: Buffer, connection: ConnectionInfo, code: ErrorCode) -> list[Chunk]:
        """Returns a response that refuses the whole request with this error code. Raises MalformedMessage."""


class DelayedFailure:
    """A delayed response to a failed authentication. The connection is closed once the response has been sent."""

    overlapping_key = None
    waits_for_others = True  # a stopping broker need not wait for the delay

    def __init__(self, failure: Failure, size_bytes: int, timers: Timers, delay_ms: int) -> None:
        self.size_bytes = size_bytes
        self.is_done = False
        self._failure = failure
        self._on_done: Callable[[object], None] | None = None
        self._timer: TimerHandle = timers.after(delay_ms, self._release)

    def when_done(self, action: Callable[[object], None]) -> None:
        if self.is_done:
            action(self)
        else:
            self._on_done = action

    def abandon(self) -> None:
        self._on_done = None
        self._timer.cancel()

    def chunks(self) -> list[Chunk]:
        raise CloseConnection(f"authentication failed ({self._failure.reason})", self._failure.chunks)

    def _release(self) -> None:
        self.is_done = True
        action, self._on_done = self._on_done, None
        if action is not None:
            action(self)


class SaslRequests:
    """The `FrameReceiver` for the connections of one SASL listener.

    failure_delay_ms   `connection.failed.authentication.delay.ms`
    max_receive_bytes  maximum size of a frame before authentication: `sasl.server.max.receive.size`
    max_request_bytes  maximum size of a frame after authentication
    """

    def __init__(
        self,
        requests: RequestDispatch,
        offers: Callable[[], Offers],
        clock: Clock,
        timers: Timers,
        *,
        steady_clock: Clock,
        failure_delay_ms: int,
        max_receive_bytes: int,
        max_request_bytes: int,
    ) -> None:
        self.logins = LoginCounts()
        self._requests = requests
        self._offers = offers
        self._clock = clock
        self._steady_clock = steady_clock
        self._timers = timers
        self._failure_delay_ms = failure_delay_ms
        self._max_receive_bytes = min(max_receive_bytes, max_request_bytes)
        self._max_request_bytes = max_request_bytes
        self._authentications: dict[int, Authentication] = {}  # by connection

    def connected(self, connection: ConnectionInfo) -> None:
        connection.is_authenticated = False
        connection.max_request_bytes = self._max_receive_bytes
        connection_id = connection.connection_id
        self._authentications[connection_id] = Authentication(self._offers, self._requests.serves)
        connection.when_closed(lambda: self._forget(connection_id))

    def too_long(self, reason: str, connection: ConnectionInfo) -> ParkedRequest | None:
        if connection.is_authenticated:
            return None
        self.logins.failed += 1
        return self._delay_failure(Failure(reason, []), 0)

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        """Handles one frame. Raises MalformedMessage or CloseConnection."""
        authentication = self._authentications[connection.connection_id]
        is_repeated = authentication.is_repeated
        match authentication.receive(frame, self._clock.now_ms(), self._steady_clock.now_ms()):
            case PassThrough.SERVE if is_repeated:
                return self._requests.start(frame, connection)
            case PassThrough.SERVE:
                reply = self._requests.start(frame, connection)
                assert isinstance(reply, list)  # ApiVersions is always answered immediately
                authentication.api_versions_answered(b"".join(in_memory(reply)))
                return reply
            case PassThrough.REFUSE:
                self.logins.failed += 1
                reason = "the client sent a request other than SaslAuthenticate during authentication"
                answer = self._requests.refusal(frame, connection, ErrorCode.ILLEGAL_SASL_STATE)
                return self._delay_failure(Failure(reason, answer), len(frame))
            case Answer(chunks):
                if authentication.state is State.COMPLETE:
                    self._complete(authentication, connection, is_repeated=is_repeated)
                return chunks
            case Failure() as failure:
                if is_repeated:
                    self.logins.failed_again += 1
                else:
                    self.logins.failed += 1
                return self._delay_failure(failure, len(frame))
            case HangUp(reason, is_expiry):
                self.logins.expired += is_expiry
                raise CloseConnection(reason)

    def _complete(self, authentication: Authentication, connection: ConnectionInfo, *, is_repeated: bool) -> None:
        connection.principal = f"User:{authentication.name}"
        connection.is_authenticated = True
        connection.is_token_authenticated = authentication.by_token
        connection.max_request_bytes = self._max_request_bytes
        if is_repeated:
            self.logins.succeeded_again += 1
        else:
            self.logins.succeeded += 1

    def _delay_failure(self, failure: Failure, size_bytes: int) -> DelayedFailure:
        return DelayedFailure(failure, size_bytes, self._timers, self._failure_delay_ms)

    def _forget(self, connection_id: int) -> None:
        del self._authentications[connection_id]
