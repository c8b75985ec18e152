"""Connections of a broker under control, which can write an answer in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from odradek.broker.network.connection import Connection
from odradek.broker.network.paced_answers import PacedAnswer
from odradek.broker.runtime.clock import TimerHandle
from odradek.protocol.file_slice import Chunk, in_memory

if TYPE_CHECKING:
    import asyncio

    from odradek.broker.network.connection_host import ConnectionHost


class ControlledConnection(Connection):
    """A connection whose answers may be a `PacedAnswer`."""

    __slots__ = ("_paced",)

    def __init__(self, server: ConnectionHost[Connection]) -> None:
        super().__init__(server)
        self._paced: PacedSender | None = None  # while such an answer leaves

    def _send_from_files(self, transport: asyncio.Transport, chunks: list[Chunk]) -> None:
        if isinstance(chunks, PacedAnswer):
            self._write_paced(transport, chunks)
        else:
            Connection._send_from_files(self, transport, chunks)

    def _write_paced(self, transport: asyncio.Transport, chunks: PacedAnswer) -> None:
        """It is the first in flight until all of it has left, and all others wait for it."""
        data = b"".join(in_memory(chunks))
        sender = PacedSender(self, transport, data, chunks.pieces(len(data)))
        self._paced = sender
        if self._in_flight is None:
            self._in_flight = deque()
        self._in_flight.appendleft(sender)
        self._overlapping_key = None
        sender.when_done(self._on_last_piece)
        sender.go_on()

    def _on_last_piece(self, sender: object) -> None:
        self._paced = None
        self._on_answer(sender)

    def pause(self, delay_ms: float, action: Callable[[], None]) -> TimerHandle:
        """Runs `action` that much later by the broker's clock, but not in this turn of the loop."""
        if delay_ms > 0:
            return self._server.timers.after(delay_ms, action)
        return self._server.loop.call_soon(action)

    def unsent_bytes(self) -> int:
        return Connection.unsent_bytes(self) + (0 if self._paced is None else self._paced.left_bytes)


class PacedSender:
    """One answer; a parked request to its connection until it has left."""

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
    size_bytes: int = 0  # the frame has been given back

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
        self.waits_for_others = False  # it waits for time

    @property
    def left_bytes(self) -> int:
        return len(self._data) - self._sent

    def when_done(self, action: Callable[[object], None]) -> None:
        self._on_done = action

    def abandon(self) -> None:
        """The connection is gone."""
        self._on_done = None
        if self._timer is not None:
            self._timer.cancel()

    def chunks(self) -> list[Chunk]:
        """Nothing: it has left."""
        return []

    def go_on(self) -> None:
        """Waits for the next piece's time."""
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
        self.go_on()
