"""Measures appends to a log without a broker, and the time to open a directory with many logs.

python -m bench.log_append [--partitions 1000]

Prints the CPU time per batch in microseconds for staging, for writing, and for reading from the tail cache and the page
cache. Then prints how many seconds it takes to open the partitions again after a clean stop and after a kill.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable

from odradek.protocol.records import NewRecord, build_batch, read_batch_header
from odradek.storage.disk import RealDisk
from odradek.storage.log import Log
from odradek.storage.log_config import LogConfig
from odradek.storage.log_directory import DirectoryId, LogDirectory
from odradek.storage.staging import TailCache

IDENTITY = DirectoryId(1, None, "bench", "bench")
TOPIC_ID = b"bench-topic-id-0"
NOW_MS = 1_700_000_000_000
TAIL_BYTES = 8 * 1024 * 1024  # less than the amount of data written, so that some data is read from the page cache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=20_000)
    options = parser.parse_args()
    for per_write in (1, 32):
        appends(options.batches, per_write, is_idempotent=False)
        appends(options.batches, per_write, is_idempotent=True)
    reads(options.batches)
    opening(options.partitions)


def batches(count: int, *, is_idempotent: bool) -> list[bytearray]:
    value = b"v" * 1024
    return [
        build_batch([NewRecord(b"key", value, NOW_MS)], producer_id=7, producer_epoch=0, base_sequence=at)
        if is_idempotent
        else build_batch([NewRecord(b"key", value, NOW_MS)])
        for at in range(count)
    ]


def appends(count: int, per_write: int, *, is_idempotent: bool) -> None:
    with_log(lambda log: _appends(log, count, per_write, is_idempotent=is_idempotent))


def _appends(log: Log, count: int, per_write: int, *, is_idempotent: bool) -> None:
    made = batches(count, is_idempotent=is_idempotent)
    headers = [read_batch_header(batch) for batch in made]
    staging = writing = 0.0
    for first in range(0, count, per_write):
        started = time.process_time()
        for at in range(first, min(first + per_write, count)):
            log.append(made[at], now_ms=NOW_MS, header=headers[at])
        staged = time.process_time()
        log.write_staged()
        writing += time.process_time() - staged
        staging += staged - started
    kind = "idempotent" if is_idempotent else "plain"
    print(f"append 1 KiB {kind:10}, {per_write:2} per write: stage {us(staging, count)}, write {us(writing, count)}")


def reads(count: int) -> None:
    with_log(lambda log: _reads(log, count))


def _reads(log: Log, count: int) -> None:
    for batch in batches(count, is_idempotent=False):
        log.append(batch, now_ms=NOW_MS)
    log.write_staged()
    for name, read, last in (("tail cache", log.reader.read, count), ("page cache", log.reader.read, count // 3)):
        for max_bytes in (1_100, 64 * 1024, 1024 * 1024):
            started, offset, steps = time.process_time(), max(last - 5_000, 0), 0
            while offset < last:
                result = read(offset, max_bytes=max_bytes)
                offset += max(result.size_bytes // 1_100, 1)
                steps += 1
            print(f"read {max_bytes:7} bytes from the {name}: {us(time.process_time() - started, steps)}")


def opening(partitions: int) -> None:
    path = tempfile.mkdtemp(prefix="log-bench-")
    try:
        directory = LogDirectory.open(RealDisk(), path, IDENTITY)
        started = time.perf_counter()
        for at in range(partitions):
            directory.create_log(f"topic-{at}", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
        print(f"create {partitions} logs: {time.perf_counter() - started:.3f} s")
        for at, log in enumerate(directory.logs.values()):
            log.append(batches(1, is_idempotent=at % 2 == 0)[0], now_ms=NOW_MS)
            log.write_staged()
        directory._lock.release()  # simulates a kill
        open_all(path, "killed").close()
        open_all(path, "clean").close()
    finally:
        shutil.rmtree(path)


def open_all(path: str, how: str) -> LogDirectory:
    started = time.perf_counter()
    directory = LogDirectory.open(RealDisk(), path, IDENTITY)
    for topic, partition in directory.partitions():
        directory.open_log(topic, partition, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    print(f"open {len(directory.logs)} logs, {how}: {time.perf_counter() - started:.3f} s")
    return directory


def with_log(measure: Callable[[Log], None]) -> None:
    path = tempfile.mkdtemp(prefix="log-bench-")
    try:
        directory = LogDirectory.open(RealDisk(), path, IDENTITY, tail_cache=TailCache(TAIL_BYTES))
        measure(directory.create_log("topic", 0, TOPIC_ID, LogConfig(), now_ms=NOW_MS))
    finally:
        shutil.rmtree(path)


def us(seconds: float, count: int) -> str:
    return f"{seconds / count * 1e6:.2f} µs"


if __name__ == "__main__":
    main()
