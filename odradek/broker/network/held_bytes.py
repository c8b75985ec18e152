"""The protocol of a connection that cannot take bytes yet: there is no place for it, or no TLS around it.

A transport cannot be kept from reading while it tells its protocol that the connection is made: uvloop reads once more.
"""

from __future__ import annotations

import asyncio
from typing import Any


class HeldBytes(asyncio.Protocol):
    """Keeps what comes, and reads no more after it."""

    def __init__(
        self, transport: asyncio.Transport | None = None, connection: asyncio.BaseProtocol | None = None
    ) -> None:
        """transport: to stop reading from; connection: is told when it is lost"""
        self._data = bytearray()
        self._transport = transport
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.connection_lost(exc)

    def release(self, transport: asyncio.Transport) -> None:
        """Feeds the kept bytes to the transport's current protocol, as the transport would."""
        data, self._data = memoryview(self._data), bytearray()
        protocol: Any = transport.get_protocol()  # a BufferedProtocol, or uvloop's for TLS, which only behaves like one
        while data and not transport.is_closing():
            buffer = protocol.get_buffer(len(data))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            protocol.buffer_updated(count)
            data = data[count:]
