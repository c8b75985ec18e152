"""Messages to bytes and back: `decode(ProduceRequest, 9, data)`, `encode(response, 9)`."""

from typing import TypeVar

from protocol.struct import Buffer, Message

M = TypeVar("M", bound=Message)


def is_flexible(message_class: type[Message], version: int) -> bool:
    """Whether the version writes compact lengths and tagged fields."""
    return message_class.FLEXIBLE_SINCE is not None and version >= message_class.FLEXIBLE_SINCE


def decode(message_class: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """Read one message; bytes behind it are ignored. Records are views into `data`. Raises MalformedMessage."""
    return decode_from(message_class, version, data, position)[0]


def decode_from(message_class: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """As `decode`, and the position behind the message."""
    raise NotImplementedError


def encode(message: Message, version: int) -> bytes:
    """The message's bytes. Raises UnsupportedVersion for a value that the version cannot carry."""
    return b"".join(encode_chunks(message, version))


def encode_chunks(message: Message, version: int) -> list[Buffer]:
    """As `encode`, in parts, so that records are not copied."""
    raise NotImplementedError
