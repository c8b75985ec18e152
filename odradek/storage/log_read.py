"""Reading a log: from an offset, by timestamp, by position in the files.

Every function takes the segments as an immutable `SegmentRow` and may run in a thread beside the loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import FileSlice
from odradek.protocol.records import BatchHeader, Record, batches, crc_ok, records_of
from odradek.storage.disk import Buffer
from odradek.storage.segment import CorruptSegment, Segment
from odradek.storage.segments import SegmentRow

SCAN_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class ReadResult:
    """Bytes of the log as they stand in its files, beginning with a whole batch.

    chunks      to be sent one after the other; the last batch may be cut off, which clients expect
    size_bytes  of all chunks
    end_offset  no record in `chunks` lies at or beyond it. Rounded up, as Kafka does: it bounds what
                `aborted_transactions` has to list
    in_file     where the bytes are, for those who asked to send them from there; then there are no `chunks`
    """

    chunks: list[Buffer]
    size_bytes: int
    end_offset: int
    in_file: FileSlice | None = None


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int | None


def read_files(
    row: SegmentRow,
    start_offset: int,
    end_offset: int,
    *,
    max_bytes: int,
    min_one_batch: bool,
    log_end_offset: int,
    cached: bool,
    is_sent: bool = False,
) -> ReadResult:
    """From the batch that holds `start_offset` on, within one segment.

    end_offset  exclusive; a batch boundary (high watermark, last stable offset)
    cached      raise WouldBlock rather than wait for the disk
    is_sent     rather a FileSlice than bytes, where that pays
    """
    for at in range(row.at_or_below(start_offset), len(row.segments)):
        segment = row.segments[at]
        segment_end = row.end_offset(at)
        size_bytes = segment.size_bytes
        found = segment.locate(start_offset, cached=cached)
        if found is None:
            continue  # compaction took the rest of this segment
        position, header = found
        if header.base_offset >= end_offset:
            break
        if end_offset < (log_end_offset if segment_end is None else segment_end):
            bound = segment.locate(end_offset, cached=cached)
            if bound is not None:
                size_bytes = bound[0]
        batch_bytes = header.size_bytes
        wanted = max(max_bytes, batch_bytes) if min_one_batch else max_bytes
        if wanted < batch_bytes:
            break  # Kafka sends nothing rather than a first batch cut off
        size_bytes = min(wanted, size_bytes - position)
        if is_sent and (in_file := segment.slice(size_bytes, position)) is not None:
            return ReadResult([], size_bytes, upper_bound(row, at, position + size_bytes, log_end_offset), in_file)
        data = segment.read(size_bytes, position, cached=cached)
        return ReadResult([data], len(data), upper_bound(row, at, position + len(data), log_end_offset))
    return ReadResult([], 0, start_offset)


def upper_bound(row: SegmentRow, at: int, end_position: int, log_end_offset: int) -> int:
    """An offset above all that is stored before `end_position` of segment `at`, by the offset index alone."""
    beyond = row.segments[at].offset_index.offset_beyond(end_position)
    if beyond is not None:
        return beyond
    segment_end = row.end_offset(at)
    return log_end_offset if segment_end is None else segment_end


def scan(segment: Segment, position: int, end_position: int) -> Iterator[bytes]:
    """Whole batches, from a batch boundary up to another, in portions of about a megabyte. Waits for the disk."""
    while position < end_position:
        last = position
        portion = segment.read(min(SCAN_BYTES, end_position - position), position, cached=False)
        for batch_position, header in segment.headers(position, position + len(portion)):
            last = batch_position + header.size_bytes
            if last > position + len(portion):
                if batch_position == position:  # one batch larger than a portion
                    portion = segment.read(header.size_bytes, position, cached=False)
                else:
                    last = batch_position
                break
        yield bytes(portion[: last - position])
        position = last


def checked_scan(
    segment: Segment, start_offset: int, end_position: int, segment_end: int | None = None
) -> Iterator[bytes]:
    """As `scan`, for those that believe what they read: every batch has its CRC, and offsets that ascend.

    start_offset  batches that end below it are left out
    segment_end   base offset of the next segment
    raises        CorruptSegment, which names file and byte
    """
    # Not where `locate` finds the first batch: it goes by headers, which nobody has checked yet.
    position = segment.offset_index.position_before(start_offset - 1)
    next_offset = segment.base_offset
    for portion in scan(segment, position, end_position):
        checked_bytes = skipped_bytes = 0
        try:
            for at, header in batches(portion):
                size_bytes = header.size_bytes
                if header.base_offset < next_offset or header.last_offset_delta < 0:
                    raise MalformedMessage(f"offset {header.base_offset} where {next_offset} or more is due")
                if segment_end is not None and header.next_offset > segment_end:
                    raise MalformedMessage(f"offset {header.last_offset}, and the next segment begins at {segment_end}")
                if not crc_ok(portion, at, size_bytes):
                    raise MalformedMessage("a wrong CRC")
                next_offset, checked_bytes = header.next_offset, at + size_bytes
                if next_offset <= start_offset:
                    skipped_bytes = checked_bytes
            if checked_bytes != len(portion):
                raise MalformedMessage("a batch that is cut short")
        except MalformedMessage as error:
            raise CorruptSegment(f"{segment.path()} at byte {position + checked_bytes}: {error}") from None
        if skipped_bytes < len(portion):
            yield portion[skipped_bytes:]
        position += len(portion)


def find_timestamp(row: SegmentRow, timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first record at or after `start_offset` whose timestamp is not less than `timestamp`."""
    for segment in row.segments:
        if segment.size_bytes == 0 or segment.max_timestamp_and_offset[0] < timestamp:
            continue
        from_offset = max(segment.time_index.offset_before(timestamp), start_offset)
        position = segment.offset_index.position_before(from_offset)
        for batch_position, header in segment.headers(position, segment.size_bytes):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in _records(segment, batch_position, header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, _epoch(header.leader_epoch))
    return None


def find_max_timestamp(row: SegmentRow) -> TimestampOffset | None:
    """The largest timestamp, and the first record of the first batch that has it. As in Kafka that may be a deleted
    record, below the log start, until retention removes its segment."""
    largest = max((s for s in row.segments if s.size_bytes), key=_max_timestamp, default=None)
    if largest is None:
        return None
    timestamp, batch_last_offset = largest.max_timestamp_and_offset
    position = largest.offset_index.position_before(batch_last_offset)
    for batch_position, header in largest.headers(position, largest.size_bytes):
        if header.max_timestamp != timestamp:
            continue
        for record in _records(largest, batch_position, header):
            if record.timestamp == timestamp:
                return TimestampOffset(timestamp, record.offset, _epoch(header.leader_epoch))
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    try:
        yield from records_of(segment.read(header.size_bytes, position, cached=False))
    except MalformedMessage as error:
        raise CorruptSegment(f"{segment.path()} at byte {position}: {error}") from None


def _max_timestamp(segment: Segment) -> int:
    return segment.max_timestamp_and_offset[0]


def _epoch(leader_epoch: int) -> int | None:
    return leader_epoch if leader_epoch >= 0 else None
