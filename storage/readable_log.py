"""What can be read of a log, and up to where: everything that does not change the log.

The loop thread owns a log. Methods that say "for a thread" may run beside it, because they take the segments as an
immutable `SegmentRow` and determine their bounds before they start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.errors import ErrorCode, KafkaError
from storage.disk import Disk
from storage.leader_epochs import LeaderEpochs
from storage.log_config import LogConfig
from storage.log_read import (
    ReadResult,
    TimestampOffset,
    find_max_timestamp,
    find_timestamp,
    read_files,
    scan,
    upper_bound,
)
from storage.log_sync import SnapshotToWrite
from storage.producer_state import ProducerEntry, ProducerStates, has_open_transaction
from storage.segment import CorruptSegment, Segment
from storage.segments import Segments
from storage.tail_cache import TailCache
from storage.txn_index import AbortedTxn


@dataclass(slots=True)
class LogState:
    """What recovery found, or what a new log starts with."""

    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    recovery_point: int
    producers: ProducerStates
    leader_epochs: LeaderEpochs
    last_snapshot_offset: int = -1
    is_new: bool = False  # neither the directory nor its files are known to survive a power failure
    active_is_saved: bool = False  # the index files of the active segment are as they ought to be
    unsynced_segments: list[Segment] = field(default_factory=list)  # inactive, built anew above the recovery point
    unsynced_snapshots: list[SnapshotToWrite] = field(default_factory=list)


class ReadableLog:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        *,
        topic_id: bytes | None,
        config: LogConfig,
        state: LogState,
        tail_cache: TailCache,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self._segments = Segments(state.segments)
        self.log_start_offset = state.log_start_offset
        self.high_watermark = state.end_offset
        self.recovery_point = state.recovery_point
        self._producers = state.producers
        self._leader_epochs = state.leader_epochs
        self._leader_epoch = state.leader_epochs.latest or 0
        self._tail = tail_cache.new_tail()
        self.offline_reason: str | None = None

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition})"

    # --- how far it goes

    @property
    def log_end_offset(self) -> int:
        """Behind the last record written; what is merely staged does not count."""
        return self.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided."""
        first_unstable = self._producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log_start_offset)

    @property
    def synced_offset(self) -> int:
        """Everything below survives a power failure."""
        return self.recovery_point

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Ascending; the last one is the active segment."""
        return self._segments.all.segments

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The largest leader epoch not above `epoch`, and where it ended (exclusive); None if it is newer than ours."""
        return self._leader_epochs.end_offset(epoch, self.high_watermark)

    def leader_epoch_at(self, offset: int) -> int | None:
        return self._leader_epochs.epoch_at(offset)

    def producers(self) -> list[ProducerEntry]:
        return list(self._producers.entries().values())

    def producer(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Under this very epoch."""
        return has_open_transaction(self._producers.get(producer_id), producer_epoch)

    # --- reading

    def read(
        self, start_offset: int, *, max_bytes: int, end_offset: int | None = None, min_one_batch: bool = True
    ) -> ReadResult:
        """From the batch that holds `start_offset` on.

        max_bytes       cuts off within a batch, as Kafka does
        end_offset      exclusive, and a batch boundary: the high watermark (default) or the last stable offset
        min_one_batch   the first batch comes whole even if it is larger; without, nothing comes then
        raises          KafkaError OFFSET_OUT_OF_RANGE; WouldBlock when the disk would have to be waited for
        """
        limit = self._limit(start_offset, end_offset)
        if start_offset >= limit:
            return ReadResult([], 0, start_offset)
        held = self._tail.read(start_offset, None if limit == self.high_watermark else limit, max_bytes)
        if held is None:
            return self._read_files(start_offset, limit, max_bytes, min_one_batch, cached=True)
        chunks, size_bytes, position = held
        if size_bytes > max_bytes and not min_one_batch:
            return ReadResult([], 0, start_offset)
        row = self._segments.all
        end = upper_bound(row, len(row.segments) - 1, position + size_bytes, self.high_watermark)
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
        if not self.log_start_offset <= start_offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{start_offset} is not within {self.log_start_offset} to {self.high_watermark}",
            )
        return self.high_watermark if end_offset is None else min(end_offset, self.high_watermark)

    def _read_files(
        self, start_offset: int, end_offset: int, max_bytes: int, min_one_batch: bool, *, cached: bool
    ) -> ReadResult:
        try:
            return read_files(
                self._segments.all,
                start_offset,
                end_offset,
                max_bytes=max_bytes,
                min_one_batch=min_one_batch,
                log_end_offset=self.high_watermark,
                cached=cached,
            )
        except (OSError, CorruptSegment) as error:
            if start_offset < self.log_start_offset:  # retention came in between
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE) from error
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {error}") from error

    def scan(self, start_offset: int, end_offset: int | None = None) -> Iterator[bytes]:
        """All batches that hold something of [start_offset, end_offset), whole, about a megabyte at a time.
        Waits for the disk: for loaders and threads. Raises KAFKA_STORAGE_ERROR where they cannot be read."""
        end = self.high_watermark if end_offset is None else end_offset
        row = self._segments.all
        try:
            for at in range(row.at_or_below(start_offset), len(row.segments)):
                segment = row.segments[at]
                if segment.base_offset >= end:
                    return
                first = segment.locate(start_offset, cached=False)
                if first is None:
                    continue
                stop = segment.locate(end, cached=False)
                yield from scan(segment, first[0], segment.size_bytes if stop is None else stop[0])
        except (OSError, CorruptSegment) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {error}") from error

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of every aborted transaction with data in [start_offset, end_offset)."""
        found: list[AbortedTxn] = []
        row = self._segments.all
        for segment in row.segments[row.at_or_below(start_offset) :]:
            if segment.txn_index.collect(start_offset, end_offset, found):
                break
        return [(txn.producer_id, txn.first_offset) for txn in found]

    def offset_for_timestamp(self, timestamp: int, *, end_offset: int | None = None) -> TimestampOffset | None:
        """The first record below `end_offset` (default: high watermark) not older than `timestamp` (ms).
        Opens a batch, and may wait for the disk."""
        found = find_timestamp(self._segments.all, timestamp, self.log_start_offset)
        limit = self.high_watermark if end_offset is None else end_offset
        return found if found is not None and found.offset < limit else None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None in an empty log. Opens a batch, may wait for the disk."""
        return find_max_timestamp(self._segments.all)
