"""The indexes of transactions and the snapshots of producers that lie beside a log.

Bytes: docs/formats/transaction-index.md and producer-snapshot.md. Both readers raise BadIndex for what is damaged.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from odradek.protocol.checksum import crc32c
from odradek.tools.offline.transactions import Aborted

_ABORTED = struct.Struct(">hqqqq")
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_PRODUCER = struct.Struct(">qhiqiqiq")
_VERSIONS = {"txnindex": 0, "snapshot": 1}
_CRC_END = 6


class BadIndex(Exception):
    """A file beside the log that cannot be relied on; the log can be read without it."""


class SnapshotProducer(NamedTuple):
    """A producer before the offset of the snapshot; -1 for what is not known."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def read_aborted(path: Path) -> list[Aborted]:
    """By ascending last offset; none where there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    if len(data) % _ABORTED.size:
        raise BadIndex(f"{path}: {len(data)} bytes are no whole number of entries")
    found: list[Aborted] = []
    for version, producer_id, first_offset, last_offset, _ in _ABORTED.iter_unpack(data):
        if version != _VERSIONS["txnindex"] or (found and last_offset <= found[-1].last_offset):
            raise BadIndex(f"{path}: an entry of an unknown version, or out of order")
        found.append(Aborted(producer_id, first_offset, last_offset))
    return found


def read_snapshot(path: Path) -> list[SnapshotProducer]:
    """Raises FileNotFoundError."""
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_HEADER.size:
        raise BadIndex(f"{path}: {len(data)} bytes are no snapshot")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != _VERSIONS["snapshot"]:
        raise BadIndex(f"{path}: version {version}")
    if crc32c(data[_CRC_END:]) != crc:
        raise BadIndex(f"{path}: the CRC is wrong")
    if count * _PRODUCER.size != len(data) - _SNAPSHOT_HEADER.size:
        raise BadIndex(f"{path}: {count} producers in {len(data)} bytes")
    return [SnapshotProducer._make(fields) for fields in _PRODUCER.iter_unpack(data[_SNAPSHOT_HEADER.size :])]
