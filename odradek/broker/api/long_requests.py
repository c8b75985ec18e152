"""Long requests: they are decoded, and their answers encoded, in a thread, so that other clients wait for neither.

What a handler does with each entry it does on the loop. Where it does that in one go, more than MAX_ENTRIES are refused
(docs/compatibility.md); a handler that is sliced (`odradek.broker.runtime.slices`) has no such limit.
"""

from collections.abc import Callable
from typing import Final

from odradek.protocol.struct import Buffer, Message, Struct

LONG_REQUEST_BYTES: Final = 64 * 1024
MAX_ENTRIES: Final = 20_000


def read_long(
    read: Callable[[Buffer, int], tuple[Message, int]], frame: Buffer, position: int, *, counts: bool
) -> tuple[Message, int]:
    """Decodes a request; gives the number of its entries as well, 0 unless it `counts`. Raises MalformedMessage."""
    request = read(frame, position)[0]
    return request, entries_of(request) if counts else 0


def entries_of(struct: Struct) -> int:
    """Counts the entries of all arrays, nested ones included."""
    entries = 0
    for name in type(struct).__slots__:
        value = getattr(struct, name)
        if isinstance(value, list):
            entries += len(value)
            if value and isinstance(value[0], Struct):
                entries += sum(map(entries_of, value))
        elif isinstance(value, Struct):
            entries += entries_of(value)
    return entries
