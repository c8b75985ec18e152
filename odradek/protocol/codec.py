"""Messages to bytes and back: `decode(ProduceRequest, 9, data)`, `encode(response, 9)`.

Each message and version has one decoder and one encoder. They are compiled on first use (0.2 to 1.5 ms) from source
that `reader_source` and `writer_source` generate from the schema. The compiled variant has those of the messages on its
hot path already, in their modules (docs/variants.md).
"""

import sys
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from odradek.protocol.errors import UnsupportedVersion
from odradek.protocol.reader_source import reader_source
from odradek.protocol.schema import Schema, load
from odradek.protocol.struct import Buffer, Message
from odradek.protocol.writer_source import writer_source

M = TypeVar("M", bound=Message)
Read: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
Write: TypeAlias = Callable[[Any, bytearray, list[Any]], None]  # Chunks of an answer

_readers: dict[tuple[type[Message], int], Read] = {}
_writers: dict[tuple[type[Message], int], Write] = {}


def is_flexible(message_class: type[Message], version: int) -> bool:
    """Whether the version writes compact lengths and tagged fields."""
    return message_class.FLEXIBLE_SINCE is not None and version >= message_class.FLEXIBLE_SINCE


def decode(message_class: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """Read one message; bytes behind it are ignored. Records are views into `data`, all else is a copy.

    Raises MalformedMessage for any bytes that are not such a message, UnsupportedVersion for a version it never had.
    """
    read = _readers.get((message_class, version)) or compile_reader(message_class, version)
    message: M = read(data, position)[0]
    return message


def decode_from(message_class: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """Does what `decode` does, and returns the position behind the message, too."""
    read = _readers.get((message_class, version)) or compile_reader(message_class, version)
    return read(data, position)


def encode(message: Message, version: int) -> bytes:
    """The message's bytes. Raises UnsupportedVersion for a value that the version cannot carry."""
    return b"".join(encode_chunks(message, version))


def encode_chunks(message: Message, version: int) -> list[Buffer]:
    """Encodes in parts to be written one after the other: large records are not copied."""
    chunks: list[Buffer] = []
    writer(type(message), version)(message, bytearray(), chunks)
    return chunks


def reader(message_class: type[Message], version: int) -> Read:
    """The decoder itself, `(data, position) -> (message, end position)`, for decoding many of one kind."""
    return _readers.get((message_class, version)) or compile_reader(message_class, version)


def writer(message_class: type[Message], version: int) -> Write:
    """The encoder itself, `(message, head, chunks)`: adds to `chunks` the parts, of which the first begins with `head`.

    It raises UnsupportedVersion as `encode` does.
    """
    return _writers.get((message_class, version)) or compile_writer(message_class, version)


def compile_reader(message_class: type[Message], version: int) -> Read:
    """Compile the decoder, and cache it. Decoding does this by itself on first use."""
    read: Read | None = _module(message_class).get(f"read_{version}")
    if read is None:
        text, names = reader_source(_schema(message_class, version), version)
        read = _compile(message_class, version, text, names)["read"]
    assert read is not None
    _readers[message_class, version] = read
    return read


def compile_writer(message_class: type[Message], version: int) -> Write:
    """Compile the encoder, and cache it. Encoding does this by itself on first use."""
    write: Write | None = _module(message_class).get(f"write_{version}")
    if write is None:
        text, names = writer_source(_schema(message_class, version), version)
        write = _compile(message_class, version, text, names)["write"]
    assert write is not None
    _writers[message_class, version] = write
    return write


def _module(message_class: Any) -> dict[str, Any]:
    return vars(sys.modules[message_class.__module__])


def _schema(message_class: type[Message], version: int) -> Schema:
    schema = load(str(_module(message_class)["__name__"]).rpartition(".")[2])
    if version not in schema.versions:
        raise UnsupportedVersion(f"{schema.name} has no version {version}")
    return schema


def _compile(message_class: type[Message], version: int, text: str, names: dict[str, Any]) -> dict[str, Any]:
    names |= {name: value for name, value in _module(message_class).items() if isinstance(value, type)}
    exec(compile(text, f"<{message_class.__name__} v{version}>", "exec"), names)
    return names
