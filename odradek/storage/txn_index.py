"""The transaction index of one segment: the aborted transactions whose ABORT marker it holds.

Kafka's bytes: docs/formats/transaction-index.md. Source: docs/spec/transactions.md#s4-10.
"""

import struct
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

from odradek.storage.index import CorruptIndex

ENTRY_BYTES: Final = 34
_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # that of the marker
    last_stable_offset: int  # below it every transaction was decided when the marker was written


class TxnIndex:
    """Sorted by `last_offset`. Arrays, because a busy segment may hold many."""

    __slots__ = ("_first_offsets", "_last_offsets", "_last_stable_offsets", "_producer_ids")

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._last_stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._last_offsets)

    def append(self, txn: AbortedTxn) -> None:
        assert not self._last_offsets or txn.last_offset > self._last_offsets[-1], "markers come in order"
        self._producer_ids.append(txn.producer_id)
        self._first_offsets.append(txn.first_offset)
        self._last_offsets.append(txn.last_offset)
        self._last_stable_offsets.append(txn.last_stable_offset)

    def collect(self, start_offset: int, end_offset: int, found: list[AbortedTxn]) -> bool:
        """Adds to `found` what overlaps [start_offset, end_offset).

        returns   whether no later segment can hold more
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
        return b"".join(_ENTRY.pack(_VERSION, *txn) for txn in self.entries())

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes) -> "TxnIndex":
        """Raises CorruptIndex for a torn or foreign file, and for a marker below the segment's base offset."""
        if len(data) % ENTRY_BYTES:
            raise CorruptIndex(f"{len(data)} bytes are not a whole number of transaction index entries")
        index = cls()
        last = base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(data):
            txn = AbortedTxn(*fields)
            if version != _VERSION or txn.last_offset <= last:
                raise CorruptIndex("transaction index of an unknown version or out of order")
            index.append(txn)
            last = txn.last_offset
        return index
