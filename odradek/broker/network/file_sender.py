"""Sends responses that have parts in files. The kernel copies these parts from the page cache to the socket, at a third
of the CPU cost of reading and then writing them.

The loop's transport cannot send from files in this way, so this module writes to a duplicate of the transport's
descriptor. It writes only while the transport has nothing left to write, and the connection passes nothing to the
transport until the response has been sent. TLS connections, and systems without `SENDS_FILES`, send from buffers
instead.
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
from odradek.system.sockets import CORK, send_buffers

MAX_BUFFERS: Final = 512  # maximum number of buffers per system call; IOV_MAX is 1024


class UnsentChunks:
    """A response's unsent chunks. Call `next` until it returns None. After each call, pass the number of bytes sent to
    `sent`; it can be less than `next` returned."""

    __slots__ = ("_at", "_chunks", "_sent_bytes")

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._at = 0  # index of the first chunk that has not been sent completely
        self._sent_bytes = 0  # number of sent bytes of that chunk

    def next(self) -> list[Buffer] | FileSlice | None:
        """Returns buffers to send in one call, or a part of a file, or None if everything has been sent."""
        chunks, at, sent_bytes = self._chunks, self._at, self._sent_bytes
        if at == len(chunks):
            return None
        first = chunks[at]
        if isinstance(first, FileSlice):
            return first.behind(sent_bytes) if sent_bytes else first
        buffers: list[Buffer] = [memoryview(first)[sent_bytes:] if sent_bytes else first]
        for chunk in chunks[at + 1 : at + MAX_BUFFERS]:
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

MAX_BYTES_PER_TURN: Final = 1024 * 1024  # maximum number of bytes sent from files before the loop runs other work


class StopReason(Enum):
    END = auto()  # everything has been sent
    NO_ROOM = auto()  # the socket's buffer is full, or the loop must run other work first
    COLD = auto()  # the next bytes are not in the page cache


class FileSenderConnection(Protocol):
    """The part of a connection that its file sender uses."""

    def still_sending(self) -> None:
        """Called when the peer has read bytes, so that the connection is considered active."""

    def abort(self) -> None: ...


class FileSender:
    """Sends one response at a time. If a response cannot be sent immediately, the connection treats it as a parked
    request until it has been sent."""

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
    size_bytes: int = 0  # the frame's memory has already been released
    waits_for_others: bool = False

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, connection: FileSenderConnection
    ) -> None:
        """Raises OSError if no file descriptors are left."""
        shared: Any = transport.get_extra_info("socket")
        if shared is None:
            raise OSError("the transport has no socket")
        self._socket = socket.socket(fileno=os.dup(shared.fileno()))
        self._socket.setblocking(False)
        self._transport = transport
        self._loop = loop
        self._connection = connection
        self._unsent = UnsentChunks(())
        self._cached_bytes = 0  # number of bytes after the current position that are known to be cached
        self._is_waiting = False  # whether the sender is waiting for space in the socket's buffer, or for its turn
        self._on_done: Callable[[object], None] | None = None
        self.is_done = True

    def send(self, chunks: list[Chunk]) -> None:
        """Starts sending a response whose file parts were just found in the page cache. Afterwards, `is_done` is true
        if the complete response was sent immediately."""
        assert self.is_done
        self.is_done = False
        self._unsent = UnsentChunks(chunks)
        self._cached_bytes = sum(map(len, chunks))
        self._socket.setsockopt(socket.IPPROTO_TCP, CORK, 1)
        self._send_on()

    def when_done(self, action: Callable[[object], None]) -> None:
        self._on_done = action

    def abandon(self) -> None:
        self._on_done = None

    def chunks(self) -> list[Chunk]:
        """Returns an empty list, since the response has already been sent."""
        return []

    def close(self) -> None:
        """Stops sending, because the connection has closed."""
        self._wait_for_room(False)
        self._unsent = UnsentChunks(())
        self._on_done = None
        self._socket.close()

    def _send_on(self) -> None:
        try:
            stopped_by = self._send_until_stopped()
        except (BlockingIOError, InterruptedError):
            stopped_by = StopReason.NO_ROOM
        except OSError as error:
            self._give_up(error)
            return
        if stopped_by is StopReason.COLD:
            self._wait_for_room(False)
            self._warm_up()
        elif stopped_by is StopReason.NO_ROOM:
            self._wait_for_room(True)
        else:
            self._wait_for_room(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, CORK, 0)
            self._unsent = UnsentChunks(())
            self.is_done = True
            action, self._on_done = self._on_done, None
            if action is not None:
                action(self)

    def _send_until_stopped(self) -> StopReason:
        """Sends until the response is complete or cannot continue. Raises OSError, including BlockingIOError."""
        if self._transport.get_write_buffer_size():  # an earlier response was written in this turn of the loop
            return StopReason.NO_ROOM
        unsent, descriptor = self._unsent, self._socket.fileno()
        left_bytes = MAX_BYTES_PER_TURN
        while (step := unsent.next()) is not None:
            if not isinstance(step, FileSlice):
                unsent.sent(send_buffers(self._socket, step))
                continue
            if left_bytes == 0:
                return StopReason.NO_ROOM
            size_bytes = min(step.size_bytes, left_bytes)
            if self._cached_bytes < size_bytes and not step.file.is_cached_at(size_bytes, step.position):
                return StopReason.COLD
            sent_bytes = step.file.send_to(descriptor, size_bytes, step.position)
            if sent_bytes == 0:
                raise OSError(f"the file ends before byte {step.position}")
            unsent.sent(sent_bytes)
            self._cached_bytes = max(0, self._cached_bytes - sent_bytes)
            left_bytes -= sent_bytes
        return StopReason.END

    def _wait_for_room(self, waits: bool) -> None:
        """Waits for space in the socket's buffer, or stops waiting. Also used to let other work run first: if the
        buffer has space, the callback runs in the next turn of the event loop."""
        if waits is not self._is_waiting:
            self._is_waiting = waits
            if waits:
                self._loop.add_writer(self._socket.fileno(), self._room)
            else:
                self._loop.remove_writer(self._socket.fileno())

    def _room(self) -> None:
        self._connection.still_sending()
        self._cached_bytes = 0  # the pages may have been evicted from the cache since the check
        self._send_on()

    def _warm_up(self) -> None:
        """Reads the next portion into the page cache in a thread."""
        step = self._unsent.next()
        assert isinstance(step, FileSlice)
        size_bytes = min(step.size_bytes, MAX_BYTES_PER_TURN)
        self._loop.run_in_executor(None, step.file.read_at, size_bytes, step.position).add_done_callback(self._warm)

    def _warm(self, portion: asyncio.Future[Buffer]) -> None:
        error = portion.exception()
        if self._unsent.next() is None:
            return  # the connection has been closed in the meantime
        if error is not None:
            self._give_up(error)
            return
        self._cached_bytes = MAX_BYTES_PER_TURN
        self._send_on()

    def _give_up(self, error: BaseException) -> None:
        """Aborts the connection after a failure, because a partly sent response cannot be taken back. The failure may
        only mean that the peer has disconnected."""
        self._wait_for_room(False)
        log.info("closing a connection: records could not be sent from their file: %s", error)
        self._connection.abort()
