"""Long requests: they are decoded, and their answers encoded, in a thread, so that other clients wait for neither.

A handler works on the loop. Where it looks at all entries in one go, more than MAX_ENTRIES are refused; where it is
sliced (`odradek.broker.runtime.slices`), more than MAX_SLICED_ENTRIES: merely to let go of more would keep the loop for
a quarter of a second (docs/compatibility.md).
"""

from collections.abc import Callable
from typing import Final

from odradek.protocol.struct import Buffer, Message, Struct

LONG_REQUEST_BYTES: Final = 64 * 1024
MAX_ENTRIES: Final = 20_000
MAX_SLICED_ENTRIES: Final = 500_000


def read_long(read: Callable[[Buffer, int], tuple[Message, int]], frame: Buffer, position: int) -> tuple[Message, int]:
    """Decodes a request, and counts its entries. Raises MalformedMessage."""
    request = read(frame, position)[0]
    return request, entries_of(request)


def entries_of(struct: Struct) -> int:
    """Counts the entries of all arrays, nested ones included."""
    entries = 0
    for name in type(struct).__slots__:
        value = getattr(struct, name)
        if isinstance(value, Struct):
            entries += entries_of(value)
        elif isinstance(value, list):
            entries += len(value)
            if value and isinstance(value[0], Struct) and has_arrays(value[0]):
                entries += sum(map(entries_of, value))
    return entries


def has_arrays(struct: Struct) -> bool:
    return any(isinstance(getattr(struct, name), (list, Struct)) for name in type(struct).__slots__)
