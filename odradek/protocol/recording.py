"""Reads and writes recordings of clients' requests and responses. A recording consists of a head, followed by
compressed blocks of entries. Each block has a CRC.

If the broker was killed, the file may end with an incomplete block. docs/formats/recording.md describes the bytes.
Secrets are left out, and cut entries also lack the records. A block first contains the numbers of all its entries,
which have a fixed size, and then the entries' bodies, because this layout is the cheapest for the broker to write.
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
from odradek.protocol.recording_cuts import restore_body
from odradek.protocol.struct import Buffer

MAGIC: Final = b"ODRADEKR"
VERSION: Final = 4
_HEAD: Final = Packing(">8sHq")
_BLOCK: Final = Packing(">IIB")  # size, CRC, compression
_COUNTS: Final = Packing(">II")  # number of entries, number of items
MAX_BLOCK_BYTES: Final = 256 * 1024 * 1024
_NUMBERS_OF_AN_ENTRY: Final = 4
_NUMBER_BYTES: Final = 8
# The numbers of an entry: kind, flags and connection; time; waiting time and size of the body; exchange.
_NUMBERS: Final = Packing(">4Q")
# Flags, which are stored together with the kind.
MASKED: Final = 16
BEHIND: Final = 32
WITH_LENGTH: Final = 64  # the body begins with the length of the frame
ALL_WRITTEN: Final = 128  # set for a request if all earlier responses on its connection had been sent
UNSURE_TIME: Final = 256
_KIND_BITS: Final = 15
CONNECTION_SHIFT: Final = 16
_FLAG_BITS: Final = (1 << CONNECTION_SHIFT) - 1
_SHIFT: Final = 32
_LOW_BITS: Final = (1 << _SHIFT) - 1
MAX_WAIT_US: Final = _LOW_BITS
# The number of an item: flags in the lowest bits, then the item's size.
FIRST: Final = 1  # the first item of its run
ANSWER: Final = 2  # the item is a response and begins with its length; other items are requests
CUT: Final = 4
ITEM_SHIFT: Final = 3
_ITEM_BYTES: Final = 4
MAX_ITEM_BYTES: Final = (1 << 8 * _ITEM_BYTES - ITEM_SHIFT) - 1
_LENGTH_BYTES: Final = 4


class Kind(IntEnum):
    """The kind of an entry. The body of an entry is empty unless a comment describes it."""

    OPENED = 1  # JSON: node, listener, host, port, is_sasl
    CLOSED = 2
    RECEIVED = 3  # the frame of a request, without its length
    ANSWERED = 4  # the frame of a response, without its length
    UNANSWERED = 5  # the exchange ends without a response because of acks=0, or because a fault dropped it
    HUNG_UP = 6  # the broker closes the connection instead of responding
    # The broker has sent the last byte of the response. In a file, exchange 0 means all responses so far.
    WRITTEN = 7
    # JSON: `called`, a call to the control interface; `ended`, the reason that the recording ended; or `elsewhere`, the
    # HOST:PORT of a broker that a response named although the recorder does not cover it.
    EVENT = 8
    # RECEIVED_CUT and ANSWERED_CUT are like RECEIVED and ANSWERED, but without records. They exist only in files,
    # because reading converts them to RECEIVED and ANSWERED.
    RECEIVED_CUT = 9
    ANSWERED_CUT = 10
    RUN = 11  # requests that arrived together and responses to some of them; split into RECEIVED and ANSWERED when read


RUN: Final = Kind.RUN.value
_KINDS: Final = {kind.value: kind for kind in Kind}  # looking up a value with the Enum class is slow
_PLAIN_KINDS: Final = {Kind.RECEIVED_CUT.value: Kind.RECEIVED, Kind.ANSWERED_CUT.value: Kind.ANSWERED}
_ENDINGS: Final = (Kind.ANSWERED, Kind.UNANSWERED, Kind.HUNG_UP)


@dataclass(slots=True)
class RecordingEntry:
    """One recorded event.

    exchange       number of the exchange within the recording, or 0 if the entry is not part of an exchange
    time_us        time since the beginning of the recording, on a monotonic clock
    waited_us      how long before `time_us` the last byte may have arrived, in µs
    is_masked      whether the end of the body was removed because it contained secrets
    is_behind      for a request: whether it was sent before the previous response was written
    is_unsure      for a request: whether `is_behind` could not be determined
    lacks_records  whether the records are replaced by zeros; the CRCs of all their batches were correct
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
    is_unsure: bool = False


def pack_head(started_ms: int) -> bytes:
    """Packs the head of a recording.

    started_ms   start of the recording, in ms since the epoch
    """
    return _HEAD.pack(MAGIC, VERSION, started_ms)


class PackedEntries:
    """Entries being collected for a block. Their bodies are copied.

    run   owner of the current run; set while the last entry is a run that can be extended
    """

    __slots__ = ("_bodies", "_items", "_numbers", "run")

    def __init__(self) -> None:
        self._numbers: list[int] = []  # the numbers of all entries, concatenated
        self._items: list[int] = []
        self._bodies = bytearray()
        self.run: object | None = None

    @property
    def size_bytes(self) -> int:
        return _NUMBER_BYTES * len(self._numbers) + _ITEM_BYTES * len(self._items) + len(self._bodies)

    def add(self, kind: int, connection: int, exchange: int, time_us: int, waited_us: int, body: Buffer) -> None:
        """Adds an entry.

        kind       the kind and its flags
        exchange   0 for a request; for other entries, 0 means the connection's oldest exchange that has not ended
        """
        self._bodies += body  # with a view, appending bytes(body) would take several times as long
        self._number(kind, connection, exchange, time_us, waited_us, len(body))

    def add_parts(
        self, kind: int, connection: int, exchange: int, time_us: int, waited_us: int, parts: list[Buffer]
    ) -> None:
        """Adds an entry whose body is given as consecutive parts."""
        self._number(kind, connection, exchange, time_us, waited_us, self._add_bodies(parts))

    def begin_entry(self, owner: object, flags: int, connection: int, time_us: int, waited_us: int) -> None:
        """Begins a run. The first item must be added next.

        flags   flags of the run's first request; all other requests of the run are BEHIND
        """
        self._number(RUN | flags, connection, 0, time_us, waited_us, 0)
        self.run = owner

    def item(self, flags: int, body: Buffer) -> None:
        """Adds an item to the run.

        body   at most MAX_ITEM_BYTES
        """
        self._bodies += body
        self._items.append(len(body) << ITEM_SHIFT | flags)

    def item_parts(self, flags: int, parts: list[Buffer]) -> None:
        self._items.append(self._add_bodies(parts) << ITEM_SHIFT | flags)

    def _add_bodies(self, parts: list[Buffer]) -> int:
        size_before = len(self._bodies)
        for part in parts:
            self._bodies += part
        return len(self._bodies) - size_before

    def _number(self, kind: int, connection: int, exchange: int, time_us: int, waited_us: int, size: int) -> None:
        numbers = self._numbers  # appending a tuple of numbers takes longer
        numbers.append(kind | connection << CONNECTION_SHIFT)
        numbers.append(time_us)
        numbers.append(waited_us << _SHIFT | size)
        numbers.append(exchange)
        self.run = None

    def pack(self) -> bytes:
        numbers, items = array("Q", self._numbers), array("I", self._items)
        if sys.byteorder == "little":
            numbers.byteswap()
            items.byteswap()
        counts = _COUNTS.pack(len(self._numbers) // _NUMBERS_OF_AN_ENTRY, len(items))
        return b"".join([counts, numbers.tobytes(), items.tobytes(), self._bodies])


def pack_entries(entries: Iterable[RecordingEntry]) -> bytes:
    """Packs entries without the requests' exchange numbers, because a reader numbers the requests in order."""
    packed = PackedEntries()
    for entry in entries:
        flags = (
            (MASKED if entry.is_masked else 0)
            | (BEHIND if entry.is_behind else 0)
            | (UNSURE_TIME if entry.is_unsure else 0)
        )
        exchange = 0 if entry.kind is Kind.RECEIVED else entry.exchange
        waited_us = min(entry.waited_us, MAX_WAIT_US)
        packed.add(entry.kind.value | flags, entry.connection, exchange, entry.time_us, waited_us, entry.body)
    return packed.pack()


def pack_block(entries: bytes, compression: Compression = Compression.ZSTD) -> bytes:
    """Packs and compresses a block.

    entries   the result of `pack_entries` or `PackedEntries.pack`
    """
    body = compress(compression, entries, 1) if compression is not Compression.NONE else entries
    return _BLOCK.pack(len(body), crc32c(body), compression.value) + body


class Recording:
    """A recording that is being read once, from its beginning.

    position  the current block's position in bytes
    is_cut    whether the recording ends within a block because the broker was killed; set once all entries have been
              read
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """Reads the head of the recording. Raises MalformedMessage if the bytes are not a recording.

        read   returns the next bytes, and fewer bytes than requested only at the end
        """
        self._read = read
        head = read(_HEAD.size)
        if len(head) < _HEAD.size or not head.startswith(MAGIC):
            raise MalformedMessage("it is not a recording made by odradek serve --record")
        _, version, self.started_ms = _HEAD.unpack(head)
        if version != VERSION:
            raise MalformedMessage(f"it is a recording of version {version}, but only version {VERSION} can be read")
        self.position = len(head)
        self.is_cut = False
        self._exchanges = 0
        self._open_exchanges: dict[int, list[int]] = {}  # each connection's exchanges that have not ended
        self._unwritten: dict[int, list[int]] = {}  # each connection's exchanges whose responses have not been sent

    def entries(self) -> Iterator[RecordingEntry]:
        """Yields all entries, including a WRITTEN entry for each response. Raises MalformedMessage if a complete block
        is damaged."""
        while head := self._read(_BLOCK.size):
            size, crc, compression = _BLOCK.unpack(head) if len(head) == _BLOCK.size else (0, 0, 0)
            if size > MAX_BLOCK_BYTES:
                raise MalformedMessage(f"the block at byte {self.position} announces {size} bytes")
            body = self._read(size)
            if len(head) < _BLOCK.size or len(body) < size:
                self.is_cut = True
                return
            if crc32c(body) != crc:
                raise MalformedMessage(f"the block at byte {self.position} is damaged: its CRC is wrong")
            if compression == Compression.ZSTD.value:
                body = bytes(decompress(Compression.ZSTD, body, MAX_BLOCK_BYTES))
            elif compression != Compression.NONE.value:
                raise MalformedMessage(f"the block at byte {self.position} has the unknown compression {compression}")
            for flags, entry in _entries(body):
                yield from self._placed(flags, entry)
            self.position += len(head) + size

    def _placed(self, flags: int, entry: RecordingEntry) -> Iterator[RecordingEntry]:
        """Yields the entry with its exchange's number, after any WRITTEN entries that its flags imply."""
        kind, connection = entry.kind, entry.connection
        if kind is Kind.RECEIVED:
            self._exchanges += 1
            entry.exchange = self._exchanges
            self._open_exchanges.setdefault(connection, []).append(entry.exchange)
        elif kind in _ENDINGS:
            open_exchanges = self._open_exchanges.get(connection, [])
            if not entry.exchange:
                if not open_exchanges:
                    raise MalformedMessage(f"connection {connection} has an answer, but no open request")
                entry.exchange = open_exchanges.pop(0)
            elif entry.exchange in open_exchanges:
                open_exchanges.remove(entry.exchange)
        elif kind is Kind.CLOSED:
            self._open_exchanges.pop(connection, None)
            self._unwritten.pop(connection, None)
        is_all_written = kind is Kind.WRITTEN and not entry.exchange
        if flags & ALL_WRITTEN or is_all_written:
            for exchange in self._unwritten.pop(connection, ()):
                yield RecordingEntry(Kind.WRITTEN, connection, exchange, entry.time_us)
        if kind is Kind.ANSWERED:
            self._unwritten.setdefault(connection, []).append(entry.exchange)
        if not is_all_written:
            yield entry


def _entries(data: bytes) -> Iterator[tuple[int, RecordingEntry]]:
    """Yields the entries of a block with their flags."""
    count, items = _COUNTS.unpack_from(data)
    items_at = _COUNTS.size + count * _NUMBERS.size
    bodies = _Bodies(data, array("I", data[items_at : items_at + _ITEM_BYTES * items]), items_at + _ITEM_BYTES * items)
    if sys.byteorder == "little":
        bodies.items.byteswap()
    for first, time_us, sizes, exchange in _NUMBERS.iter_unpack(memoryview(data)[_COUNTS.size : items_at]):
        flags, connection = first & _FLAG_BITS, first >> CONNECTION_SHIFT
        number, waited_us = flags & _KIND_BITS, sizes >> _SHIFT
        if number == RUN:
            yield from bodies.run(flags, connection, time_us, waited_us)
            continue
        is_cut = number in _PLAIN_KINDS
        entry = RecordingEntry(
            _PLAIN_KINDS.get(number) or _KINDS[number],
            connection,
            exchange,
            time_us,
            bodies.next(sizes & _LOW_BITS, is_cut, bool(flags & WITH_LENGTH)),
            waited_us,
            bool(flags & MASKED),
            bool(flags & BEHIND),
            is_cut,
            bool(flags & UNSURE_TIME),
        )
        yield flags, entry


class _Bodies:
    """A block's bodies, which are read in turn."""

    def __init__(self, data: bytes, items: array[int], position: int) -> None:
        self.items = items
        self._data = data
        self._position = position
        self._item = 0

    def run(self, flags: int, connection: int, time_us: int, waited_us: int) -> Iterator[tuple[int, RecordingEntry]]:
        """Yields the entries of the next run."""
        is_first = True
        while self._item < len(self.items) and (is_first or not self.items[self._item] & FIRST):
            item = self.items[self._item]
            self._item += 1
            is_cut, is_answer = bool(item & CUT), bool(item & ANSWER)
            entry = RecordingEntry(
                Kind.ANSWERED if is_answer else Kind.RECEIVED,
                connection,
                0,
                time_us,
                self.next(item >> ITEM_SHIFT, is_cut, is_answer),
                0 if is_answer else waited_us,
                False,
                not is_answer and (not is_first or bool(flags & BEHIND)),
                is_cut,
                is_first and bool(flags & UNSURE_TIME),
            )
            yield flags if is_first else 0, entry
            is_first = False

    def next(self, size: int, is_cut: bool, has_length: bool) -> bytes:
        start = self._position
        self._position += size
        body = self._data[start : self._position]
        if is_cut:
            body = restore_body(body)
        return body[_LENGTH_BYTES:] if has_length else body
