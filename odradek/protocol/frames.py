"""Reads and writes frames. A frame consists of a 4-byte length, a header and a body. The API and its version determine
the version of the header.

Request header 1 contains the API key, version, correlation id and client id. Request header 2, for flexible bodies,
also has tagged fields, but its client id retains the old encoding. Response header 0 contains the correlation id;
response header 1 also has tagged fields. ApiVersions always uses response header 0, so that a client can read a
response whose version differs from the requested version.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from struct import Struct as Packing
from struct import error as PackingError
from typing import Final

from odradek.protocol.codec import Write, is_flexible, writer
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.messages import request_class
from odradek.protocol.primitives import skip_tags
from odradek.protocol.struct import Buffer, Message

LENGTH_BYTES: Final = 4
API_VERSIONS_KEY: Final = 18

KEY_AND_VERSION: Final = Packing(">hh")  # the beginning of a request
REQUEST_START: Final = Packing(">hhih")  # API key, API version, correlation id, size of the client id (-1: null)
RESPONSE_START: Final = Packing(">ii")  # size of the remaining bytes, correlation id
RESPONSE_START_WITH_TAGS: Final = Packing(">iix")  # followed by an empty list of tagged fields
LENGTH: Final = Packing(">i")

_request_class = cache(request_class)  # one cached class per API; an unknown key raises an error, which is not cached


@dataclass(slots=True)
class RequestHeader:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(api_key: int, api_version: int) -> int:
    """Returns the version of the request header, which is 1 or 2. Raises MalformedMessage for an unknown API, because
    the version of its header is unknown."""
    try:
        message_class = _request_class(api_key)
    except KeyError:
        raise MalformedMessage(f"unknown API key {api_key}") from None
    return 2 if is_flexible(message_class, api_version) else 1


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Decodes the header of a request frame, which is passed without its length. Returns the header and the position of
    the body. Raises MalformedMessage."""
    if len(frame) < REQUEST_START.size:
        raise MalformedMessage(f"the request is too short: it has only {len(frame)} bytes")
    api_key, api_version = REQUEST_START.unpack_from(frame)[:2]
    has_tags = request_header_version(api_key, api_version) == 2
    correlation_id, client_id, position = read_header_fields(frame, has_tags=has_tags)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def read_header_fields(frame: Buffer, *, has_tags: bool) -> tuple[int, str | None, int]:
    """Decodes a version 2 request header if `has_tags` is set, otherwise a version 1 header. Returns the correlation
    id, the client id and the position of the body."""
    try:
        _, _, correlation_id, client_id_size = REQUEST_START.unpack_from(frame)
    except PackingError as error:
        raise MalformedMessage(f"the request is too short: it has only {len(frame)} bytes") from error
    client_id, position = read_client_id(frame, client_id_size, has_tags)
    return correlation_id, client_id, position


def read_client_id(frame: Buffer, size: int, has_tags: bool) -> tuple[str | None, int]:
    """Decodes the part of a request header that follows the fixed fields. Returns the client id and the position of the
    body."""
    position = REQUEST_START.size
    client_id = None
    if size >= 0:
        position += size
        # Like Kafka, replace invalid UTF-8 with replacement characters instead of closing the connection.
        client_id = str(frame[REQUEST_START.size : position], "utf-8", "replace")
    try:
        if has_tags:
            tags = frame[position]
            position += 1
            if tags:
                position = skip_tags(frame, position, tags)
    except IndexError as error:  # also raised if the client id is too long, because the slice above raises no error
        raise MalformedMessage("the request ends within its header, possibly within its client id") from error
    if position > len(frame):
        raise MalformedMessage("the request ends within its client id or its tagged fields")
    return client_id, position


def response_has_tags(api_key: int, message_class: type[Message], version: int) -> bool:
    """Returns whether the response uses header version 1, which has tagged fields."""
    return api_key != API_VERSIONS_KEY and is_flexible(message_class, version)


def response_chunks(api_key: int, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """Returns a complete response frame, including its length, as chunks to be sent in order."""
    return in_memory(response_writer(api_key, type(message), version)(correlation_id, message))


def response_writer(api_key: int, message_class: type[Message], version: int) -> Callable[[int, Message], list[Chunk]]:
    """Returns a faster equivalent of `response_chunks` for one version of an API. Its arguments are the correlation id
    and the message, whose records can be in files."""
    has_tags = response_has_tags(api_key, message_class, version)
    pack_start = (RESPONSE_START_WITH_TAGS if has_tags else RESPONSE_START).pack
    write = writer(message_class, version)

    def chunks(correlation_id: int, message: Message) -> list[Chunk]:
        return _frame(message, write, bytearray(pack_start(0, correlation_id)))

    return chunks


def request_bytes(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Returns a complete request frame, including its length."""
    client_id_bytes = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(client_id_bytes)
    head = bytearray(LENGTH_BYTES)
    head += REQUEST_START.pack(message.API_KEY, version, correlation_id, size)
    head += client_id_bytes
    if is_flexible(type(message), version):
        head.append(0)
    return b"".join(in_memory(_frame(message, writer(type(message), version), head)))


def _frame(message: Message, write: Write, head: bytearray) -> list[Chunk]:
    """Encodes the message after `head`, whose first four bytes are reserved for the length."""
    chunks: list[Chunk] = []
    write(message, head, chunks)
    size_bytes = len(head) if len(chunks) == 1 else sum(map(len, chunks))
    LENGTH.pack_into(head, 0, size_bytes - LENGTH_BYTES)
    return chunks
