"""Measures the validation of produced records: `python -m bench.validation`. It prints medians and asserts nothing."""

import statistics
import time
from collections.abc import Iterator
from random import Random

from odradek.protocol.compression import Compression
from odradek.protocol.records import NewRecord, build_batch
from odradek.storage.log_config import LogConfig
from odradek.storage.validation import BatchRules, check_produced, is_cheap

ROUNDS = 31
BATCH_BYTES = 1_000_000
NOW_MS = 1_700_000_000_000
RULES = BatchRules.of("topic", 0, LogConfig(max_message_bytes=2 * BATCH_BYTES))


def alike(size: int) -> list[NewRecord]:
    text = Random(size).randbytes(size // 2).hex().encode()
    return [NewRecord(None, text, NOW_MS + index // 50) for index in range(max(1, BATCH_BYTES // size))]


def uneven(size: int, key: bool) -> list[NewRecord]:
    rng = Random(size)
    return [
        NewRecord(
            b"key-%d" % rng.randrange(1000) if key else None, b"v" * rng.randrange(size // 2, 3 * size // 2), NOW_MS
        )
        for _ in range(max(1, BATCH_BYTES // size))
    ]


def workloads() -> Iterator[tuple[str, list[NewRecord], Compression, BatchRules]]:
    for size in (100, 1024, 10_240):
        yield f"{size} B alike", alike(size), Compression.NONE, RULES
    yield "16 KiB batch of 100 B alike", alike(100)[:160], Compression.NONE, RULES
    yield "one record of 1 KiB", alike(1024)[:1], Compression.NONE, RULES
    for size in (100, 1024):
        yield f"{size} B uneven", uneven(size, key=False), Compression.NONE, RULES
        yield f"{size} B uneven, keyed", uneven(size, key=True), Compression.NONE, RULES
    for codec in Compression:
        if codec is not Compression.NONE:
            yield f"1024 B alike, {codec.name.lower()}", alike(1024), codec, RULES
    to_zstd = BatchRules.of("topic", 0, LogConfig(compression_type="zstd", max_message_bytes=2 * BATCH_BYTES))
    yield "1024 B alike, to zstd", alike(1024), Compression.NONE, to_zstd


def main() -> None:
    print(f"{'batch':32} {'records':>8} {'bytes':>9} {'µs':>9} {'µs/record':>10} {'MB/s':>7}  on the loop")
    for name, records, codec, rules in workloads():
        batch = build_batch(records, compression=codec)
        times = []
        for _ in range(ROUNDS):
            frame = bytearray(batch)
            start = time.perf_counter()
            check_produced(frame, rules, NOW_MS, 9)
            times.append(time.perf_counter() - start)
        median = statistics.median(times)
        opened = sum(len(record.value or b"") for record in records)
        print(
            f"{name:32} {len(records):8} {len(batch):9} {median * 1e6:9.1f} {median / len(records) * 1e6:10.3f} "
            f"{opened / median / 1e6:7.0f}  {is_cheap(batch, rules)}"
        )


if __name__ == "__main__":
    main()
