"""The indexes of one segment: the offset index and the time index, which are sparse and sorted
(docs/formats/indexes.md), and the transaction index, which lists the aborted transactions whose ABORT marker is in the
segment (docs/formats/transaction-index.md). Source: docs/spec/transactions.md#s4-10.

Entries are stored in arrays, not as objects. As in the files, offsets are relative to the segment's base offset.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from odradek.files.structures import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, TXN_INDEX_ENTRY, TXN_INDEX_VERSION

OFFSET_ENTRY_BYTES: Final = OFFSET_INDEX_ENTRY.size_bytes
TIME_ENTRY_BYTES: Final = TIME_INDEX_ENTRY.size_bytes
MAX_RELATIVE_OFFSET: Final = 2**31 - 1

_TIME_ENTRY: Final = TIME_INDEX_ENTRY.packed
_NATIVE_IS_BIG_ENDIAN: Final = sys.byteorder == "big"


class CorruptIndex(Exception):
    """The file size is not a multiple of the entry size, or the entries do not ascend. The index must be rebuilt from
    the log."""


class OffsetIndex:
    """An offset index, which finds the file position where a search for an offset starts. An entry consists of the last
    offset of a batch and the position of that batch."""

    __slots__ = ("_base_offset", "_positions", "_relative_offsets")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._relative_offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._positions)

    def append(self, last_offset: int, position: int) -> None:
        # The position is appended first, because another thread could find the offset and then read the position.
        self._positions.append(position)
        self._relative_offsets.append(last_offset - self._base_offset)

    def position_before(self, offset: int) -> int:
        """Returns the position of a batch at or before the batch that contains `offset`. Returns 0 if no entry is below
        `offset`."""
        return self.entry_before(offset)[1]

    def entry_before(self, offset: int) -> tuple[int, int]:
        """Returns the last entry (last offset, position) that is not above `offset`, or (base offset, 0) if there is no
        such entry."""
        at = bisect_right(self._relative_offsets, offset - self._base_offset) - 1
        return (
            (self._base_offset + self._relative_offsets[at], self._positions[at]) if at >= 0 else (self._base_offset, 0)
        )

    def offset_beyond(self, end_position: int) -> int | None:
        """Returns an offset that is not below any record before `end_position`. Returns None if no entry is at or after
        that position."""
        at = bisect_left(self._positions, end_position)
        return self._base_offset + self._relative_offsets[at] if at < len(self._relative_offsets) else None

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def entries(self) -> list[tuple[int, int]]:
        """Returns all entries in order, as (last offset, position) with absolute offsets."""
        base = self._base_offset
        return [(base + o, p) for o, p in zip(self._relative_offsets, self._positions, strict=True)]

    def to_bytes(self) -> bytes:
        entries = array("i", bytes(OFFSET_ENTRY_BYTES * len(self._positions)))
        entries[0::2] = self._relative_offsets
        entries[1::2] = self._positions
        if not _NATIVE_IS_BIG_ENDIAN:
            entries.byteswap()
        return entries.tobytes()

    def copy(self) -> "OffsetIndex":
        copied = OffsetIndex(self._base_offset)
        copied._relative_offsets = self._relative_offsets[:]
        copied._positions = self._positions[:]
        return copied

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes) -> "OffsetIndex":
        """Reads an index. Ignores zeros after the last entry, which Kafka preallocates. Raises CorruptIndex."""
        if len(data) % OFFSET_ENTRY_BYTES:
            raise CorruptIndex(f"{len(data)} bytes are not a whole number of offset index entries")
        entries = array("i", _without_zeros(data, OFFSET_ENTRY_BYTES))
        if not _NATIVE_IS_BIG_ENDIAN:
            entries.byteswap()
        index = cls(base_offset)
        index._relative_offsets = entries[0::2]
        index._positions = entries[1::2]
        if not _ascends(index._relative_offsets, strictly=True) or not _ascends(index._positions, strictly=True):
            raise CorruptIndex("the entries of the offset index are not in ascending order")
        return index


class TimeIndex:
    """A time index, which finds the offset where a search for a timestamp starts. An entry consists of the largest
    timestamp so far and the last offset of the batch with that timestamp."""

    __slots__ = ("_base_offset", "_relative_offsets", "_timestamps")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._timestamps = array("q")
        self._relative_offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if `timestamp` is larger than the last entry's timestamp."""
        if timestamp > (self._timestamps[-1] if self._timestamps else -1):
            self._relative_offsets.append(
                offset - self._base_offset
            )  # appended first, because another thread could find the timestamp and then read the offset
            self._timestamps.append(timestamp)

    def offset_before(self, timestamp: int) -> int:
        """Returns an offset below which every record is older than `timestamp`."""
        at = bisect_left(self._timestamps, timestamp) - 1
        return self._base_offset + self._relative_offsets[at] if at >= 0 else self._base_offset

    @property
    def last_entry(self) -> tuple[int, int] | None:
        """The last entry as (timestamp, offset), which has the largest timestamp, or None if the index is empty."""
        if not self._timestamps:
            return None
        return self._timestamps[-1], self._base_offset + self._relative_offsets[-1]

    def entries(self) -> list[tuple[int, int]]:
        """Returns all entries in order, as (timestamp, offset) with absolute offsets."""
        base = self._base_offset
        return [(t, base + o) for t, o in zip(self._timestamps, self._relative_offsets, strict=True)]

    def to_bytes(self) -> bytes:
        pack = _TIME_ENTRY.pack
        return b"".join([pack(t, o) for t, o in zip(self._timestamps, self._relative_offsets, strict=True)])

    def copy(self) -> "TimeIndex":
        copied = TimeIndex(self._base_offset)
        copied._relative_offsets = self._relative_offsets[:]
        copied._timestamps = self._timestamps[:]
        return copied

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes) -> "TimeIndex":
        """Reads an index. Ignores zeros after the last entry, which Kafka preallocates. Raises CorruptIndex."""
        if len(data) % TIME_ENTRY_BYTES:
            raise CorruptIndex(f"{len(data)} bytes are not a whole number of time index entries")
        index = cls(base_offset)
        data = _without_zeros(data, TIME_ENTRY_BYTES)
        if data:
            timestamps, relative_offsets = zip(*_TIME_ENTRY.iter_unpack(data), strict=True)
            index._timestamps = array("q", timestamps)
            index._relative_offsets = array("i", relative_offsets)
            if not _ascends(index._timestamps, strictly=True) or not _ascends(index._relative_offsets, strictly=False):
                raise CorruptIndex("the entries of the time index are not in ascending order")
        return index


def _without_zeros(data: bytes, entry_bytes: int) -> bytes:
    """Removes the zero entries after the last real entry. Trailing zero bytes that belong to a real entry are kept."""
    used = len(data.rstrip(b"\x00"))
    return data[: -(-used // entry_bytes) * entry_bytes]


def _ascends(values: "array[int]", *, strictly: bool) -> bool:
    following = values[1:]
    if strictly:
        return all(map(int.__lt__, values, following))
    return all(map(int.__le__, values, following))


_ENTRY: Final = TXN_INDEX_ENTRY.packed


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # offset of the marker
    last_stable_offset: int  # offset below which every transaction was decided when the marker was written


class TxnIndex:
    """One segment's aborted transactions, sorted by `last_offset`. They are stored in arrays, because a busy segment
    can have many aborted transactions."""

    __slots__ = ("_first_offsets", "_last_offsets", "_last_stable_offsets", "_producer_ids")

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._last_stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._last_offsets)

    def append(self, txn: AbortedTxn) -> None:
        assert not self._last_offsets or txn.last_offset > self._last_offsets[-1], (
            "transaction markers must be appended in the order of their offsets"
        )
        self._producer_ids.append(txn.producer_id)
        self._first_offsets.append(txn.first_offset)
        self._last_offsets.append(txn.last_offset)
        self._last_stable_offsets.append(txn.last_stable_offset)

    def collect(self, start_offset: int, end_offset: int, found: list[AbortedTxn]) -> bool:
        """Adds to `found` all transactions that overlap [start_offset, end_offset).

        returns   True if later segments cannot contain any more of these transactions
        """
        for at in range(bisect_left(self._last_offsets, start_offset), len(self._last_offsets)):
            if self._first_offsets[at] < end_offset:
                found.append(self[at])
            if self._last_stable_offsets[at] >= end_offset:
                return True
        return False

    def __getitem__(self, at: int) -> AbortedTxn:
        return AbortedTxn(
            self._producer_ids[at], self._first_offsets[at], self._last_offsets[at], self._last_stable_offsets[at]
        )

    def entries(self) -> list[AbortedTxn]:
        return [self[at] for at in range(len(self))]

    def to_bytes(self) -> bytes:
        return b"".join(_ENTRY.pack(TXN_INDEX_VERSION, *txn) for txn in self.entries())

    def copy(self) -> "TxnIndex":
        copied = TxnIndex()
        copied._producer_ids = self._producer_ids[:]
        copied._first_offsets = self._first_offsets[:]
        copied._last_offsets = self._last_offsets[:]
        copied._last_stable_offsets = self._last_stable_offsets[:]
        return copied

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes) -> "TxnIndex":
        """Reads an index. Raises CorruptIndex if the file is torn or belongs to another segment, or if a marker is
        below the segment's base offset."""
        if len(data) % _ENTRY.size:
            raise CorruptIndex(f"{len(data)} bytes are not a whole number of transaction index entries")
        index = cls()
        last = base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(data):
            txn = AbortedTxn(*fields)
            if version != TXN_INDEX_VERSION or txn.last_offset <= last:
                raise CorruptIndex("the transaction index has an unknown version, or is not in order")
            index.append(txn)
            last = txn.last_offset
        return index
