"""Reads a log: from an offset, by timestamp, by file position, or completely.

The loop thread owns a log. Functions that accept an immutable `SegmentRow` may run in other threads, and so may methods
whose docstring mentions threads. These methods determine their bounds before they start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from odradek.files.indexes import AbortedTxn
from odradek.protocol.compression import NO_RECORD_LIMIT_BYTES, DecompressedTooLarge
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.file_slice import FileSlice
from odradek.protocol.records import BatchHeader, Record, batches, crc_ok, records_of
from odradek.storage.disk import Buffer
from odradek.storage.segment import CorruptSegment, Segment, SegmentRow, Segments
from odradek.storage.staging import LogTail

SCAN_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class ReadResult:
    """The bytes that a read returns, as stored in the log's files. They begin with a complete batch.

    chunks      chunks to be sent in order; the last batch may be cut off, which clients expect
    size_bytes  total size of all chunks
    end_offset  an offset above every record in `chunks`. As in Kafka, it can be higher than necessary, and
                `aborted_transactions` must list everything below it
    in_file     the bytes' position in the file, for callers that can send from files; `chunks` is then empty
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
    """Reads from one segment, beginning with the batch that contains `start_offset`.

    end_offset  exclusive, and a batch boundary: the high watermark or the last stable offset
    cached      whether to raise WouldBlock instead of waiting for the disk
    is_sent     whether to return a FileSlice instead of bytes if sending the file is cheaper
    """
    for at in range(row.at_or_below(start_offset), len(row.segments)):
        segment = row.segments[at]
        segment_end = row.end_offset(at)
        size_bytes = segment.size_bytes
        found = segment.locate(start_offset, cached=cached)
        if found is None:
            continue  # compaction has removed the rest of this segment
        position, header = found
        if header.base_offset >= end_offset:
            break
        if end_offset < (log_end_offset if segment_end is None else segment_end):
            bound = segment.locate(end_offset, cached=cached)
            if bound is not None:
                size_bytes = bound[0]
        batch_bytes = header.size_bytes
        read_bytes = max(max_bytes, batch_bytes) if min_one_batch else max_bytes
        if read_bytes < batch_bytes:
            break  # like Kafka, return nothing rather than an incomplete first batch
        size_bytes = min(read_bytes, size_bytes - position)
        if is_sent and (in_file := segment.slice(size_bytes, position)) is not None:
            return ReadResult([], size_bytes, upper_bound(row, at, position + size_bytes, log_end_offset), in_file)
        data = segment.read(size_bytes, position, cached=cached)
        return ReadResult([data], len(data), upper_bound(row, at, position + len(data), log_end_offset))
    return ReadResult([], 0, start_offset)


def upper_bound(row: SegmentRow, at: int, end_position: int, log_end_offset: int) -> int:
    """Returns an offset above every record before `end_position` of segment `at`. Reads only the offset index."""
    beyond = row.segments[at].offset_index.offset_beyond(end_position)
    if beyond is not None:
        return beyond
    segment_end = row.end_offset(at)
    return log_end_offset if segment_end is None else segment_end


def scan(segment: Segment, position: int, end_position: int) -> Iterator[bytes]:
    """Yields complete batches between two batch boundaries, in portions of about a megabyte. Waits for the disk."""
    while position < end_position:
        last = position
        portion = segment.read(min(SCAN_BYTES, end_position - position), position, cached=False)
        for batch_position, header in segment.headers(position, position + len(portion)):
            last = batch_position + header.size_bytes
            if last > position + len(portion):
                if batch_position == position:  # one batch is larger than a portion
                    portion = segment.read(header.size_bytes, position, cached=False)
                else:
                    last = batch_position
                break
        yield bytes(portion[: last - position])
        position = last


def checked_scan(
    segment: Segment, start_offset: int, end_position: int, segment_end: int | None = None
) -> Iterator[bytes]:
    """Like `scan`, but checks the CRC and the ascending offsets of every batch, for callers that rely on the data.

    start_offset  batches that end below this offset are left out
    segment_end   base offset of the next segment
    raises        CorruptSegment, with the file's name and the byte position
    """
    # `locate` cannot find the first batch here, because it trusts headers that are not checked yet.
    position = segment.offset_index.position_before(start_offset - 1)
    next_offset = segment.base_offset
    for portion in scan(segment, position, end_position):
        checked_bytes = skipped_bytes = 0
        try:
            for at, header in batches(portion):
                size_bytes = header.size_bytes
                if header.base_offset < next_offset or header.last_offset_delta < 0:
                    raise MalformedMessage(
                        f"the batch has offset {header.base_offset}, but offset {next_offset} or later was expected"
                    )
                if segment_end is not None and header.next_offset > segment_end:
                    raise MalformedMessage(
                        f"the batch ends at offset {header.last_offset}, but the next segment begins at offset"
                        f" {segment_end}"
                    )
                if not crc_ok(portion, at, size_bytes):
                    raise MalformedMessage("the CRC of the batch is wrong")
                next_offset, checked_bytes = header.next_offset, at + size_bytes
                if next_offset <= start_offset:
                    skipped_bytes = checked_bytes
            if checked_bytes != len(portion):
                raise MalformedMessage("a batch is cut short")
        except MalformedMessage as error:
            raise CorruptSegment(f"{segment.path()} at byte {position + checked_bytes}: {error}") from None
        if skipped_bytes < len(portion):
            yield portion[skipped_bytes:]
        position += len(portion)


def find_timestamp(
    row: SegmentRow, timestamp: int, start_offset: int, max_record_bytes: int = NO_RECORD_LIMIT_BYTES
) -> TimestampOffset | None:
    """Returns the first record at or after `start_offset` whose timestamp is at least `timestamp`. Raises
    DecompressedTooLarge if it must read a record larger than `max_record_bytes` in a compressed batch."""
    for segment in row.segments:
        if segment.size_bytes == 0 or segment.max_timestamp_and_offset[0] < timestamp:
            continue
        from_offset = max(segment.time_index.offset_before(timestamp), start_offset)
        position = segment.offset_index.position_before(from_offset)
        for batch_position, header in segment.headers(position, segment.size_bytes):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in _records(segment, batch_position, header, max_record_bytes):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, _epoch(header.leader_epoch))
    return None


def find_max_timestamp(row: SegmentRow, max_record_bytes: int = NO_RECORD_LIMIT_BYTES) -> TimestampOffset | None:
    """Returns the largest timestamp, and the first record of the first batch with that timestamp. As in Kafka, the
    record can be below the log start offset until retention removes its segment. Raises the same errors as
    `find_timestamp`."""
    largest = max((s for s in row.segments if s.size_bytes), key=_max_timestamp, default=None)
    if largest is None:
        return None
    timestamp, batch_last_offset = largest.max_timestamp_and_offset
    position = largest.offset_index.position_before(batch_last_offset)
    for batch_position, header in largest.headers(position, largest.size_bytes):
        if header.max_timestamp != timestamp:
            continue
        for record in _records(largest, batch_position, header, max_record_bytes):
            if record.timestamp == timestamp:
                return TimestampOffset(timestamp, record.offset, _epoch(header.leader_epoch))
    return None


def _records(segment: Segment, position: int, header: BatchHeader, max_record_bytes: int) -> Iterator[Record]:
    batch = segment.read(header.size_bytes, position, cached=False)
    try:
        yield from records_of(batch, record_limit_bytes=max_record_bytes)
    except DecompressedTooLarge:
        raise
    except MalformedMessage as error:
        raise CorruptSegment(f"{segment.path()} at byte {position}: {error}") from None


def _max_timestamp(segment: Segment) -> int:
    return segment.max_timestamp_and_offset[0]


def _epoch(leader_epoch: int) -> int | None:
    return leader_epoch if leader_epoch >= 0 else None


# Above this size, sending from the file is cheaper even if the bytes are in memory.
MIN_SENT_BYTES: Final = 512 * 1024


class LogBounds(Protocol):
    """The bounds within which a log can be read."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int:
        """The high watermark, exclusive."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record in the files."""

    @property
    def max_record_bytes(self) -> int:
        """The topic's max.decompressed.message.bytes."""


class LastBounds(NamedTuple):
    """A closed log's last bounds."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    max_record_bytes: int


class LogReader:
    __slots__ = ("_log", "_segments", "_tail")

    def __init__(self, log: LogBounds, segments: Segments, tail: LogTail) -> None:
        """Creates a reader. `tail` contains the latest batches if they are in memory."""
        self._log = log
        self._segments = segments
        self._tail = tail

    def detach(self) -> LogReader:
        """Returns a reader for the log in its current state. The reader holds no reference to the log."""
        log = self._log
        last = LastBounds(log.log_start_offset, log.high_watermark, log.log_end_offset, log.max_record_bytes)
        return LogReader(last, self._segments, self._tail)

    def read(
        self,
        start_offset: int,
        *,
        max_bytes: int,
        end_offset: int | None = None,
        min_one_batch: bool = True,
        is_sent: bool = False,
    ) -> ReadResult:
        """Reads the log, beginning with the batch that contains `start_offset`.

        max_bytes       limit at which the result is cut off, even within a batch, as in Kafka
        end_offset      exclusive, and a batch boundary: the high watermark (default) or the last stable offset
        min_one_batch   whether to return a first batch larger than `max_bytes` completely, instead of returning nothing
        is_sent         whether the socket accepts bytes from files, so that `ReadResult.in_file` may be set if sending
                        the file is cheaper
        raises          KafkaError OFFSET_OUT_OF_RANGE; WouldBlock instead of waiting for the disk
        """
        log_end_offset = self._log.log_end_offset
        limit = self._limit(start_offset, end_offset)
        if start_offset >= limit:
            return ReadResult([], 0, start_offset)
        held = self._tail.read(start_offset, None if limit == log_end_offset else limit, max_bytes)
        if held is None:
            return self._read_files(start_offset, limit, max_bytes, min_one_batch, cached=True, is_sent=is_sent)
        chunks, size_bytes, position = held
        if size_bytes > max_bytes and not min_one_batch:
            return ReadResult([], 0, start_offset)
        row = self._segments.all
        end = upper_bound(row, len(row.segments) - 1, position + size_bytes, log_end_offset)
        is_sent = is_sent and size_bytes >= MIN_SENT_BYTES
        if is_sent and (in_file := row.segments[-1].slice(size_bytes, position)) is not None:
            return ReadResult([], size_bytes, end, in_file)
        return ReadResult(chunks, size_bytes, end)

    def read_cold(
        self, start_offset: int, *, max_bytes: int, end_offset: int | None = None, min_one_batch: bool = True
    ) -> ReadResult:
        """Like `read`, but waits for the disk. Runs in a thread."""
        limit = self._limit(start_offset, end_offset)
        if start_offset >= limit:
            return ReadResult([], 0, start_offset)
        return self._read_files(start_offset, limit, max_bytes, min_one_batch, cached=False)

    def _limit(self, start_offset: int, end_offset: int | None) -> int:
        log_start_offset, high_watermark = self._log.log_start_offset, self._log.high_watermark
        if not log_start_offset <= start_offset <= high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {start_offset} is not within {log_start_offset} to {high_watermark}",
            )
        return high_watermark if end_offset is None or end_offset > high_watermark else end_offset

    def _read_files(
        self,
        start_offset: int,
        end_offset: int,
        max_bytes: int,
        min_one_batch: bool,
        *,
        cached: bool,
        is_sent: bool = False,
    ) -> ReadResult:
        try:
            return read_files(
                self._segments.all,
                start_offset,
                end_offset,
                max_bytes=max_bytes,
                min_one_batch=min_one_batch,
                log_end_offset=self._log.log_end_offset,
                cached=cached,
                is_sent=is_sent,
            )
        except (OSError, CorruptSegment) as error:
            if start_offset < self._log.log_start_offset:  # retention has removed the data during the read
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE) from error
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log}: {error}") from error

    def scan(self, start_offset: int, end_offset: int | None = None, *, checked: bool = False) -> Iterator[bytes]:
        """Yields all complete batches that overlap [start_offset, end_offset), about a megabyte at a time. Waits for
        the disk, so it runs in loaders and threads.

        checked  whether to check CRCs and ascending offsets, for callers that rely on the data
        raises   KAFKA_STORAGE_ERROR with the file's name if the batches cannot be read
        """
        end = self._log.high_watermark if end_offset is None else end_offset
        row = self._segments.all
        try:
            for at in range(row.at_or_below(start_offset), len(row.segments)):
                segment = row.segments[at]
                if segment.base_offset >= end:
                    return
                stop = segment.locate(end, cached=False) if end < self._log.log_end_offset else None
                end_position = segment.size_bytes if stop is None else stop[0]
                if checked:
                    yield from checked_scan(segment, start_offset, end_position, row.end_offset(at))
                    continue
                first = segment.locate(start_offset, cached=False)
                if first is not None:
                    yield from scan(segment, first[0], end_position)
        except (OSError, CorruptSegment) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log}: {error}") from error

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Returns the producer id and first offset of every aborted transaction with data in [start_offset,
        end_offset)."""
        return [(txn.producer_id, txn.first_offset) for txn in self.aborted(start_offset, end_offset)]

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Returns every aborted transaction with data in [start_offset, end_offset)."""
        found: list[AbortedTxn] = []
        row = self._segments.all
        for segment in row.segments[row.at_or_below(start_offset) :]:
            if segment.txn_index.collect(start_offset, end_offset, found):
                break
        return found

    def offset_for_timestamp(self, timestamp: int, *, end_offset: int | None = None) -> TimestampOffset | None:
        """Returns the first record whose timestamp (ms) is at least `timestamp`, or None if there is no such record
        below `end_offset` (default: high watermark).

        May decompress a batch, and may wait for the disk. Raises KAFKA_STORAGE_ERROR if the batch is damaged, and
        INVALID_RECORD if one of its records is too large (docs/spec/kafka-4.4.md#s4-3, M4).
        """
        log = self._log
        try:
            found = find_timestamp(self._segments.all, timestamp, log.log_start_offset, log.max_record_bytes)
        except DecompressedTooLarge as too_large:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"{log}: {too_large}") from too_large
        except CorruptSegment as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log}: {error}") from error
        limit = self._log.high_watermark if end_offset is None else end_offset
        return found if found is not None and found.offset < limit else None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Returns the first record with the largest timestamp, or None if the log is empty.

        Raises the same errors as `offset_for_timestamp`, and may also wait for the disk.
        """
        try:
            return find_max_timestamp(self._segments.all, self._log.max_record_bytes)
        except DecompressedTooLarge as too_large:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"{self._log}: {too_large}") from too_large
        except CorruptSegment as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log}: {error}") from error
