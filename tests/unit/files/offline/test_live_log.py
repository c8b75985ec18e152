"""Tests that, after every broker operation, reading the log files yields the same records as fetching from the
broker."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from odradek.files.offline import partitions_at
from odradek.files.offline.survey import survey
from odradek.protocol.control_records import marker_batch
from odradek.protocol.records import NewRecord, build_batch
from odradek.spark.files.options import FileOptions
from odradek.spark.files.plan import plan
from odradek.spark.files.views import record_tables
from odradek.storage.disk import RealDisk
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory
from odradek.storage.producer_state import Origin

NOW_MS = 1_700_000_000_000
PRODUCERS = 4


@pytest.mark.parametrize("seed", range(5))
def test_readers_of_the_files_see_what_the_broker_would_serve(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    directory = LogDirectory.open(RealDisk(), str(tmp_path / "data"), DirectoryId(1, None, "c", "d"))
    log = directory.create_log("t", 0, b"topic-id-16bytes", LogConfig(segment_bytes=2_000), now_ms=NOW_MS)
    opened: dict[int, list[int]] = {}  # offsets of the records in the open transaction, by producer id
    committed: list[int] = []
    sequences = dict.fromkeys(range(PRODUCERS), 0)
    for _ in range(120):
        producer_id = rng.randrange(PRODUCERS)
        if producer_id in opened and rng.random() < 0.4:
            commit = rng.random() < 0.5
            batch = marker_batch(
                producer_id=producer_id, producer_epoch=0, is_commit=commit, coordinator_epoch=0, timestamp_ms=NOW_MS
            )
            log.append(batch, origin=Origin.COORDINATOR, now_ms=NOW_MS, transaction_version=0)
            ended = opened.pop(producer_id)
            committed += ended if commit else []
        else:
            count = rng.randrange(1, 6)
            batch = build_batch(
                [NewRecord(b"k", b"v" * rng.randrange(100), NOW_MS) for _ in range(count)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                is_transactional=True,
            )
            sequences[producer_id] += count
            first = log.append(batch, origin=Origin.COORDINATOR, now_ms=NOW_MS).base_offset
            opened.setdefault(producer_id, []).extend(range(first, first + count))
        log.write_staged()
        if rng.random() < 0.2:
            [found] = partitions_at(tmp_path / "data")
            view = survey(found, cut_bytes=500)
            assert (view.last_stable_offset, view.end_offset) == (log.last_stable_offset, log.log_end_offset)
            expected = sorted(offset for offset in committed if offset < log.last_stable_offset)
            for transactions in ("scan", "index"):
                assert read(tmp_path / "data", transactions=transactions) == expected
    directory.close()
    assert read(tmp_path / "data", transactions="index") == read(tmp_path / "data")
    assert len(list((tmp_path / "data" / "t-0").glob("*.log"))) > 3


def read(data: Path, **options: str) -> list[int]:
    chosen = FileOptions.read({"path": str(data), **options})
    return [
        offset
        for task in plan(chosen)
        for table in record_tables(task, chosen, {"offset"})
        for offset in table["offset"].to_pylist()
    ]
