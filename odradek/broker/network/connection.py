"""A client's connection, which splits the received bytes into frames, passes them to the dispatcher, and sends the
responses in the order of the requests.

A frame is handled in the buffer where it was received: in the shared receive buffer if it fits, otherwise in a separate
buffer. A separate buffer grows with the bytes that arrive, regardless of the announced length. One request is in flight
at a time, except that requests of the same API may overlap if their handler allows it. While a request is in flight, at
most one receive buffer or one frame of additional input is stored; then reading stops. Reading also stops if the peer
does not read its responses.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from struct import Struct as Packing
from typing import Final, cast

from odradek.broker.api.context import ConnectionInfo, ip_address
from odradek.broker.network.admission import Admission
from odradek.broker.network.connection_host import ConnectionHandshake, ConnectionHost, has_unread_bytes, unsent_bytes
from odradek.broker.network.file_sender import FileSender
from odradek.broker.network.held_bytes import HeldBytes
from odradek.broker.runtime.clock import TimerHandle
from odradek.broker.runtime.replies import AnsweredRequest, CloseConnection, ParkedRequest
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import Chunk, FileSlice, in_memory
from odradek.system.sockets import SENDS_FILES

log = logging.getLogger("odradek.connection")

LENGTH: Final = Packing(">i")
LENGTH_BYTES: Final = LENGTH.size
TLS_HANDSHAKE: Final = 0x1603  # first two bytes of a TLS handshake record
API_KEY_BYTES: Final = 2
FIRST_BUFFER_BYTES: Final = 16 * 1024  # minimum size of the buffer for a frame that did not arrive in one piece
GROWTH_FACTOR: Final = 8  # maximum size of a frame's buffer, as a multiple of the part that has arrived
ZEROS: Final = memoryview(bytes(1024 * 1024))
# While more than this many bytes are waiting to be sent to the peer, no new requests from the peer are handled.
WRITE_HIGH_WATER_BYTES: Final = 256 * 1024
MAX_OVERLAPPING_REQUESTS: Final = 32
MAX_OVERLAPPING_BYTES: Final = 8 * 1024 * 1024
# Limits on the work that one connection does in one turn of the event loop, so that other connections are served too.
REQUESTS_PER_TURN: Final = 32
TURN_S: Final = 0.002


class Connection(asyncio.BufferedProtocol):
    """A client's connection. The event loop calls get_buffer and buffer_updated alternately, so one receive buffer can
    serve all connections."""

    __slots__ = (
        "_admission",
        "_backlog",
        "_closing",
        "_file_sender",
        "_filled",
        "_handshake",
        "_held",
        "_in_flight",
        "_in_flight_bytes",
        "_is_counted_in_memory",
        "_is_reading",
        "_mute_timers",
        "_mutes",
        "_needed_bytes",
        "_overlapping_key",
        "_partial",
        "_peer_reads",
        "_server",
        "_takes_requests",
        "_transport",
        "_turn_is_due",
        "active_at_sweep",
        "info",
    )

    info: ConnectionInfo

    def __init__(self, server: ConnectionHost[Connection]) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._handshake: ConnectionHandshake | None = None
        self._held: HeldBytes | None = None  # holds bytes that arrived too early to be handled
        self._file_sender: FileSender | None = None  # created when first needed
        self._admission = Admission.ACCEPTED
        # A partially received frame with its length field, the number of bytes received so far, and the full size of
        # the frame.
        self._partial: bytearray | None = None
        self._filled = 0
        self._needed_bytes = 0
        # Frames, with their length fields, that are waiting to be handled. Reading is paused until none are left.
        self._backlog: memoryview | None = None
        # Set if the partial frame, or the first frame of the backlog, is counted in queued.max.request.bytes.
        self._is_counted_in_memory = False
        # Requests whose responses have not been sent, oldest first. An `AnsweredRequest` holds a response that is
        # waiting for earlier responses.
        self._in_flight: deque[ParkedRequest | AnsweredRequest] | None = None
        self._in_flight_bytes = 0  # total frame size of the requests in flight
        self._overlapping_key: int | None = None
        self._is_reading = True
        self._peer_reads = True
        self._mutes = 0  # number of active mutes
        self._mute_timers: list[TimerHandle] = []  # timers of the active mutes, and possibly of past mutes
        self._takes_requests = True  # whether the peer reads its responses and is not muted
        self._turn_is_due = False  # whether the event loop will call `_next_turn`
        self._closing = False
        self.active_at_sweep = server.sweep_count

    # Methods that the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        server, (host, port) = self._server, ip_address(transport.get_extra_info("peername")) or ("unknown", 0)
        self.info = ConnectionInfo(
            server.next_connection_id(), host, port, server.listener_name, stop_reading=self.throttle
        )
        self.info.owner, self.info.unsent_bytes = self, self.unsent_bytes
        self.info.transport = self._transport
        here = None if server.addresses is None else ip_address(transport.get_extra_info("sockname"))
        if here is not None:
            self.info.local_address, self.info.addresses = here, server.addresses
        self._admission = server.admit(self)
        self._closing = self._admission in (Admission.REFUSED, Admission.HELD)
        if self._admission is Admission.REFUSED:
            self._transport.abort()
            return
        if self._admission is Admission.HELD:
            self._stop_reading()
            return
        self.info.max_request_bytes = server.limits.max_request_bytes
        self.info.sends_files = SENDS_FILES and server.handshakes is None
        server.requests.connected(self.info)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        if server.handshakes is None and self._admission is Admission.ACCEPTED:
            return
        self._held = HeldBytes(self._transport, self)
        self._transport.set_protocol(self._held)
        if server.handshakes is not None:
            self._handshake = server.handshakes.new_handshake(self)
            if self._admission is Admission.ACCEPTED:
                self._handshake.start(self._transport, self._held)

    def handshake_completed(self, transport: asyncio.Transport) -> None:
        """Called when the TLS handshake is complete. After this call, all bytes go through `transport`."""
        self._transport = transport
        self._held = None
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self.active_at_sweep = self._server.sweep_count
        if self._closing:
            transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        partial = self._partial
        if partial is None:
            return self._server.receive_buffer
        if self._filled == len(partial):
            missing = min(
                self._needed_bytes - self._filled, max(FIRST_BUFFER_BYTES, (GROWTH_FACTOR - 1) * self._filled)
            )
            partial += ZEROS[:missing] if missing <= len(ZEROS) else bytes(missing)
        return memoryview(partial)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at_sweep = self._server.sweep_count
        self.info.reads += 1
        if self._closing:
            return
        partial = self._partial
        if partial is None:
            self._handle_data(self._server.received[:nbytes])
            return
        self._filled += nbytes
        if self._filled < self._needed_bytes:
            return
        self._partial = None
        self._handle_data(memoryview(partial))

    def eof_received(self) -> bool:
        """Keeps the connection open, as Kafka does, because a peer that has stopped sending may still read its
        responses."""
        self.info.got_all_responses = self.unsent_bytes() == 0
        if self._closing or self._handshake is not None or self._waits_for_others():
            return False  # with TLS, closing one direction closes both
        self._closing = True
        return True

    def pause_writing(self) -> None:
        self._peer_reads = self._takes_requests = False

    def resume_writing(self) -> None:
        self.active_at_sweep = self._server.sweep_count
        self._peer_reads = True
        self._takes_requests = self._mutes == 0
        self._resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._transport = None
        owed_bytes = self._in_flight_bytes + (self._needed_bytes - LENGTH_BYTES if self._is_counted_in_memory else 0)
        self._partial = self._backlog = None
        for timer in self._mute_timers:
            timer.cancel()
        in_flight, self._in_flight = self._in_flight, None
        for exchange in in_flight or ():
            if not isinstance(exchange, AnsweredRequest):
                exchange.abandon()
        if self._file_sender is not None:
            self._file_sender.close()
        if self._admission is not Admission.REFUSED:
            self._server.connection_closed(self, self._admission, owed_bytes)
        self.info.notify_closed()

    # Methods that the server calls.

    def serve(self) -> None:
        """Starts a connection that had to wait until the connection limits admitted it."""
        self._admission = Admission.ACCEPTED
        held, transport = self._held, self._transport
        if held is None or transport is None or self._closing:
            return
        if self._handshake is not None:
            self._handshake.start(transport, held)
            return
        self._held = None
        transport.set_protocol(self)
        held.release(transport)
        if self._is_reading and not transport.is_closing():
            transport.resume_reading()

    def throttle(self, throttle_ms: int) -> None:
        """Stops reading for `throttle_ms` because the peer exceeds its quota. Responses are still sent."""
        if self._transport is None:
            return
        self._mutes += 1
        self._mute_timers.append(self._server.timers.after(throttle_ms, self._resume_after_throttle))
        self._takes_requests = False
        self._stop_reading()
        if self._is_counted_in_memory:  # a throttled request must not hold memory that other requests need
            self._is_counted_in_memory = False
            self._release_memory(self._needed_bytes - LENGTH_BYTES)

    def _resume_after_throttle(self) -> None:
        self._mutes -= 1
        if self._mutes:
            return
        self._mute_timers.clear()
        self.active_at_sweep = self._server.sweep_count
        self._takes_requests = self._peer_reads
        self._resume_reading()

    def has_unread_bytes(self) -> bool:
        return self._backlog is not None or self._partial is not None or has_unread_bytes(self._transport, self.info)

    def unsent_bytes(self) -> int:
        return unsent_bytes(self._transport)

    def drain(self) -> None:
        """Stops handling requests and closes the connection once all responses are sent. Does not wait for responses
        that depend on a timer or on other clients."""
        self._backlog = None
        self._stop_reading()
        self._closing = True
        if self._waits_for_others():
            self._close()

    def refuse(self, reason: str) -> None:
        """Closes the connection without a response and logs the reason."""
        log.info("disconnecting %s:%d: %s", self.info.client_host, self.info.client_port, reason)
        self.abort()

    def abort(self) -> None:
        """Closes the connection without waiting for the peer to read its responses."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # Methods that divide the received bytes into frames.

    def _handle_data(self, data: memoryview) -> None:
        """Handles the frames in `data`. Stores the frames that have to wait, and an incomplete frame at the end.

        If `data` is read-only, it is part of the shared buffer, which is overwritten after this method has returned.
        """
        server, info = self._server, self.info
        position, end, handled, began_s = 0, len(data), 0, 0.0
        while end - position >= LENGTH_BYTES:
            if handled:
                if handled == 1:
                    began_s = server.now_s()
                elif handled >= REQUESTS_PER_TURN or server.now_s() - began_s >= TURN_S:
                    self._wait_with(data[position:])
                    self._wait_for_turn()
                    return
            start = position + LENGTH_BYTES
            (size,) = LENGTH.unpack_from(data, position)
            if not 0 <= size <= info.max_request_bytes:
                if size >> 16 == TLS_HANDSHAKE:
                    self._refuse("the client began a TLS handshake, but this listener expects plain text")
                else:
                    self._refuse(
                        f"the client announced a request of {size} bytes, but the limit is {info.max_request_bytes}"
                    )
                return
            if server.memory is not None and not self._is_counted_in_memory:
                if self._mutes:
                    self._wait_with(data[position:])
                    return
                if not server.memory.reserve(size):
                    self._wait_with(data[position:])
                    server.memory.wait_for_room(self._resume_reading)
                    return
                self._is_counted_in_memory = True
            if size > end - start:
                self._needed_bytes = LENGTH_BYTES + size
                self._keep_partial(data[position:])
                return
            if (self._in_flight or not self._takes_requests) and self._must_wait(data, start, size):
                self._needed_bytes = LENGTH_BYTES + size
                self._wait_with(data[position:])
                return
            position = start + size
            self._is_counted_in_memory = False
            self._handle(data[start:position])
            if self._closing:
                return
            handled += 1
        if position < end:
            self._needed_bytes = LENGTH_BYTES
            self._keep_partial(data[position:])

    def _keep_partial(self, received: memoryview) -> None:
        self._filled = len(received)
        capacity = min(self._needed_bytes, max(FIRST_BUFFER_BYTES, GROWTH_FACTOR * self._filled))
        self._partial = bytearray(capacity)
        memoryview(self._partial)[: self._filled] = received  # without the memoryview, the bytes would be copied twice

    def _must_wait(self, data: memoryview, start: int, size: int) -> bool:
        """Returns whether the request in `data` has to wait, either for earlier responses or because the peer is
        throttled."""
        if not self._takes_requests:
            return True
        if not self._in_flight:
            return False
        api_key = data[start] << 8 | data[start + 1] if size >= API_KEY_BYTES else None
        return (
            api_key != self._overlapping_key
            or len(self._in_flight) >= MAX_OVERLAPPING_REQUESTS
            or self._in_flight_bytes >= MAX_OVERLAPPING_BYTES
        )

    def _wait_with(self, data: memoryview) -> None:
        self._backlog = memoryview(bytearray(data)) if data.readonly else data
        self._stop_reading()

    def _resume_reading(self) -> None:
        """Handles the waiting frames and resumes reading. Called when the reason for waiting may no longer apply."""
        if self._closing or self._transport is None or self._mutes or self._turn_is_due:
            return
        backlog = self._backlog
        if backlog is not None:
            self._drop_backlog()
            self._handle_data(backlog)
        if self._backlog is None and not self._is_reading and not self._closing:
            self._is_reading = True
            self._transport.resume_reading()

    def _drop_backlog(self) -> None:
        self._backlog = None

    def _wait_for_turn(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._server.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_is_due = False
        self._resume_reading()

    def _stop_reading(self) -> None:
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    # Methods that handle requests and send their responses.

    def _handle(self, frame: memoryview) -> None:
        try:
            reply = self._server.requests.start(frame, self.info)
        except (MalformedMessage, CloseConnection) as error:
            self._release_memory(len(frame))
            self._hang_up(str(error))
            return
        if not isinstance(reply, list):
            self._park(reply)
        elif self._in_flight:
            self._in_flight.append(AnsweredRequest(reply, len(frame)))
            self._in_flight_bytes += len(frame)
        else:
            self._write(reply)
            if self._server.memory is not None:
                self._release_memory(len(frame))

    def _park(self, reply: ParkedRequest) -> None:
        if self._in_flight is None:
            self._in_flight = deque()
        self._in_flight.append(reply)
        self._in_flight_bytes += reply.size_bytes
        self._overlapping_key = reply.overlapping_key
        reply.when_done(self._on_answer)

    def _on_answer(self, _: object) -> None:
        """Sends all responses that need not wait for an earlier response. Called when a parked request is answered."""
        in_flight = self._in_flight
        while in_flight:
            oldest = in_flight[0]
            if isinstance(oldest, AnsweredRequest):
                chunks = oldest.answer
            elif oldest.is_done:
                try:
                    chunks = oldest.chunks()
                except CloseConnection as error:
                    in_flight.clear()
                    if error.last_answer:
                        self._write(error.last_answer)
                    self._hang_up(str(error))
                    return
            else:
                break
            in_flight.popleft()
            self._in_flight_bytes -= oldest.size_bytes
            self._write(chunks)
            if self._server.memory is not None:
                self._release_memory(oldest.size_bytes)
        if self._closing:
            if self._waits_for_others():
                self._close()
        elif self._backlog is not None:
            self._wait_for_turn()

    def _write(self, chunks: list[Chunk]) -> None:
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

    def _send_from_files(self, transport: asyncio.Transport, chunks: list[Chunk]) -> None:
        """Sends a response that has parts in files. If it cannot be sent immediately, it becomes the first request in
        flight, and all other responses wait for it."""
        sender = self._file_sender
        if sender is None:
            try:
                sender = self._file_sender = FileSender(transport, self._server.loop, self)
            except OSError:  # no file descriptors are left
                self.info.sends_files = False
                transport.writelines(in_memory(chunks))
                return
        sender.send(chunks)
        if not sender.is_done:
            if self._in_flight is None:
                self._in_flight = deque()
            self._in_flight.appendleft(sender)
            self._overlapping_key = None
            sender.when_done(self._on_answer)

    def still_sending(self) -> None:
        self.active_at_sweep = self._server.sweep_count

    def _release_memory(self, size: int) -> None:
        if self._server.memory is not None:
            self._server.release_memory(size)

    def _waits_for_others(self) -> bool:
        """Returns whether every request in flight is waiting for a timer or for other clients."""
        return all(not isinstance(one, AnsweredRequest) and one.waits_for_others for one in self._in_flight or ())

    def _refuse(self, reason: str) -> None:
        reply = self._server.requests.too_long(reason, self.info)
        if reply is None:
            self._hang_up(reason)
            return
        self._stop_reading()
        self._park(reply)

    def _hang_up(self, reason: str) -> None:
        """Closes the connection, as Kafka does if it cannot parse the received bytes. Earlier requests are still
        answered."""
        log.info("disconnecting %s:%d: %s", self.info.client_host, self.info.client_port, reason)
        self._stop_reading()
        self._closing = True
        if not self._in_flight:
            self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
