"""Converts complete request and response frames between bytes and their parts: the API, the version, the client id and
the message.

Everything that observes or changes exchanges uses this module. The broker and the client have faster code of their own
for the exchanges that they handle (`broker/api/dispatch.py`, `client/network/connection.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from struct import Struct as Packing
from typing import Final

from odradek.protocol.codec import encode, is_flexible, reader
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import Chunk
from odradek.protocol.frames import (
    KEY_AND_VERSION,
    LENGTH_BYTES,
    REQUEST_START,
    RequestHeader,
    read_header_fields,
    response_has_tags,
    response_writer,
)
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.primitives import skip_tags
from odradek.protocol.struct import Buffer, Message

CORRELATION_ID: Final = Packing(">i")
# Size of the part of a request that masking keeps: the API key, the version and the correlation id.
MASKED_BYTES: Final = KEY_AND_VERSION.size + CORRELATION_ID.size


@dataclass(slots=True)
class DecodedRequest:
    """A decoded request. `body_at` is the message's position in the frame."""

    header: RequestHeader
    body_at: int
    message: Message

    def encoded(self, frame: Buffer) -> memoryview:
        """Encodes the request again, with the current message.

        frame   the frame from which the request was decoded; its header is reused
        """
        return memoryview(bytearray(bytes(frame[: self.body_at]) + encode(self.message, self.header.api_version)))


@dataclass(slots=True)
class DecodedAnswer:
    """A decoded response. `end` is the position in the frame after its message."""

    correlation_id: int
    message: Message
    end: int


def api_and_version(frame: Buffer, min_bytes: int = REQUEST_START.size) -> tuple[int, int] | None:
    """Returns a request's API key and version, or None if the frame has fewer than `min_bytes` bytes, by default the
    minimum size of a header.

    frame   without its length
    """
    if len(frame) < min_bytes:
        return None
    key, version = KEY_AND_VERSION.unpack_from(frame)
    return key, version


class RequestForm:
    """Decodes requests in one version of one API. Frames are passed without their length."""

    __slots__ = ("_read", "has_tags")

    def __init__(self, message_class: type[Message], version: int) -> None:
        self.has_tags: bool = is_flexible(message_class, version)
        self._read = reader(message_class, version)

    def header(self, frame: Buffer) -> tuple[RequestHeader, int]:
        """Returns the header and the position of the message. Raises MalformedMessage."""
        correlation_id, client_id, position = read_header_fields(frame, has_tags=self.has_tags)
        key, version = KEY_AND_VERSION.unpack_from(frame)
        return RequestHeader(key, version, correlation_id, client_id), position

    def message(self, frame: Buffer, position: int) -> Message:
        """Returns the message at `position`. Raises MalformedMessage."""
        message: Message = self._read(frame, position)[0]
        return message


class AnswerForm:
    """Decodes and encodes responses in one version of one API."""

    __slots__ = ("_key", "_message_class", "_read", "_version", "has_tags")

    def __init__(self, key: int, message_class: type[Message], version: int) -> None:
        self.has_tags: bool = response_has_tags(key, message_class, version)
        self._key = key
        self._version = version
        self._message_class = message_class
        self._read = reader(message_class, version)

    def body_at(self, frame: Buffer, *, has_length: bool) -> int:
        """Returns the message's position. Raises MalformedMessage."""
        position = CORRELATION_ID.size + (LENGTH_BYTES if has_length else 0)
        try:
            if self.has_tags:
                tags = frame[position]
                position += 1
                if tags:
                    position = skip_tags(frame, position, tags)
        except IndexError as error:
            raise MalformedMessage("the answer ends within its header") from error
        if position > len(frame):
            raise MalformedMessage("the answer ends within its header")
        return position

    def read(self, frame: Buffer, *, has_length: bool) -> DecodedAnswer:
        """Decodes a response. Raises MalformedMessage.

        has_length   whether the frame begins with its length
        """
        position = self.body_at(frame, has_length=has_length)
        message: Message
        message, end = self._read(frame, position)
        correlation_id = CORRELATION_ID.unpack_from(frame, LENGTH_BYTES if has_length else 0)[0]
        return DecodedAnswer(correlation_id, message, end)

    def chunks(self, correlation_id: int, message: Message) -> list[Chunk]:
        """Returns a complete response, including its length, as chunks to be sent in order."""
        return response_writer(self._key, self._message_class, self._version)(correlation_id, message)


@cache
def request_form(key: int, version: int) -> RequestForm:
    """Returns the decoder for requests of this API and version. Raises MalformedMessage if there has never been such an
    API or version."""
    message_class = _message_class(key, version)
    return RequestForm(message_class, version)


@cache
def answer_form(key: int, version: int) -> AnswerForm:
    """Returns the decoder and encoder for responses of this API and version. Raises MalformedMessage if there has never
    been such an API or version."""
    _message_class(key, version)
    return AnswerForm(key, response_class(key), version)


def _message_class(key: int, version: int) -> type[Message]:
    try:
        message_class = request_class(key)
    except KeyError:
        raise MalformedMessage(f"unknown API key {key}") from None
    if not message_class.MIN_VERSION <= version <= message_class.MAX_VERSION:
        raise MalformedMessage(f"{message_class.__name__} has no version {version}")
    return message_class


def read_request(frame: Buffer) -> DecodedRequest:
    """Decodes a request from a frame without its length. Raises MalformedMessage."""
    head = api_and_version(frame)
    if head is None:
        raise MalformedMessage(f"the request is too short: it has only {len(frame)} bytes")
    form = request_form(*head)
    header, position = form.header(frame)
    return DecodedRequest(header, position, form.message(frame, position))


def read_answer(key: int, version: int, frame: Buffer, *, has_length: bool = True) -> DecodedAnswer:
    """Decodes the response to a request with this API key and version. Raises MalformedMessage.

    has_length   whether the frame begins with its length
    """
    return answer_form(key, version).read(frame, has_length=has_length)


def answer_chunks(key: int, version: int, correlation_id: int, message: Message) -> list[Chunk]:
    """Encodes the response to a request with this API key and version, including its length."""
    return answer_form(key, version).chunks(correlation_id, message)
