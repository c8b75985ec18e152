"""A controlled broker's connections, which can be observed and can send a response in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, cast

from odradek.broker.network.connection import Connection
from odradek.broker.network.paced_answers import PacedAnswer
from odradek.broker.network.request_filter import RequestFilter
from odradek.broker.runtime.clock import TimerHandle
from odradek.protocol.file_slice import Chunk, FileSlice, in_memory

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.network.connection_host import ConnectionHost, FrameReceiver
    from odradek.broker.runtime.replies import ParkedRequest


class ExchangeObserver:
    """Receives the requests of one connection, and the responses in the same order.

    maker   the factory that created this observer
    unseen  number of expected responses to requests that arrived before this observer was created
    """

    __slots__ = ("maker", "unseen")

    def __init__(self, maker: ObserverFactory) -> None:
        self.maker = maker
        self.unseen = 0

    def request_received(self, frame: memoryview) -> bool:
        """Called before a request is handled. A read-only frame is overwritten after this call. Returns whether
        `request_handled` should be called."""
        raise NotImplementedError

    def request_handled(self, reply: list[Chunk] | ParkedRequest) -> None:
        """Called after the last received request has been handled. By then, the request's frame may have changed. Not
        called if the handler raised an exception."""

    def response_sent(self, chunks: list[Chunk]) -> None:
        """Called before the response to the oldest unanswered request is written. `chunks` is empty if the protocol has
        no response for this request. Also called for the response to a request that was too long to be received."""
        raise NotImplementedError

    def closed_without_response(self, is_newest: bool) -> None:
        """Called when the connection closes without sending a response.

        is_newest  True if the missing response is for the newest request; False if it is for the oldest unanswered
                   request
        """
        raise NotImplementedError


class ObserverFactory(Protocol):
    """Creates observers for connections."""

    def observe(self, connection: ControlledConnection) -> ExchangeObserver: ...


class ObservedServer(Protocol):
    """The server of controlled connections. Implemented by `odradek.broker.network.server.Server`."""

    requests: FrameReceiver

    @property
    def observers(self) -> Sequence[ObserverFactory]:
        """The factories of observers for all connections of this server."""

    def observed_by(self, makers: Sequence[ObserverFactory]) -> None: ...


def observe(server: ObservedServer, makers: Sequence[ObserverFactory]) -> None:
    """Replaces a server's observer factories with `makers`. Only call this while the server's requests are not
    observed.

    The observation of an open connection begins with its next request, so that the event loop does not have to visit
    all connections in one turn.
    """
    if list(makers) == list(server.observers):
        makers = server.observers  # connections compare factories by identity
    else:
        server.observed_by(makers)
    if makers:
        server.requests = ObservedRequests(server.requests, makers)


class ObservedRequests(RequestFilter):
    """Passes each connection's requests to that connection's observers."""

    def __init__(self, plain: FrameReceiver, makers: Sequence[ObserverFactory]) -> None:
        super().__init__(plain)
        self._makers = makers

    def connected(self, connection: ConnectionInfo) -> None:
        super().connected(connection)
        cast(ControlledConnection, connection.owner).observed_by(self._makers)

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        owner = cast(ControlledConnection, connection.owner)
        if owner.makers is not self._makers:
            owner.observed_by(self._makers)
        wants_more = False
        for observer in owner.observers:
            wants_more = observer.request_received(frame) or wants_more
        reply = self.plain.start(frame, connection)
        if wants_more:
            for observer in owner.observers:
                observer.request_handled(reply)
        return reply


class ControlledConnection(Connection):
    """A connection that can be observed, and that accepts a `PacedAnswer`."""

    __slots__ = ("_paced", "makers", "observers", "senders")

    def __init__(self, server: ConnectionHost[Connection]) -> None:
        super().__init__(server)
        self._paced: PacedSender | None = None  # set while a paced response is being sent
        self.makers: Sequence[ObserverFactory] = ()  # the factories of `observers`
        self.observers: list[ExchangeObserver] = []
        self.senders = 0  # number of senders of observed responses; each reports an empty response when it is done

    @property
    def holds_input(self) -> bool:
        """True if input from the peer may be waiting, either here or, because reading has stopped, in the kernel."""
        return self._backlog is not None or self._partial is not None or not self._is_reading

    def connection_lost(self, exc: Exception | None) -> None:
        Connection.connection_lost(self, exc)
        self.observers = []  # breaks a reference cycle, since an observer refers to its connection

    def observed_by(self, makers: Sequence[ObserverFactory]) -> None:
        """Replaces this connection's observers with one observer from each factory in `makers`."""
        self.makers = makers
        remaining = [observer for observer in self.observers if observer.maker in makers]
        present = [observer.maker for observer in remaining]
        for maker in makers:
            if maker not in present:
                observer = maker.observe(self)
                observer.unseen = len(self._in_flight or ()) - self.senders
                remaining.append(observer)
        self.observers = remaining
        if not remaining:
            self.senders = 0

    def _write(self, chunks: list[Chunk]) -> None:
        if self.observers:
            self._notify_observers(chunks)
        # This code repeats `Connection._write`, because a call would add 0.5 % to the instructions for a small request.
        transport = self._transport
        if not chunks or transport is None:
            return
        self.active_at_sweep = self._server.sweep_count
        if len(chunks) == 1:
            transport.write(chunks[0])  # type: ignore[arg-type]  # a FileSlice is never the only chunk
        elif FileSlice in map(type, chunks):
            self._send_from_files(transport, chunks)
        else:
            transport.writelines(chunks)  # type: ignore[arg-type]

    def _notify_observers(self, chunks: list[Chunk]) -> None:
        if self.senders:
            self.senders -= 1
        else:
            for observer in self.observers:
                observer.response_sent(chunks)

    def _hang_up(self, reason: str) -> None:
        for observer in self.observers:
            observer.closed_without_response(bool(self._in_flight))
        Connection._hang_up(self, reason)

    def _refuse(self, reason: str) -> None:
        observers, self.observers = self.observers, []  # the observers have not seen this request
        Connection._refuse(self, reason)
        self.observers = observers

    def _send_from_files(self, transport: asyncio.Transport, chunks: list[Chunk]) -> None:
        if isinstance(chunks, PacedAnswer):
            self._write_paced(transport, chunks)
            return
        Connection._send_from_files(self, transport, chunks)
        if self._file_sender is not None and not self._file_sender.is_done and self.observers:
            self.senders += 1

    def _write_paced(self, transport: asyncio.Transport, chunks: PacedAnswer) -> None:
        """Sends a response in pieces. Until all pieces are sent, the response is the first in flight, and all other
        responses wait for it."""
        data = b"".join(in_memory(chunks))
        sender = PacedSender(self, transport, data, chunks.pieces(len(data)))
        self._paced = sender
        if self.observers:
            self.senders += 1
        if self._in_flight is None:
            self._in_flight = deque()
        self._in_flight.appendleft(sender)
        self._overlapping_key = None
        sender.when_done(self._on_last_piece)
        sender.send_next_piece()

    def _on_last_piece(self, sender: object) -> None:
        self._paced = None
        self._on_answer(sender)

    def pause(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        """Calls `action` after this delay on the broker's clock, but never in the current turn of the event loop."""
        if delay_ms > 0:
            return self._server.timers.after(delay_ms, action)
        return self._server.loop.call_soon(action)

    def unsent_bytes(self) -> int:
        return Connection.unsent_bytes(self) + (0 if self._paced is None else self._paced.left_bytes)


class PacedSender:
    """Sends one response in pieces. Until the response has been sent, its connection treats it as a parked request."""

    __slots__ = (
        "_connection",
        "_data",
        "_on_done",
        "_pieces",
        "_sent",
        "_timer",
        "_transport",
        "is_done",
        "waits_for_others",
    )

    overlapping_key: int | None = None
    size_bytes: int = 0  # the frame's memory has already been released

    def __init__(
        self,
        connection: ControlledConnection,
        transport: asyncio.Transport,
        data: bytes,
        pieces: Iterator[tuple[float, int]],
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._data = data
        self._pieces = pieces
        self._sent = 0
        self._timer: TimerHandle | None = None
        self._on_done: Callable[[object], None] | None = None
        self.is_done = False
        self.waits_for_others = False  # whether the sender is waiting for a timer

    @property
    def left_bytes(self) -> int:
        return len(self._data) - self._sent

    def when_done(self, action: Callable[[object], None]) -> None:
        self._on_done = action

    def abandon(self) -> None:
        """Stops sending, because the connection has closed."""
        self._on_done = None
        if self._timer is not None:
            self._timer.cancel()

    def chunks(self) -> list[Chunk]:
        """Returns an empty list, since the response has already been sent."""
        return []

    def send_next_piece(self) -> None:
        """Schedules the next piece, or reports that all pieces have been sent."""
        piece = next(self._pieces, None)
        if piece is not None:
            delay_ms, end = piece
            self.waits_for_others = delay_ms > 0
            self._timer = self._connection.pause(delay_ms, lambda: self._write(end))
            return
        self.is_done = True
        action, self._on_done = self._on_done, None
        if action is not None:
            action(self)

    def _write(self, end: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(self._data[self._sent : end])
        self._sent = end
        self._connection.still_sending()
        self.send_next_piece()
