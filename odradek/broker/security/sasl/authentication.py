"""Authenticates one connection to a SASL listener. `tables` defines how each frame is handled.

This module has no side effects. Its caller forwards requests, delays failures by
`connection.failed.authentication.delay.ms`, and closes connections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from struct import Struct as Packing
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.security.sasl.mechanism import Challenge, Mechanism, Offers, TokenAccepted, TokenRefused, Verdict
from odradek.broker.security.sasl.tables import NEXT, RequestKind, SaslAction, State, action_for
from odradek.protocol.codec import decode
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.exchange import api_and_version
from odradek.protocol.frames import KEY_AND_VERSION, RequestHeader, read_request_header, response_chunks
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from odradek.protocol.file_slice import Chunk
    from odradek.protocol.struct import Buffer

API_VERSIONS_KEY = 18
KINDS = {API_VERSIONS_KEY: RequestKind.API_VERSIONS, 17: RequestKind.SASL_HANDSHAKE, 36: RequestKind.SASL_AUTHENTICATE}
TOKEN_LENGTH = Packing(">i")
ERROR_CODE = Packing(">h")
ERROR_CODE_POSITION = 8  # position in a response to any version of ApiVersions, after its length and correlation id
MIN_REAUTHENTICATION_INTERVAL_MS = 1_000
REPEATED = frozenset({State.REPEATED_EXCHANGE, State.REPEATED_RAW})
NEWEST_RAW_VERSION = 0  # the last version of SaslHandshake after which tokens are sent without a request header


class PassThrough(Enum):
    """Determines how a request that is not part of authentication must be handled."""

    SERVE = "as on any listener"
    REFUSE = "answer ILLEGAL_SASL_STATE in the form of its API after the delay, then close"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response to send immediately."""

    chunks: list[Chunk] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """A response to send after the delay, just before the connection is closed. `chunks` may be empty. No frames are
    read during the delay."""

    reason: str
    chunks: list[Chunk] = field(repr=False)


@dataclass(frozen=True, slots=True)
class HangUp:
    """An instruction to close the connection immediately, without a response. `is_expiry` is set if the session has
    expired."""

    reason: str
    is_expiry: bool = False


Reaction: TypeAlias = PassThrough | Answer | Failure | HangUp


class Authentication:
    """The state of a connection according to `tables`, and its user. Only `receive` and `api_versions_answered` change
    the state and the user.

    offers     returns the mechanisms that SaslHandshake can currently choose from
    is_served  returns whether the broker supports an API, given by its key, in a version
    """

    __slots__ = (
        "_exchange",
        "_is_served",
        "_last_repeated_ms",
        "_max_reauth_ms",
        "_mechanism",
        "_offers",
        "_steady_ms",
        "by_token",
        "expires_at_ms",
        "name",
        "state",
    )

    def __init__(self, offers: Callable[[], Offers], is_served: Callable[[int, int], bool]) -> None:
        self.state = State.INITIAL
        self.name: str | None = None  # the user's name; None before authentication has succeeded
        self.by_token = False  # whether the user logged in with a delegation token
        self.expires_at_ms: int | None = None  # end of the session, according to the steady clock
        self._steady_ms = 0  # time when the current frame was received
        self._offers = offers
        self._is_served = is_served
        self._mechanism = ""
        self._max_reauth_ms: int | None = None
        self._exchange: Mechanism | None = None
        self._last_repeated_ms: int | None = None  # time when the last re-authentication began

    @property
    def is_repeated(self) -> bool:
        return self.name is not None

    def receive(self, frame: Buffer, now_ms: int, steady_ms: int) -> Reaction:
        """Handles one frame, given without its length field. Never raises an error, whatever the frame contains.

        now_ms     wall-clock time, for token expiry
        steady_ms  monotonic time, for session expiry
        """
        self._steady_ms = steady_ms
        try:
            return self._act(frame, now_ms)
        except MalformedMessage as error:
            return self._hang_up(f"the client sent a frame that cannot be read: {error}")

    def api_versions_answered(self, answer: bytes) -> None:
        """Handles the response to ApiVersions. If it reports an error, the client may send ApiVersions again."""
        if self.state is State.INITIAL and answer[ERROR_CODE_POSITION : ERROR_CODE_POSITION + 2] == b"\0\0":
            self._enter_state(State.HANDSHAKE)

    def _act(self, frame: Buffer, now_ms: int) -> Reaction:
        kind = self._kind(frame)
        action = action_for(self.state, kind)
        if action is SaslAction.BEGIN_AGAIN and not self._may_repeat():
            action = SaslAction.SERVE
        if action is SaslAction.SERVE and self.expires_at_ms is not None and self._steady_ms >= self.expires_at_ms:
            self._enter_state(State.FAILED)
            return HangUp("the session of the client expired without being renewed", is_expiry=True)
        match action:
            case SaslAction.SERVE:
                return PassThrough.SERVE
            case SaslAction.BEGIN | SaslAction.BEGIN_AGAIN:
                return self._begin_exchange(frame)
            case SaslAction.JUDGE:
                return self._judge_token(frame, now_ms)
            case SaslAction.JUDGE_RAW:
                return self._judge_raw(frame, now_ms)
            case SaslAction.REFUSE:
                self._enter_state(State.FAILED)
                return PassThrough.REFUSE
            case SaslAction.CLOSE:
                return self._hang_up(f"the client sent {kind.name} in the state {self.state.name} of authentication")

    def _kind(self, frame: Buffer) -> RequestKind:
        head = api_and_version(frame, KEY_AND_VERSION.size)
        if head is None:
            return RequestKind.UNREADABLE
        key, version = head
        if key != API_VERSIONS_KEY and not self._is_served(key, version):
            return RequestKind.UNREADABLE
        return KINDS.get(key, RequestKind.OTHER)

    def _may_repeat(self) -> bool:
        """Returns whether SaslHandshake may begin a re-authentication. If not, the dispatcher refuses the SaslHandshake
        request."""
        last = self._last_repeated_ms
        if self.expires_at_ms is None:
            return False
        return last is None or self._steady_ms - last >= MIN_REAUTHENTICATION_INTERVAL_MS

    def _begin_exchange(self, frame: Buffer) -> Reaction:
        header, position = read_request_header(frame)
        requested = decode(SaslHandshakeRequest, header.api_version, bytes(frame), position).mechanism
        offers = self._offers()
        response = SaslHandshakeResponse(mechanisms=sorted(offers))
        if requested not in offers:
            if self.is_repeated:
                return self._hang_up("the client requested a re-authentication with a mechanism that is not enabled")
            self._enter_state(State.FAILED)
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM.value
            reason = (
                "the client requested a mechanism that is not enabled; the enabled ones are"
                f" {', '.join(sorted(offers))}"
            )
            return Failure(reason, _chunks(header, response))
        is_raw = header.api_version <= NEWEST_RAW_VERSION
        if self.is_repeated:
            self._last_repeated_ms = self._steady_ms
            self._enter_state(State.REPEATED_RAW if is_raw else State.REPEATED_EXCHANGE)
            self._exchange = offers[requested].begin() if requested == self._mechanism else None
        else:
            self._enter_state(State.RAW if is_raw else State.EXCHANGE)
            self._mechanism, self._exchange = requested, offers[requested].begin()
        self._max_reauth_ms = offers[requested].max_reauth_ms
        return Answer(_chunks(header, response))

    def _judge_token(self, frame: Buffer, now_ms: int) -> Reaction:
        header, position = read_request_header(frame)
        token = decode(SaslAuthenticateRequest, header.api_version, bytes(frame), position).auth_bytes
        if self._exchange is None:
            return self._hang_up("the client requested a re-authentication with a different mechanism than before")
        match self._verdict(bytes(token), now_ms):
            case Challenge(answer):
                return Answer(_chunks(header, SaslAuthenticateResponse(error_message="", auth_bytes=answer)))
            case TokenAccepted() as accepted:
                lifetime_ms = self._accept(accepted, now_ms)
                response = SaslAuthenticateResponse(
                    error_message="", auth_bytes=accepted.token, session_lifetime_ms=lifetime_ms or 0
                )
                return Answer(_chunks(header, response))
            case TokenRefused(message):
                self._enter_state(State.FAILED)
                response = SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED.value, error_message=message
                )
                return Failure(message, _chunks(header, response))

    def _judge_raw(self, frame: Buffer, now_ms: int) -> Reaction:
        if self._exchange is None:
            return self._hang_up("the client requested a re-authentication with a different mechanism than before")
        match self._verdict(bytes(frame), now_ms):
            case Challenge(answer):
                return Answer([TOKEN_LENGTH.pack(len(answer)), answer])
            case TokenAccepted(token=answer) as accepted:
                self._accept(accepted, now_ms)
                return Answer([TOKEN_LENGTH.pack(len(answer)), answer])
            case TokenRefused(message):
                self._enter_state(State.FAILED)
                return Failure(message, [])

    def _verdict(self, token: bytes, now_ms: int) -> Verdict:
        assert self._exchange is not None
        verdict = self._exchange.judge(token, now_ms)
        if isinstance(verdict, TokenAccepted) and self.name not in (None, verdict.name):
            return TokenRefused(
                f"Cannot change principals during re-authentication from User.{self.name}: User.{verdict.name}"
            )
        return verdict

    def _accept(self, accepted: TokenAccepted, now_ms: int) -> int | None:
        """Completes the authentication. Returns the session's lifetime in ms, or None if it is unlimited."""
        self._enter_state(State.COMPLETE)
        self._exchange = None
        self.name, self.by_token = accepted.name, accepted.by_token
        limits = [self._max_reauth_ms]
        if accepted.expires_at_ms is not None:
            limits.append(max(1, accepted.expires_at_ms - now_ms))  # a lifetime of 0 would mean unlimited
        lifetime_ms = min((limit for limit in limits if limit is not None), default=None)
        self.expires_at_ms = None if lifetime_ms is None else self._steady_ms + lifetime_ms
        return lifetime_ms

    def _hang_up(self, reason: str) -> HangUp:
        if self.state is not State.FAILED:
            self._enter_state(State.FAILED)
        return HangUp(reason)

    def _enter_state(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.state.name} to {state.name}"
        self.state = state


def _chunks(header: RequestHeader, response: SaslHandshakeResponse | SaslAuthenticateResponse) -> list[Chunk]:
    return [*response_chunks(header.api_key, header.api_version, header.correlation_id, response)]
