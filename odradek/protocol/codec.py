"""Encodes and decodes messages, for example `decode(ProduceRequest, 9, data)` and `encode(response, 9)`.

Each version of a message has its own decoder and encoder. They are compiled on first use (0.2 to 1.5 ms) from source
that `reader_source` and `writer_source` generate from the schema. In the compiled variant, the modules of hot-path
messages already contain decoders and encoders (docs/variants.md).
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
Write: TypeAlias = Callable[[Any, bytearray, list[Any]], None]  # arguments: message, head, list of chunks to extend

_readers: dict[tuple[type[Message], int], Read] = {}
_writers: dict[tuple[type[Message], int], Write] = {}


def is_flexible(message_class: type[Message], version: int) -> bool:
    """Returns whether this version of the message uses compact lengths and tagged fields."""
    return message_class.FLEXIBLE_SINCE is not None and version >= message_class.FLEXIBLE_SINCE


def decode(message_class: type[M], version: int, data: Buffer, position: int = 0) -> M:
    """Decodes one message, ignoring any bytes after it. Records are views of `data`; everything else is copied.

    Raises MalformedMessage if the bytes are not a message of this class and version, or UnsupportedVersion if the
    message has never had this version.
    """
    read = _readers.get((message_class, version)) or compile_reader(message_class, version)
    message: M = read(data, position)[0]
    return message


def decode_from(message_class: type[M], version: int, data: Buffer, position: int = 0) -> tuple[M, int]:
    """Like `decode`, but also returns the position after the message."""
    read = _readers.get((message_class, version)) or compile_reader(message_class, version)
    return read(data, position)


def encode(message: Message, version: int) -> bytes:
    """Returns the encoded message. Raises UnsupportedVersion if the version cannot represent a value of the message."""
    return b"".join(encode_chunks(message, version))


def encode_chunks(message: Message, version: int) -> list[Buffer]:
    """Encodes a message as chunks to be written in order, so that large records are not copied."""
    chunks: list[Buffer] = []
    writer(type(message), version)(message, bytearray(), chunks)
    return chunks


def reader(message_class: type[Message], version: int) -> Read:
    """Returns the decoder `(data, position) -> (message, end position)`. Used to decode many messages of the same
    class."""
    return _readers.get((message_class, version)) or compile_reader(message_class, version)


def writer(message_class: type[Message], version: int) -> Write:
    """Returns the encoder `(message, head, chunks)`, which appends the encoded parts to `chunks`. The first part begins
    with `head`.

    Like `encode`, the encoder raises UnsupportedVersion.
    """
    return _writers.get((message_class, version)) or compile_writer(message_class, version)


def compile_reader(message_class: type[Message], version: int) -> Read:
    """Compiles and caches the decoder. Without this call, it is compiled on first use."""
    read: Read | None = _module(message_class).get(f"read_{version}")
    if read is None:
        text, names = reader_source(_schema(message_class, version), version)
        read = _compile(message_class, version, text, names)["read"]
    assert read is not None
    _readers[message_class, version] = read
    return read


def compile_writer(message_class: type[Message], version: int) -> Write:
    """Compiles and caches the encoder. Without this call, it is compiled on first use."""
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
