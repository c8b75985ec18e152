"""Reads the files that accompany logs, entry by entry: indexes, producer snapshots, checkpoints and properties.

`odradek.files.structures` declares the structures of fixed size, which are parsed with the library construct. Each
field's meaning is described in docs/formats/indexes.md, transaction-index.md, producer-snapshot.md, checkpoints.md and
data-directory.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from odradek.files.structures import (
    OFFSET_INDEX_ENTRY,
    SNAPSHOT_CRC_END,
    SNAPSHOT_ENTRY,
    SNAPSHOT_HEADER,
    SNAPSHOT_VERSION,
    TIME_INDEX_ENTRY,
    TXN_INDEX_ENTRY,
    TXN_INDEX_VERSION,
    Structure,
)
from odradek.protocol.checksum import crc32c
from odradek.tools.inspect.entries import Damage, FileEntry, Finding, Note


def read_offset_index(data: bytes, base_offset: int) -> Iterator[Finding]:
    last_offset, last_position = -1, -1
    for at, fields in _entries(data, OFFSET_INDEX_ENTRY):
        if isinstance(fields, Damage | Note):
            yield fields
            return
        offset, position = base_offset + fields["relativeOffset"], fields["position"]
        if fields["relativeOffset"] <= last_offset or position <= last_position:
            yield Damage(at, f"the entries are not in ascending order: offset {offset} at position {position}")
        last_offset, last_position = fields["relativeOffset"], position
        yield FileEntry("offset index entry", at, {"offset": offset, "position": position})


def read_time_index(data: bytes, base_offset: int) -> Iterator[Finding]:
    last_timestamp, last_offset = -1, -1
    for at, fields in _entries(data, TIME_INDEX_ENTRY):
        if isinstance(fields, Damage | Note):
            yield fields
            return
        offset = base_offset + fields["relativeOffset"]
        if fields["timestamp"] <= last_timestamp or fields["relativeOffset"] < last_offset:
            yield Damage(
                at, f"the entries are not in ascending order: timestamp {fields['timestamp']}, offset {offset}"
            )
        last_timestamp, last_offset = fields["timestamp"], fields["relativeOffset"]
        yield FileEntry("time index entry", at, {"timestamp": fields["timestamp"], "offset": offset})


def read_txn_index(data: bytes, base_offset: int) -> Iterator[Finding]:
    last_offset = base_offset - 1
    for at, fields in _entries(data, TXN_INDEX_ENTRY, may_end_in_zeros=False):
        if isinstance(fields, Damage | Note):
            yield fields
            return
        if fields["version"] != TXN_INDEX_VERSION:
            yield Damage(at, f"the entry has version {fields['version']}; only version 0 is supported")
            return
        if fields["lastOffset"] <= last_offset:
            yield Damage(at, f"the entries are not in ascending order: the marker at offset {fields['lastOffset']}")
        last_offset = fields["lastOffset"]
        yield FileEntry("aborted transaction", at, fields)


def read_snapshot(data: bytes, base_offset: int) -> Iterator[Finding]:
    size = SNAPSHOT_HEADER.size_bytes
    if len(data) < size:
        yield Damage(0, f"the header of a producer snapshot has {size} bytes, but the file has only {len(data)}")
        return
    header = SNAPSHOT_HEADER.to_construct().parse(data)
    if header.version != SNAPSHOT_VERSION:
        yield Damage(0, f"the producer snapshot has version {header.version}; only version 1 is supported")
        return
    computed = crc32c(data[SNAPSHOT_CRC_END:])
    crc = {"crc": header.crc, "isValid": computed == header.crc}
    yield FileEntry("producer snapshot", 0, {"version": header.version, **crc, "producers": header.count})
    if computed != header.crc:
        yield Damage(2, f"the CRC is {header.crc}, but that of the bytes is {computed}")
    if header.count * SNAPSHOT_ENTRY.size_bytes != len(data) - size:
        yield Damage(
            6, f"the header says {header.count} producers, which do not fit the remaining {len(data) - size} bytes"
        )
    for at, fields in _entries(data[size:], SNAPSHOT_ENTRY, may_end_in_zeros=False):
        if isinstance(fields, Damage | Note):
            yield (
                Damage(fields.position + size, "the file ends within a producer")
                if isinstance(fields, Damage)
                else fields
            )
            return
        yield FileEntry("producer", size + at, fields, depth=1)


def _entries(data: bytes, structure: Structure, *, may_end_in_zeros: bool = True) -> Iterator[tuple[int, Any]]:
    """Yields the position and the fields of each entry. Then yields at most one Damage or Note about the rest of the
    file."""
    size, declared = structure.size_bytes, structure.to_construct()
    used = len(data)
    if may_end_in_zeros:  # Kafka preallocates zeros; zeros that are part of an entry are kept
        used = min(used, -(-len(data.rstrip(b"\x00")) // size) * size)
    whole = used - used % size
    for at in range(0, whole, size):
        fields = declared.parse(data[at : at + size])
        yield at, {name: value for name, value in fields.items() if name != "_io"}
    if used != whole:
        yield whole, Damage(whole, f"the last {used - whole} bytes are too few for an entry of {size} bytes")
    elif whole < len(data):
        yield (
            whole,
            Note(whole, f"the last {len(data) - whole} bytes are zero: they were preallocated, or remain from a crash"),
        )


CHECKPOINT_VERSION = "0"
OFFSETS = ("topic", "partition", "offset")
LEADER_EPOCHS = ("epoch", "startOffset")
NUMBERS = frozenset({"partition", "offset", "epoch", "startOffset"})


def read_offset_checkpoint(data: bytes, _: int) -> Iterator[Finding]:
    return _checkpoint(data, OFFSETS)


def read_leader_epoch_checkpoint(data: bytes, _: int) -> Iterator[Finding]:
    return _checkpoint(data, LEADER_EPOCHS)


def _checkpoint(data: bytes, columns: Sequence[str]) -> Iterator[Finding]:
    """Reads a checkpoint, which consists of a version, the number of entries, and one line for each entry."""
    if not data:
        yield Note(0, "the file is empty, so it has no entries")
        return
    lines = list(_lines(data))
    if lines[0][1] != CHECKPOINT_VERSION:
        yield Damage(0, f"the checkpoint has version {lines[0][1]!r}; only version 0 is supported")
        return
    if len(lines) < 2 or not lines[1][1].isdigit():
        yield Damage(len(lines[0][1]) + 1, "the number of entries is missing")
        return
    rows = lines[2:]
    for position, line in rows:
        values = line.split(" ")
        fields = dict(zip(columns, values, strict=False))
        if len(values) != len(columns) or not all(
            fields[name].removeprefix("-").isdecimal() for name in NUMBERS & fields.keys()
        ):
            yield Damage(position, f"{line!r} does not have the form: {', '.join(columns)}")
            continue
        row = {name: int(value) if name in NUMBERS else value for name, value in fields.items()}
        yield FileEntry("leader epoch" if columns is LEADER_EPOCHS else "checkpoint", position, row)
    if int(lines[1][1]) != len(rows):
        yield Damage(lines[1][0], f"the second line says {lines[1][1]} entries, but there are {len(rows)}")


def read_properties(data: bytes, _: int) -> Iterator[Finding]:
    """Reads meta.properties, which is in Java's format for properties."""
    yield from _pairs(data, "=", comments=("#", "!"))


def read_partition_metadata(data: bytes, _: int) -> Iterator[Finding]:
    if not data:
        yield Damage(0, "the file is empty: the id of the topic is missing")
        return
    yield from _pairs(data, ": ", comments=())


def read_json(data: bytes, _: int) -> Iterator[Finding]:
    """Reads a quorum-state or .kafka_cleanshutdown file."""
    try:
        fields = json.loads(data)
    except ValueError as error:
        yield Damage(getattr(error, "pos", 0), f"the file is not JSON: {error}")
        return
    if not isinstance(fields, dict):
        yield Damage(0, "the file is not a JSON object")
        return
    yield FileEntry("state", 0, fields)


def read_nothing(data: bytes, _: int) -> Iterator[Finding]:
    """Reads a .lock file, which should be empty, because only its existence and its lock matter."""
    if data:
        yield Note(0, f"the file has {len(data)} bytes, which Kafka never reads")
    else:
        yield Note(0, "the file is empty, as it should be")


def _pairs(data: bytes, separator: str, comments: tuple[str, ...]) -> Iterator[Finding]:
    for position, line in _lines(data):
        if not line.strip() or (comments and line.startswith(comments)):
            continue
        name, found, value = line.partition(separator)
        if not found or not name.isprintable():
            yield Damage(position, f"{line!r} is not a name with a value")
        else:
            yield FileEntry("property", position, {name.strip(): value.replace("\\", "").strip()})


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    position = 0
    for line in data.splitlines(keepends=True):
        yield position, line.decode("utf-8", "backslashreplace").rstrip("\r\n")
        position += len(line)
