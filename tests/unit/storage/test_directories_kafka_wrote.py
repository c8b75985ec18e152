"""Tests that Odradek opens data directories written by a real Apache Kafka and finds the contents that Kafka sees in
them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.files.indexes import TIME_ENTRY_BYTES, OffsetIndex, TimeIndex, TxnIndex
from odradek.files.names import TIME_INDEX
from odradek.files.producer_snapshot import decode_snapshot, encode_snapshot
from odradek.protocol.control_records import read_marker
from odradek.protocol.records import batches, records_of
from odradek.storage.disk import RealDisk
from odradek.storage.log import Log
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory
from odradek.storage.producer_state import ProducerEntry
from odradek.storage.recovery import CheckpointFacts, load_log
from tests.support.oracle import acknowledged, directories, dump, dump_kinds, needs_oracle, served, unpack

pytestmark = needs_oracle

STOPPED = [name for name in directories() if served(name)["end"] == "stop"]
# DumpLogSegments fails on the torn segments of the excluded directory.
UNEDITED = [name for name in directories() if name != "unclean-torn"]
DUMPED_FILE = re.compile(r"Dumping (\S+)/(\d{20})\.\w+")


def opened(name: str, tmp_path: Path) -> LogDirectory:
    path = str(unpack(name, tmp_path))
    directory = LogDirectory.open(RealDisk(), path, DirectoryId(1, None, "unused", "unused"))
    for topic, partition in directory.partitions():
        directory.open_log(topic, partition, None, LogConfig(), now_ms=served(name)["recordedAtMs"])
    return directory


def ranges(offsets: list[int]) -> list[list[int]]:
    """Returns ascending offsets as ranges in the form [[first, last], …]."""
    found: list[list[int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


def readable(log: Log, *, committed: bool) -> list[int]:
    """Returns the offsets of the data records that a consumer with this isolation level receives, determined as clients
    determine them."""
    end_offset = log.last_stable_offset if committed else log.high_watermark
    aborted = sorted(log.reader.aborted_transactions(log.log_start_offset, end_offset), key=lambda txn: txn[1])
    open_aborted: set[int] = set()
    offsets: list[int] = []
    for portion in log.reader.scan(log.log_start_offset, end_offset):
        for position, header in batches(portion):
            if committed:
                while aborted and aborted[0][1] <= header.last_offset:
                    open_aborted.add(aborted.pop(0)[0])
            if header.is_control:
                marker = read_marker(portion, position, header)
                if marker is not None and not marker.is_commit:
                    open_aborted.discard(header.producer_id)
            elif not (committed and header.is_transactional and header.producer_id in open_aborted):
                offsets += [r.offset for r in records_of(portion, position) if r.offset >= log.log_start_offset]
    return offsets


def described(entry: ProducerEntry) -> dict[str, int]:
    """Returns the producer as DescribeProducers describes it. Missing values are -1, as in the response."""

    def wire(value: int | None) -> int:
        return -1 if value is None else value

    return {
        "producerId": entry.producer_id,
        "epoch": entry.producer_epoch,
        "lastSequence": wire(entry.last_sequence),
        "lastTimestamp": entry.last_timestamp,
        "coordinatorEpoch": wire(entry.coordinator_epoch),
        "currentTransactionStartOffset": wire(entry.current_txn_first_offset),
    }


def partition_facts(log: Log) -> dict[str, Any]:
    newest = log.reader.offset_of_max_timestamp()
    return {
        "earliest": log.log_start_offset,
        "latest": log.log_end_offset,
        "lastStableOffset": log.last_stable_offset,
        "maxTimestampOffset": -1 if newest is None else newest.offset,
        "readUncommitted": ranges(readable(log, committed=False)),
        "readCommitted": ranges(readable(log, committed=True)),
        "producers": sorted(map(described, log.producers()), key=lambda producer: producer["producerId"]),
    }


@pytest.mark.parametrize("name", directories())
def test_offsets_readable_records_and_producers_are_those_that_kafka_serves(name: str, tmp_path: Path) -> None:
    directory = opened(name, tmp_path)
    assert directory.was_clean == (name in STOPPED)
    for topic, facts in served(name)["topics"].items():
        for partition, expected in enumerate(facts["partitions"]):
            assert partition_facts(directory.logs[topic, partition]) == expected, f"{topic}-{partition}"
    directory.close()


@pytest.mark.parametrize("name", directories())
def test_closed_by_us_and_opened_again_nothing_has_changed(name: str, tmp_path: Path) -> None:
    directory = opened(name, tmp_path)
    before = {key: partition_facts(log) for key, log in directory.logs.items()}
    directory.close()
    again = LogDirectory.open(RealDisk(), directory.path, DirectoryId(1, directory.meta.cluster_id, "unused", "unused"))
    assert again.was_clean
    for key, facts in before.items():
        log = again.open_log(*key, None, LogConfig(), now_ms=served(name)["recordedAtMs"])
        assert partition_facts(log) == facts, key
    again.close()


@pytest.mark.parametrize("name", [name for name in STOPPED if name.startswith("transactions")])
def test_producers_are_replayed_where_no_snapshot_of_kafka_can_be_read(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    for snapshot in path.rglob("*.snapshot"):
        snapshot.write_bytes(snapshot.read_bytes()[:-1])
    directory = LogDirectory.open(RealDisk(), str(path), DirectoryId(1, None, "unused", "unused"))
    for topic, facts in served(name)["topics"].items():
        for partition, expected in enumerate(facts["partitions"]):
            log = directory.open_log(topic, partition, None, LogConfig(), now_ms=served(name)["recordedAtMs"])
            assert partition_facts(log) == expected, f"{topic}-{partition}"
    directory.close()


def test_records_that_kafka_acknowledged_before_a_kill_are_there(tmp_path: Path) -> None:
    directory = opened("unclean", tmp_path)
    numbers: dict[tuple[str, int], dict[int, int]] = {}
    for key, log in directory.logs.items():
        if key[0] == "flood":
            numbers[key] = {
                record.offset: int((record.value or b"").split(b":")[0].removeprefix(b"record "))
                for portion in log.reader.scan(0)
                for position, _ in batches(portion)
                for record in records_of(portion, position)
            }
    for line in acknowledged("unclean"):
        assert numbers["flood", line["partition"]][line["offset"]] == line["n"]


# File by file, compared with the output of DumpLogSegments


def dumped(name: str, kind: str) -> Iterator[tuple[str, int, list[str]]]:
    """Yields the directory, the base offset and the printed lines of every file of this kind."""
    if kind not in dump_kinds(name):
        return
    current: tuple[str, int, list[str]] | None = None
    for line in dump(name, kind).splitlines():
        heading = DUMPED_FILE.fullmatch(line)
        if heading:
            if current is not None:
                yield current
            current = (heading[1], int(heading[2]), [])
        elif current is not None and ":" in line and not line.startswith(("Found", "Index ", "Warning")):
            current[2].append(line)
    if current is not None:
        yield current


def numbers_in(line: str) -> list[int]:
    return [int(number) for number in re.findall(r"(?<=: )-?\d+", line)]


def printed_entries(lines: list[str], zeros: list[int]) -> list[list[int]]:
    """Returns the index entries that DumpLogSegments printed, without the zeros of preallocated space.

    If an index has preallocated space but no entries, DumpLogSegments prints one entry of zeros. It fails on an index
    that has neither entries nor preallocated space.
    """
    entries = [numbers_in(line) for line in lines if line.startswith(("offset:", "timestamp:"))]
    return [entry for entry in entries if entry != zeros]


@pytest.mark.parametrize("name", UNEDITED)
def test_offset_indexes_are_read_as_kafka_reads_them_and_written_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    """P7: the format is the same in Kafka 4.3.1 and 4.4.0 (docs/spec/kafka-4.4.md#s6-1)."""
    path = unpack(name, tmp_path)
    for directory, base_offset, lines in dumped(name, "index"):
        if directory.endswith("-delete"):
            continue
        data = (path / directory / f"{base_offset:020d}.index").read_bytes()
        index = OffsetIndex.from_bytes(base_offset, data)
        assert [list(entry) for entry in index.entries()] == printed_entries(lines, [base_offset, 0]), directory
        assert_same_but_for_preallocated_zeros(index.to_bytes(), data)


@pytest.mark.parametrize("name", UNEDITED)
def test_time_indexes_are_read_as_kafka_reads_them_and_written_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    """P7: the format is the same in Kafka 4.3.1 and 4.4.0 (docs/spec/kafka-4.4.md#s6-1)."""
    path = unpack(name, tmp_path)
    for directory, base_offset, lines in dumped(name, "timeindex"):
        if directory.endswith("-delete"):
            continue
        data = (path / directory / f"{base_offset:020d}.timeindex").read_bytes()
        index = TimeIndex.from_bytes(base_offset, data)
        assert [list(entry) for entry in index.entries()] == printed_entries(lines, [0, base_offset]), directory
        assert_same_but_for_preallocated_zeros(index.to_bytes(), data)


def assert_same_but_for_preallocated_zeros(written: bytes, kafkas: bytes) -> None:
    assert kafkas.startswith(written)
    assert not any(kafkas[len(written) :])


@pytest.mark.parametrize("name", directories())
def test_transaction_indexes_are_read_as_kafka_reads_them_and_written_back(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    for directory, base_offset, lines in dumped(name, "txnindex"):
        data = (path / directory / f"{base_offset:020d}.txnindex").read_bytes()
        index = TxnIndex.from_bytes(base_offset, data)
        assert [[0, *entry] for entry in index.entries()] == [numbers_in(line) for line in lines]
        assert index.to_bytes() == data


@pytest.mark.parametrize("name", directories())
def test_producer_snapshots_are_read_as_kafka_reads_them_and_written_back(name: str, tmp_path: Path) -> None:
    """P7: the format is the same in Kafka 4.3.1 and 4.4.0 (docs/spec/kafka-4.4.md#s6-1)."""
    path = unpack(name, tmp_path)
    for directory, offset, lines in dumped(name, "snapshot"):
        data = (path / directory / f"{offset:020d}.snapshot").read_bytes()
        entries = [ProducerEntry.from_snapshot(entry) for entry in decode_snapshot(data)]
        assert [printed_snapshot_entry(entry).rstrip() for entry in entries] == [line.rstrip() for line in lines]
        assert encode_snapshot([entry.to_snapshot() for entry in entries]) == data


def printed_snapshot_entry(entry: ProducerEntry) -> str:
    """Returns the line that DumpLogSegments prints for this entry."""
    first_offset = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {-1 if entry.coordinator_epoch is None else entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {'OptionalLong.empty' if first_offset is None else f'OptionalLong[{first_offset}]'} "
        f"lastTimestamp: {entry.last_timestamp} "
    )
    if entry.batches:
        batch = entry.batches[-1]
        line += (
            f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
            f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
        )
    return line


@pytest.mark.parametrize("name", UNEDITED)
def test_indexes_built_from_the_log_are_the_bytes_that_kafka_wrote_while_appending(name: str, tmp_path: Path) -> None:
    """Checks that rebuilt indexes equal Kafka's, except for compacted topics, whose indexes Kafka's cleaner rewrites.
    If Kafka was killed, it did not close the active segments: their index files are preallocated, and the time index
    may lack its last entry."""
    path = unpack(name, tmp_path)
    disk = RealDisk()
    for topic, facts in served(name)["topics"].items():
        if "compact" in facts["configs"].get("cleanup.policy", ""):
            continue
        for partition in range(len(facts["partitions"])):
            folder = path / f"{topic}-{partition}"
            state = load_log(disk, str(folder), CheckpointFacts(is_clean=False), LogConfig(), now_ms=0)
            for segment in state.segments:
                for file, rebuilt in segment.index_files():
                    kafkas = Path(file).read_bytes()
                    if name in STOPPED or segment is not state.segments[-1]:
                        assert rebuilt == kafkas, file
                    elif file.endswith(TIME_INDEX):
                        written = TimeIndex.from_bytes(segment.base_offset, kafkas).to_bytes()
                        assert written in (rebuilt, rebuilt[:-TIME_ENTRY_BYTES]), file
                    else:
                        assert_same_but_for_preallocated_zeros(rebuilt, kafkas)
