"""A client without a socket. Tests call a broker connection's methods in the same order as an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.api.dispatch import Dispatcher, HandlerCall
from odradek.broker.api.served import ServedApi
from odradek.broker.handlers.by_api_key import handler_of
from odradek.broker.network.admission import Admissions, ConnectionLimits
from odradek.broker.network.connection import Connection
from odradek.broker.network.connection_host import FrameReceiver
from odradek.broker.network.server import Server
from odradek.broker.runtime.clock import Clock
from odradek.broker.runtime.replies import CloseConnection, ParkedRequest
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode
from odradek.protocol.file_slice import Chunk
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages import response_class
from odradek.protocol.struct import Message
from tests.support.clock import ManualClock, ManualTimers

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.handlers.handler_broker import HandlerBroker


class FakeTransport(asyncio.Transport):
    """Records the bytes that the connection writes, and the other calls that it makes."""

    def __init__(self, host: str = "127.0.0.1", port: int = 50_000) -> None:
        super().__init__({"peername": (host, port)})
        self.written = bytearray()
        self.is_paused = False
        self.closed_by: str | None = None
        self.high_water_bytes = 0

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.written += data

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high_water_bytes = high or 0

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed_by is not None

    def close(self) -> None:
        self.closed_by = self.closed_by or "close"

    def abort(self) -> None:
        self.closed_by = self.closed_by or "abort"


class Peer:
    """A client's side of a connection. Bytes that the connection does not accept remain unread, as in a socket."""

    def __init__(
        self,
        server: Server,
        host: str = "127.0.0.1",
        make_connection: Callable[[Server], Connection] = Connection,
        transport: FakeTransport | None = None,
    ) -> None:
        self.connection = make_connection(server)
        self.transport = transport or FakeTransport(host)
        self._unread = bytearray()
        self._answers_read = 0
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        self._unread += data
        self.deliver()

    def deliver(self) -> None:
        """Delivers as many bytes as the connection accepts, as the loop does when the socket is readable."""
        while self._unread and not self.transport.is_paused and not self.transport.is_closing():
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(self._unread))
            assert count > 0
            buffer[:count] = self._unread[:count]
            del self._unread[:count]
            del buffer  # A bytearray cannot grow while a view of it exists.
            self.connection.buffer_updated(count)

    def ask(self, message: Message, version: int, correlation_id: int = 0) -> None:
        self.send(request_bytes(message, version, correlation_id, "test"))

    def hang_up(self) -> None:
        self.connection.connection_lost(None)

    @property
    def unread_bytes(self) -> int:
        return len(self._unread)

    @property
    def is_disconnected(self) -> bool:
        return self.transport.is_closing()

    def frames(self) -> list[bytes]:
        """Returns the response frames written since the last call, without their length prefixes."""
        frames = []
        data, position = self.transport.written, self._answers_read
        while position < len(data):
            size = int.from_bytes(data[position : position + 4], "big")
            frames.append(bytes(data[position + 4 : position + 4 + size]))
            position += 4 + size
        assert position == len(data), "half a response"
        self._answers_read = position
        return frames

    def correlation_ids(self) -> list[int]:
        return [int.from_bytes(frame[:4], "big") for frame in self.frames()]

    def answer(self, api_key: ApiKey, version: int) -> Any:
        """Returns the only response written since the last call."""
        (frame,) = self.frames()
        response = response_class(api_key.value)
        flexible = response.FLEXIBLE_SINCE is not None and version >= response.FLEXIBLE_SINCE
        has_tags = flexible and api_key is not ApiKey.API_VERSIONS
        return decode(response, version, frame, 5 if has_tags else 4)


class DelayedAnswer:
    """A response that the test delivers when it chooses."""

    overlapping_key = 3  # Metadata
    waits_for_others = True
    size_bytes = 10

    def __init__(self) -> None:
        self.is_done = False
        self.answer: list[Chunk] | CloseConnection = []
        self._action: Callable[[object], None] = lambda _: None

    def when_done(self, action: Callable[[object], None]) -> None:
        self._action = action

    def give(self, answer: list[Chunk] | CloseConnection) -> None:
        self.answer, self.is_done = answer, True
        self._action(self)

    def chunks(self) -> list[Chunk]:
        if isinstance(self.answer, CloseConnection):
            raise self.answer
        return self.answer

    def abandon(self) -> None: ...


class Answering:
    """Answers each frame with the next of `replies`. After the last one, frames get no response."""

    logins = None

    def __init__(self, *replies: list[Chunk] | DelayedAnswer | CloseConnection) -> None:
        self.replies = list(replies)

    def connected(self, connection: ConnectionInfo) -> None: ...

    def too_long(self, reason: str, connection: ConnectionInfo) -> ParkedRequest | None:
        return None

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        reply = self.replies.pop(0) if self.replies else []
        if isinstance(reply, CloseConnection):
            raise reply
        return reply


@dataclass(frozen=True, slots=True)
class Handler(ServedApi):
    """An API that a test serves: its versions and its handler. If the function is None, the broker's own handler is
    used."""

    module: str = ""
    call: HandlerCall[Any] | None = None


def dispatcher_with(
    handlers: Mapping[ApiKey, Handler], *, broker: object = None, clock: Clock | None = None
) -> Dispatcher[HandlerBroker]:
    return Dispatcher(
        cast("Broker", broker),
        clock or ManualClock(),
        lambda api_key: handlers[api_key].call or handler_of(api_key),
        served=handlers,
    )


def no_time_passes() -> float:
    """Serves as a clock that never advances, so that only the number of requests limits a turn of the loop."""
    return 0.0


def server_with(
    handlers: dict[ApiKey, Handler],
    *,
    limits: ConnectionLimits | None = None,
    broker: object = None,
    clock: Clock | None = None,
    timers: ManualTimers | None = None,
    authentication_timeout_ms: int | None = None,
    admissions: Admissions | None = None,
) -> Server:
    """Returns a server that does not listen. Its handlers get `broker`, which needs only the attributes that the
    handlers use."""
    requests = dispatcher_with(handlers, broker=broker, clock=clock)
    return server_around(
        requests, limits, timers, authentication_timeout_ms=authentication_timeout_ms, admissions=admissions
    )


def server_around(
    requests: FrameReceiver,
    limits: ConnectionLimits | None = None,
    timers: ManualTimers | None = None,
    *,
    authentication_timeout_ms: int | None = None,
    admissions: Admissions | None = None,
) -> Server:
    return Server(
        requests,
        limits or ConnectionLimits(),
        timers or ManualTimers(),
        asyncio.get_running_loop(),
        authentication_timeout_ms=authentication_timeout_ms,
        admissions=admissions,
        now_s=no_time_passes,
    )
