"""Frames: a 4-byte length, a header, a body. Where the header ends depends on API and version."""

from dataclasses import dataclass

from protocol.struct import Buffer, Message


@dataclass(slots=True)
class RequestHeader:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read the header of a request frame (without its length). Returns it and where the body starts."""
    raise NotImplementedError


def response_chunks(api_key: int, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """A whole response frame, length included, as parts to be written one after the other."""
    raise NotImplementedError


def request_bytes(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request frame, length included."""
    raise NotImplementedError
