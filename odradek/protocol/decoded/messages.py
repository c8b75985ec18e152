"""Decodes messages inside records and frames with the broker's codec. If decoding fails, the construct codec finds the
invalid field."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from construct import ConstructError

from odradek.protocol.codec import decode_from
from odradek.protocol.errors import MalformedMessage, UnsupportedVersion
from odradek.protocol.kafka_json import kafka_json
from odradek.protocol.messages import message_class
from odradek.protocol.reference import structure
from odradek.protocol.struct import Buffer, Message


def read_message(module: str, version: int, data: Buffer, position: int) -> Message:
    """Decodes a message, which must extend from `position` to the end of `data`. Raises MalformedMessage if bytes
    remain after the message or the message is invalid; in the latter case, the error names the invalid field."""
    kind = message_class(module)
    try:
        message, end = decode_from(kind, version, data, position)
    except UnsupportedVersion:
        raise MalformedMessage(f"{kind.__name__} has no version {version}") from None
    except MalformedMessage as error:
        field = broken_field(module, version, data, position)
        place = f", in field {field}" if field else ""
        raise MalformedMessage(f"{kind.__name__} version {version}: {error}{place}") from None
    if end != len(data):
        raise MalformedMessage(f"{kind.__name__} version {version}: {len(data) - end} bytes follow the message")
    return message


def as_tree(module: str, version: int, data: Buffer, position: int) -> dict[str, Any]:
    """Like `read_message`, but returns the message as Kafka's JSON."""
    return kafka_json(read_message(module, version, data, position), version)


def broken_field(module: str, version: int, data: Buffer, position: int) -> str | None:
    """Returns the path of the field at which decoding fails, as found by construct."""
    try:
        structure(module, version).parse(bytes(memoryview(data)[position:]))
    except ConstructError as error:
        path = (error.path or "").removeprefix("(parsing)").removeprefix(" -> ")
        names = [name for name in path.split(" -> ") if name not in ("value", "length", "marker")]
        return ".".join(names) or None
    except UnicodeDecodeError:
        return None
    return None


def json_value(value: object) -> str | Mapping[str, str]:
    """Converts bytes for `json.dumps(default=…)`. Valid UTF-8 becomes a string; other bytes become {"base64": …}."""
    assert isinstance(value, bytes | bytearray | memoryview)
    data = bytes(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
