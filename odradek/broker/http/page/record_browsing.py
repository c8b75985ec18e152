"""Records of several partitions in one list, in the order of time, with a bounded amount of work for each request.

Each partition has one place in a heap: first the header of its next batch, then the records of that batch one by one,
then its next batch. The records of a partition stay in the order of their offsets. Among partitions, the timestamps at
the heads decide. When the budget of a request is used up, the positions that were reached tell the next request where
to resume. Only headers of batches are kept before it is their turn, and batches that are small.
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
    from odradek.broker.http.page.record_filter import WantedRecords
    from odradek.storage.log_reader import LogReader

MOST_RECORDS = 20_000  # records that one request decodes
MOST_BYTES = 8 * 1024 * 1024  # bytes of batches that one request looks at
CHUNK_BYTES = 128 * 1024
KEPT_BYTES = 32 * 1024  # a larger batch is read again when it is its turn
MOST_SPAN = 1 << 20
COMMITTED, OPEN, ABORTED, CONTROL, PLAIN = "committed", "open", "aborted", "control", "plain"


class RecordSource(NamedTuple):
    """The part of a partition that a request may look at.

    start, end  offsets; `end` is exclusive
    open_ids    the first offset of the open transaction of each producer id
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
    """
    positions  by partition: where the next request resumes, the end of what is left if newest records come first
    is_done    nothing is left
    """

    records: Sequence[FoundRecord]
    positions: Mapping[int, int]
    looked_at: int
    is_done: bool


class BrowsedBatch(NamedTuple):
    """data  None if the batch is too large to be kept"""

    header: BatchHeader
    data: bytes | None


@dataclass(slots=True)
class ReadBudget:
    records: int = MOST_RECORDS
    bytes: int = MOST_BYTES

    @property
    def is_used_up(self) -> bool:
        return self.records <= 0 or self.bytes <= 0


def browse(sources: Sequence[RecordSource], wanted: WantedRecords, *, newest_first: bool, most: int) -> BrowseResult:
    """Returns up to `most` records that match, in the order of time. Reads files, so it runs in a thread.

    Raises KafkaError if a log cannot be read, or a batch is damaged.
    """
    budget = ReadBudget()
    cursors = [PartitionCursor(each, wanted, budget, newest_first=newest_first) for each in sources]
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
        found, positions, MOST_RECORDS - budget.records, not heap and not any(each.is_cut for each in cursors)
    )


@dataclass(slots=True, order=False)
class PartitionCursor:
    """Where a request is in one partition.

    order     its place in the heap; smaller comes first
    position  everything on the way up to this offset has been passed
    shown     the record at this place, if it matches
    is_cut    records on the way were deleted in the meantime. The next request resumes at the new start of the log
    """

    source: RecordSource
    wanted: WantedRecords
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
        """Goes on to the next place. Returns False at the end."""
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
        """Yields the records of a batch that match, and counts all of them."""
        source, header = self.source, batch.header
        self.budget.bytes -= header.size_bytes
        data = batch.data
        if data is None:
            try:
                data = b"".join(source.reader.read_cold(header.base_offset, max_bytes=1).chunks)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                return  # it was deleted in the meantime
        position = next((at for at, each in batches(data) if each.base_offset == header.base_offset), None)
        if position is None:  # it was compacted away in the meantime
            return
        batch_bytes = memoryview(data)[position : position + header.size_bytes]
        if not header.is_compressed and not self.wanted.may_match(batch_bytes):
            return
        try:
            inside = [each for each in records_of(data, position) if source.start <= each.offset < source.end]
        except MalformedMessage as error:
            where = f"partition {source.partition}, offset {header.base_offset}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A batch is damaged ({where}): {error}.") from None
        self.budget.records -= len(inside)
        state_of = states_in(header, source)
        for record in reversed(inside) if self.newest_first else inside:
            state = state_of(record)
            if self.wanted.matches(record, state):
                self._passed = record.offset if self.newest_first else record.offset + 1
                yield FoundRecord(source.partition, header, record, state)


class states_in:
    """Returns the state of each record of a batch. Looks up aborted transactions once."""

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
    """Yields batches from the end to the start. Reads spans of offsets, which grow while batches are small."""
    end, span = source.end, 1
    while end > source.start:
        begin = max(source.start, end - span)
        chunk = batches_between(source, begin, end)
        if chunk is None:  # more than a chunk of bytes
            span = max(1, span // 8)
            continue
        yield from reversed(chunk)
        end = min([begin, *(each.header.base_offset for each in chunk[:1])])
        size = sum(each.header.size_bytes for each in chunk)
        span = min(MOST_SPAN, span * 4) if size < CHUNK_BYTES // 8 else max(1, span // 2)


def batches_between(source: RecordSource, begin: int, end: int) -> list[BrowsedBatch] | None:
    """Returns the batches with offsets in [begin, end). Returns None if they are larger than a chunk, unless the span
    has one offset only."""
    data = b"".join(source.reader.read_cold(begin, max_bytes=CHUNK_BYTES if end - begin > 1 else 1).chunks)
    found: list[BrowsedBatch] = []
    reached = begin
    for position, header in batches(data):
        reached = header.next_offset
        if header.base_offset >= end:
            break
        found.append(browsed_batch(data, position, header))
    return found if reached >= end or end - begin == 1 else None


def browsed_batch(data: bytes, position: int, header: BatchHeader) -> BrowsedBatch:
    if header.size_bytes > KEPT_BYTES:
        return BrowsedBatch(header, None)
    return BrowsedBatch(header, data[position : position + header.size_bytes])
