"""Records the exchanges of a broker's connections, to a file or for a judge in a separate process.

To keep the cost per exchange low, the event loop only stores a few numbers for each request and response, and copies
their bytes into one buffer; the reader of the recording does the rest. A block is written after BLOCK_INTERVAL_S, or as
soon as it contains BLOCK_BYTES. If more than MAX_WAITING_BYTES are waiting, the event loop itself writes the entries,
so that memory is bounded and nothing is lost.
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.control.recording.writer import RecordingOutput, RecordingWriter
from odradek.broker.network.controlled_connection import ExchangeObserver
from odradek.broker.produce.fast_path import QuickReply
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compression import Compression
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.recording import (
    ALL_WRITTEN,
    ANSWER,
    BEHIND,
    CUT,
    FIRST,
    MASKED,
    MAX_ITEM_BYTES,
    MAX_WAIT_US,
    UNSURE_TIME,
    WITH_LENGTH,
    Kind,
    PackedEntries,
    pack_head,
)
from odradek.protocol.recording_cuts import CUT_FROM_BYTES, UncheckedCut, cut_answer, cut_request, unchecked_cut
from odradek.protocol.recording_masks import HARMLESS, SafeRequest, safe_answer, safe_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.broker.network.controlled_connection import ControlledConnection
    from odradek.broker.runtime.replies import ParkedRequest

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
BLOCK_BYTES: Final = 256 * 1024
BLOCK_INTERVAL_S: Final = 0.05
TICK_S: Final = 0.005
# The system calls that check the kernel for unread bytes have a budget, which is refilled on each tick up to a maximum.
# If clients wait for each response, these calls account for a fifth of the recorder's work.
SYSTEM_CALLS_PER_TICK: Final = 8
MAX_SYSTEM_CALLS: Final = 64
NOT_WAITING: Final = -1
FRAME_START_BYTES: Final = 10  # size of the request header before the client id
OPENED, CLOSED, RECEIVED = Kind.OPENED.value, Kind.CLOSED.value, Kind.RECEIVED.value
ANSWERED, UNANSWERED = Kind.ANSWERED.value, Kind.UNANSWERED.value
HUNG_UP, WRITTEN, EVENT = Kind.HUNG_UP.value, Kind.WRITTEN.value, Kind.EVENT.value
ANSWERED_CUT = Kind.ANSWERED_CUT.value


class Recorder:
    """Records the exchanges of one cluster as its clients see them, after all faults have been applied.

    Not thread-safe: all methods must be called in the event loop's thread.
    """

    def __init__(
        self,
        output: RecordingOutput,
        loop: asyncio.AbstractEventLoop,
        *,
        compression: Compression = Compression.ZSTD,
        keeps_records: bool = True,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
    ) -> None:
        """Creates a recorder and writes the head of the recording.

        compression         how a thread compresses the blocks. With NONE, the event loop itself calls `output`, which
                            must then not block
        keeps_records       whether to record large record batches completely. If not, only their headers are recorded,
                            which are enough for a judge
        max_waiting_bytes   maximum size of the entries waiting to be written

        Raises OSError if the output cannot be written.
        """
        self.keeps_records = keeps_records
        self._loop = loop
        self._max_waiting_bytes = max_waiting_bytes
        self.block_bytes = min(BLOCK_BYTES, max_waiting_bytes)
        # The clock and `harmless` are used in each exchange, and instance attributes are faster to look up than module
        # attributes.
        self.clock_ns, self.harmless = time.monotonic_ns, HARMLESS
        self.began_ns = time.monotonic_ns()
        self._writer = RecordingWriter(
            output, pack_head(time.time_ns() // 1_000_000), loop, compression, self._block_written
        )
        self._nodes: dict[int, RecordedNode] = {}
        self._recorded: dict[int, RecordedConnection] = {}  # open connections by number
        self._connections = 0
        self.waiting = PackedEntries()
        self.gathers: asyncio.TimerHandle | None = None  # timer that writes the next block
        self.unwritten: list[RecordedConnection] = []  # connections whose responses may not have been sent completely
        self._last_tick_us = 0
        self.tick_before_us = 0
        self.system_calls_left = MAX_SYSTEM_CALLS
        self._ticker = loop.call_later(TICK_S, self._tick)
        self.exchanges = 0
        self.is_closed = False

    def observer_of(self, node_id: int) -> RecordedNode:
        """Returns the observer of this node's connections."""
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = RecordedNode(self, node_id)
        return node

    def record_event(self, about: Mapping[str, object]) -> None:
        """Records an event that is not an exchange, such as a call to the control interface."""
        if self.is_closed:
            return
        body = json.dumps(about).encode()
        self.waiting.add(EVENT, 0, 0, self.now_us(), 0, body)
        self.gather()

    def close(self) -> None:
        """Writes the remaining entries and stops observing the connections. Raises OSError."""
        self.is_closed = True
        self._ticker.cancel()
        if self.gathers is not None:
            self.gathers.cancel()
        if self.keeps_records:
            for recorded in self._recorded.values():
                recorded.info.sends_files = recorded.sends_files
        self._writer.close(self._take_entries())

    def opened(self, connection: ControlledConnection, node: RecordedNode) -> RecordedConnection:
        self._connections += 1
        info, number = connection.info, self._connections
        recorded = RecordedConnection(self, node, connection, number)
        self._recorded[number] = recorded
        if self.keeps_records:
            info.sends_files = False  # the recorder could not see data that the kernel sends directly from a file
        info.when_closed(partial(self._connection_closed, recorded))
        about = {
            "node": node.node_id,
            "listener": info.listener,
            "host": info.client_host,
            "port": info.client_port,
            "is_sasl": not info.is_authenticated,
        }
        self.waiting.add(OPENED, number, 0, self.now_us(), 0, json.dumps(about).encode())
        self.gather()
        return recorded

    def _connection_closed(self, recorded: RecordedConnection) -> None:
        if self.is_closed:
            return
        now_us = self.now_us()
        if recorded.unwritten_read and recorded.info.got_all_responses and not recorded.unanswered:
            self.waiting.add(WRITTEN, recorded.number, 0, now_us, 0, b"")
        self.waiting.add(CLOSED, recorded.number, 0, now_us, 0, b"")
        self.gather()
        # The connection stays in `unwritten` until the next tick. Removing it here would be slow when many connections
        # close.
        recorded.unwritten_read = 0
        del self._recorded[recorded.number]

    def _tick(self) -> None:
        """Runs every TICK_S, or later if the event loop is busy.

        Stores the time of the previous tick. All bytes that arrived before that time have been handled.
        """
        self.tick_before_us, self._last_tick_us = self._last_tick_us, self.now_us()
        self.waiting.run = None  # the next request has a different time, so it cannot continue the run
        self.system_calls_left = min(self.system_calls_left + SYSTEM_CALLS_PER_TICK, MAX_SYSTEM_CALLS)
        if self.unwritten:
            self._record_written()
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def _record_written(self) -> None:
        """Records which connections have finished sending their responses."""
        now_us = self.now_us()
        left: list[RecordedConnection] = []
        for each in self.unwritten:
            if each.unwritten_read and (each.connection.unsent_bytes() or each.connection.has_unread_bytes()):
                left.append(each)
                continue
            each.is_listed = False
            if each.unwritten_read:
                each.unwritten_read = 0
                if not each.unanswered:
                    each.is_sure, each.waiting_since_us = True, NOT_WAITING
                self.waiting.add(WRITTEN, each.number, 0, now_us, 0, b"")
        self.unwritten = left
        self.gather()

    def now_us(self) -> int:
        return (time.monotonic_ns() - self.began_ns) // 1000

    def gather(self) -> None:
        """Ensures that the waiting entries are written soon. They are written immediately, by the thread, or when a
        timer expires."""
        size_bytes = self.waiting.size_bytes
        if size_bytes < self.block_bytes and self.gathers is not None:
            return
        if size_bytes > self._max_waiting_bytes:
            self._writer.write(self._take_entries())
        elif self._writer.is_busy:
            return
        elif size_bytes >= self.block_bytes:
            self._hand_over()
        else:
            self.gathers = self._loop.call_later(BLOCK_INTERVAL_S, self._hand_over)

    def _take_entries(self) -> PackedEntries:
        entries, self.waiting = self.waiting, PackedEntries()
        return entries

    def _hand_over(self) -> None:
        if self.gathers is not None:
            self.gathers.cancel()
            self.gathers = None
        if not self.is_closed and not self._writer.is_busy:
            self._writer.hand_over(self._take_entries())

    def _block_written(self) -> None:
        if self.waiting.size_bytes and not self.is_closed:
            self.gather()


class RecordedNode:
    """Observes the connections of one node. Implements `ObserverFactory` of `controlled_connection.py`."""

    def __init__(self, recorder: Recorder, node_id: int) -> None:
        self._recorder = recorder
        self.node_id = node_id

    def observe(self, connection: ControlledConnection) -> RecordedConnection:
        return self._recorder.opened(connection, self)


class RecordedConnection(ExchangeObserver):
    """Records the exchanges of one connection.

    sends_files       whether the connection sent data directly from files before it was recorded
    waiting_since_us  earliest time at which unhandled bytes can have arrived; NOT_WAITING if no bytes are waiting
    _arrived_us       earliest time at which the last request can have arrived
    unwritten_read    number of the read whose requests may have unsent responses; 0 if all responses have been sent
    is_sure           whether it is known which bytes were waiting when the last request was answered
    _is_pipelined     whether any request has arrived before its predecessor was answered
    is_listed         whether the connection is in `Recorder.unwritten`, which the next tick examines
    """

    __slots__ = (
        "_arrived_us",
        "_ended",
        "_exchange",
        "_is_pipelined",
        "_masked",
        "_recorder",
        "_request_count",
        "_run_read",
        "_sends_tokens",
        "_size_bytes",
        "_unchecked",
        "connection",
        "info",
        "is_listed",
        "is_sure",
        "number",
        "sends_files",
        "unwritten_read",
        "waiting_since_us",
    )

    def __init__(self, recorder: Recorder, node: RecordedNode, connection: ControlledConnection, number: int) -> None:
        super().__init__(node)
        self._recorder = recorder
        self.connection = connection
        self.info = connection.info
        self.number = number
        self.sends_files = connection.info.sends_files
        self.waiting_since_us = NOT_WAITING
        self._arrived_us = self._exchange = self._size_bytes = 0
        self._run_read = 0  # number of the read in which the last run's requests arrived
        self._request_count = self._ended = 0  # numbers of requests and completed exchanges on this connection
        self.unwritten_read = 0
        self.is_sure = True
        self.is_listed = self._is_pipelined = False
        self._sends_tokens = False  # whether SASL tokens arrive without a request header, as after SaslHandshake v0
        # Unanswered requests that may contain secrets, by their number on this connection; None until the first of them
        # arrives.
        self._masked: dict[int, SafeRequest] | None = None
        # The last request, with the flags and times of its entry. It is recorded once the broker has handled it,
        # because the broker may check the CRC of its batch.
        self._unchecked: tuple[UncheckedCut, int, int, int] | None = None

    @property
    def unanswered(self) -> int:
        return self._request_count - self._ended

    def request_received(self, frame: memoryview) -> bool:
        recorder, info = self._recorder, self.info
        if recorder.is_closed:
            return False
        size = self._size_bytes = len(frame)
        self._request_count += 1
        recorder.exchanges += 1
        self._exchange = recorder.exchanges
        is_harmless = size >= FRAME_START_BYTES and recorder.harmless[frame[1]] and info.is_authenticated
        waiting = recorder.waiting
        if waiting.run is self and self._run_read == info.reads and is_harmless and size < CUT_FROM_BYTES:
            self._is_pipelined = True
            waiting.item(0, frame)
            return False
        now_us = (recorder.clock_ns() - recorder.began_ns) // 1000
        flags = self._place_in_time()
        waited_us = min(now_us - self._arrived_us, MAX_WAIT_US)
        if is_harmless and size <= MAX_ITEM_BYTES:
            is_cut = size >= CUT_FROM_BYTES and not recorder.keeps_records
            unchecked = unchecked_cut(frame) if is_cut else None
            if unchecked is not None:
                self._unchecked = unchecked, flags, now_us, waited_us
                return True
            self._begin_entry(flags, now_us, waited_us)
            parts = cut_request(frame) if is_cut else None
            if parts is None:
                waiting.item(FIRST, frame)
            else:
                waiting.item_parts(FIRST | CUT, parts)
        else:
            masked = self._mask(frame)
            flags |= RECEIVED | (MASKED if masked.is_masked else 0)
            waiting.add(flags, self.number, 0, now_us, waited_us, masked.body)
        if recorder.gathers is None or waiting.size_bytes >= recorder.block_bytes:
            recorder.gather()
        return False

    def request_handled(self, reply: list[Chunk] | ParkedRequest) -> None:
        self._note_unchecked(isinstance(reply, QuickReply))

    def _note_unchecked(self, is_sound: bool) -> None:
        """Records the last request. If the CRC of its record batch is valid, the records are left out.

        is_sound  whether the broker has found the CRC to be valid; if not, this method checks it
        """
        recorder, noted, self._unchecked = self._recorder, self._unchecked, None
        if noted is None or recorder.is_closed:
            return
        unchecked, flags, now_us, waited_us = noted
        self._begin_entry(flags, now_us, waited_us)
        if is_sound or unchecked.is_sound():
            recorder.waiting.item_parts(FIRST | CUT, unchecked.parts())
        else:
            recorder.waiting.item(FIRST, unchecked.whole())
        recorder.gather()

    def _begin_entry(self, flags: int, now_us: int, waited_us: int) -> None:
        """Begins a run of entries with the request that has just arrived."""
        self._recorder.waiting.begin_entry(self, flags, self.number, now_us, waited_us)
        self._run_read = self.info.reads

    def _place_in_time(self) -> int:
        """Determines the earliest time at which the last request can have arrived. Returns the request's flags."""
        arrived_us = self._recorder.tick_before_us
        flags = 0
        if self._request_count - self._ended > 1 or self.waiting_since_us != NOT_WAITING:
            flags = BEHIND
            if NOT_WAITING != self.waiting_since_us < arrived_us:
                arrived_us = self.waiting_since_us
        elif self.unwritten_read == 0:
            if not self.is_sure:
                flags = UNSURE_TIME
        elif self.unwritten_read == self.info.reads:
            flags = BEHIND
        elif not self.is_sure:
            flags = UNSURE_TIME
        elif self.connection.unsent_bytes():
            flags = BEHIND
        else:
            self.unwritten_read = 0
            flags = ALL_WRITTEN
        if flags == BEHIND:
            self._is_pipelined = True
        self._arrived_us = arrived_us
        return flags

    def _mask(self, frame: memoryview) -> SafeRequest:
        masked = safe_request(frame, is_authenticated=self.info.is_authenticated, sends_tokens=self._sends_tokens)
        if masked.api is ApiKey.SASL_HANDSHAKE and masked.version == 0:
            self._sends_tokens = True
        if self._masked is None:
            self._masked = {}
        self._masked[self._request_count] = masked
        return masked

    def response_sent(self, chunks: list[Chunk]) -> None:
        recorder = self._recorder
        if self.unseen:
            self.unseen -= 1
            return
        if recorder.is_closed or self._request_count == self._ended:
            return
        waiting = recorder.waiting
        self._ended += 1
        self._look_for_input()
        if not chunks:
            waiting.add(UNANSWERED, self.number, 0, recorder.now_us(), 0, b"")
            recorder.gather()
            return
        chunk = chunks[0]
        masked = self._masked.pop(self._ended, None) if self._masked else None
        if masked is not None:
            whole = b"".join(in_memory(chunks))
            body, is_masked = safe_answer(memoryview(whole), masked.api, masked.version)
            kind = ANSWERED | MASKED if is_masked else ANSWERED
            waiting.add(kind, self.number, 0, recorder.now_us(), 0, body)
        elif len(chunks) == 1 and isinstance(chunk, (bytes, bytearray)):
            if waiting.run is self and len(chunk) <= MAX_ITEM_BYTES:
                waiting.item(ANSWER, chunk)
            else:
                waiting.add(ANSWERED | WITH_LENGTH, self.number, 0, recorder.now_us(), 0, chunk)
        else:
            parts = None if recorder.keeps_records else cut_answer(chunks)
            if waiting.run is self and parts is not None:
                waiting.item_parts(ANSWER | CUT, parts)
            else:
                kind = (ANSWERED if parts is None else ANSWERED_CUT) | WITH_LENGTH
                waiting.add_parts(kind, self.number, 0, recorder.now_us(), 0, parts or in_memory(chunks))
        self.unwritten_read = self.info.reads
        if not self.is_listed:
            self.is_listed = True
            recorder.unwritten.append(self)
        if waiting.size_bytes >= recorder.block_bytes:
            recorder.gather()

    def _look_for_input(self) -> None:
        """Determines whether more bytes are waiting when a request is answered. The client sent these bytes before it
        received the response.

        The kernel is checked at most once for the requests of one read. If it has been checked often recently, and the
        client has so far waited for each response, only this process's own buffers are examined. Bytes in the kernel
        are then read in the next turn of the event loop, and `is_sure` is False.
        """
        recorder = self._recorder
        if self.waiting_since_us == NOT_WAITING and self.unwritten_read == self.info.reads:
            return
        if recorder.system_calls_left or self._is_pipelined or self._size_bytes >= CUT_FROM_BYTES:
            recorder.system_calls_left = max(recorder.system_calls_left - 1, 0)
            self.is_sure = True
            waits = self.connection.has_unread_bytes()
        else:
            self.is_sure = False
            waits = self.connection.holds_input
        if not waits:
            self.waiting_since_us = NOT_WAITING
        elif self.waiting_since_us == NOT_WAITING:
            self.waiting_since_us = self._arrived_us

    def closed_without_response(self, is_newest: bool) -> None:
        recorder = self._recorder
        if recorder.is_closed or not self.unanswered:
            return
        self._note_unchecked(False)
        if is_newest:
            self._request_count -= 1
        else:
            self._ended += 1
        exchange = self._exchange if is_newest else 0
        recorder.waiting.add(HUNG_UP, self.number, exchange, recorder.now_us(), 0, b"")
        recorder.gather()
