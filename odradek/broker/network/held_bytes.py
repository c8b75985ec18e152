"""The protocol of a connection that cannot handle bytes yet, because it is waiting for admission or for its TLS
handshake.

Pausing the transport in its `connection_made` callback is not sufficient, because uvloop reads once more.
"""

from __future__ import annotations

import asyncio
from typing import Any


class HeldBytes(asyncio.Protocol):
    """Stores arriving bytes and pauses reading as soon as the first bytes arrive."""

    def __init__(
        self, transport: asyncio.Transport | None = None, connection: asyncio.BaseProtocol | None = None
    ) -> None:
        """Creates the protocol.

        transport   the transport to pause when bytes arrive
        connection  the protocol that is notified when the transport is lost
        """
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
        """Passes the stored bytes to the transport's current protocol, as the transport would."""
        data, self._data = memoryview(self._data), bytearray()
        # The protocol is a BufferedProtocol, or uvloop's TLS protocol, which has the same methods.
        protocol: Any = transport.get_protocol()
        while data and not transport.is_closing():
            buffer = protocol.get_buffer(len(data))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            protocol.buffer_updated(count)
            data = data[count:]
