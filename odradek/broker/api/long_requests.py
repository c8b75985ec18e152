"""Decodes long requests and encodes long responses in threads, so that other clients need not wait.

Handlers still run on the event loop. If a handler processes all entries without a pause, requests with more than
MAX_ENTRIES entries are refused. If a handler is sliced (`odradek.broker.runtime.slices`), the limit is
MAX_SLICED_ENTRIES, because even freeing the memory of more entries would block the loop for a quarter of a second
(docs/compatibility.md).
"""

from collections.abc import Callable
from struct import Struct as Packing
from typing import Final

from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.primitives import DECODING_ERRORS, read_varint
from odradek.protocol.struct import Buffer, Message, Struct

LONG_REQUEST_BYTES: Final = 16 * 1024
MAX_ENTRIES: Final = 20_000
MAX_SLICED_ENTRIES: Final = 500_000
BYTES_OF_AN_ENTRY: Final = 128
MANY_PARTITIONS: Final = 1_000  # a Produce with more partitions is long even if it has few records
FIRST_FLEXIBLE_PRODUCE_VERSION: Final = 9
FIRST_PRODUCE_VERSION_WITH_IDS: Final = 13
INT16, INT32 = Packing(">h"), Packing(">i")
ACKS_AND_TIMEOUT_BYTES: Final = 6
UUID_BYTES: Final = 16


def check_entries(entries: int, *, is_sliced: bool) -> None:
    """Raises INVALID_REQUEST if a request has more entries than its handler accepts."""
    most = MAX_SLICED_ENTRIES if is_sliced else MAX_ENTRIES
    if entries > most:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request has {entries} entries; the limit is {most}")


def read_long(
    read: Callable[[Buffer, int], tuple[Message, int]], frames: list[Buffer], position: int
) -> tuple[Message, int] | None:
    """Decodes a request and checks its number of entries. Returns None if the frame has been removed from the list
    because the client has disconnected.

    Removes the frame from the list. Raises MalformedMessage.
    """
    try:
        frame = frames.pop()
    except IndexError:
        return None
    request = read(frame, position)[0]
    return request, entries_of(request)


def entries_of(struct: Struct) -> int:
    """Returns the number of entries in all arrays, including nested arrays."""
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


def has_many_partitions(frame: Buffer, position: int, version: int) -> bool:
    """Returns whether a Produce request has more than MANY_PARTITIONS partitions or has tagged fields. Stops reading as
    soon as the result is certain.

    position   offset of the request body in the frame
    """
    is_flexible = version >= FIRST_FLEXIBLE_PRODUCE_VERSION
    try:
        size, position = _length(frame, position, is_flexible, INT16)  # the transactional id
        topics, position = _length(frame, position + max(0, size) + ACKS_AND_TIMEOUT_BYTES, is_flexible, INT32)
        left = MANY_PARTITIONS - topics
        for _ in range(topics):
            size, position = (
                (UUID_BYTES, position)
                if version >= FIRST_PRODUCE_VERSION_WITH_IDS
                else _length(frame, position, is_flexible, INT16)
            )
            partitions, position = _length(frame, position + size, is_flexible, INT32)
            left -= partitions
            if left < 0:
                return True
            for _ in range(partitions):
                size, position = _length(frame, position + INT32.size, is_flexible, INT32)
                position += max(0, size)
                if is_flexible:
                    if frame[position]:
                        return True
                    position += 1
            if is_flexible:
                if frame[position]:
                    return True
                position += 1
    except (*DECODING_ERRORS, MalformedMessage):
        return False  # decoding the request will report the error
    return left < 0


def _length(frame: Buffer, position: int, is_flexible: bool, old: Packing) -> tuple[int, int]:
    """Reads a length, which is -1 for null. Returns the length and the position after it."""
    if is_flexible:
        length, position = read_varint(frame, position)
        return length - 1, position
    (length,) = old.unpack_from(frame, position)
    return length, position + old.size


class AnswerEntries:
    """Counts the entries of a response that can be much longer than its request, for instance because names are
    repeated."""

    def __init__(self) -> None:
        self._left = MAX_SLICED_ENTRIES

    def add(self, entries: int, size_bytes: int = 0) -> None:
        """Adds entries. To limit the response's memory use, raises INVALID_REQUEST if there are too many entries.

        size_bytes   size of the data from clients that the response repeats; every BYTES_OF_AN_ENTRY bytes count as one
                     entry
        """
        self._left -= entries + size_bytes // BYTES_OF_AN_ENTRY
        if self._left < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the answer would have more than {MAX_SLICED_ENTRIES} entries")
