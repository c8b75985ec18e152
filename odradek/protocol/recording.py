"""Recordings of what clients sent a broker and got: a head, then compressed blocks of entries, each with its CRC.

A file that a killed broker leaves ends with its last whole block, and may hold the beginning of another one.
docs/formats/recording.md describes the bytes. Only records are as they were; secrets of logins are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct as Packing
from typing import Final

from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import Compression, compress, decompress
from odradek.protocol.errors import MalformedMessage

MAGIC: Final = b"ODRADEKR"
VERSION: Final = 1
_HEAD: Final = Packing(">8sHq")
_BLOCK: Final = Packing(">II")
_ENTRY: Final = Packing(">BBIQQII")  # kind, flags, connection, exchange, time, waited, size of the body
MOST_BLOCK_BYTES: Final = 256 * 1024 * 1024


class Kind(IntEnum):
    """Kinds of entries; a body that is not named is empty."""

    OPENED = 1  # JSON: node, listener, host, port, is_sasl
    CLOSED = 2
    RECEIVED = 3  # the frame of a request, without its length
    ANSWERED = 4  # the frame of its answer, without its length
    UNANSWERED = 5  # the exchange ends without an answer: acks=0, or a fault dropped it
    HUNG_UP = 6  # the broker closes the connection in place of an answer
    WRITTEN = 7  # the last byte of the answer has left the broker
    STARTED = 8  # JSON: what the broker says of itself, such as its version and features


_KINDS: Final = {kind.value: kind for kind in Kind}  # Enum's own look-up is slow


@dataclass(slots=True)
class RecordingEntry:
    """One thing that happened.

    exchange   numbers exchanges within the recording; 0 where the entry concerns none
    time_us    since the recording began, by a clock that never goes back
    waited_us  how much earlier than `time_us` the last byte may have arrived
    is_masked  whether the body ends where secrets begin
    is_behind  of a request: whether it may have been sent before the answer before it was written
    """

    kind: Kind
    connection: int
    exchange: int
    time_us: int
    body: bytes = b""
    waited_us: int = 0
    is_masked: bool = False
    is_behind: bool = False


def pack_head(started_ms: int) -> bytes:
    """started_ms: since the epoch."""
    return _HEAD.pack(MAGIC, VERSION, started_ms)


pack_start = _ENTRY.pack  # the fields of an entry before its body, in their order


def pack_entry(entry: RecordingEntry) -> bytes:
    start = _ENTRY.pack(
        entry.kind,
        entry.is_masked | entry.is_behind << 1,
        entry.connection,
        entry.exchange,
        entry.time_us,
        entry.waited_us,
        len(entry.body),
    )
    return start + entry.body


def pack_block(entries: bytes) -> bytes:
    body = compress(Compression.ZSTD, entries, 1)
    return _BLOCK.pack(len(body), crc32c(body)) + body


class Recording:
    """A recording that is read once, from its beginning.

    position  of the block that is read now, in bytes
    is_cut    whether it ended within a block, as a killed broker leaves it; known when all entries are read
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """read: the next bytes, fewer only at the end. Raises MalformedMessage."""
        self._read = read
        head = read(_HEAD.size)
        if len(head) < _HEAD.size or not head.startswith(MAGIC):
            raise MalformedMessage("it is no recording of odradek serve --record")
        _, version, self.started_ms = _HEAD.unpack(head)
        if version != VERSION:
            raise MalformedMessage(f"it is a recording of version {version}; {VERSION} is the one that can be read")
        self.position = len(head)
        self.is_cut = False

    def entries(self) -> Iterator[RecordingEntry]:
        """Raises MalformedMessage where a whole block is damaged."""
        while head := self._read(_BLOCK.size):
            size, crc = _BLOCK.unpack(head) if len(head) == _BLOCK.size else (0, 0)
            if size > MOST_BLOCK_BYTES:
                raise MalformedMessage(f"the block at byte {self.position} announces {size} bytes")
            body = self._read(size)
            if len(head) < _BLOCK.size or len(body) < size:
                self.is_cut = True
                return
            if crc32c(body) != crc:
                raise MalformedMessage(f"the block at byte {self.position} is damaged: its CRC is wrong")
            yield from _entries(bytes(decompress(Compression.ZSTD, body, MOST_BLOCK_BYTES)))
            self.position += len(head) + size


def _entries(data: bytes) -> Iterator[RecordingEntry]:
    position = 0
    while position < len(data):
        kind, flags, connection, exchange, time_us, waited_us, size = _ENTRY.unpack_from(data, position)
        position += _ENTRY.size
        body = data[position : position + size]
        position += size
        yield RecordingEntry(
            _KINDS[kind], connection, exchange, time_us, body, waited_us, bool(flags & 1), bool(flags & 2)
        )
