"""A proxy in front of any Kafka broker. Records requests and responses, like `odradek serve --record`.

Clients use the proxy only if the broker advertises its address. If a response gives them another address, they bypass
the proxy, and the recording notes that. The proxy forwards bytes as they arrive, and parses frames on the side. It
reads from each side no faster than the other side accepts.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek.protocol.api_facts import facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import LENGTH_BYTES
from odradek.protocol.recording import Kind, RecordingEntry, pack_block, pack_entries, pack_head
from odradek.protocol.recording_masks import safe_answer, safe_request, sasl_answer
from odradek.testing.advertised import Address, addresses_in, is_same_place

TICK_S: Final = 0.005
LOOKS_UP_S: Final = 2.0  # how long `close` waits for names that are still being resolved
MOST_ADDRESSES: Final = 1000
CORRELATION_ID: Final = slice(4, 8)  # position in a request without its length


class RecordingProxy:
    """Serves until it is closed. `port` is set by `start`. `exchanges` counts requests. `elsewhere` lists the
    advertised addresses that do not belong to the proxy."""

    def __init__(
        self, recording: Path, upstream: tuple[str, int], warn: Callable[[Address], None] = lambda _: None
    ) -> None:
        """Creates a proxy that has not started. `warn` is called once for each advertised address that bypasses the
        proxy. Raises OSError if the recording cannot be written."""
        self.upstream = upstream
        self.elsewhere: list[Address] = []
        self._warn = warn
        self._host = ""
        self._addresses: set[Address] = set()  # addresses that were already checked
        self._looking: set[asyncio.Task[None]] = set()
        self.port = 0
        self.exchanges = 0
        self._began_ns = time.monotonic_ns()
        self._file = recording.open("wb")
        self._file.write(pack_head(time.time_ns() // 1_000_000))
        self._waiting: list[RecordingEntry] = []
        self._ticks_us = (0, 0)
        self._ticker: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._connections = 0
        self._open: set[_ProxySide] = set()

    async def start(self, host: str, port: int) -> None:
        """Starts to listen; port 0 chooses a free port. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._host = host
        self._server = await loop.create_server(self._accepted, host, port)
        self.port = self._server.sockets[0].getsockname()[1]
        self._tick()

    async def close(self) -> None:
        """Closes all connections, and writes the rest of the recording. Raises OSError."""
        if self._server is not None:
            self._server.close()
        if self._ticker is not None:
            self._ticker.cancel()
        for side in list(self._open):
            side.abort()
        while self._open:
            await asyncio.sleep(0)
        if self._looking:
            await asyncio.wait(self._looking, timeout=LOOKS_UP_S)
        self._write()
        self._file.close()

    def advertised(self, addresses: Iterable[Address]) -> None:
        """Checks addresses that a response has given to clients."""
        for address in addresses:
            if address not in self._addresses and len(self._addresses) < MOST_ADDRESSES:
                self._addresses.add(address)
                task = asyncio.ensure_future(self._look_at(address))
                self._looking.add(task)
                task.add_done_callback(self._looking.discard)

    async def _look_at(self, address: Address) -> None:
        if await is_same_place(address, (self._host, self.port)):
            return
        self.elsewhere.append(address)
        told = {"elsewhere": f"{address[0]}:{address[1]}"}
        self.add(RecordingEntry(Kind.TOLD, 0, 0, self.now_us(), json.dumps(told).encode()))
        self._warn(address)

    def opened(self, side: _ProxySide) -> None:
        self._open.add(side)

    def closed(self, side: _ProxySide) -> None:
        self._open.discard(side)

    def now_us(self) -> int:
        return (time.monotonic_ns() - self._began_ns) // 1000

    def arrived_us(self) -> int:
        """Returns the earliest time at which bytes that are handled now may have arrived. Everything that arrived
        before the last tick but one has been handled."""
        return min(self.now_us(), self._ticks_us[0])

    def add(self, entry: RecordingEntry) -> None:
        self._waiting.append(entry)

    def _accepted(self) -> _ClientSide:
        self._connections += 1
        return _ClientSide(self, self._connections)

    def _tick(self) -> None:
        self._ticks_us = (self._ticks_us[1], self.now_us())
        self._write()
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _write(self) -> None:
        if self._waiting:
            self._file.write(pack_block(pack_entries(self._waiting)))
            self._file.flush()
            self._waiting.clear()


class _ProxySide(asyncio.Protocol):
    """One of the two connections that make up a client's connection. Bytes that this one receives are written to
    `other`."""

    def __init__(self, proxy: RecordingProxy) -> None:
        self.proxy = proxy
        self.other: _ProxySide | None = None
        self.transport: asyncio.Transport | None = None
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.proxy.opened(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._data[:LENGTH_BYTES])
            if len(self._data) < end:
                break
            frame = bytes(self._data[:end])
            del self._data[:end]
            self.frame(frame)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def frame(self, frame: bytes) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.proxy.closed(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


@dataclass(frozen=True, slots=True)
class _UnansweredRequest:
    """A request whose response has not arrived."""

    exchange: int
    api: ApiKey | None
    version: int
    correlation_id: bytes


class _ClientSide(_ProxySide):
    """The connection to a client. `is_authenticated` is False while a login is in progress."""

    def __init__(self, proxy: RecordingProxy, number: int) -> None:
        super().__init__(proxy)
        self.number = number
        self.is_authenticated = True
        self.sends_tokens = False
        self.asked: deque[_UnansweredRequest] = deque()
        self._early = bytearray()  # bytes that arrived before the connection to the broker was established
        self._unwritten: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = transport.get_extra_info("peername")[:2]
        about = {"node": 0, "listener": "PROXY", "host": host, "port": port, "is_sasl": False}
        self.note(Kind.OPENED, 0, json.dumps(about).encode())
        self.other = _BrokerSide(self.proxy, self)
        self._reaching = asyncio.ensure_future(self._reach(self.other))

    async def _reach(self, broker: _ProxySide) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: broker, *self.proxy.upstream)
        except OSError:
            self.abort()
            return
        assert broker.transport is not None
        broker.transport.write(bytes(self._early))
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is None:
            self._early += data
        super().data_received(data)

    def frame(self, frame: bytes) -> None:
        request = safe_request(
            memoryview(frame)[LENGTH_BYTES:], is_authenticated=self.is_authenticated, sends_tokens=self.sends_tokens
        )
        if request.api is ApiKey.SASL_HANDSHAKE:
            self.is_authenticated = False
            self.sends_tokens = request.version == 0
        self.proxy.exchanges += 1
        number, now_us = self.proxy.exchanges, self.proxy.now_us()
        waited_us = now_us - self.proxy.arrived_us()
        is_behind = bool(self.asked) or bool(self._unwritten)
        self.proxy.add(
            RecordingEntry(
                Kind.RECEIVED, self.number, number, now_us, request.body, waited_us, request.is_masked, is_behind
            )
        )
        asked = _UnansweredRequest(number, request.api, request.version, frame[LENGTH_BYTES:][CORRELATION_ID])
        self.asked.append(asked)

    def answered(self, frame: bytes) -> None:
        """Records a response. Responses come in the order of the requests, so an earlier request that is still waiting
        will get no response."""
        while self.asked:
            asked = self.asked.popleft()
            if asked.correlation_id != frame[LENGTH_BYTES : 2 * LENGTH_BYTES] and not self.sends_tokens:
                self.note(Kind.UNANSWERED, asked.exchange)
                continue
            body, is_masked = safe_answer(memoryview(frame), asked.api, asked.version)
            if asked.api is ApiKey.SASL_AUTHENTICATE:
                told = sasl_answer(memoryview(frame), asked.version)
                self.is_authenticated = told is not None and told.error_code == ErrorCode.NONE.value
            if asked.api is not None and facts_of(asked.api).names_brokers:
                self.proxy.advertised(addresses_in(body, asked.api, asked.version))
            self.proxy.add(
                RecordingEntry(
                    Kind.ANSWERED, self.number, asked.exchange, self.proxy.now_us(), body, is_masked=is_masked
                )
            )
            self._unwritten.append(asked.exchange)
            asyncio.get_running_loop().call_soon(self.look)
            return

    def look(self) -> None:
        """Records the responses that have been sent completely."""
        if self.transport is not None and not self.transport.is_closing():
            if self.transport.get_write_buffer_size() == 0:
                for exchange in self._unwritten:
                    self.note(Kind.WRITTEN, exchange)
                self._unwritten.clear()
            elif self._unwritten:
                asyncio.get_running_loop().call_later(TICK_S, self.look)

    def note(self, kind: Kind, exchange: int, body: bytes = b"") -> None:
        self.proxy.add(RecordingEntry(kind, self.number, exchange, self.proxy.now_us(), body))

    def connection_lost(self, error: Exception | None) -> None:
        self.asked.clear()
        self.note(Kind.CLOSED, 0)
        super().connection_lost(error)


class _BrokerSide(_ProxySide):
    """The connection to the broker on behalf of one client."""

    def __init__(self, proxy: RecordingProxy, client: _ClientSide) -> None:
        super().__init__(proxy)
        self.other = self.client = client

    def frame(self, frame: bytes) -> None:
        self.client.answered(frame)

    def connection_lost(self, error: Exception | None) -> None:
        client = self.client
        if client.transport is not None and not client.transport.is_closing():
            while client.asked:
                client.note(Kind.HUNG_UP, client.asked.popleft().exchange)
        super().connection_lost(error)
