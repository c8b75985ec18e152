"""Quotes clients' values in messages and log lines, but no more of them than a reader needs.

A client can send a name with 32,767 characters, a request with 100,000 topics, or bytes whose `repr` is four times as
long. A message with the complete value could not be encoded in a response, because a string in the protocol has at most
32,767 bytes, and log lines with complete values would fill the disk. The functions in this module never read more of a
value than they show.
"""

from __future__ import annotations

from typing import Final

from odradek.protocol.struct import Struct

MAX_QUOTED_LENGTH: Final = 200  # maximum number of characters in one quoted value
# Maximum number of characters in a message. A message of this length has at most 8,000 bytes, which fit into every
# response.
MAX_MESSAGE_LENGTH: Final = 2_000
MAX_ELEMENTS: Final = 3  # maximum number of array elements to show
MAX_LEVELS: Final = 6  # maximum depth of nested arrays and structs to show


def shortened(text: str, most: int = MAX_MESSAGE_LENGTH) -> str:
    """Returns the text. If it is too long, its middle is replaced with the number of omitted characters."""
    if len(text) <= most:
        return text
    ending = most // 4
    return f"{text[: most - ending]}…({len(text) - most} characters left out)…{text[len(text) - ending :]}"


def quoted(value: object, most: int = MAX_QUOTED_LENGTH) -> str:
    """Returns a shortened `repr` of the value. It contains only part of a long text or long bytes, and only the first
    elements of an array.

    most  maximum number of characters in each text within the value, not counting escapes added by `repr`
    """
    return _quoted(value, most, MAX_LEVELS)


def _quoted(value: object, most: int, levels: int) -> str:
    if isinstance(value, str):
        return repr(value) if len(value) <= most else f"{value[:most]!r}…({len(value)} characters)"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return repr(bytes(value)) if len(value) <= most else f"{bytes(value[:most])!r}…({len(value)} bytes)"
    if isinstance(value, (list, tuple)):
        if levels == 0:
            return f"[{len(value)} elements]"
        shown = [_quoted(each, most, levels - 1) for each in value[:MAX_ELEMENTS]]
        if len(value) > MAX_ELEMENTS:
            shown.append(f"…({len(value)} elements)")
        return f"[{', '.join(shown)}]"
    if isinstance(value, Struct):
        if levels == 0:
            return type(value).__name__
        fields = (f"{name}={_quoted(getattr(value, name), most, levels - 1)}" for name in value.__slots__)
        return f"{type(value).__name__}({', '.join(fields)})"
    return shortened(repr(value), most)
