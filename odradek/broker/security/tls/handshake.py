"""TLS handshakes of one listener, from an accepted socket to a connection with a known principal.

Handshakes have a time limit, and the number of handshakes in flight is limited. A new connection always gets a slot. A
legitimate handshake takes milliseconds, so if all slots are occupied, most of the handshakes in them have been
abandoned. To make room, the oldest handshake from the address with the most handshakes is aborted. A failed handshake
ends with an alert that gives the reason, unless the client does not speak TLS.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Hashable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.broker.network.held_bytes import HeldBytes
from odradek.broker.security.tls.principals import MalformedCertificate, TooLongToMatch, principal_name, subject_of
from odradek.protocol.quoting import shortened

if TYPE_CHECKING:
    from odradek.broker.configuration.listeners import Listener
    from odradek.broker.network.connection import Connection
    from odradek.broker.security.tls.certificates import ListenerCertificates

log = logging.getLogger("odradek.connection")

SHUTDOWN_TIMEOUT_S = 2.0  # maximum time to wait for the peer's close_notify when the broker closes a connection
ANONYMOUS = "User:ANONYMOUS"
# The reasons that OpenSSL reports for bytes that are not TLS. The length of a Kafka request looks like a wrong version.
PLAIN_TEXT = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
WANTS_MORE = ssl.SSLWantReadError, ssl.SSLWantWriteError


class TlsHandshakes:
    """A listener's handshakes. Only the loop thread may use this object."""

    def __init__(
        self,
        listener: Listener,
        certificates: ListenerCertificates,
        loop: asyncio.AbstractEventLoop,
        *,
        max_in_flight: int,
        timeout_ms: int,
    ) -> None:
        self.loop = loop
        self.timeout_s = timeout_ms / 1000
        self._listener = listener
        self._certificates = certificates
        self._slots: HandshakeSlots[TlsHandshake] = HandshakeSlots(max_in_flight)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        return len(self._slots)

    def new_handshake(self, connection: Connection) -> TlsHandshake:
        """Creates a new connection's handshake. Must be called in the context (see `contextvars`) in which the loop
        reports the connection."""
        handshake = TlsHandshake(self, connection)
        in_progress.set(handshake)
        return handshake

    def context(self) -> ssl.SSLContext:
        context = self._certificates.tls_of(self._listener.name).context
        context.sslobject_class = AlertingObject
        return context

    def began(self, handshake: TlsHandshake) -> None:
        given_up = self._slots.occupy(handshake, handshake.connection.info.client_host)
        if given_up is not None:
            given_up.connection.refuse(
                "too many TLS handshakes are in flight, and this one is the oldest from its address"
            )
        task = self.loop.create_task(handshake.run())
        self._tasks.add(task)  # keeps a reference, because the loop only holds a weak reference
        task.add_done_callback(self._tasks.discard)

    def handshake_ended(self, handshake: TlsHandshake) -> None:
        self._slots.end(handshake, handshake.connection.info.client_host)

    def principal(self, certificate: bytes | None) -> str:
        """Returns the principal derived from a client certificate in DER. Raises NoPrincipal."""
        if certificate is None or self._listener.security_protocol != "SSL":
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except MalformedCertificate as error:
            raise NoPrincipal(str(error)) from None
        try:
            name = principal_name(self._certificates.tls_of(self._listener.name).settings.rules, subject)
        except TooLongToMatch:
            what = f"the rules of ssl.principal.mapping.rules need too much time for the subject {shortened(subject)}"
            raise NoPrincipal(what) from None
        if name is None:
            raise NoPrincipal(f"no rule of ssl.principal.mapping.rules matches {shortened(subject)}")
        return f"User:{name}"


class NoPrincipal(Exception):
    """Raised if a client certificate does not yield a principal."""


class TlsHandshake:
    """The handshake of one connection. Call `start` once the connection has been admitted."""

    def __init__(self, handshakes: TlsHandshakes, connection: Connection) -> None:
        self.connection = connection
        self.failure: ssl.SSLError | None = None
        self._handshakes = handshakes
        self._transport: asyncio.Transport | None = None
        self._held: HeldBytes | None = None

    def start(self, transport: asyncio.Transport, held: HeldBytes) -> None:
        self._transport = transport
        self._held = held
        self._handshakes.began(self)

    def fail(self, failure: ssl.SSLError) -> None:
        """Closes the connection after the loop has written the alert."""
        self.failure = failure
        assert self._transport is not None
        self._handshakes.loop.call_soon(self._transport.close)

    async def run(self) -> None:
        in_progress.set(self)
        transport = self._transport
        assert transport is not None
        assert self._held is not None
        if transport.is_closing():  # aborted before the handshake began; the transport notifies the connection
            self._handshakes.handshake_ended(self)
            return
        early = HeldBytes()  # receives any bytes that the client sends immediately after its handshake
        secured: Any = None
        lost: Exception | None = None
        # This callback runs when `start_tls` has already made TLS the transport's protocol, so TLS receives the held
        # bytes.
        self._handshakes.loop.call_soon(self._held.release, transport)
        try:
            secured = await self._handshakes.loop.start_tls(
                transport,
                early,
                self._handshakes.context(),
                server_side=True,
                ssl_handshake_timeout=self._handshakes.timeout_s,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:
            lost = error
        finally:
            self._handshakes.handshake_ended(self)
        # If bytes directly after the handshake are invalid, asyncio's own event loop closes the connection. Only the
        # original transport reports that the connection is closing; the new transport does not.
        if secured is None or secured.is_closing() or transport.is_closing() or self.failure is not None:
            self._say_why(self.failure or lost)
            self.connection.connection_lost(lost)
            return
        self._hand_over(secured, early)

    def _hand_over(self, transport: asyncio.Transport, early: HeldBytes) -> None:
        connection = self.connection
        try:
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            connection.info.principal = self._handshakes.principal(certificate)
        except NoPrincipal as error:
            transport.set_protocol(ClientWithoutPrincipal(connection, transport, str(error)))
            return
        connection.handshake_completed(transport)
        transport.set_protocol(connection)
        early.release(transport)

    def _say_why(self, error: Exception | None) -> None:
        """Logs why a handshake failed. As in Kafka, nothing is logged if the peer has just disconnected."""
        if error is None or isinstance(error, ConnectionResetError):
            return
        info = self.connection.info
        timeout_ms = round(self._handshakes.timeout_s * 1000)
        why: object = error.reason if isinstance(error, ssl.SSLError) and error.reason else error
        if why in PLAIN_TEXT:
            why = f"the client spoke plain text, but this listener expects TLS ({why})"
        if isinstance(error, (ConnectionAbortedError, TimeoutError)):
            why = f"the handshake did not finish within odradek.authentication.timeout.ms={timeout_ms}"
        log.info("failed authentication with %s:%d: TLS handshake: %s", info.client_host, info.client_port, why)


# The handshake in progress, in the context of its connection.
in_progress: ContextVar[TlsHandshake] = ContextVar("in_progress")


class AlertingObject(ssl.SSLObject):
    """An SSLObject that ensures that the client receives the alert if the handshake fails.

    OpenSSL has prepared the alert by the time it raises the error, but the event loops drop it. This class therefore
    reports the failure to the handshake, and signals to the loop that more data has to be read. As a result, the loop
    writes the alert, and the connection is closed in the next turn.
    """

    _handshake: TlsHandshake | None

    def __new__(cls, *args: Any, **kwargs: Any) -> AlertingObject:
        made = super().__new__(cls)
        made._handshake = in_progress.get(None)
        return made

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except WANTS_MORE:
            raise
        except ssl.SSLError as error:
            handshake = self._handshake
            if handshake is None or handshake.failure is not None:
                raise
            handshake.fail(error)
            raise ssl.SSLWantReadError from error
        self._handshake = None


class ClientWithoutPrincipal(asyncio.Protocol):
    """The protocol of a client whose certificate does not yield a principal. As in Kafka, the connection is closed at
    its first request."""

    def __init__(self, connection: Connection, transport: asyncio.Transport, why: str) -> None:
        self._connection = connection
        self._transport = transport
        self._why = why

    def data_received(self, data: bytes) -> None:
        info = self._connection.info
        log.error(
            "disconnecting %s:%d: no principal can be derived from its certificate: %s",
            info.client_host,
            info.client_port,
            self._why,
        )
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


K = TypeVar("K", bound=Hashable)


class HandshakeSlots(Generic[K]):
    """The handshakes in flight, each identified by a key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_address: dict[str, dict[K, None]] = {}  # the oldest handshake of each address comes first

    def __len__(self) -> int:
        return self._count

    def occupy(self, key: K, address: str) -> K | None:
        """Adds a handshake. If all slots were occupied, removes another handshake and returns it, so that the caller
        can abort it. Otherwise returns None."""
        given_up: K | None = None
        if self._count >= self._most:
            busiest = max(self._by_address, key=lambda one: len(self._by_address[one]))
            given_up = next(iter(self._by_address[busiest]))
            self.end(given_up, busiest)
        self._by_address.setdefault(address, {})[key] = None
        self._count += 1
        return given_up

    def end(self, key: K, address: str) -> None:
        """Removes a handshake that has succeeded or failed. Does nothing if the handshake has been aborted."""
        running = self._by_address.get(address)
        if running is None or key not in running:
            return
        del running[key]
        self._count -= 1
        if not running:
            del self._by_address[address]
