"""Measures how fast `odradek inspect check` checks logs, and how fast logs are read into Arrow columns.

    python -m bench.files [--gigabytes 5] [--batch-bytes 16384] [--spark] [--keep DIR]

Writes a topic with four partitions in 256 MiB segments. The 100-byte records are written in transactions, and every
tenth transaction is aborted. It then reads headers and CRCs, and after that all records into Arrow on one core. With
--spark, it also reads the topic with Spark and measures the peak memory of all processes. The files are removed
afterwards, unless --keep names a directory for them.
"""

from __future__ import annotations

import argparse
import os
import resource
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.files.offline import partitions_at
from odradek.protocol.batch_header import TRANSACTIONAL, seal_batch
from odradek.protocol.control_records import marker_batch
from odradek.protocol.records import NewRecord, build_batch
from odradek.spark.files.options import FileOptions
from odradek.spark.files.plan import plan
from odradek.spark.files.views import read_task
from odradek.spark.record_columns import ARROW
from odradek.tools.inspect.check.run import check

TOPIC = "bench"
PARTITIONS = 4
SEGMENT_BYTES = 256 * 1024 * 1024
RECORD_BYTES = 100
BATCHES_OF_A_TRANSACTION = 20
ABORTED = struct.Struct(">hqqqq")  # an entry of a transaction index
LAST_EPOCH = 32_000
NOW_MS = 1_700_000_000_000
GB = 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--batch-bytes", type=int, default=16 * 1024)
    parser.add_argument(
        "--spark", action="store_true", help="also measure a whole Spark session (needs odradek[spark])"
    )
    parser.add_argument("--keep", type=Path, help="write the directory here, and keep it")
    options = parser.parse_args()
    with directory(options.keep) as data:
        records = write(data, int(options.gigabytes * GB), options.batch_bytes)
        size_bytes = sum(path.stat().st_size for path in data.rglob("*.log"))
        print(
            f"{size_bytes / GB:.2f} GB, {records:,} records of {RECORD_BYTES} bytes, batches of {options.batch_bytes}"
        )
        with measured("inspect check", size_bytes):
            assert not check(partitions_at(data)).is_damaged
        chosen = FileOptions.read({"path": str(data)})
        with measured("plan (headers)", size_bytes):
            tasks = plan(chosen)
        few = tasks[: max(1, min(len(tasks), 8))]
        for name, columns in (("all columns", ARROW.names[:7]), ("value", ["value"])):
            schema, rows = ARROW.empty_table().select(columns).schema, 0
            begun = time.process_time()
            for task in few:
                rows += sum(len(batch) for batch in read_task(task, chosen, schema))
            seconds = time.process_time() - begun
            print(f"records, {name}: {rows / seconds / 1e6:.2f} M rows/s per core, {len(few)} tasks")
        print(f"peak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
        if options.spark:
            end_to_end(data, size_bytes)
    return 0


@contextmanager
def directory(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        yield kept
    else:
        with tempfile.TemporaryDirectory(prefix="odradek-files-") as made:
            yield Path(made)


@contextmanager
def measured(what: str, size_bytes: int) -> Iterator[None]:
    begun, cpu = time.monotonic(), time.process_time()
    yield
    seconds, cpu = time.monotonic() - begun, time.process_time() - cpu
    rates = f"{size_bytes / cpu / GB:.2f} GB/s per core ({size_bytes / seconds / GB:.2f} by the clock)"
    print(f"{what}: {seconds:.2f} s, {rates}")


def write(data: Path, size_bytes: int, batch_bytes: int) -> int:
    """Writes the topic and returns its number of records. If the directory already contains logs, writes nothing and
    returns -1."""
    if any(data.glob("*/*.log")):
        return -1
    values = batch_bytes // (RECORD_BYTES + 15)
    records = [NewRecord(b"%012d" % n, os.urandom(RECORD_BYTES - 12), NOW_MS + n) for n in range(values)]
    template = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    total = 0
    for partition in range(PARTITIONS):
        folder = data / f"{TOPIC}-{partition}"
        folder.mkdir(parents=True)
        total += _partition(folder, size_bytes // PARTITIONS, template, values)
    return total


def _partition(folder: Path, size_bytes: int, template: bytearray, values: int) -> int:
    offset = written = in_segment = number = epoch = sequence = records = 0
    batch, aborted, indexed = bytearray(template), b"", b""
    file = (folder / f"{0:020d}.log").open("wb")
    while written < size_bytes:
        producer = (1 + number // (BATCHES_OF_A_TRANSACTION * LAST_EPOCH), epoch, sequence)
        seal_batch(batch, offset, 0, TRANSACTIONAL, values - 1, NOW_MS, NOW_MS + values - 1, *producer, values)
        data, first = bytes(batch), offset
        offset, sequence, number, records = offset + values, sequence + values, number + 1, records + values
        if number % BATCHES_OF_A_TRANSACTION == 0:
            commits = number // BATCHES_OF_A_TRANSACTION % 10 != 0
            data += marker_batch(
                producer_id=producer[0],
                producer_epoch=epoch + 1,
                is_commit=commits,
                coordinator_epoch=0,
                timestamp_ms=NOW_MS,
                base_offset=offset,
                leader_epoch=0,
            )
            ended = producer[0], offset - BATCHES_OF_A_TRANSACTION * values, offset, offset + 1
            offset, epoch, sequence = offset + 1, (epoch + 1) % LAST_EPOCH, 0
            aborted += b"" if commits else ABORTED.pack(0, *ended)
        if in_segment + len(data) > SEGMENT_BYTES:
            Path(file.name).with_suffix(".txnindex").write_bytes(indexed)
            file.close()
            file, in_segment = (folder / f"{first:020d}.log").open("wb"), 0
            aborted = aborted[len(indexed) :]
        indexed = aborted
        file.write(data)
        written, in_segment = written + len(data), in_segment + len(data)
    file.close()
    return records


def end_to_end(data: Path, size_bytes: int) -> None:
    """Reads every record with Spark. Prints the duration and the peak memory, which is the sum for the JVM and all its
    Python workers."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    peaks = [0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            peaks.append(sum(_resident_bytes(each) for each in _descendants(os.getpid())))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    begun = time.monotonic()
    frame = spark.read.format("odradek").option("path", str(data)).load()
    [row] = frame.selectExpr("count(*) c", "sum(length(value)) v", "max(offset) o", "min(timestamp) t").collect()
    seconds = time.monotonic() - begun
    ended.set()
    watcher.join()
    print(
        f"Spark, {os.cpu_count()} cores: {row.c:,} rows in {seconds:.1f} s, {row.c / seconds / 1e6:.2f} M rows/s,"
        f" {size_bytes / seconds / GB:.2f} GB/s; peak memory of JVM and workers {max(peaks) / GB:.2f} GB"
    )
    spark.stop()


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], list(parents.get(pid, ()))
    while waiting:
        each = waiting.pop()
        found.append(each)
        waiting += parents.get(each, ())
    return found


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
