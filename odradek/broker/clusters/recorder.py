"""The recording of a broker's connections: written beside the event loop, block by block.

Entries are packed on the loop; a thread compresses and writes what has gathered since its last block. With more than
MOST_WAITING_BYTES waiting the loop itself writes, so that memory stays bounded and nothing is left out. Blocks go to a
file, or to whoever reads them over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.clusters.exchanges import WatchedRequests
from odradek.broker.runtime.workers import JobResult, ThreadWorkers
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.recording import Kind, RecordingEntry, pack_block, pack_entry, pack_head, pack_start
from odradek.protocol.recording_masks import safe_answer, safe_request

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.network.connection_host import FrameReceiver

log = logging.getLogger("odradek.recording")

MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
LACKS: Final = "the recording lacks what could not be written: %s"
TICK_S: Final = 0.005
MOST_WAITED_US: Final = 2**32 - 1
RECEIVED, ANSWERED, WRITTEN = Kind.RECEIVED.value, Kind.ANSWERED.value, Kind.WRITTEN.value


@dataclass(slots=True)
class _Peer:
    """waiting_since_us: when the oldest of the bytes may have arrived that are not handled yet; None for none."""

    info: ConnectionInfo
    number: int
    sends_files: bool  # before it was recorded
    waiting_since_us: int | None = None
    unanswered: int = 0
    sends_tokens: bool = False  # bare bytes of a login, after SaslHandshake v0
    unwritten: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Recorded:
    """An exchange under way; `api` is None for bytes that are no request."""

    number: int
    peer: _Peer
    api: ApiKey | None
    version: int
    arrived_us: int


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
        most_waiting_bytes: int = MOST_WAITING_BYTES,
        gathers_s: float = 0,
    ) -> None:
        """gathers_s: how long entries wait for more of their block. Raises OSError where it cannot be written."""
        self._gathers_s = gathers_s
        self._loop = loop
        self._most_waiting_bytes = most_waiting_bytes
        self._workers = ThreadWorkers(loop, 1, "recorder")
        self._began_ns = time.monotonic_ns()
        self._file = output
        self._file.write(pack_head(time.time_ns() // 1_000_000))
        self._file.flush()
        self._peers: dict[tuple[str, int], _Peer] = {}
        self._connections = 0
        self._exchanges = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_writing = False
        self._is_closed = False
        self._handed_over = b""  # to the thread, which has not begun with it
        self._lock = Lock()  # of what is handed over, and of the file
        self._unwritten: dict[int, _Peer] = {}
        self._look_is_due = False
        self._ticks_us = (0, 0)
        self._ticker = loop.call_later(TICK_S, self._tick)

    def wrap(self, plain: FrameReceiver, node_id: int) -> FrameReceiver:
        """node_id: of the node at which the requests arrive."""
        return WatchedRequests(plain, RecordedNode(self, node_id))

    def begin(self, frame: memoryview, connection: ConnectionInfo, node_id: int) -> Recorded | None:
        """None once it is closed."""
        if self._is_closed:
            return None
        peer = self.peer(connection, node_id)
        now_us = (time.monotonic_ns() - self._began_ns) // 1000
        arrived_us = self._ticks_us[0]
        waiting_since_us = peer.waiting_since_us
        is_behind = waiting_since_us is not None or peer.unanswered > 0
        if waiting_since_us is not None and waiting_since_us < arrived_us:
            arrived_us = waiting_since_us
        self._exchanges = number = self._exchanges + 1
        api, version, body, is_masked = safe_request(
            frame, is_authenticated=connection.is_authenticated, sends_tokens=peer.sends_tokens
        )
        if api is ApiKey.SASL_HANDSHAKE and version == 0:
            peer.sends_tokens = True
        flags = is_masked | is_behind << 1
        start = pack_start(
            RECEIVED, flags, peer.number, number, now_us, min(now_us - arrived_us, MOST_WAITED_US), len(body)
        )
        self._gather(start, body)
        peer.unanswered += 1
        return Recorded(number, peer, api, version, arrived_us)

    def end(self, recorded: Recorded, answer: list[Chunk] | None) -> None:
        if self._is_closed:
            return
        peer, now_us = recorded.peer, (time.monotonic_ns() - self._began_ns) // 1000
        peer.unanswered -= 1
        if not peer.info.has_unread_bytes():
            peer.waiting_since_us = None
        elif peer.waiting_since_us is None:
            peer.waiting_since_us = recorded.arrived_us
        if not answer:
            kind = Kind.HUNG_UP if answer is None else Kind.UNANSWERED
            self._gather(pack_start(kind, 0, peer.number, recorded.number, now_us, 0, 0), b"")
            return
        chunks = in_memory(answer)
        frame = memoryview(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        body, is_masked = safe_answer(frame, recorded.api, recorded.version)
        self._gather(pack_start(ANSWERED, is_masked, peer.number, recorded.number, now_us, 0, len(body)), body)
        peer.unwritten.append(recorded.number)
        self._unwritten[peer.number] = peer
        if not self._look_is_due:
            self._look_is_due = True
            self._loop.call_soon(self._look)

    def close(self) -> None:
        """Writes what has gathered, and has nothing more to do with the connections. Raises OSError."""
        self._is_closed = True
        self._ticker.cancel()
        for peer in self._peers.values():
            peer.info.sends_files = peer.sends_files
        self._workers.close()
        self._write_here()
        self._file.close()

    def peer(self, connection: ConnectionInfo, node_id: int) -> _Peer:
        peer = self._peers.get(connection.address)
        if peer is None:
            self._connections += 1
            peer = self._peers[connection.address] = _Peer(connection, self._connections, connection.sends_files)
            connection.sends_files = False  # what a file sends, nobody sees
            connection.when_closed(lambda: self._closed(peer))
            about = {
                "node": node_id,
                "listener": connection.listener,
                "host": connection.client_host,
                "port": connection.client_port,
                "is_sasl": not connection.is_authenticated,
            }
            self._add(RecordingEntry(Kind.OPENED, peer.number, 0, self._now_us(), json.dumps(about).encode()))
        return peer

    def _closed(self, peer: _Peer) -> None:
        if self._is_closed:
            return
        self._add(RecordingEntry(Kind.CLOSED, peer.number, 0, self._now_us()))
        self._unwritten.pop(peer.number, None)
        del self._peers[peer.info.address]

    def _look(self) -> None:
        """Notes the answers of which nothing is left to be sent."""
        self._look_is_due = False
        now_us = self._now_us()
        for peer in list(self._unwritten.values()):
            if peer.info.unsent_bytes() == 0:
                for exchange in peer.unwritten:
                    self._gather(pack_start(WRITTEN, 0, peer.number, exchange, now_us, 0, 0), b"")
                peer.unwritten.clear()
                del self._unwritten[peer.number]

    def _tick(self) -> None:
        """Whatever arrived before the tick before the last one has been handled: the loop may be late, and it tells."""
        self._ticks_us = (self._ticks_us[1], self._now_us())
        if self._unwritten:
            self._look()
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def _now_us(self) -> int:
        return (time.monotonic_ns() - self._began_ns) // 1000

    def _add(self, entry: RecordingEntry) -> None:
        self._gather(pack_entry(entry), b"")

    def _gather(self, start: bytes, body: bytes) -> None:
        """Takes an entry, packed: the loop has nothing more to do with it but to hand it over with its block."""
        self._waiting += (start, body)
        self._waiting_bytes += len(start) + len(body)
        if self._waiting_bytes > self._most_waiting_bytes:
            try:
                self._write_here()
            except OSError as error:
                log.error(LACKS, error)
        elif not self._is_writing:
            self._is_writing = True
            self._hand_over_soon()

    def _taken(self) -> bytes:
        taken, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return b"".join(taken)

    def _hand_over_soon(self) -> None:
        if self._gathers_s:
            self._loop.call_later(self._gathers_s, self._hand_over)
        else:
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self._is_closed:
            return
        self._handed_over = self._taken()  # one job at a time
        self._workers.run(self._write_handed_over, self._wrote)

    def _wrote(self, result: JobResult[None]) -> None:
        self._is_writing = False
        try:
            result.result()
        except OSError as error:
            log.error(LACKS, error)
        if self._waiting and not self._is_closed:
            self._is_writing = True
            self._hand_over_soon()

    def _write(self, entries: bytes) -> None:
        if entries:
            self._file.write(pack_block(entries))
            self._file.flush()

    def _write_handed_over(self) -> None:
        with self._lock:
            entries, self._handed_over = self._handed_over, b""
            self._write(entries)

    def _write_here(self) -> None:
        """Behind what the thread has or will write, as entries are in order."""
        with self._lock:
            entries, self._handed_over = self._handed_over + self._taken(), b""
            self._write(entries)


class RecordedNode:
    """A recorder at one node of a cluster; `odradek.broker.clusters.exchanges.Watch`."""

    def __init__(self, recorder: Recorder, node_id: int) -> None:
        self._recorder = recorder
        self._node_id = node_id

    def connected(self, connection: ConnectionInfo) -> None:
        self._recorder.peer(connection, self._node_id)

    def begin(self, frame: memoryview, connection: ConnectionInfo) -> Recorded | None:
        return self._recorder.begin(frame, connection, self._node_id)

    def end(self, exchange: Recorded, answer: list[Chunk] | None) -> None:
        self._recorder.end(exchange, answer)
