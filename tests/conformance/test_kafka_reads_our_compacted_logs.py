"""Tests that Kafka's DumpLogSegments reads logs that Odradek has compacted, including their indexes, and reports only
gaps."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from odradek.protocol.compression import Compression
from odradek.storage.log import Log
from tests.conformance.tools import Tools
from tests.support.compaction_scene import COMPACT, CompactedLog
from tests.support.oracle import needs_kafka

pytestmark = needs_kafka


class CleanedLog(NamedTuple):
    log: Log
    folder: Path


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> CleanedLog:
    scene = CompactedLog(replace(COMPACT, segment_bytes=20_000, index_interval_bytes=300))
    # Compaction leaves an empty batch in its place.
    scene.append(("key-0", "the only record of an active producer"), producer_id=9)
    rng = Random(3)
    sequences = {1: 0, 2: 0}
    for step in range(600):
        producer_id = rng.choice((-1, 1, 2))
        records = [(f"key-{rng.randrange(200)}", rng.choice((None, "v" * 50))) for _ in range(rng.randint(1, 6))]
        scene.append(
            *records,
            producer_id=producer_id,
            sequence=sequences.get(producer_id, 0),
            transactional=producer_id > 0,
            compression=rng.choice(list(Compression)),
            timestamps=[scene.now_ms] * len(records),
        )
        if producer_id > 0:
            sequences[producer_id] += len(records)
        if step % 7 == 0:
            for ending in (1, 2):
                scene.end_txn(ending, commit=rng.random() < 0.5)
        scene.now_ms += rng.randrange(50)
        if step % 200 == 150:
            scene.roll()
            scene.clean()
    for ending in (1, 2):
        scene.end_txn(ending, commit=True)
    scene.roll()
    scene.clean()
    assert len(scene.log.segments) > 2
    scene.log.close()
    folder = tmp_path_factory.mktemp("cleaned") / "t-0"
    folder.mkdir()
    for name in scene.disk.list_directory(scene.log.directory):
        (folder / name).write_bytes(scene.disk.read_bytes(f"{scene.log.directory}/{name}"))
    return CleanedLog(scene.log, folder)


def files(cleaned: CleanedLog, suffix: str) -> str:
    paths = [path for path in sorted(cleaned.folder.glob(f"*{suffix}")) if path.stat().st_size]
    return ",".join(map(str, paths))


def test_every_batch_is_valid_and_every_record_readable(tools: Tools, cleaned: CleanedLog) -> None:
    printed = tools.run("dump-log", "--deep-iteration", "--print-data-log", "--files", files(cleaned, ".log")).lines
    headers = [line for line in printed if line.startswith("baseOffset")]
    assert len(headers) > 20
    assert all("isvalid: true" in line for line in headers)
    assert any("deleteHorizonMs: OptionalLong[" in line for line in headers)
    assert any("count: 0 " in line for line in headers)
    assert len([line for line in printed if line.startswith("| offset")]) > 100


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_the_indexes_agree_with_the_log(tools: Tools, cleaned: CleanedLog, suffix: str, check: str) -> None:
    printed = tools.run("dump-log", check, "--files", files(cleaned, suffix)).lines
    assert [line for line in printed if not line.startswith("Dumping") and "passed sanity check" not in line] == []


def test_the_transaction_indexes_are_readable(tools: Tools, cleaned: CleanedLog) -> None:
    indexed = [txn for segment in cleaned.log.segments for txn in segment.txn_index.entries()]
    assert indexed
    printed = tools.run("dump-log", "--files", files(cleaned, ".txnindex")).lines
    assert len([line for line in printed if line.startswith("version")]) == len(indexed)
