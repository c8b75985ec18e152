"""What is appended but not written yet, segment by segment, and when a segment is full."""

from dataclasses import dataclass, field
from typing import NamedTuple

from storage.disk import Buffer
from storage.index import MAX_RELATIVE_OFFSET
from storage.log_config import LogConfig
from storage.log_sync import SnapshotToWrite
from storage.segment import Segment
from storage.txn_index import AbortedTxn


class StagedBatch(NamedTuple):
    batch: Buffer
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int


@dataclass(slots=True)
class Run:
    """The batches staged for one segment; they are written at `position` in one go."""

    segment: Segment
    position: int
    is_new: bool  # the segment has no file yet
    size_bytes: int = 0
    batches: list[StagedBatch] = field(default_factory=list)
    aborted: list[AbortedTxn] = field(default_factory=list)
    snapshot: SnapshotToWrite | None = None  # of the producers as they were when the segment began


def must_roll(
    run: Run, config: LogConfig, *, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
) -> bool:
    """Whether a batch has to go to a new segment rather than behind `run`. Kafka's rules: size, int32 offsets, room
    in the indexes, age. Age is measured in record time from the first batch on, in clock time where it has none."""
    segment = run.segment
    used_bytes = run.position + run.size_bytes
    if used_bytes + size_bytes > config.segment_bytes or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return True
    if used_bytes == 0:
        return False
    staged = len(run.batches)  # each may take an entry
    if (
        len(segment.offset_index) + staged >= config.max_offset_index_entries
        or len(segment.time_index) + staged >= config.max_time_index_entries - 1
    ):
        return True
    first_timestamp = segment.first_timestamp() if run.position else run.batches[0].max_timestamp
    if first_timestamp is not None and first_timestamp >= 0:
        age_ms = max_timestamp - first_timestamp
    else:
        age_ms = now_ms - segment.created_ms
    return age_ms > config.segment_ms - segment.roll_jitter_ms
