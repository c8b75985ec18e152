"""Metadata snapshots (`<end offset>-<epoch>.checkpoint`) and `bootstrap.checkpoint`: finding, checking, writing them.

A snapshot stands for all records of the log below its end offset. This broker reads Kafka's snapshots and writes only
`bootstrap.checkpoint`: its log holds only changes, not a record every 500 ms, and so stays short.
"""

import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from odradek.broker.metadata.records import PassedOver, decode_record, record_batch
from odradek.protocol.batch_header import batches, crc_ok
from odradek.protocol.control_records import ControlType, control_type
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import NewRecord, build_batch, records_of
from odradek.protocol.struct import Message

BOOTSTRAP = "bootstrap.checkpoint"
NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CONTROL_KEY = struct.Struct(">hh")  # version, type


class SnapshotFile(NamedTuple):
    """`end_offset` is exclusive."""

    end_offset: int
    epoch: int
    name: str


def snapshots_among(names: Iterable[str]) -> list[SnapshotFile]:
    """The newest first."""
    matches = [match for match in map(NAME.fullmatch, names) if match is not None]
    return sorted((SnapshotFile(int(match[1]), int(match[2]), match[0]) for match in matches), reverse=True)


def is_complete(data: bytes) -> bool:
    """Whether all checksums hold, no offset is missing, and a snapshot footer ends it: a writer that died leaves one
    without."""
    last, next_offset, end_position = None, 0, 0
    try:
        for position, header in batches(data):
            if header.base_offset != next_offset or not crc_ok(data, position, header.size_bytes):
                return False
            last, next_offset, end_position = (position, header), header.next_offset, position + header.size_bytes
        if last is None or not last[1].is_control or end_position != len(data):
            return False
        *_, record = records_of(data, last[0])
        return control_type(record.key) is ControlType.SNAPSHOT_FOOTER
    except MalformedMessage:
        return False


def records_in(data: bytes) -> list[Message]:
    """The records of a complete snapshot that mean something here, in order. Raises MalformedMessage."""
    records = []
    for position, header in batches(data):
        if not header.is_control:
            decoded = (decode_record(record.value or b"") for record in records_of(data, position))
            records += [record for record in decoded if not isinstance(record, PassedOver)]
    return records


def bootstrap_snapshot(records: Iterable[Message], metadata_version: int, now_ms: int) -> bytes:
    """What formatting a directory leaves in its root: the features a cluster begins with."""
    header = NewRecord(_CONTROL_KEY.pack(0, ControlType.SNAPSHOT_HEADER.value), struct.pack(">hqb", 0, 0, 0), now_ms)
    footer = NewRecord(_CONTROL_KEY.pack(0, ControlType.SNAPSHOT_FOOTER.value), struct.pack(">hb", 0, 0), now_ms)
    content = record_batch(records, metadata_version, now_ms, leader_epoch=0)
    count = next(batches(content))[1].record_count
    struct.pack_into(">q", content, 0, 1)
    first = build_batch([header], is_control=True, leader_epoch=0)
    last = build_batch([footer], base_offset=count + 1, is_control=True, leader_epoch=0)
    return bytes(first + content + last)
