"""The recording of a broker's connections: to a file, or to a judge in a process of its own.

The loop notes a few numbers of each request and each answer, and copies the bytes into one buffer; all else is the
reader's work. What has gathered for GATHERS_S, or GATHERS_BYTES, becomes a block. A thread compresses and writes those
of a file. With more than MOST_WAITING_BYTES waiting the loop itself writes, so that memory stays bounded and nothing is
left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.runtime.delayed import CloseConnection
from odradek.broker.runtime.workers import JobResult, ThreadWorkers
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compression import Compression
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.recording import (
    ALL_WRITTEN,
    BEHIND,
    MASKED,
    WITH_LENGTH,
    Kind,
    PackedEntries,
    pack_block,
    pack_head,
)
from odradek.protocol.recording_cuts import CUT_FROM_BYTES, cut_answer, cut_request
from odradek.protocol.recording_masks import HARMLESS, SafeRequest, safe_answer, safe_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.broker.network.connection_host import FrameReceiver, LoginCounts
    from odradek.broker.runtime.delayed import Parked

log = logging.getLogger("odradek.recording")

MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
GATHERS_BYTES: Final = 256 * 1024
GATHERS_S: Final = 0.05
LACKS: Final = "the recording lacks what could not be written: %s"
TICK_S: Final = 0.005
FRAME_START_BYTES: Final = 10  # of a request: all before the client id
OPENED, CLOSED, RECEIVED = Kind.OPENED.value, Kind.CLOSED.value, Kind.RECEIVED.value
ANSWERED, UNANSWERED = Kind.ANSWERED.value, Kind.UNANSWERED.value
HUNG_UP, WRITTEN, TOLD = Kind.HUNG_UP.value, Kind.WRITTEN.value, Kind.TOLD.value
RECEIVED_CUT, ANSWERED_CUT = Kind.RECEIVED_CUT.value, Kind.ANSWERED_CUT.value


@dataclass(slots=True)
class Peer:
    """A connection.

    waiting_since_us  when the oldest of the bytes may have arrived that are not handled yet; None for none
    arrived_us        when the last request may have, at the earliest
    unwritten_read    the read whose requests have an answer that may not have left yet; 0 for none
    is_listed         among those that are looked at with the next tick
    """

    info: ConnectionInfo
    number: int
    sends_files: bool  # before it was recorded
    waiting_since_us: int | None = None
    arrived_us: int = 0
    unanswered: int = 0
    sends_tokens: bool = False  # bare bytes of a login, after SaslHandshake v0
    unwritten_read: int = 0
    is_listed: bool = False


class RecordingOutput(Protocol):
    """Receives the head and the blocks of a recording, of the loop or of a thread, one after the other."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Recorder:
    """Watches requests in front of whatever answers them, faults included; loop thread only."""

    def __init__(
        self,
        output: RecordingOutput,
        loop: asyncio.AbstractEventLoop,
        *,
        compression: Compression = Compression.ZSTD,
        keeps_records: bool = True,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        """
        compression    in a thread; with NONE, the loop itself hands blocks to `output`, which must not wait
        keeps_records  False: only what a judge needs of them

        Raises OSError where it cannot be written.
        """
        self._keeps_records = keeps_records
        self._compression = compression
        self._loop = loop
        self._most_waiting_bytes = most_waiting_bytes
        self._gathers_bytes = min(GATHERS_BYTES, most_waiting_bytes)
        self._workers = ThreadWorkers(loop, 1, "recorder")
        # Needed in each exchange, and found faster here than in a module.
        self._clock_ns, self._harmless = time.monotonic_ns, HARMLESS
        self._began_ns = time.monotonic_ns()
        self._file = output
        self._file.write(pack_head(time.time_ns() // 1_000_000))
        self._file.flush()
        self._peers: dict[int, Peer] = {}  # by the identity of what is known of the connection
        self._connections = 0
        self._waiting = PackedEntries()
        self._gathers: asyncio.TimerHandle | None = None  # until the next block
        self._is_writing = False
        self._handed_over: PackedEntries | None = None  # to the thread, which has not begun with it
        self._lock = Lock()  # of what is handed over, and of the file
        self.unwritten: list[Peer] = []  # those with answers that may not have left
        self._last_tick_us = 0
        self._tick_before_us = 0
        self._ticker = loop.call_later(TICK_S, self._tick)
        self.exchanges = 0
        self.is_closed = False

    def wrap(self, plain: FrameReceiver, node_id: int) -> FrameReceiver:
        """node_id: of the node at which the requests arrive."""
        return RecordedRequests(plain, self, node_id)

    def peer(self, connection: ConnectionInfo, node_id: int) -> Peer:
        peer = self._peers.get(id(connection))
        return self._opened(connection, node_id) if peer is None else peer

    def received(self, peer: Peer, frame: memoryview) -> SafeRequest | None:
        """Numbers an exchange. Returns what is kept of a request that may hold secrets; None for another."""
        now_us = (self._clock_ns() - self._began_ns) // 1000
        info = peer.info
        arrived_us = self._tick_before_us
        waiting_since_us = peer.waiting_since_us
        flags = RECEIVED
        if waiting_since_us is not None:
            flags |= BEHIND
            if waiting_since_us < arrived_us:
                arrived_us = waiting_since_us
        elif peer.unanswered:
            flags |= BEHIND
        if peer.unwritten_read and peer.unwritten_read != info.reads and info.unsent_bytes() == 0:
            peer.unwritten_read = 0
            flags |= ALL_WRITTEN
        peer.arrived_us = arrived_us
        peer.unanswered += 1
        self.exchanges += 1
        waiting = self._waiting
        masked: SafeRequest | None = None
        size = len(frame)
        if size < FRAME_START_BYTES or not self._harmless[frame[1]] or not info.is_authenticated:
            masked = safe_request(frame, is_authenticated=info.is_authenticated, sends_tokens=peer.sends_tokens)
            if masked.api is ApiKey.SASL_HANDSHAKE and masked.version == 0:
                peer.sends_tokens = True
            if masked.is_masked:
                flags |= MASKED
            waiting.add(flags, peer.number, self.exchanges, now_us, now_us - arrived_us, masked.body)
        else:
            parts = cut_request(frame) if size >= CUT_FROM_BYTES and not self._keeps_records else None
            if parts is None:
                waiting.add(flags, peer.number, self.exchanges, now_us, now_us - arrived_us, frame)
            else:
                flags += RECEIVED_CUT - RECEIVED
                waiting.add_parts(flags, peer.number, self.exchanges, now_us, now_us - arrived_us, parts)
        if self._gathers is None or waiting.size_bytes >= self._gathers_bytes:
            self._gather()
        return masked

    def answered(
        self, peer: Peer, exchange: int, masked: SafeRequest | None, arrived_us: int, answer: list[Chunk] | None
    ) -> None:
        """Ends an exchange. answer: None where the connection was closed instead; empty where there is none."""
        if self.is_closed:
            return
        info = peer.info
        peer.unanswered -= 1
        # Of what came with this request it is known that it came with it, and the kernel is asked only once.
        if peer.waiting_since_us is not None or peer.unwritten_read != info.reads:
            if not info.has_unread_bytes():
                peer.waiting_since_us = None
            elif peer.waiting_since_us is None:
                peer.waiting_since_us = arrived_us
        now_us = (self._clock_ns() - self._began_ns) // 1000
        waiting = self._waiting
        if not answer:
            waiting.add(HUNG_UP if answer is None else UNANSWERED, peer.number, exchange, now_us, 0, b"")
            self._gather()
            return
        chunk = answer[0]
        if masked is not None:
            whole = b"".join(in_memory(answer))
            body, is_masked = safe_answer(memoryview(whole), masked.api, masked.version)
            waiting.add(ANSWERED | MASKED if is_masked else ANSWERED, peer.number, exchange, now_us, 0, body)
        elif len(answer) == 1 and isinstance(chunk, (bytes, bytearray)):
            waiting.add(ANSWERED | WITH_LENGTH, peer.number, exchange, now_us, 0, chunk)
        else:
            parts = None if self._keeps_records else cut_answer(answer)
            kind = ANSWERED if parts is None else ANSWERED_CUT
            waiting.add_parts(kind | WITH_LENGTH, peer.number, exchange, now_us, 0, parts or in_memory(answer))
        peer.unwritten_read = info.reads
        if not peer.is_listed:
            peer.is_listed = True
            self.unwritten.append(peer)
        if waiting.size_bytes >= self._gathers_bytes:
            self._gather()

    def tell(self, about: Mapping[str, object]) -> None:
        """Keeps what is no exchange, before all that comes."""
        if self.is_closed:
            return
        body = json.dumps(about).encode()
        self._waiting.add(TOLD, 0, 0, self._now_us(), 0, body)
        self._gather()

    def close(self) -> None:
        """Writes what has gathered, and has nothing more to do with the connections. Raises OSError."""
        self.is_closed = True
        self._ticker.cancel()
        if self._gathers is not None:
            self._gathers.cancel()
        if self._keeps_records:
            for peer in self._peers.values():
                peer.info.sends_files = peer.sends_files
        self._workers.close()
        self._write_here()
        self._file.close()

    def _opened(self, connection: ConnectionInfo, node_id: int) -> Peer:
        self._connections += 1
        peer = self._peers[id(connection)] = Peer(connection, self._connections, connection.sends_files)
        if self._keeps_records:
            connection.sends_files = False  # what a file sends, nobody sees
        connection.when_closed(partial(self._closed, peer))
        about = {
            "node": node_id,
            "listener": connection.listener,
            "host": connection.client_host,
            "port": connection.client_port,
            "is_sasl": not connection.is_authenticated,
        }
        body = json.dumps(about).encode()
        self._waiting.add(OPENED, peer.number, 0, self._now_us(), 0, body)
        self._gather()
        return peer

    def _closed(self, peer: Peer) -> None:
        if self.is_closed:
            return
        now_us = self._now_us()
        if peer.unwritten_read and peer.info.got_all and not peer.unanswered:
            self._waiting.add(WRITTEN, peer.number, 0, now_us, 0, b"")
        self._waiting.add(CLOSED, peer.number, 0, now_us, 0, b"")
        self._gather()
        peer.unwritten_read = (
            0  # it stays listed until the next tick: to find it takes longer where many close at a time
        )
        del self._peers[id(peer.info)]

    def _tick(self) -> None:
        """Whatever arrived before the tick before the last one has been handled: the loop may be late, and it tells."""
        self._tick_before_us, self._last_tick_us = self._last_tick_us, self._now_us()
        if self.unwritten:
            self._look()
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def _look(self) -> None:
        """Notes the answers of which nothing is left to be sent."""
        now_us, left = self._now_us(), []
        for peer in self.unwritten:
            if peer.unwritten_read and (peer.info.unsent_bytes() or peer.info.has_unread_bytes()):
                left.append(peer)
                continue
            peer.is_listed = False
            if peer.unwritten_read:
                peer.unwritten_read = 0
                self._waiting.add(WRITTEN, peer.number, 0, now_us, 0, b"")
        self.unwritten = left
        self._gather()

    def _now_us(self) -> int:
        return (time.monotonic_ns() - self._began_ns) // 1000

    def _gather(self) -> None:
        """Sees to it that what waits is written in time."""
        size_bytes = self._waiting.size_bytes
        if size_bytes < self._gathers_bytes and self._gathers is not None:
            return
        if size_bytes > self._most_waiting_bytes:
            self._write_now()
        elif self._is_writing:
            return
        elif size_bytes >= self._gathers_bytes:
            self._hand_over()
        else:
            self._gathers = self._loop.call_later(GATHERS_S, self._hand_over)

    def _taken(self) -> PackedEntries:
        taken, self._waiting = self._waiting, PackedEntries()
        return taken

    def _hand_over(self) -> None:
        if self._gathers is not None:
            self._gathers.cancel()
            self._gathers = None
        if self.is_closed or self._is_writing:
            return
        if self._compression is Compression.NONE:
            self._write_now()
            return
        self._is_writing = True
        self._handed_over = self._taken()  # one job at a time
        self._workers.run(self._write_handed_over, self._wrote)

    def _wrote(self, result: JobResult[None]) -> None:
        self._is_writing = False
        try:
            result.result()
        except OSError as error:
            log.error(LACKS, error)
        if self._waiting.size_bytes and not self.is_closed:
            self._gather()

    def _write_now(self) -> None:
        try:
            self._write_here()
        except OSError as error:
            log.error(LACKS, error)

    def _write(self, entries: PackedEntries | None) -> None:
        if entries is not None and entries.size_bytes:
            self._file.write(pack_block(entries.pack(), self._compression))
            self._file.flush()

    def _write_handed_over(self) -> None:
        with self._lock:
            entries, self._handed_over = self._handed_over, None
            self._write(entries)

    def _write_here(self) -> None:
        """Behind what the thread has or will write, as entries are in order."""
        with self._lock:
            entries, self._handed_over = self._handed_over, None
            self._write(entries)
            self._write(self._taken())


class RecordedRequests:
    """A recorder at one node of a cluster; `odradek.broker.network.connection_host.FrameReceiver`."""

    def __init__(self, plain: FrameReceiver, recorder: Recorder, node_id: int) -> None:
        self._plain = plain
        self._recorder = recorder
        self._node_id = node_id

    @property
    def logins(self) -> LoginCounts | None:
        return self._plain.logins

    def connected(self, connection: ConnectionInfo) -> None:
        self._plain.connected(connection)
        if not self._recorder.is_closed:
            self._recorder.peer(connection, self._node_id)

    def too_long(self, reason: str, connection: ConnectionInfo) -> Parked | None:
        return self._plain.too_long(reason, connection)

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | Parked:
        recorder = self._recorder
        if recorder.is_closed:
            return self._plain.start(frame, connection)
        peer = recorder.peer(connection, self._node_id)
        masked = recorder.received(peer, frame)
        exchange, arrived_us = recorder.exchanges, peer.arrived_us
        try:
            reply = self._plain.start(frame, connection)
        except (CloseConnection, MalformedMessage):
            recorder.answered(peer, exchange, masked, arrived_us, None)
            raise
        if isinstance(reply, list):
            recorder.answered(peer, exchange, masked, arrived_us, reply)
            return reply
        return RecordedReply(reply, recorder, peer, exchange, masked, arrived_us)


class RecordedReply:
    """An answer that is not there yet; `odradek.broker.runtime.delayed.Parked`."""

    __slots__ = (
        "_arrived_us",
        "_exchange",
        "_masked",
        "_peer",
        "_recorder",
        "_reply",
        "overlapping_key",
        "size_bytes",
    )

    def __init__(
        self,
        reply: Parked,
        recorder: Recorder,
        peer: Peer,
        exchange: int,
        masked: SafeRequest | None,
        arrived_us: int,
    ) -> None:
        self.size_bytes = reply.size_bytes
        self.overlapping_key = reply.overlapping_key
        self._reply = reply
        self._recorder = recorder
        self._peer = peer
        self._exchange = exchange
        self._masked = masked
        self._arrived_us = arrived_us

    @property
    def waits_for_others(self) -> bool:
        return self._reply.waits_for_others

    @property
    def is_done(self) -> bool:
        return self._reply.is_done

    def when_done(self, action: Callable[[object], None]) -> None:
        self._reply.when_done(action)

    def abandon(self) -> None:
        self._reply.abandon()

    def chunks(self) -> list[Chunk]:
        """Raises CloseConnection."""
        try:
            answer = self._reply.chunks()
        except CloseConnection:
            self._recorder.answered(self._peer, self._exchange, self._masked, self._arrived_us, None)
            raise
        self._recorder.answered(self._peer, self._exchange, self._masked, self._arrived_us, answer)
        return answer
