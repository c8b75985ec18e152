"""A raw client: it sends one request as it is, and returns the answer as it is."""

import socket
from typing import TypeVar, cast

from odradek.protocol.codec import decode, is_flexible
from odradek.protocol.frames import API_VERSIONS_KEY, request_bytes
from odradek.protocol.messages import response_class
from odradek.protocol.struct import Message

M = TypeVar("M", bound=Message)


class ClosedByBroker(Exception):
    """The broker ended the connection instead of answering."""


class Wire:
    """One connection. Requests may be sent ahead; answers come in their order."""

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
        """How long to wait for each answer from now on."""
        self._socket.settimeout(timeout_s)

    def ask(self, request: Message, version: int, answer: type[M] | None = None) -> M:
        """Send and wait. `answer` only tells the type checker what comes back."""
        self.send(request, version)
        return cast(M, self.receive(request.API_KEY, version))

    def send(self, request: Message, version: int) -> None:
        self.send_bytes(request_bytes(request, version, self._next_correlation_id, self._client_id))
        self._next_correlation_id += 1

    def send_bytes(self, frame: bytes) -> None:
        """`frame` includes its 4-byte length, right or wrong."""
        try:
            self._socket.sendall(frame)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ClosedByBroker from error

    def receive(self, api_key: int, version: int) -> Message:
        frame = self.receive_bytes()
        message_class = response_class(api_key)
        # An ApiVersions answer has no tagged fields in its header, and one of version 0 if the asked one is unknown.
        if api_key == API_VERSIONS_KEY:
            version = version if frame[4:6] != b"\0\x23" else 0
            return decode(message_class, version, frame, 4)
        return decode(message_class, version, frame, 5 if is_flexible(message_class, version) else 4)

    def receive_bytes(self) -> bytes:
        """One frame without its length. Raises ClosedByBroker, or TimeoutError."""
        size = int.from_bytes(self.read(4))
        return self.read(size)

    def read(self, size: int) -> bytes:
        """So many bytes. Raises as `receive_bytes` does."""
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
