"""Writes a log of many gigabytes that uses little disk space, because each record's value is a hole that reads as
zeros.

The batches are valid, including their CRCs, and of equal size. Only the start and end of each batch are written.
"""

from __future__ import annotations

import time
from pathlib import Path

from odradek.protocol.records import NewRecord, assign, build_batch

VALUE_BYTES = 1_000_000
SEGMENT_BYTES = 1_000_000_000
HEAD_BYTES, END_BYTES = 128, 16  # sizes of the parts of a batch before and after the zeros in its value


def write_sparse_log(directory: Path, size_mb: int) -> int:
    """Writes segments of about `size_mb` megabytes in total into a partition's empty directory, and returns the log end
    offset."""
    batch = bytearray(build_batch([NewRecord(None, bytes(VALUE_BYTES), time.time_ns() // 1_000_000)]))
    if any(batch[HEAD_BYTES:-END_BYTES]):
        raise RuntimeError("the batch has an unexpected form: there are nonzero bytes between its head and its end")
    end = bytes(batch[-END_BYTES:])
    per_segment = SEGMENT_BYTES // len(batch)
    count = max(1, size_mb * 1_000_000 // len(batch))
    for base_offset in range(0, count, per_segment):
        with open(directory / f"{base_offset:020d}.log", "wb") as file:
            for offset in range(base_offset, min(count, base_offset + per_segment)):
                assign(batch, offset, 0)
                start = (offset - base_offset) * len(batch)
                file.seek(start)
                file.write(batch[:HEAD_BYTES])
                file.seek(start + len(batch) - END_BYTES)
                file.write(end)
    return count
