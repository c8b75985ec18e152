"""Recordings of what clients sent a broker and got: a head, then compressed blocks of entries, each with its CRC.

A file that a killed broker leaves ends with its last whole block, and may hold the beginning of another one.
docs/formats/recording.md describes the bytes. Only records are as they were; secrets of logins are not in it. The
numbers of a block's entries stand before their bodies, all of one size: that costs a broker least.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct as Packing
from typing import Final

from odradek.protocol.checksum import crc32c
from odradek.protocol.compression import Compression, compress, decompress
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.recording_cuts import restored
from odradek.protocol.struct import Buffer

MAGIC: Final = b"ODRADEKR"
VERSION: Final = 3
_HEAD: Final = Packing(">8sHq")
_BLOCK: Final = Packing(">IIB")  # size, CRC, compression
_COUNT: Final = Packing(">I")
MOST_BLOCK_BYTES: Final = 256 * 1024 * 1024
_NUMBERS_OF_AN_ENTRY: Final = 6
_NUMBER_BYTES: Final = 8
_NUMBERS: Final = Packing(">6Q")  # kind, connection, exchange, time, waited, size of the body
# Flags, in the byte of the kind.
MASKED: Final = 16
BEHIND: Final = 32
WITH_LENGTH: Final = 64  # the body begins with the length of its frame
ALL_WRITTEN: Final = 128  # of a request: the answers to all before it, on its connection, have left
_KIND_BITS: Final = 15
_LENGTH_BYTES: Final = 4


class Kind(IntEnum):
    """Kinds of entries; a body that is not named is empty."""

    OPENED = 1  # JSON: node, listener, host, port, is_sasl
    CLOSED = 2
    RECEIVED = 3  # the frame of a request, without its length
    ANSWERED = 4  # the frame of its answer, without its length
    UNANSWERED = 5  # the exchange ends without an answer: acks=0, or a fault dropped it
    HUNG_UP = 6  # the broker closes the connection in place of an answer
    WRITTEN = 7  # the last byte of the answer has left the broker; in a file, exchange 0 stands for all so far
    TOLD = 8  # JSON: `called`, a call of the control interface, or `ended`, why the recording ends
    RECEIVED_CUT = 9  # this one and the next: RECEIVED and ANSWERED, as which they are read, without records
    ANSWERED_CUT = 10


_KINDS: Final = {kind.value: kind for kind in Kind}  # Enum's own look-up is slow
_PLAIN_KINDS: Final = {Kind.RECEIVED_CUT.value: Kind.RECEIVED, Kind.ANSWERED_CUT.value: Kind.ANSWERED}


@dataclass(slots=True)
class RecordingEntry:
    """One thing that happened.

    exchange       numbers exchanges within the recording; 0 where the entry concerns none
    time_us        since the recording began, by a clock that never goes back
    waited_us      how much earlier than `time_us` the last byte may have arrived
    is_masked      whether the body ends where secrets begin
    is_behind      of a request: whether it may have been sent before the answer before it was written
    lacks_records  zeros stand in the place of records, all of them of batches whose CRC was right
    """

    kind: Kind
    connection: int
    exchange: int
    time_us: int
    body: bytes = b""
    waited_us: int = 0
    is_masked: bool = False
    is_behind: bool = False
    lacks_records: bool = False


def pack_head(started_ms: int) -> bytes:
    """started_ms: since the epoch."""
    return _HEAD.pack(MAGIC, VERSION, started_ms)


class PackedEntries:
    """Entries that gather into a block. What they are made of is not kept: their bodies are copied."""

    __slots__ = ("_bodies", "_numbers")

    def __init__(self) -> None:
        self._numbers: list[int] = []  # of all entries, one behind the other
        self._bodies = bytearray()

    @property
    def size_bytes(self) -> int:
        return _NUMBER_BYTES * len(self._numbers) + len(self._bodies)

    def add(self, kind: int, connection: int, exchange: int, time_us: int, waited_us: int, body: Buffer) -> None:
        """kind: with its flags."""
        self._bodies += body  # of a view, bytes(body) takes several times as long
        self._number(kind, connection, exchange, time_us, waited_us, len(body))

    def add_parts(
        self, kind: int, connection: int, exchange: int, time_us: int, waited_us: int, parts: list[Buffer]
    ) -> None:
        """parts: of the body"""
        size_before = len(self._bodies)
        for part in parts:
            self._bodies += part
        self._number(kind, connection, exchange, time_us, waited_us, len(self._bodies) - size_before)

    def _number(self, kind: int, connection: int, exchange: int, time_us: int, waited_us: int, size: int) -> None:
        numbers = self._numbers  # to append a tuple of them takes longer
        numbers.append(kind)
        numbers.append(connection)
        numbers.append(exchange)
        numbers.append(time_us)
        numbers.append(waited_us)
        numbers.append(size)

    def pack(self) -> bytes:
        numbers = array("Q", self._numbers)  # three times as fast as struct
        if sys.byteorder == "little":
            numbers.byteswap()
        count = _COUNT.pack(len(self._numbers) // _NUMBERS_OF_AN_ENTRY)
        return b"".join([count, numbers.tobytes(), self._bodies])


def pack_entries(entries: Iterable[RecordingEntry]) -> bytes:
    packed = PackedEntries()
    for entry in entries:
        flags = (MASKED if entry.is_masked else 0) | (BEHIND if entry.is_behind else 0)
        packed.add(
            entry.kind.value | flags, entry.connection, entry.exchange, entry.time_us, entry.waited_us, entry.body
        )
    return packed.pack()


def pack_block(entries: bytes, compression: Compression = Compression.ZSTD) -> bytes:
    """entries: packed."""
    body = compress(compression, entries, 1) if compression is not Compression.NONE else entries
    return _BLOCK.pack(len(body), crc32c(body), compression.value) + body


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
        self._unwritten: dict[int, list[int]] = {}  # answers, by connection

    def entries(self) -> Iterator[RecordingEntry]:
        """Yields one of WRITTEN for each answer. Raises MalformedMessage where a whole block is damaged."""
        while head := self._read(_BLOCK.size):
            size, crc, compression = _BLOCK.unpack(head) if len(head) == _BLOCK.size else (0, 0, 0)
            if size > MOST_BLOCK_BYTES:
                raise MalformedMessage(f"the block at byte {self.position} announces {size} bytes")
            body = self._read(size)
            if len(head) < _BLOCK.size or len(body) < size:
                self.is_cut = True
                return
            if crc32c(body) != crc:
                raise MalformedMessage(f"the block at byte {self.position} is damaged: its CRC is wrong")
            if compression == Compression.ZSTD.value:
                body = bytes(decompress(Compression.ZSTD, body, MOST_BLOCK_BYTES))
            elif compression != Compression.NONE.value:
                raise MalformedMessage(f"the block at byte {self.position} has the unknown compression {compression}")
            for flags, entry in _entries(body):
                if flags & ALL_WRITTEN or (entry.kind is Kind.WRITTEN and not entry.exchange):
                    for exchange in self._unwritten.pop(entry.connection, ()):
                        yield RecordingEntry(Kind.WRITTEN, entry.connection, exchange, entry.time_us)
                if entry.kind is Kind.ANSWERED:
                    self._unwritten.setdefault(entry.connection, []).append(entry.exchange)
                elif entry.kind is Kind.CLOSED:
                    self._unwritten.pop(entry.connection, None)
                if entry.kind is not Kind.WRITTEN or entry.exchange:
                    yield entry
            self.position += len(head) + size


def _entries(data: bytes) -> Iterator[tuple[int, RecordingEntry]]:
    """Yields them with their flags."""
    (count,) = _COUNT.unpack_from(data)
    position = _COUNT.size + count * _NUMBERS.size
    numbers = memoryview(data)[_COUNT.size : position]
    for kind, connection, exchange, time_us, waited_us, size in _NUMBERS.iter_unpack(numbers):
        start, position = position, position + size
        plain_kind = _PLAIN_KINDS.get(kind & _KIND_BITS)
        if plain_kind is not None:
            body = restored(data[start:position])
            if kind & WITH_LENGTH:
                body = body[_LENGTH_BYTES:]
        else:
            body = data[start + _LENGTH_BYTES if kind & WITH_LENGTH else start : position]
        entry = RecordingEntry(
            plain_kind or _KINDS[kind & _KIND_BITS],
            connection,
            exchange,
            time_us,
            body,
            waited_us,
            bool(kind & MASKED),
            bool(kind & BEHIND),
            plain_kind is not None,
        )
        yield kind, entry
