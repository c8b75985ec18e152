"""Defines filters between connections and the receiver of their requests. A filter can inspect each frame before it is
handled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.network.connection_host import FrameReceiver, LoginCounts
    from odradek.broker.runtime.replies import ParkedRequest
    from odradek.protocol.file_slice import Chunk


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestFilter:
    """A `FrameReceiver` that passes all requests to another `FrameReceiver`. Subclasses inspect frames in `start`, and
    new connections in `connected`.

    plain  the receiver behind the filter
    """

    def __init__(self, plain: FrameReceiver) -> None:
        self.plain: FrameReceiver = plain

    @property
    def logins(self) -> LoginCounts | None:
        return self.plain.logins

    def connected(self, connection: ConnectionInfo) -> None:
        self.plain.connected(connection)

    def too_long(self, reason: str, connection: ConnectionInfo) -> ParkedRequest | None:
        return self.plain.too_long(reason, connection)

    def start(self, frame: memoryview, connection: ConnectionInfo) -> list[Chunk] | ParkedRequest:
        """Starts handling a frame, as `FrameReceiver.start` does. Raises MalformedMessage, CloseConnection."""
        return self.plain.start(frame, connection)
