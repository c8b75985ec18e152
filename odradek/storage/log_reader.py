"""Reading one log: from an offset, by timestamp, all of it.

The loop thread owns a log. Methods that say "for a thread" may run beside it, because they take the segments as an
immutable `SegmentRow` and determine their bounds before they start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.log_read import (
    ReadResult,
    TimestampOffset,
    checked_scan,
    find_max_timestamp,
    find_timestamp,
    read_files,
    scan,
    upper_bound,
)
from odradek.storage.segment import CorruptSegment
from odradek.storage.segments import Segments
from odradek.storage.tail_cache import LogTail
from odradek.storage.txn_index import AbortedTxn

LEAST_SENT_BYTES: Final = 512 * 1024  # from the file, though memory has them: the kernel's copy costs less from here on


class Bounds(Protocol):
    """How far a log may be read: what its reader needs to know of it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int:
        """Exclusive."""

    @property
    def log_end_offset(self) -> int:
        """Where the files end."""


class LogReader:
    __slots__ = ("_log", "_segments", "_tail")

    def __init__(self, log: Bounds, segments: Segments, tail: LogTail) -> None:
        """tail: the batches that were appended last, as far as memory holds them."""
        self._log = log
        self._segments = segments
        self._tail = tail

    def read(
        self,
        start_offset: int,
        *,
        max_bytes: int,
        end_offset: int | None = None,
        min_one_batch: bool = True,
        is_sent: bool = False,
    ) -> ReadResult:
        """From the batch that holds `start_offset` on.

        max_bytes       cuts off within a batch, as Kafka does
        end_offset      exclusive, and a batch boundary: the high watermark (default) or the last stable offset
        min_one_batch   the first batch comes whole even if it is larger; without, nothing comes then
        is_sent         to a socket that takes bytes from files: what pays is left there, see `ReadResult.in_file`
        raises          KafkaError OFFSET_OUT_OF_RANGE; WouldBlock when the disk would have to be waited for
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
        is_sent = is_sent and size_bytes >= LEAST_SENT_BYTES
        if is_sent and (in_file := row.segments[-1].slice(size_bytes, position)) is not None:
            return ReadResult([], size_bytes, end, in_file)
        return ReadResult(chunks, size_bytes, end)

    def read_cold(
        self, start_offset: int, *, max_bytes: int, end_offset: int | None = None, min_one_batch: bool = True
    ) -> ReadResult:
        """As `read`, waiting for the disk: for a thread."""
        limit = self._limit(start_offset, end_offset)
        if start_offset >= limit:
            return ReadResult([], 0, start_offset)
        return self._read_files(start_offset, limit, max_bytes, min_one_batch, cached=False)

    def _limit(self, start_offset: int, end_offset: int | None) -> int:
        log_start_offset, high_watermark = self._log.log_start_offset, self._log.high_watermark
        if not log_start_offset <= start_offset <= high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{start_offset} is not within {log_start_offset} to {high_watermark}",
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
            if start_offset < self._log.log_start_offset:  # retention came in between
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE) from error
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log}: {error}") from error

    def scan(self, start_offset: int, end_offset: int | None = None, *, checked: bool = False) -> Iterator[bytes]:
        """All batches that hold something of [start_offset, end_offset), whole, about a megabyte at a time.
        Waits for the disk: for loaders and threads.

        checked  for those that believe what they read: CRCs are computed, and offsets must ascend
        raises   KAFKA_STORAGE_ERROR where they cannot be read, with the file's name
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
        """(producer id, first offset) of every aborted transaction with data in [start_offset, end_offset)."""
        return [(txn.producer_id, txn.first_offset) for txn in self.aborted(start_offset, end_offset)]

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Every aborted transaction with data in [start_offset, end_offset)."""
        found: list[AbortedTxn] = []
        row = self._segments.all
        for segment in row.segments[row.at_or_below(start_offset) :]:
            if segment.txn_index.collect(start_offset, end_offset, found):
                break
        return found

    def offset_for_timestamp(self, timestamp: int, *, end_offset: int | None = None) -> TimestampOffset | None:
        """The first record below `end_offset` (default: high watermark) not older than `timestamp` (ms).
        Opens a batch, and may wait for the disk. Raises KAFKA_STORAGE_ERROR for a damaged one."""
        try:
            found = find_timestamp(self._segments.all, timestamp, self._log.log_start_offset)
        except CorruptSegment as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log}: {error}") from error
        limit = self._log.high_watermark if end_offset is None else end_offset
        return found if found is not None and found.offset < limit else None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None in an empty log. Opens a batch, may wait for the disk.
        Raises KAFKA_STORAGE_ERROR for a damaged one."""
        try:
            return find_max_timestamp(self._segments.all)
        except CorruptSegment as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log}: {error}") from error
