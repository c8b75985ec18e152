"""A SASL listener without sockets. Tests operate its connections, advance its clock, and choose its mechanisms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.broker import OFFERED
from odradek.broker.handlers.by_api_key import handler_of
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.network.admission import ConnectionLimits
from odradek.broker.network.server import Server
from odradek.broker.runtime.clock import SteadyClock
from odradek.broker.security.sasl.mechanism import Offer, Offers
from odradek.broker.security.sasl.plain import PlainAccounts, PlainExchange
from odradek.broker.security.sasl.requests import SaslRequests
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from odradek.protocol.struct import Message
from tests.support.clock import ManualClock, ManualTimers
from tests.support.peer import Peer, server_around

DELAY_MS = 1_000
NOW_MS = 1_800_000_000_000
AUTHENTICATION_TIMEOUT_MS = 30_000
MAX_RECEIVE_BYTES = 524_288
PASSWORDS = {"alice": "wonder land", "bob": "bob's"}
API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def plain_offer(max_reauth_ms: int | None = None) -> Offer:
    accounts = PlainAccounts(PASSWORDS, b"k" * 32)
    return Offer(lambda: PlainExchange(accounts), max_reauth_ms)


def plain_token(user: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()


ALICE = plain_token("alice", PASSWORDS["alice"])
BOB = plain_token("bob", PASSWORDS["bob"])


class Listener:
    """A SASL listener of a broker that consists only of cluster metadata."""

    def __init__(self, offers: Offers | None = None, *, image: MetadataImage | None = None) -> None:
        self.offers = {"PLAIN": plain_offer()} if offers is None else offers  # a table that tests may change
        self.clock = ManualClock(NOW_MS)
        self.timers = ManualTimers(self.clock)
        self.image = image or MetadataImage()
        broker: Any = SimpleNamespace(
            metadata=SimpleNamespace(image=self.image), config=SimpleNamespace(), offered=OFFERED
        )
        dispatcher = Dispatcher(broker, self.clock, handler_of)
        self.requests = SaslRequests(
            dispatcher,
            lambda: self.offers,
            self.clock,
            self.timers,
            steady_clock=SteadyClock(self.clock, lambda: self.timers.elapsed_ms / 1000),
            failure_delay_ms=DELAY_MS,
            max_receive_bytes=MAX_RECEIVE_BYTES,
            max_request_bytes=ConnectionLimits().max_request_bytes,
        )
        self.server: Server = server_around(
            self.requests, timers=self.timers, authentication_timeout_ms=AUTHENTICATION_TIMEOUT_MS
        )

    def connect(self) -> Client:
        return Client(Peer(self.server), self.timers)

    def logged_in(self, token: bytes = ALICE, mechanism: str = "PLAIN") -> Client:
        client = self.connect()
        client.handshake(mechanism)
        assert client.authenticate(token).error_code == 0
        return client


class Client:
    """A client of the listener."""

    def __init__(self, peer: Peer, timers: ManualTimers) -> None:
        self.peer = peer
        self._timers = timers

    @property
    def info(self) -> ConnectionInfo:
        return self.peer.connection.info

    def ask(self, message: Message, version: int) -> Any:
        self.peer.ask(message, version)
        return self.peer.answer(ApiKey(message.API_KEY), version)

    def api_versions(self, version: int = 3) -> ApiVersionsResponse:
        return cast(ApiVersionsResponse, self.ask(API_VERSIONS, version))

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        return cast(SaslHandshakeResponse, self.ask(SaslHandshakeRequest(mechanism=mechanism), version))

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        return cast(SaslAuthenticateResponse, self.ask(SaslAuthenticateRequest(auth_bytes=token), version))

    def send_raw(self, token: bytes) -> None:
        self.peer.send(len(token).to_bytes(4, "big") + token)

    def is_closed_at_once(self) -> bool:
        """Returns whether the connection is closed immediately, without a response."""
        return self.peer.is_disconnected and self.peer.frames() == []

    def is_closed_after_the_delay(self) -> bool:
        """Returns whether the connection is closed after the delay, without a response."""
        return self._waits() and self.peer.is_disconnected and self.peer.frames() == []

    def failure(self, message: Message, version: int) -> Any:
        """Sends a request that must fail, checks that the connection is closed after the delay, and returns the
        response."""
        self.peer.ask(message, version)
        assert self._waits()
        answer = self.peer.answer(ApiKey(message.API_KEY), version)
        assert self.peer.is_disconnected
        return answer

    def refused(self, token: bytes, version: int = 2) -> str:
        """Returns the error message of a SaslAuthenticate response that reports a failure."""
        answer = cast(SaslAuthenticateResponse, self.failure(SaslAuthenticateRequest(auth_bytes=token), version))
        assert (answer.error_code, answer.auth_bytes) == (58, b"")
        assert answer.error_message
        return answer.error_message

    def is_served(self) -> bool:
        """Returns whether an ordinary request gets an ordinary response."""
        return cast(int, self.ask(API_VERSIONS, 3).error_code) == 0 and not self.peer.is_disconnected

    def let_the_delay_pass(self) -> None:
        self._timers.advance(DELAY_MS)

    def _waits(self) -> bool:
        """Advances the clock past the delay. Returns whether nothing happened before the delay was over."""
        was_silent = not self.peer.is_disconnected and self.peer.frames() == []
        self._timers.advance(DELAY_MS - 1)
        was_silent = was_silent and not self.peer.is_disconnected and self.peer.frames() == []
        self._timers.advance(1)
        return was_silent
