"""One connection to one broker, at the newest versions that both sides support."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import TypeVar

from protocol.api_keys import ApiKey
from protocol.codec import decode
from protocol.errors import ErrorCode, MalformedMessage
from protocol.frames import LENGTH, LENGTH_BYTES, request_bytes, response_has_tags
from protocol.messages import response_class
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.api_versions_response import ApiVersionsResponse
from protocol.primitives import skip_tags
from protocol.struct import Message

M = TypeVar("M", bound=Message)

CLIENT_ID = "odradek-cli"
MAX_RESPONSE_BYTES = 100 * 1024 * 1024
ASKED_FIRST = 0  # the version of ApiVersions that every broker answers
READ_BYTES = 1 << 20


class AdminError(Exception):
    """What cannot be done, in words for the person who asked."""


class Refused(AdminError):
    """The broker said no."""

    def __init__(self, code: ErrorCode | int, what: str, message: str | None = None) -> None:
        name = code.name if isinstance(code, ErrorCode) else f"error {code}"
        super().__init__(f"{what}: {name}{f' ({message})' if message else ''}")
        self.code = code


def check(error_code: int, what: str, message: str | None = None) -> None:
    """Raises Refused unless the code is that of success. `what` was asked for."""
    if error_code != ErrorCode.NONE.value:
        raise Refused(known(error_code), what, message)


def known(error_code: int) -> ErrorCode | int:
    """A broker newer than this program may give codes that it does not know."""
    try:
        return ErrorCode(error_code)
    except ValueError:
        return error_code


class Connection:
    """Every failure is an AdminError that names the broker."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._name = f"{host}:{port}"
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise AdminError(f"no broker can be reached at {self._name}: {error.strerror or error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            answer = self._exchange(ApiVersionsRequest(), ASKED_FIRST, ApiVersionsResponse)
            check(answer.error_code, f"the versions that {self._name} speaks")
        except BaseException:
            self.close()
            raise
        self._served = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def version_for(self, request: type[Message], highest: int | None = None) -> int:
        """The newest version both know, and none above `highest`."""
        key = request.API_KEY
        lowest, newest = self._served.get(key, (0, -1))
        version = min(newest, request.MAX_VERSION if highest is None else min(highest, request.MAX_VERSION))
        if version < max(lowest, request.MIN_VERSION):
            raise AdminError(f"{self._name} does not serve {ApiKey(key).name} in a version that is known here")
        return version

    def ask(self, request: Message, answer: type[M], *, highest: int | None = None) -> M:
        """Send and wait. Raises AdminError."""
        return self._exchange(request, self.version_for(type(request), highest), answer)

    def _exchange(self, request: Message, version: int, answer: type[M]) -> M:
        assert response_class(request.API_KEY) is answer
        self._correlation_id += 1
        try:
            self._socket.sendall(request_bytes(request, version, self._correlation_id, CLIENT_ID))
            frame = self._frame()
        except TimeoutError:
            raise AdminError(f"{self._name} does not answer") from None
        except OSError as error:
            raise AdminError(f"the connection to {self._name} broke: {error.strerror or error}") from None
        try:
            position = LENGTH_BYTES
            if LENGTH.unpack_from(frame)[0] != self._correlation_id:
                raise MalformedMessage("it answers something else")
            if response_has_tags(request.API_KEY, answer, version):
                position = skip_tags(frame, position + 1, frame[position])
            return decode(answer, version, frame, position)
        except (MalformedMessage, IndexError) as error:
            raise AdminError(f"{self._name} does not speak Kafka's protocol: {error}") from None

    def _frame(self) -> bytes:
        (size,) = LENGTH.unpack(self._exactly(LENGTH_BYTES))
        if not LENGTH_BYTES <= size <= MAX_RESPONSE_BYTES:
            raise AdminError(f"{self._name} does not speak Kafka's protocol: it announced {size} bytes")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(min(size, READ_BYTES))
            if not part:
                raise AdminError(f"{self._name} closed the connection instead of answering")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
