"""Defines the interfaces of the objects around a connection: its server, the handshake before its frames, and the
receiver of its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek.broker.api.context import Addresses, ConnectionInfo
from odradek.broker.network.admission import Admission, ConnectionLimits, RequestMemory
from odradek.broker.runtime.clock import Timers
from odradek.system import sockets

if TYPE_CHECKING:
    import asyncio

    from odradek.broker.network.held_bytes import HeldBytes
    from odradek.broker.runtime.replies import ParkedRequest
    from odradek.protocol.errors import ErrorCode
    from odradek.protocol.file_slice import Chunk
    from odradek.protocol.struct import Buffer

C = TypeVar("C", contravariant=True)  # the type of the connection


class Handshakes(Protocol[C]):
    def new_handshake(self, connection: C) -> ConnectionHandshake: ...


class ConnectionHost(Protocol[C]):
    @property
    def requests(self) -> FrameReceiver: ...
    @property
    def handshakes(self) -> Handshakes[C] | None:
        """The factory of TLS handshakes, or None if the listener has no TLS."""

    @property
    def limits(self) -> ConnectionLimits: ...
    @property
    def memory(self) -> RequestMemory | None:
        """The memory available for requests; None if it is unlimited."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def now_s(self) -> Callable[[], float]:
        """The clock that measures how much time a connection uses in one turn of the event loop."""

    @property
    def timers(self) -> Timers: ...
    @property
    def listener_name(self) -> str: ...
    @property
    def addresses(self) -> Addresses | None:
        """The object that chooses the broker addresses to give to clients, or None if clients get the registered
        addresses."""

    @property
    def receive_buffer(self) -> memoryview:
        """The receive buffer that all connections of the event loop share."""

    @property
    def received(self) -> memoryview:
        """A read-only view of the receive buffer. Later bytes overwrite earlier frames in this buffer."""

    @property
    def sweep_count(self) -> int:
        """The number of sweeps for idle connections so far."""

    def next_connection_id(self) -> int: ...
    def admit(self, connection: C) -> Admission: ...
    def connection_closed(self, connection: C, admission: Admission, owed_bytes: int) -> None: ...
    def release_memory(self, size_bytes: int) -> None:
        """Frees the memory of answered requests."""


class FrameReceiver(Protocol):
    """Answers frames. Implemented by `odradek.broker.api.dispatch.Dispatcher`, and by the authentication layer in front
    of it."""

    @property
    def logins(self) -> LoginCounts | None:
        """The login counters, or None if clients do not log in."""

    def connected(self, connection: ConnectionInfo) -> None:
        """Called before a connection's first frame, unless the connection is refused."""

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        """Starts handling a frame. A read-only frame may be overwritten after this call. Raises MalformedMessage or
        CloseConnection."""

    def too_long(self, reason: str, connection: ConnectionInfo) -> ParkedRequest | None:
        """Called for a frame that is too long to be read. If this method returns None, the connection closes
        immediately; otherwise, it closes after the response has been sent."""


class RequestReceiver(FrameReceiver, Protocol):
    """A `FrameReceiver` that can be placed behind authentication. Implemented by
    `odradek.broker.api.dispatch.Dispatcher`."""

    def serves(self, number: int, version: int) -> bool:
        """Returns whether the receiver supports this version of the API."""

    def refusal(self, frame: Buffer, connection: ConnectionInfo, code: ErrorCode) -> list[Chunk]:
        """Returns a response with this error code for the whole request. Raises MalformedMessage."""


class ConnectionHandshake(Protocol):
    """The handshake that precedes the frames. Implemented by `odradek.broker.security.tls.handshake.TlsHandshake`."""

    def start(self, transport: asyncio.Transport, held: HeldBytes) -> None:
        """Starts the handshake, which ends with a call to `handshake_completed` or `connection_lost`.

        held  the current protocol of the transport
        """


@dataclass(slots=True)
class LoginCounts:
    """Login counts since the process started. Fields ending in `_again` count re-authentications of open connections
    (KIP-368)."""

    succeeded: int = 0
    failed: int = 0
    succeeded_again: int = 0
    failed_again: int = 0
    expired: int = 0  # connections closed because their session had expired


def has_unread_bytes(transport: asyncio.Transport | None, info: ConnectionInfo) -> bool:
    """Returns whether the kernel holds bytes from the peer that have not been read. Only used by recordings."""
    if transport is None or transport.is_closing():
        return False
    if info.descriptor is None:
        shared: Any = transport.get_extra_info("socket")
        if shared is None:
            return False
        info.descriptor = shared.fileno()
    try:
        return sockets.has_unread_bytes(info.descriptor)
    except OSError:
        return False


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    return 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()
