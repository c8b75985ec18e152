"""Tests that Odradek decodes Kafka's log files to the batches and records printed by Kafka's DumpLogSegments."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from odradek.protocol.batch_header import BatchHeader, batches, crc_ok
from odradek.protocol.control_records import ControlType, control_type, read_marker
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import Record, records_of
from tests.support.oracle import IS_THERE, directories, dump, dump_kinds, needs_oracle, unpack

# DumpLogSegments decodes the records in files of these kinds. The tests compare only the text before the decoded
# record.
DECODED = ("offsets", "transaction-state", "share-group-state", "metadata", "metadata-snapshot")
FILES = [
    (name, kind)
    for name in (directories() if IS_THERE else [])
    for kind in dump_kinds(name)
    if kind == "log" or kind in DECODED
]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kafka-wrote")


@cache
def directory(name: str, into: Path) -> Path:
    return unpack(name, into)


def batch_line(position: int, header: BatchHeader, is_valid: bool) -> str:
    horizon = "OptionalLong.empty" if header.delete_horizon_ms is None else f"OptionalLong[{header.delete_horizon_ms}]"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {str(header.is_transactional).lower()} isControl: {str(header.is_control).lower()} "
        f"deleteHorizonMs: {horizon} position: {position} {time_type(header)}: {header.max_timestamp} "
        f"size: {header.size_bytes} magic: {header.magic} compresscodec: {header.compression.name.lower()} "
        f"crc: {header.crc} isvalid: {str(is_valid).lower()}"
    )


def record_line(header: BatchHeader, record: Record, batch: memoryview, is_plain: bool) -> str:
    sequence = -1
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    line = (
        f"| offset: {record.offset} {time_type(header)}: {record.timestamp} keySize: {size(record.key)} "
        f"valueSize: {size(record.value)} sequence: {sequence} "
        f"headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )
    if header.is_control:
        kind = control_type(record.key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            marker = read_marker(batch)
            assert marker is not None
            line += f" endTxnMarker: {kind.name} coordinatorEpoch: {marker.coordinator_epoch}"
    elif is_plain:
        line += "" if record.key is None else f" key: {text(record.key)}"
        line += "" if record.value is None else f" payload: {text(record.value)}"
    return line


def time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def size(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def lines_of(file: Path, is_plain: bool) -> Iterator[str]:
    data = memoryview(file.read_bytes())
    try:
        for position, header in batches(data):
            yield batch_line(position, header, crc_ok(data, position, header.size_bytes))
            batch = data[position : position + header.size_bytes]
            for record in records_of(batch):
                yield record_line(header, record, batch, is_plain)
    except MalformedMessage:
        assert not any(data[position + header.size_bytes :]), "only zeros may end a walk"


def comparable(lines: str, is_plain: bool) -> list[str]:
    """Returns the lines without the parts that DumpLogSegments prints differently. For invalid UTF-8, for example,
    Kafka and Python print different numbers of U+FFFD."""
    if not is_plain:
        lines = re.sub(r"(headerKeys: \[\]).*", r"\1", lines)
    # DumpLogSegments also prints this message at the end of valid files.
    lines = lines.split("Non-consecutive offsets in ")[0].rstrip("\n")
    lines = lines.replace("\r\n", "\n").replace("\r", "\n")
    shown = [
        line
        for line in re.sub("\ufffd+", "\ufffd", lines).split("\n")
        if not line.startswith(("Log starting offset", "Found ", "Exception in", "Snapshot end", "\tat "))
    ]
    while shown and not shown[-1]:
        shown.pop()
    return shown


@needs_oracle
@pytest.mark.parametrize(("name", "kind"), FILES)
def test_our_dump_agrees_with_kafkas(name: str, kind: str, unpacked: Path) -> None:
    root, is_plain = directory(name, unpacked), kind == "log"
    parts = re.split(r"^Dumping (\S+)\n", dump(name, kind), flags=re.MULTILINE)[1:]
    assert parts
    for path, theirs in zip(parts[::2], parts[1::2], strict=True):
        ours = "".join(f"{line}\n" for line in lines_of(root / path, is_plain))
        assert comparable(ours, is_plain) == comparable(theirs, is_plain), path
