"""Encodes and decodes `<offset>.snapshot` files, which contain the state of a partition's producers after all records
below that offset.

Layout: docs/formats/producer-snapshot.md. Source: docs/spec/transactions.md#s4-11.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.files.structures import SNAPSHOT_CRC_END, SNAPSHOT_ENTRY, SNAPSHOT_HEADER, SNAPSHOT_VERSION
from odradek.protocol.checksum import crc32c

_HEADER: Final = SNAPSHOT_HEADER.packed
_ENTRY: Final = SNAPSHOT_ENTRY.packed


class CorruptSnapshot(Exception):
    """The snapshot is torn, damaged or of an unsupported version, so an older snapshot must be used."""


class SnapshotEntry(NamedTuple):
    """A producer's state at the snapshot's offset. Unknown values are -1."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    body = b"".join([_ENTRY.pack(*entry) for entry in entries])
    counted = struct.pack(">i", len(body) // _ENTRY.size) + body
    return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(counted)) + counted


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """Reads a snapshot. Raises CorruptSnapshot."""
    if len(data) < _HEADER.size:
        raise CorruptSnapshot(f"the file has only {len(data)} bytes, which is too short for a snapshot")
    version, crc, count = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"unknown version {version}")
    if crc32c(data[SNAPSHOT_CRC_END:]) != crc:
        raise CorruptSnapshot("the CRC is wrong")
    if count * _ENTRY.size != len(data) - _HEADER.size:
        raise CorruptSnapshot(f"the header says {count} producers, which do not fit the file size of {len(data)} bytes")
    return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(data[_HEADER.size :])]
