"""A proxy for any Kafka broker that records requests and responses like `odradek serve --record`.

Clients keep using the proxy only if the broker advertises the proxy's address. If a response gives them another
address, they bypass the proxy and the address is noted in the recording. The proxy forwards bytes as they arrive and
parses frames separately. It reads from each side no faster than it can write to the other side.
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
ADDRESS_CHECK_S: Final = 2.0  # maximum time that `close` waits for pending look-ups of host names
MAX_ADDRESSES: Final = 1000
CORRELATION_ID: Final = slice(4, 8)  # position of the correlation id in a request without its length


class RecordingProxy:
    """A proxy that serves clients from `start` until `close`.

    `port` is the port that it listens on, and `exchanges` is the number of requests so far. `bypassing_addresses` lists
    the advertised addresses that do not belong to the proxy.
    """

    def __init__(
        self, recording: Path, upstream: tuple[str, int], warn: Callable[[Address], None] = lambda _: None
    ) -> None:
        """Creates a proxy that has not started yet.

        recording  the file to write
        upstream   host and port of the broker
        warn       function that is called once for each advertised address that bypasses the proxy

        Raises OSError if the recording cannot be written.
        """
        self.broker_address = upstream
        self.bypassing_addresses: list[Address] = []
        self._warn = warn
        self._host = ""
        self._addresses: set[Address] = set()  # addresses already checked
        self._address_checks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.exchanges = 0
        self._began_ns = time.monotonic_ns()
        self._file = recording.open("wb")
        self._file.write(pack_head(time.time_ns() // 1_000_000))
        self._entries: list[RecordingEntry] = []
        self._ticks_us = (0, 0)
        self._ticker: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._connections = 0
        self._sides: set[_ProxySide] = set()

    async def start(self, host: str, port: int) -> None:
        """Starts listening. If `port` is 0, the system chooses a free port. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._host = host
        self._server = await loop.create_server(self._accept, host, port)
        self.port = self._server.sockets[0].getsockname()[1]
        self._on_tick()

    async def close(self) -> None:
        """Closes all connections and completes the recording. Raises OSError."""
        if self._server is not None:
            self._server.close()
        if self._ticker is not None:
            self._ticker.cancel()
        for side in list(self._sides):
            side.abort()
        while self._sides:
            await asyncio.sleep(0)
        if self._address_checks:
            await asyncio.wait(self._address_checks, timeout=ADDRESS_CHECK_S)
        self._write()
        self._file.close()

    def check_advertised(self, addresses: Iterable[Address]) -> None:
        """Checks whether the advertised addresses in a response belong to the proxy."""
        for address in addresses:
            if address not in self._addresses and len(self._addresses) < MAX_ADDRESSES:
                self._addresses.add(address)
                task = asyncio.ensure_future(self._check_address(address))
                self._address_checks.add(task)
                task.add_done_callback(self._address_checks.discard)

    async def _check_address(self, address: Address) -> None:
        if await is_same_place(address, (self._host, self.port)):
            return
        self.bypassing_addresses.append(address)
        details = {"elsewhere": f"{address[0]}:{address[1]}"}
        self.add_entry(RecordingEntry(Kind.EVENT, 0, 0, self.now_us(), json.dumps(details).encode()))
        self._warn(address)

    def add_side(self, side: _ProxySide) -> None:
        self._sides.add(side)

    def remove_side(self, side: _ProxySide) -> None:
        self._sides.discard(side)

    def now_us(self) -> int:
        return (time.monotonic_ns() - self._began_ns) // 1000

    def earliest_arrival_us(self) -> int:
        """Returns the earliest time at which the bytes being handled can have arrived. This is the time of the
        second-to-last tick, because all bytes that arrived before it have been handled."""
        return min(self.now_us(), self._ticks_us[0])

    def add_entry(self, entry: RecordingEntry) -> None:
        self._entries.append(entry)

    def _accept(self) -> _ClientSide:
        self._connections += 1
        return _ClientSide(self, self._connections)

    def _on_tick(self) -> None:
        self._ticks_us = (self._ticks_us[1], self.now_us())
        self._write()
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._on_tick)

    def _write(self) -> None:
        if self._entries:
            self._file.write(pack_block(pack_entries(self._entries)))
            self._file.flush()
            self._entries.clear()


class _ProxySide(asyncio.Protocol):
    """One of the two connections that the proxy uses for each client. It writes the bytes that it receives to
    `other`."""

    def __init__(self, proxy: RecordingProxy) -> None:
        self.proxy = proxy
        self.other: _ProxySide | None = None
        self.transport: asyncio.Transport | None = None
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.proxy.add_side(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._data[:LENGTH_BYTES])
            if len(self._data) < end:
                break
            frame = bytes(self._data[:end])
            del self._data[:end]
            self.handle_frame(frame)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def handle_frame(self, frame: bytes) -> None:
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
        self.proxy.remove_side(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


@dataclass(frozen=True, slots=True)
class _UnansweredRequest:
    """A request whose response has not arrived yet."""

    exchange: int
    api: ApiKey | None
    version: int
    correlation_id: bytes


class _ClientSide(_ProxySide):
    """The connection to a client. `is_authenticated` is False while a SASL login is in progress."""

    def __init__(self, proxy: RecordingProxy, number: int) -> None:
        super().__init__(proxy)
        self.number = number
        self.is_authenticated = True
        self.sends_tokens = False
        self.unanswered: deque[_UnansweredRequest] = deque()
        self._unsent = bytearray()  # bytes received before the broker connection was established
        self._unwritten: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = transport.get_extra_info("peername")[:2]
        about = {"node": 0, "listener": "PROXY", "host": host, "port": port, "is_sasl": False}
        self.record(Kind.OPENED, 0, json.dumps(about).encode())
        self.other = _BrokerSide(self.proxy, self)
        self._connecting = asyncio.ensure_future(self._connect_upstream(self.other))

    async def _connect_upstream(self, broker: _ProxySide) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: broker, *self.proxy.broker_address)
        except OSError:
            self.abort()
            return
        assert broker.transport is not None
        broker.transport.write(bytes(self._unsent))
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is None:
            self._unsent += data
        super().data_received(data)

    def handle_frame(self, frame: bytes) -> None:
        request = safe_request(
            memoryview(frame)[LENGTH_BYTES:], is_authenticated=self.is_authenticated, sends_tokens=self.sends_tokens
        )
        if request.api is ApiKey.SASL_HANDSHAKE:
            self.is_authenticated = False
            self.sends_tokens = request.version == 0
        self.proxy.exchanges += 1
        number, now_us = self.proxy.exchanges, self.proxy.now_us()
        waited_us = now_us - self.proxy.earliest_arrival_us()
        is_behind = bool(self.unanswered) or bool(self._unwritten)
        self.proxy.add_entry(
            RecordingEntry(
                Kind.RECEIVED, self.number, number, now_us, request.body, waited_us, request.is_masked, is_behind
            )
        )
        waiting = _UnansweredRequest(number, request.api, request.version, frame[LENGTH_BYTES:][CORRELATION_ID])
        self.unanswered.append(waiting)

    def record_response(self, frame: bytes) -> None:
        """Records a response. Responses arrive in the order of their requests, so an earlier request that is still
        unanswered will never receive one."""
        while self.unanswered:
            request = self.unanswered.popleft()
            if request.correlation_id != frame[LENGTH_BYTES : 2 * LENGTH_BYTES] and not self.sends_tokens:
                self.record(Kind.UNANSWERED, request.exchange)
                continue
            body, is_masked = safe_answer(memoryview(frame), request.api, request.version)
            if request.api is ApiKey.SASL_AUTHENTICATE:
                login = sasl_answer(memoryview(frame), request.version)
                self.is_authenticated = login is not None and login.error_code == ErrorCode.NONE.value
            if request.api is not None and facts_of(request.api).names_brokers:
                self.proxy.check_advertised(addresses_in(body, request.api, request.version))
            self.proxy.add_entry(
                RecordingEntry(
                    Kind.ANSWERED, self.number, request.exchange, self.proxy.now_us(), body, is_masked=is_masked
                )
            )
            self._unwritten.append(request.exchange)
            asyncio.get_running_loop().call_soon(self.record_written)
            return

    def record_written(self) -> None:
        """Records which responses have been completely sent to the client."""
        if self.transport is not None and not self.transport.is_closing():
            if self.transport.get_write_buffer_size() == 0:
                for exchange in self._unwritten:
                    self.record(Kind.WRITTEN, exchange)
                self._unwritten.clear()
            elif self._unwritten:
                asyncio.get_running_loop().call_later(TICK_S, self.record_written)

    def record(self, kind: Kind, exchange: int, body: bytes = b"") -> None:
        self.proxy.add_entry(RecordingEntry(kind, self.number, exchange, self.proxy.now_us(), body))

    def connection_lost(self, error: Exception | None) -> None:
        self.unanswered.clear()
        self.record(Kind.CLOSED, 0)
        super().connection_lost(error)


class _BrokerSide(_ProxySide):
    """The proxy's connection to the broker for one client."""

    def __init__(self, proxy: RecordingProxy, client: _ClientSide) -> None:
        super().__init__(proxy)
        self.other = self.client = client

    def handle_frame(self, frame: bytes) -> None:
        self.client.record_response(frame)

    def connection_lost(self, error: Exception | None) -> None:
        client = self.client
        if client.transport is not None and not client.transport.is_closing():
            while client.unanswered:
                client.record(Kind.HUNG_UP, client.unanswered.popleft().exchange)
        super().connection_lost(error)
