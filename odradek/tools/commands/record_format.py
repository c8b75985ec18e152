"""Formats records for output with the formats and delimiters of kcat's `-f`, or as JSON like kcat's `-J`."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial

from odradek.client.common.values import ConsumerRecord
from odradek.protocol.decoded.json_text import indented

Render = Callable[[ConsumerRecord], bytes]

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
NULL = "NULL"


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _fields(null: bytes) -> dict[str, Render]:
    return {
        "s": lambda record: null if record.value is None else record.value,
        "J": lambda record: null if record.value is None else _json_indented(record.value),
        "S": lambda record: str(_size(record.value)).encode(),
        "R": lambda record: struct.pack(">i", _size(record.value)),
        "k": lambda record: null if record.key is None else record.key,
        "K": lambda record: str(_size(record.key)).encode(),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: str(record.partition).encode(),
        "o": lambda record: str(record.offset).encode(),
        "T": lambda record: str(record.timestamp_ms).encode(),
        "h": lambda record: b",".join(
            name.encode() + b"=" + (value or NULL.encode()) for name, value in record.headers
        ),
        "%": lambda _: b"%",
    }


def _json_indented(content: bytes) -> bytes:
    """Indents a JSON object or array without changing how its values are written. Returns any other content
    unchanged."""
    try:
        lines = indented(content.decode())
    except UnicodeDecodeError:
        return content
    return content if lines is None else lines.encode()


def formatted(text: str, *, null: bytes = NULL.encode()) -> Render:
    """Compiles a format like that of kcat's `-f`. Raises ValueError for an unknown field."""
    fields = _fields(null)
    parts: list[Render] = []
    literal = bytearray()

    def flush() -> None:
        if literal:
            content = bytes(literal)
            parts.append(lambda _: content)
            literal.clear()

    position = 0
    while position < len(text):
        character, following = text[position], text[position + 1 : position + 2]
        if character == "%":
            if following not in fields or not following:
                raise ValueError(
                    f"%{following} has no meaning in a format; use {' '.join(f'%{name}' for name in fields)}"
                )
            flush()
            parts.append(fields[following])
            position += 2
        elif character == "\\" and following == "x":
            literal += bytes.fromhex(text[position + 2 : position + 4])
            position += 4
        elif character == "\\" and following in ESCAPES and following:
            literal += ESCAPES[following]
            position += 2
        else:
            literal += character.encode()
            position += 1
    flush()
    return lambda record: b"".join(part(record) for part in parts)


def json_render(parts_as_json: frozenset[str]) -> Render:
    """Returns the renderer for `--json`. The parts in `parts_as_json` are already JSON and are embedded unchanged."""
    return partial(as_json, parts_as_json=parts_as_json)


def as_json(record: ConsumerRecord, parts_as_json: frozenset[str] = frozenset()) -> bytes:
    """Formats a record as a JSON object on one line. Bytes that are not UTF-8 are replaced, whereas `-f` prints the
    original bytes."""
    start = json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "ts": record.timestamp_ms,
            "headers": [[name, _text(value)] for name, value in record.headers],
        }
    )
    key = _json(record.key, "key" in parts_as_json)
    value = _json(record.value, "value" in parts_as_json)
    return start.encode().removesuffix(b"}") + b', "key": ' + key + b', "payload": ' + value + b"}\n"


def _json(content: bytes | None, is_json: bool) -> bytes:
    """Returns a key or a value as JSON. Content that is already JSON is not parsed, because a number such as 10.00
    would change."""
    return content if is_json and content is not None else json.dumps(_text(content)).encode()


def _text(content: bytes | None) -> object:
    return None if content is None else content.decode("utf-8", "replace")


def delimiter(text: str) -> bytes:
    r"""Parses a delimiter, which may contain \n, \t, \r, \0, \\ and \x41."""
    return formatted(text.replace("%", "%%"))(ConsumerRecord("", 0, 0, 0, None, None, ()))
