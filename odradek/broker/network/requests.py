"""Those whom a connection hands its bytes to: a handshake before its frames, and what answers the frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.network.held_bytes import HeldBytes
    from odradek.broker.network.logins import LoginCounts
    from odradek.broker.runtime.delayed import Parked
    from odradek.protocol.file_slice import Chunk


class Requests(Protocol):
    """What answers frames: `odradek.broker.api.dispatch.Dispatcher`, alone or behind authentication."""

    @property
    def logins(self) -> LoginCounts | None:
        """None where nobody logs in."""

    def connected(self, connection: ConnectionInfo) -> None:
        """Before its first frame; not called for connections that are refused."""

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | Parked:
        """A read-only frame may be overwritten when this has returned. Raises MalformedMessage, CloseConnection."""

    def too_long(self, reason: str, connection: ConnectionInfo) -> Parked | None:
        """A frame is not read because of its size. The connection closes at once, or with this answer."""


class Handshake(Protocol):
    """What comes before the frames of a connection: `odradek.broker.security.tls.handshake.Handshake`."""

    def begin(self, transport: asyncio.Transport, held: HeldBytes) -> None:
        """held: its protocol until now. Ends with `secured`, or with `connection_lost`."""
