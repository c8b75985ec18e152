"""Lists records of several partitions in time order, with a bounded amount of work for each request.

Each partition has one entry in a heap: first the header of its next batch, then the records of that batch one by one,
then the header of the batch after it. A partition's records stay in offset order. The entry with the next timestamp
determines which partition continues. When a request has used up its budget, it returns the positions that it has
reached, and the next request resumes there. Before a batch is decoded, memory holds the complete batch if it is small,
and only its header otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.batch_header import BatchHeader, batches
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.records import Record, records_of

if TYPE_CHECKING:
    from odradek.broker.http.page.record_filter import RecordSelection
    from odradek.storage.log_reader import LogReader

MAX_RECORDS = 20_000  # maximum number of records decoded by one request
MAX_BYTES = 8 * 1024 * 1024  # maximum total size of the batches examined by one request
CHUNK_BYTES = 128 * 1024
MAX_CACHED_BATCH_BYTES = 32 * 1024  # larger batches are not kept, but read again when they are decoded
MAX_OFFSET_SPAN = 1 << 20
COMMITTED, OPEN, ABORTED, CONTROL, PLAIN = "committed", "open", "aborted", "control", "plain"


class RecordSource(NamedTuple):
    """The part of a partition that a request may read.

    start, end  the first offset, and the offset after the last one
    open_ids    first offset of each open transaction, by producer id
    """

    partition: int
    reader: LogReader
    start: int
    end: int
    open_ids: Mapping[int, int]


class FoundRecord(NamedTuple):
    partition: int
    header: BatchHeader
    record: Record
    state: str


class BrowseResult(NamedTuple):
    """The records found by one request.

    positions  offset at which the next request resumes, by partition; if the newest records come first, the offset
               after the last remaining record
    is_done    whether no records are left
    """

    records: Sequence[FoundRecord]
    positions: Mapping[int, int]
    looked_at: int
    is_done: bool


class BrowsedBatch(NamedTuple):
    """A batch that has been read but not decoded. `data` is None if the batch is too large to be kept."""

    header: BatchHeader
    data: bytes | None


@dataclass(slots=True)
class ReadBudget:
    records: int = MAX_RECORDS
    bytes: int = MAX_BYTES

    @property
    def is_used_up(self) -> bool:
        return self.records <= 0 or self.bytes <= 0


def browse(
    sources: Sequence[RecordSource], selection: RecordSelection, *, newest_first: bool, most: int
) -> BrowseResult:
    """Returns up to `most` matching records in time order. Must be called in a thread, since it reads files.

    Raises KafkaError if a log cannot be read, or a batch is damaged.
    """
    budget = ReadBudget()
    cursors = [PartitionCursor(each, selection, budget, newest_first=newest_first) for each in sources]
    heap = [(cursor.order, number, cursor) for number, cursor in enumerate(cursors) if cursor.advance()]
    heapify(heap)
    found: list[FoundRecord] = []
    while heap and len(found) < most and not budget.is_used_up:
        _, number, cursor = heap[0]
        if cursor.shown is not None:
            found.append(cursor.shown)
        if cursor.advance():
            heapreplace(heap, (cursor.order, number, cursor))
        else:
            heappop(heap)
    positions = {each.source.partition: each.position for each in cursors}
    return BrowseResult(
        found, positions, MAX_RECORDS - budget.records, not heap and not any(each.is_cut for each in cursors)
    )


@dataclass(slots=True, order=False)
class PartitionCursor:
    """The position of a request in one partition.

    order     the cursor's key in the heap; the cursor with the smallest key advances first
    position  the offset up to which (or, if the newest records come first, down to which) everything has been examined
    shown     the record at the current position if it matches, otherwise None
    is_cut    whether the next records have been deleted in the meantime; the next request then resumes at the new start
              of the log
    """

    source: RecordSource
    selection: RecordSelection
    budget: ReadBudget
    newest_first: bool
    order: int = 0
    position: int = 0
    shown: FoundRecord | None = None
    is_cut: bool = False
    _batches: Iterator[BrowsedBatch] = field(init=False)
    _records: Iterator[FoundRecord] | None = None
    _batch: BrowsedBatch | None = None
    _passed: int = 0

    def __post_init__(self) -> None:
        source = self.source
        self.position = self._passed = source.end if self.newest_first else source.start
        self._batches = batches_backward(source) if self.newest_first else batches_forward(source)

    def advance(self) -> bool:
        """Moves to the next matching record or the next batch. Returns False at the end."""
        self.position = self._passed
        if self._batch is not None and self._records is None:
            self._records = self._in_batch(self._batch)
        self.shown = None if self._records is None else next(self._records, None)
        if self.shown is None:
            self._records = None
            return self._next_batch()
        timestamp = self.shown.record.timestamp
        self.order = -timestamp if self.newest_first else timestamp
        return True

    def _next_batch(self) -> bool:
        source = self.source
        if self._batch is not None:
            header = self._batch.header
            self._passed = max(source.start, header.base_offset) if self.newest_first else header.next_offset
            self.position = self._passed
        try:
            self._batch = next(self._batches, None)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._batch, self.is_cut, self.position = None, True, self._passed
            return False
        if self._batch is None:
            self.position = source.start if self.newest_first else source.end
            return False
        header = self._batch.header
        self.order = -header.max_timestamp if self.newest_first else header.base_timestamp
        return True

    def _in_batch(self, batch: BrowsedBatch) -> Iterator[FoundRecord]:
        """Yields the matching records of a batch. The budget counts all records of the batch."""
        source, header = self.source, batch.header
        self.budget.bytes -= header.size_bytes
        data = batch.data
        if data is None:
            try:
                data = b"".join(source.reader.read_cold(header.base_offset, max_bytes=1).chunks)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                return  # the batch has been deleted since it was listed
        position = next((at for at, each in batches(data) if each.base_offset == header.base_offset), None)
        if position is None:  # compaction has removed the batch since it was listed
            return
        batch_bytes = memoryview(data)[position : position + header.size_bytes]
        if not header.is_compressed and not self.selection.may_match(batch_bytes):
            return
        try:
            inside = [each for each in records_of(data, position) if source.start <= each.offset < source.end]
        except MalformedMessage as error:
            where = f"partition {source.partition}, offset {header.base_offset}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A batch is damaged ({where}): {error}.") from None
        self.budget.records -= len(inside)
        state_of = RecordStates(header, source)
        for record in reversed(inside) if self.newest_first else inside:
            state = state_of(record)
            if self.selection.matches(record, state):
                self._passed = record.offset if self.newest_first else record.offset + 1
                yield FoundRecord(source.partition, header, record, state)


class RecordStates:
    """Determines the state of each record of one batch. Aborted transactions are looked up only once, when the object
    is created."""

    def __init__(self, header: BatchHeader, source: RecordSource) -> None:
        self._header = header
        self._first_open = source.open_ids.get(header.producer_id)
        self._aborted: Sequence[tuple[int, int]] = ()
        if header.is_transactional and not header.is_control:
            self._aborted = [
                (each.first_offset, each.last_offset)
                for each in source.reader.aborted(header.base_offset, header.next_offset)
                if each.producer_id == header.producer_id
            ]

    def __call__(self, record: Record) -> str:
        if self._header.is_control:
            return CONTROL
        if not self._header.is_transactional:
            return PLAIN
        if self._first_open is not None and record.offset >= self._first_open:
            return OPEN
        if any(first <= record.offset <= last for first, last in self._aborted):
            return ABORTED
        return COMMITTED


def batches_forward(source: RecordSource) -> Iterator[BrowsedBatch]:
    at = source.start
    while at < source.end:
        data = b"".join(source.reader.read_cold(at, max_bytes=CHUNK_BYTES).chunks)
        reached = at
        for position, header in batches(data):
            if header.base_offset >= source.end:
                return
            reached = header.next_offset
            yield browsed_batch(data, position, header)
        if reached == at:
            return
        at = reached


def batches_backward(source: RecordSource) -> Iterator[BrowsedBatch]:
    """Yields batches from the last to the first. Reads spans of offsets, which grow if batches are small."""
    end, span = source.end, 1
    while end > source.start:
        start = max(source.start, end - span)
        chunk = batches_between(source, start, end)
        if chunk is None:  # the span is larger than a chunk
            span = max(1, span // 8)
            continue
        yield from reversed(chunk)
        end = min([start, *(each.header.base_offset for each in chunk[:1])])
        size = sum(each.header.size_bytes for each in chunk)
        span = min(MAX_OFFSET_SPAN, span * 4) if size < CHUNK_BYTES // 8 else max(1, span // 2)


def batches_between(source: RecordSource, start: int, end: int) -> list[BrowsedBatch] | None:
    """Returns the batches with offsets in [start, end). Returns None if the batches are larger than a chunk, unless the
    span is a single offset."""
    data = b"".join(source.reader.read_cold(start, max_bytes=CHUNK_BYTES if end - start > 1 else 1).chunks)
    found: list[BrowsedBatch] = []
    reached = start
    for position, header in batches(data):
        reached = header.next_offset
        if header.base_offset >= end:
            break
        found.append(browsed_batch(data, position, header))
    return found if reached >= end or end - start == 1 else None


def browsed_batch(data: bytes, position: int, header: BatchHeader) -> BrowsedBatch:
    if header.size_bytes > MAX_CACHED_BATCH_BYTES:
        return BrowsedBatch(header, None)
    return BrowsedBatch(header, data[position : position + header.size_bytes])
