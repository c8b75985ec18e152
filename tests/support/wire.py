"""A client for raw requests, which sends requests and returns responses unchanged."""

import socket
from typing import TypeVar, cast

from odradek.protocol.codec import decode, is_flexible
from odradek.protocol.frames import API_VERSIONS_KEY, request_bytes
from odradek.protocol.messages import response_class
from odradek.protocol.struct import Message

M = TypeVar("M", bound=Message)


class ClosedByBroker(Exception):
    """Raised when the broker closes the connection instead of answering."""


class Wire:
    """A connection for raw requests. A test may send several requests before it reads responses, which arrive in the
    order of the requests."""

    def __init__(self, bootstrap: str, client_id: str | None = "wire", timeout_s: float = 20.0) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._client_id = client_id
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_correlation_id = 1

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def set_timeout(self, timeout_s: float) -> None:
        """Sets how long later calls wait for a response."""
        self._socket.settimeout(timeout_s)

    def ask(self, request: Message, version: int, answer: type[M] | None = None) -> M:
        """Sends a request and returns its response. `answer` is the type of the response and is only used by the type
        checker."""
        self.send(request, version)
        return cast(M, self.receive(request.API_KEY, version))

    def send(self, request: Message, version: int) -> None:
        self.send_bytes(request_bytes(request, version, self._next_correlation_id, self._client_id))
        self._next_correlation_id += 1

    def send_bytes(self, frame: bytes) -> None:
        """Sends a frame unchanged. `frame` includes its 4-byte length, which may be wrong."""
        try:
            self._socket.sendall(frame)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ClosedByBroker from error

    def receive(self, api_key: int, version: int) -> Message:
        frame = self.receive_bytes()
        message_class = response_class(api_key)
        # The header of an ApiVersions response has no tagged fields. Its version is 0 if the broker does not know the
        # requested version.
        if api_key == API_VERSIONS_KEY:
            version = version if frame[4:6] != b"\0\x23" else 0
            return decode(message_class, version, frame, 4)
        return decode(message_class, version, frame, 5 if is_flexible(message_class, version) else 4)

    def receive_bytes(self) -> bytes:
        """Returns one frame without its length. Raises ClosedByBroker or TimeoutError."""
        size = int.from_bytes(self.read(4))
        return self.read(size)

    def read(self, size: int) -> bytes:
        """Reads exactly `size` bytes. Raises ClosedByBroker or TimeoutError."""
        parts = []
        while size:
            try:
                part = self._socket.recv(min(size, 1 << 20))
            except ConnectionResetError as error:
                raise ClosedByBroker from error
            if not part:
                raise ClosedByBroker
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
