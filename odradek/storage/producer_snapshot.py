"""The bytes of `<offset>.snapshot`: the producer state of a partition after all records below that offset.

Layout: docs/formats/producer-snapshot.md. Source: docs/spec/transactions.md#s4-11.
"""

import struct
from collections.abc import Iterable
from typing import Final

from odradek.protocol.checksum import crc32c
from odradek.storage.producer_state import CachedBatch, ProducerEntry

VERSION: Final = 1
ENTRY_BYTES: Final = 46
_HEADER: Final = struct.Struct(">hIi")  # version, CRC-32C of all that follows it, number of entries
_CRC_END: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """Torn, of another version, or damaged: an older snapshot must do."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Encodes only the newest of each producer's batches."""
    body = bytearray()
    for entry in entries:
        batch = entry.batches[-1] if entry.batches else None
        body += _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            -1 if batch is None else batch.last_sequence,
            -1 if batch is None else batch.last_offset,
            0 if batch is None else batch.offset_delta,
            entry.last_timestamp,
            -1 if entry.coordinator_epoch is None else entry.coordinator_epoch,
            -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
        )
    counted = struct.pack(">i", len(body) // ENTRY_BYTES) + body
    return struct.pack(">hI", VERSION, crc32c(counted)) + counted


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Raises CorruptSnapshot."""
    if len(data) < _HEADER.size:
        raise CorruptSnapshot(f"{len(data)} bytes")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version}")
    if crc32c(data[_CRC_END:]) != crc:
        raise CorruptSnapshot("wrong CRC")
    if count * ENTRY_BYTES != len(data) - _HEADER.size:
        raise CorruptSnapshot(f"{count} entries in {len(data)} bytes")
    return [_entry(fields) for fields in _ENTRY.iter_unpack(data[_HEADER.size :])]


def _entry(fields: tuple[int, ...]) -> ProducerEntry:
    (
        producer_id,
        producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp,
        coordinator_epoch,
        txn_first_offset,
    ) = fields
    batches = () if last_offset < 0 else (CachedBatch(last_sequence, last_offset, offset_delta, timestamp),)
    return ProducerEntry(
        producer_id,
        producer_epoch,
        timestamp,
        None if coordinator_epoch < 0 else coordinator_epoch,
        None if txn_first_offset < 0 else txn_first_offset,
        batches,
    )
