"""The surroundings of a connection: its server, the handshake before its frames, what answers them, and counts."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import ioctl
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from odradek.broker.api.context import Addresses, ConnectionInfo
from odradek.broker.network.admission import Admission, ConnectionLimits, RequestMemory
from odradek.broker.runtime.clock import Timers

if TYPE_CHECKING:
    import asyncio

    from odradek.broker.network.held_bytes import HeldBytes
    from odradek.broker.runtime.delayed import Parked
    from odradek.protocol.errors import ErrorCode
    from odradek.protocol.file_slice import Chunk
    from odradek.protocol.struct import Buffer

C = TypeVar("C", contravariant=True)  # the connection


class Handshakes(Protocol[C]):
    def accepted(self, connection: C) -> ConnectionHandshake: ...


class ConnectionHost(Protocol[C]):
    @property
    def requests(self) -> FrameReceiver: ...
    @property
    def handshakes(self) -> Handshakes[C] | None:
        """None where frames come in the clear."""

    @property
    def limits(self) -> ConnectionLimits: ...
    @property
    def memory(self) -> RequestMemory | None:
        """Taken by requests; None where there is no limit."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def now_s(self) -> Callable[[], float]:
        """Times what a connection uses of a turn of the loop."""

    @property
    def timers(self) -> Timers: ...
    @property
    def listener_name(self) -> str: ...
    @property
    def addresses(self) -> Addresses | None:
        """None: clients are told what is registered."""

    @property
    def receive_buffer(self) -> memoryview:
        """Shared by all connections of the loop."""

    @property
    def received(self) -> memoryview:
        """The same, read-only: frames in it belong to nobody, and are overwritten by the next ones."""

    @property
    def sweep_count(self) -> int:
        """Sweeps for idle connections so far."""

    def next_connection_id(self) -> int: ...
    def admit(self, connection: C) -> Admission: ...
    def forget(self, connection: C, admission: Admission, owed_bytes: int) -> None: ...
    def give_back(self, size_bytes: int) -> None:
        """Memory of requests that are done with."""


class FrameReceiver(Protocol):
    """The answerer of frames: `odradek.broker.api.dispatch.Dispatcher`, alone or behind authentication."""

    @property
    def logins(self) -> LoginCounts | None:
        """None where nobody logs in."""

    def connected(self, connection: ConnectionInfo) -> None:
        """Before its first frame; not called for connections that are refused."""

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | Parked:
        """A read-only frame may be overwritten when this has returned. Raises MalformedMessage, CloseConnection."""

    def too_long(self, reason: str, connection: ConnectionInfo) -> Parked | None:
        """A frame is not read because of its size. The connection closes at once, or with this answer."""


class RequestReceiver(FrameReceiver, Protocol):
    """A `FrameReceiver` that logins can stand before: `odradek.broker.api.dispatch.Dispatcher`."""

    def serves(self, number: int, version: int) -> bool:
        """Whether there is this API, in this version."""

    def refusal(self, frame: Buffer, connection: ConnectionInfo, code: ErrorCode) -> list[Chunk]:
        """Returns the answer that says `code` for a whole request. Raises MalformedMessage."""


class ConnectionHandshake(Protocol):
    """The exchange before the frames of a connection: `odradek.broker.security.tls.handshake.TlsHandshake`."""

    def begin(self, transport: asyncio.Transport, held: HeldBytes) -> None:
        """held: its protocol until now. Ends with `secured`, or with `connection_lost`."""


@dataclass(slots=True)
class LoginCounts:
    """Since the start; `again` are re-authentications of open connections (KIP-368)."""

    succeeded: int = 0
    failed: int = 0
    succeeded_again: int = 0
    failed_again: int = 0
    expired: int = 0  # connections closed because their session had ended


FIONREAD: Final = 0x541B  # Linux; termios has it, and costs an import
_UNREAD: Final = array("i", [0])


def has_unread_bytes(transport: asyncio.Transport | None, info: ConnectionInfo) -> bool:
    """Whether the kernel has bytes of the peer that nobody has read yet; only recordings ask."""
    if transport is None or transport.is_closing():
        return False
    if info.descriptor is None:
        shared: Any = transport.get_extra_info("socket")
        if shared is None:
            return False
        info.descriptor = shared.fileno()
    try:
        ioctl(info.descriptor, FIONREAD, _UNREAD)
    except OSError:
        return False
    return _UNREAD[0] > 0


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    return 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()
