"""Reads and writes the metadata log's files other than segments: snapshots, `bootstrap.checkpoint`, `quorum-state`.

A snapshot (`<end offset>-<epoch>.checkpoint`) replaces all records of the log below its end offset. This broker reads
Kafka's snapshots. It writes a snapshot in a new directory (`bootstrap.checkpoint` if it emulates a release before Kafka
4.4), and other snapshots only if Kafka could not read the log without them (lowered_levels.py). This broker's log stays
short, because it contains only changes, whereas Kafka appends a record every 500 ms.

`quorum-state` contains the metadata log's leader and epoch. The file is written before the first batch of an epoch, so
that no epoch is used twice. Layout: docs/formats/cluster-metadata.md.
"""

from __future__ import annotations

import json
import logging
import re
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.metadata.records import IgnoredRecord, decode_record, encode_record
from odradek.broker.metadata.replaying import CorruptMetadata
from odradek.protocol.batch_header import batches, crc_ok
from odradek.protocol.control_records import ControlType, control_type
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import NewRecord, build_batch, records_of
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.storage.disk import Disk
    from odradek.storage.log import Log

log = logging.getLogger("odradek.metadata")

BOOTSTRAP = "bootstrap.checkpoint"  # used by releases before Kafka 4.4
FORMATTED = "00000000000000000000-0000000000.checkpoint"  # used by Kafka 4.4; see docs/spec/kafka-4.4.md#s6-1, P1
MAX_RECORDS_OF_BATCH = 1_000
NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CONTROL_KEY = struct.Struct(">hh")  # version, type


class SnapshotFile(NamedTuple):
    """The parsed name of a snapshot file. `end_offset` is exclusive."""

    end_offset: int
    epoch: int
    name: str


def snapshots_among(names: Iterable[str]) -> list[SnapshotFile]:
    """Returns the snapshots among these file names, newest first."""
    matches = [match for match in map(NAME.fullmatch, names) if match is not None]
    return sorted((SnapshotFile(int(match[1]), int(match[2]), match[0]) for match in matches), reverse=True)


def newest_snapshot(disk: Disk, metadata_log: Log) -> tuple[bytes | None, int]:
    """Returns the newest complete snapshot, or None if no snapshot exists, and the offset from which the log must be
    read. Raises CorruptMetadata if the log ends before the snapshot, or if no snapshot contains the records before the
    start of the log.

    The snapshot that formatting writes (FORMATTED) does not replace records of the log and is not returned;
    `formatted_records` reads it.
    """
    start = metadata_log.log_start_offset
    damaged: list[str] = []
    for snapshot in snapshots_among(disk.list_directory(metadata_log.directory)):
        if snapshot.end_offset == 0:
            continue
        data = disk.read_bytes(f"{metadata_log.directory}/{snapshot.name}")
        if not is_complete(data):
            damaged.append(snapshot.name)
            log.warning("%s/%s is damaged or incomplete, and is ignored", metadata_log.directory, snapshot.name)
            continue
        if snapshot.end_offset > metadata_log.high_watermark:
            raise CorruptMetadata(
                f"records at the end of the log are lost: the log ends before the snapshot {snapshot.name}"
            )
        if snapshot.end_offset >= start:
            return data, snapshot.end_offset
        break
    if start > 0:
        found = f" ({', '.join(damaged)}: damaged)" if damaged else ""
        raise CorruptMetadata(f"the log begins at offset {start}, and no snapshot has the records before it{found}")
    return None, 0


def is_complete(data: bytes) -> bool:
    """Returns whether a snapshot is complete. In a complete snapshot, all checksums match, no offset is missing, and
    the last record is a footer. If the writer crashed before it finished, the footer is missing."""
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
    """Returns a complete snapshot's known records in order. Raises MalformedMessage."""
    records = []
    for position, header in batches(data):
        if not header.is_control:
            decoded = (decode_record(record.value or b"") for record in records_of(data, position))
            records += [record for record in decoded if not isinstance(record, IgnoredRecord)]
    return records


def bootstrap_snapshot(
    records: Iterable[Message], metadata_version: int, now_ms: int, *, last_contained_ms: int = 0
) -> bytes:
    """Builds the snapshot that formatting writes, which contains a cluster's initial features.

    last_contained_ms  time of the last contained record, for the header: 0 in the `bootstrap.checkpoint` of releases
                       before Kafka 4.4, and the time of formatting in the snapshot of Kafka 4.4
    """
    values = [encode_record(record, metadata_version) for record in records]
    return snapshot(values, now_ms, last_contained_ms=last_contained_ms)


def snapshot(
    values: Sequence[bytes],
    timestamp_ms: int,
    *,
    last_contained_ms: int | None = None,
    leader_epoch: int = 0,
    quorum: Iterable[NewRecord] = (),
) -> bytes:
    """Builds a snapshot.

    values             framed metadata records
    timestamp_ms       timestamp of all records
    last_contained_ms  time of the last log record that the snapshot contains; None for `timestamp_ms`
    quorum             control records about the quorum
    """
    contained_ms = timestamp_ms if last_contained_ms is None else last_contained_ms
    header = NewRecord(
        _CONTROL_KEY.pack(0, ControlType.SNAPSHOT_HEADER.value), struct.pack(">hqb", 0, contained_ms, 0), timestamp_ms
    )
    footer = NewRecord(_CONTROL_KEY.pack(0, ControlType.SNAPSHOT_FOOTER.value), struct.pack(">hb", 0, 0), timestamp_ms)
    first = [header, *quorum]
    content = build_batch(first, is_control=True, leader_epoch=leader_epoch)
    next_offset = len(first)
    for start in range(0, len(values), MAX_RECORDS_OF_BATCH):
        records = [NewRecord(None, value, timestamp_ms) for value in values[start : start + MAX_RECORDS_OF_BATCH]]
        content += build_batch(records, base_offset=next_offset, leader_epoch=leader_epoch)
        next_offset += len(records)
    return bytes(content + build_batch([footer], base_offset=next_offset, is_control=True, leader_epoch=leader_epoch))


FILE = "quorum-state"


class QuorumState(NamedTuple):
    leader_id: int
    leader_epoch: int
    voter_ids: tuple[int, ...]


def encode_quorum_state(state: QuorumState) -> bytes:
    fields = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter_id} for voter_id in state.voter_ids],
        "data_version": 0,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_leader_epoch(data: bytes) -> int:
    """Returns the leader epoch in a `quorum-state` file of any data version, or 0 if the file is unreadable. In that
    case the caller can use the epochs in the log."""
    try:
        epoch = json.loads(data)["leaderEpoch"]
    except (ValueError, KeyError, TypeError):
        return 0
    return epoch if isinstance(epoch, int) and epoch >= 0 else 0
