"""Tests that Kafka's DumpLogSegments reads every file of a log that Odradek wrote, without complaints.

For segments that do not begin at offset 0, the tool prints `-1 is followed by N`, as it does for Kafka's own intact
files.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from odradek.files.indexes import AbortedTxn
from odradek.protocol.control_records import marker_batch
from odradek.protocol.records import Compression, NewRecord, build_batch
from odradek.storage.disk import RealDisk
from odradek.storage.log import Log, Origin
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory
from tests.conformance.tools import Tools
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka

NOW_MS = 1_700_000_000_000
PLAIN, TRANSACTIONAL = 0, (1, 2)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Returns a log with many segments, codecs, transactions and producers, after a clean stop."""
    path = tmp_path_factory.mktemp("ours")
    directory = LogDirectory.open(RealDisk(), f"{path}/data", DirectoryId(1, None, "cluster", "directory"))
    log = directory.create_log("t", 0, bytes(range(16)), LogConfig(segment_bytes=60_000), now_ms=NOW_MS)
    log.assign_leader_epoch(3)
    rng = random.Random(1)
    sequences = dict.fromkeys((PLAIN, *TRANSACTIONAL), 0)
    for step in range(500):
        producer_id = rng.choice(list(sequences))
        now_ms = NOW_MS + step * 10 + rng.randrange(-50, 50)
        records = [NewRecord(b"key", rng.randbytes(rng.randrange(1500)), now_ms) for _ in range(rng.randrange(1, 9))]
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequences[producer_id],
            is_transactional=producer_id in TRANSACTIONAL,
            compression=rng.choice(list(Compression)),
        )
        sequences[producer_id] += len(records)
        log.append(batch, now_ms=now_ms)
        if producer_id in TRANSACTIONAL and rng.random() < 0.3:
            marker = marker_batch(
                producer_id=producer_id,
                producer_epoch=0,
                is_commit=rng.random() < 0.5,
                coordinator_epoch=2,
                timestamp_ms=now_ms,
            )
            log.append(marker, origin=Origin.COORDINATOR, now_ms=now_ms)
        if step % 5 == 0:
            log.write_staged()
    log.write_staged()
    directory.close()
    assert len(log.segments) > 10
    return log


def files(log: Log, suffix: str) -> str:
    return ",".join(str(path) for path in sorted(Path(log.directory).glob(f"*{suffix}")))


def numbers(line: str) -> list[int]:
    return [int(number) for number in re.findall(r"(?<=: )-?\d+", line)]


def test_every_batch_and_record_is_valid(tools: Tools, closed: Log) -> None:
    printed = tools.run("dump-log", "--deep-iteration", "--files", files(closed, ".log")).lines
    batches = [line for line in printed if line.startswith("baseOffset")]
    assert len(batches) > 500
    assert all("isvalid: true" in line for line in batches)
    offsets = [numbers(line)[0] for line in printed if line.startswith("| offset")]
    assert offsets == list(range(closed.log_end_offset))
    complaints = [line for line in printed if "onsecutive" in line or "followed by" in line]
    assert all(line.startswith("Non-consecutive") or "-1 is followed by" in line for line in complaints)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_every_index_passes_the_sanity_check(tools: Tools, closed: Log, suffix: str) -> None:
    printed = tools.run("dump-log", "--index-sanity-check", "--files", files(closed, suffix)).lines
    assert sum(line.endswith("passed sanity check.") for line in printed) == len(closed.segments)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_every_index_entry_agrees_with_the_log(tools: Tools, closed: Log, suffix: str) -> None:
    printed = tools.run("dump-log", "--verify-index-only", "--files", files(closed, suffix)).lines
    assert [line for line in printed if not line.startswith("Dumping")] == []


def test_kafka_reads_the_index_entries_that_odradek_wrote(tools: Tools, closed: Log) -> None:
    printed = tools.run("dump-log", "--files", files(closed, ".index")).lines
    entries = [tuple(numbers(line)) for line in printed if line.startswith("offset")]
    assert entries == [entry for segment in closed.segments for entry in segment.offset_index.entries()]
    printed = tools.run("dump-log", "--files", files(closed, ".timeindex")).lines
    entries = [tuple(numbers(line)) for line in printed if line.startswith("timestamp")]
    assert entries == [entry for segment in closed.segments for entry in segment.time_index.entries()]


def test_kafka_reads_the_aborted_transactions_that_odradek_wrote(tools: Tools, closed: Log) -> None:
    printed = tools.run("dump-log", "--files", files(closed, ".txnindex")).lines
    entries = [AbortedTxn(*numbers(line)[1:]) for line in printed if line.startswith("version")]
    assert len(entries) > 20
    assert entries == [entry for segment in closed.segments for entry in segment.txn_index.entries()]


def test_kafka_reads_the_producers_that_odradek_wrote(tools: Tools, closed: Log) -> None:
    last = f"{closed.directory}/{closed.log_end_offset:020d}.snapshot"
    printed = [line for line in tools.run("dump-log", "--files", last).lines if line.startswith("producerId")]
    assert [numbers(line)[0] for line in printed] == [entry.producer_id for entry in closed.producers()]
    for line, entry in zip(printed, closed.producers(), strict=True):
        assert f"lastSequence: {entry.last_sequence} lastOffset: {entry.last_data_offset} " in line
        first_offset = entry.current_txn_first_offset
        assert ("OptionalLong.empty" if first_offset is None else f"OptionalLong[{first_offset}]") in line
    # There is a snapshot for each segment except the first, and one for the log end offset.
    assert len(files(closed, ".snapshot").split(",")) == len(closed.segments)
