"""Tests that an export to Parquet has no gap and no duplicate, even if it is repeatedly killed with SIGKILL while the
log grows.

ROUNDS is the number of exports, by default 10: `ROUNDS=50 python -m pytest tests/crash/test_export.py`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from odradek.spark.jobs.export import ExportOptions, at_once, export_source, export_with
from odradek.spark.jobs.inputs import input_of
from tests.support.batches import NOW_MS
from tests.support.oracle import REPOSITORY
from tests.support.written_log import WrittenLog

ROUNDS = int(os.environ.get("ROUNDS", "10"))
EXPORT_DURATION_S = 0.15  # the usual duration of an export
HOUR_MS = 60 * 60 * 1_000
EXPORT = (
    "import sys\n"
    "from pathlib import Path\n"
    "from odradek.spark.jobs.export import ExportOptions, at_once, export_with\n"
    "from odradek.spark.jobs.export import export_source\n"
    "from odradek.spark.jobs.inputs import input_of\n"
    "print('begin', flush=True)\n"
    "source = export_source(input_of(sys.argv[1]), chunk_bytes=2_000)\n"
    "export_with(at_once, source, Path(sys.argv[2]), ExportOptions())\n"
)


def test_an_export_that_is_killed_anywhere_is_complete_in_the_end(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", random.randrange(2**32)))
    print(f"SEED={seed}")
    rng = random.Random(seed)
    log, out = WrittenLog(tmp_path / "data"), tmp_path / "out"
    committed: Counter[int] = Counter()
    killed = 0
    for number in range(ROUNDS):
        for _ in range(rng.randint(1, 30)):
            count, commit = rng.randint(1, 30), rng.random() < 0.7
            first = log.append(
                count,
                producer_id=7,
                epoch=number % 30_000,
                transactional=True,
                at_ms=NOW_MS + rng.randint(-40, 40) * HOUR_MS,
            )
            log.end(7, commit=commit, epoch=number % 30_000)
            if commit:
                committed.update(range(first, first + count))
        killed += was_killed(log.data, out, rng.uniform(0, EXPORT_DURATION_S))
        found = offsets(out)
        assert max(found.values(), default=1) == 1
        assert found.keys() <= committed.keys()
    export_with(at_once, export_source(input_of(f"{log.data}/t")), out, ExportOptions())
    assert offsets(out) == committed
    print(f"{len(committed)} records, {killed} of {ROUNDS} exports killed")


def was_killed(data: Path, out: Path, after_s: float) -> bool:
    """Starts an export and kills it after `after_s` seconds of work. Returns False if it finished before that."""
    words = [sys.executable, "-c", EXPORT, f"{data}/t", str(out)]
    with subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begin\n"
        try:
            assert process.wait(after_s) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    return False


def offsets(out: Path) -> Counter[int]:
    return Counter(
        offset
        for path in out.glob("topic=*/*/*.parquet")
        for offset in pq.read_table(path, columns=["offset"], partitioning=None)["offset"].to_pylist()
    )
