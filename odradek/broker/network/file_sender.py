"""Sender of the answers of one connection that have parts in files: the kernel moves these from the page cache to the
socket, which costs a third of the CPU of reading and writing them.

The loop's transport cannot do that, so a duplicate of its descriptor is written to, but only while the transport has
nothing left to write; and until an answer has left, the connection hands nothing to the transport. A TLS connection has
to have its bytes in buffers, and so has a system without `sendfile`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Final, Protocol

from odradek.protocol.file_slice import Chunk, FileSlice
from odradek.protocol.struct import Buffer

MOST_BUFFERS: Final = 512  # in one call; IOV_MAX is 1024


class Unsent:
    """`next` until it is None; each time `sent` says how much of that has left, which may be less than all of it."""

    __slots__ = ("_at", "_chunks", "_sent_bytes")

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._at = 0  # the first chunk that has not left as a whole
        self._sent_bytes = 0  # of that chunk

    def next(self) -> list[Buffer] | FileSlice | None:
        """Buffers that may be sent in one call, or a part in a file."""
        chunks, at, sent_bytes = self._chunks, self._at, self._sent_bytes
        if at == len(chunks):
            return None
        first = chunks[at]
        if isinstance(first, FileSlice):
            return first.behind(sent_bytes) if sent_bytes else first
        buffers: list[Buffer] = [memoryview(first)[sent_bytes:] if sent_bytes else first]
        for chunk in chunks[at + 1 : at + MOST_BUFFERS]:
            if isinstance(chunk, FileSlice):
                break
            buffers.append(chunk)
        return buffers

    def sent(self, size_bytes: int) -> None:
        chunks, at = self._chunks, self._at
        size_bytes += self._sent_bytes
        while at < len(chunks) and size_bytes >= len(chunks[at]):
            size_bytes -= len(chunks[at])
            at += 1
        self._at, self._sent_bytes = at, size_bytes


log = logging.getLogger("odradek.connection")

SENDS_FILES: Final = hasattr(os, "sendfile") and hasattr(os, "RWF_NOWAIT") and hasattr(socket, "MSG_MORE")
MOST_PER_TURN_BYTES: Final = 1024 * 1024  # from files; then others of the loop have their turn


class Stop(Enum):
    END = auto()  # all has left
    NO_ROOM = auto()  # in the socket; or others have their turn
    COLD = auto()  # what comes next would have to be waited for


class FileSending(Protocol):
    """The connection."""

    def still_sending(self) -> None:
        """The peer reads."""

    def abort(self) -> None: ...


class FileSender:
    """One answer at a time. To its connection an answer that takes longer is a parked request, until it has left."""

    __slots__ = (
        "_cached_bytes",
        "_connection",
        "_is_waiting",
        "_loop",
        "_on_done",
        "_socket",
        "_transport",
        "_unsent",
        "is_done",
    )

    overlapping_key: int | None = None
    size_bytes: int = 0  # the frame has been given back
    waits_for_others: bool = False

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, connection: FileSending) -> None:
        """Raises OSError where no more descriptors are to be had."""
        shared: Any = transport.get_extra_info("socket")
        if shared is None:
            raise OSError("a transport without a socket")
        self._socket = socket.socket(fileno=os.dup(shared.fileno()))
        self._socket.setblocking(False)
        self._transport = transport
        self._loop = loop
        self._connection = connection
        self._unsent = Unsent(())
        self._cached_bytes = 0  # of what comes next: known to be in the page cache
        self._is_waiting = False  # for room in the socket, or for its turn
        self._on_done: Callable[[object], None] | None = None
        self.is_done = True

    def send(self, chunks: list[Chunk]) -> None:
        """`is_done` tells whether all of it has left. What is in files was found in the page cache right before."""
        assert self.is_done
        self.is_done = False
        self._unsent = Unsent(chunks)
        self._cached_bytes = sum(map(len, chunks))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        self._send_on()

    def when_done(self, action: Callable[[object], None]) -> None:
        self._on_done = action

    def abandon(self) -> None:
        self._on_done = None

    def chunks(self) -> list[Chunk]:
        """Nothing: it has left."""
        return []

    def close(self) -> None:
        """The connection is gone."""
        self._wait_for_room(False)
        self._unsent = Unsent(())
        self._on_done = None
        self._socket.close()

    def _send_on(self) -> None:
        try:
            stopped_by = self._send_until_stopped()
        except (BlockingIOError, InterruptedError):
            stopped_by = Stop.NO_ROOM
        except OSError as error:
            self._give_up(error)
            return
        if stopped_by is Stop.COLD:
            self._wait_for_room(False)
            self._warm_up()
        elif stopped_by is Stop.NO_ROOM:
            self._wait_for_room(True)
        else:
            self._wait_for_room(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
            self._unsent = Unsent(())
            self.is_done = True
            action, self._on_done = self._on_done, None
            if action is not None:
                action(self)

    def _send_until_stopped(self) -> Stop:
        """Raises OSError, also BlockingIOError."""
        if self._transport.get_write_buffer_size():  # an earlier answer, written in this turn of the loop
            return Stop.NO_ROOM
        unsent, descriptor = self._unsent, self._socket.fileno()
        left_bytes = MOST_PER_TURN_BYTES
        while (step := unsent.next()) is not None:
            if not isinstance(step, FileSlice):
                unsent.sent(self._socket.sendmsg(step))
                continue
            if left_bytes == 0:
                return Stop.NO_ROOM
            size_bytes = min(step.size_bytes, left_bytes)
            if self._cached_bytes < size_bytes and not step.file.is_cached_at(size_bytes, step.position):
                return Stop.COLD
            sent_bytes = step.file.send_to(descriptor, size_bytes, step.position)
            if sent_bytes == 0:
                raise OSError(f"a file ends before byte {step.position}")
            unsent.sent(sent_bytes)
            self._cached_bytes = max(0, self._cached_bytes - sent_bytes)
            left_bytes -= sent_bytes
        return Stop.END

    def _wait_for_room(self, waits: bool) -> None:
        """In the socket; what is not sent because others have their turn waits for it too, and finds it at once."""
        if waits is not self._is_waiting:
            self._is_waiting = waits
            if waits:
                self._loop.add_writer(self._socket.fileno(), self._room)
            else:
                self._loop.remove_writer(self._socket.fileno())

    def _room(self) -> None:
        self._connection.still_sending()
        self._cached_bytes = 0  # that may have been long ago
        self._send_on()

    def _warm_up(self) -> None:
        """Have a thread read the next portion into the page cache."""
        step = self._unsent.next()
        assert isinstance(step, FileSlice)
        size_bytes = min(step.size_bytes, MOST_PER_TURN_BYTES)
        self._loop.run_in_executor(None, step.file.read_at, size_bytes, step.position).add_done_callback(self._warm)

    def _warm(self, portion: asyncio.Future[Buffer]) -> None:
        error = portion.exception()
        if self._unsent.next() is None:
            return  # closed meanwhile
        if error is not None:
            self._give_up(error)
            return
        self._cached_bytes = MOST_PER_TURN_BYTES
        self._send_on()

    def _give_up(self, error: BaseException) -> None:
        """Half an answer cannot be taken back; the peer may have gone as well."""
        self._wait_for_room(False)
        log.info("closing a connection: an answer could not be sent from its file: %s", error)
        self._connection.abort()
