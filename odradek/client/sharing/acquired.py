"""The records that a member has acquired at one broker, as ranges of offsets, and their acknowledgements.

A range has one byte per offset. The byte is either the acknowledge type to send for the offset, or a state that
requires nothing to be sent. A range of any length is therefore a single object, and acknowledgements are built from
runs of bytes.

The response to a ShareFetch contains entire log batches, and therefore also records that other members have acquired.
Acquired offsets without a record for the application (removed by compaction, or control records) are gaps, which the
member acknowledges without involving the application. Source: docs/spec/share-groups.md#s1-5, #s1-13, #s6-1 (row 7),
#s6-3 (Z16).
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, repeat
from operator import add, attrgetter

from odradek.client.common.values import (
    Acknowledgements,
    AcknowledgeType,
    ConsumerRecord,
    ShareRecord,
    TopicPartition,
)
from odradek.client.consuming.fetched import records_in, whole_batches
from odradek.protocol.batch_header import BatchHeader, crc_ok, read_batch_header
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.share_fetch_response import AcquiredRecords
from odradek.protocol.struct import Buffer
from odradek.protocol.topic_partition import TopicIdPartition

GAP = 0  # an offset without a record for the application
ACCEPT, RELEASE, REJECT, RENEW = (kind.value for kind in AcknowledgeType)
OPEN = 0xFF  # delivered, but not yet acknowledged by the application
RENEWED = 0xFE  # lock renewed: the application may, but need not, acknowledge the record again before `getmany`
RENEWING = 0xFD  # the renewal has been sent but not yet answered
DONE = 0xFC  # acknowledgement sent, record lost, or left to another transaction
PENDING = 0xFB  # acknowledged by a transaction, and locked for the application until the transaction ends
# The transaction that acknowledged the record was aborted: the application may, but need not, acknowledge the record
# again before `getmany`.
RETURNED = 0xFA

_TO_SEND = re.compile(rb"[\x00-\x04]+")
_UNSENT_TYPES = re.compile(rb"[\x01-\x04]")  # the application's acknowledgements that have not been sent yet
_CAN_BE_PENDING = re.compile(rb"[\xff\xfe\xfa]+")  # OPEN, RENEWED, RETURNED
_WHEN_SENT = bytes(RENEWING if kind == RENEW else DONE for kind in range(256))
_BY_OFFSET = attrgetter("first_offset")


class AcquiredRange:
    """A range of offsets acquired together."""

    __slots__ = ("first_offset", "types")

    def __init__(self, first_offset: int, types: bytearray) -> None:
        """Creates a range. `types` holds the acknowledge type of each offset, beginning with the first, or OPEN if the
        offset has a record."""
        self.first_offset = first_offset
        self.types = types


@dataclass(frozen=True, slots=True)
class TypeRun:
    """A part of a range, sent as one acknowledgement batch."""

    acquired: AcquiredRange
    start: int
    types: bytes

    @property
    def first_offset(self) -> int:
        return self.acquired.first_offset + self.start

    @property
    def last_offset(self) -> int:
        return self.first_offset + len(self.types) - 1

    @property
    def acknowledge_types(self) -> list[int]:
        """The acknowledge types in the form used by requests: one type for all offsets, or one type per offset."""
        types = self.types
        return [types[0]] if types.count(types[0]) == len(types) else list(types)


@dataclass(frozen=True, slots=True)
class SentAcknowledgements:
    """One partition's acknowledgements in one request. `settle` applies their outcome."""

    partition: TopicPartition
    runs: list[TypeRun]

    @property
    def renews(self) -> bool:
        return any(RENEW in run.types for run in self.runs)

    @property
    def acknowledged(self) -> list[tuple[int, int]]:
        """The first and last offsets of each range of records that the application has acknowledged."""
        return [
            (run.first_offset + start, run.first_offset + stop - 1)
            for run in self.runs
            for start, stop in (each.span() for each in re.finditer(rb"[^\x00]+", run.types))
        ]


@dataclass(frozen=True, slots=True)
class PendingRun:
    """The part of a range that a transaction acknowledges, as indexes into the range's types."""

    partition: TopicPartition
    acquired: AcquiredRange
    start: int
    stop: int


class Acquisitions:
    """The records that one broker has acquired for this member. Each record is kept here until it is settled or
    acquired again.

    `acknowledge` may be called in a different thread from the other methods.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects `acknowledge` and `take` from each other
        self._ranges: dict[TopicPartition, list[AcquiredRange]] = {}
        self._ids: dict[TopicPartition, TopicIdPartition] = {}

    def add(self, partition: TopicPartition, topic_id: bytes, ranges: Iterable[AcquiredRange]) -> None:
        """Adds newly acquired ranges, in ascending order of offsets."""
        known = self._ids.get(partition)
        if known is not None and known.topic_id != topic_id:  # the topic was deleted and created again
            self._ranges.pop(partition, None)
        self._ids[partition] = TopicIdPartition(topic_id, partition.partition)
        before, added = self._ranges.get(partition, []), list(ranges)
        for old in before:  # if a record is acquired again, its earlier acquisition was lost
            for new in added:
                start = max(0, new.first_offset - old.first_offset)
                stop = min(len(old.types), new.first_offset + len(new.types) - old.first_offset)
                if start < stop:
                    old.types[start:stop] = bytes([DONE]) * (stop - start)
        self._ranges[partition] = sorted(before + added, key=_BY_OFFSET)
        self._forget_done(partition)

    def acknowledge(self, partition: TopicPartition, offset: int, kind: int) -> bool:
        """Sets the acknowledge type of a record, or replaces a type that has not been sent yet. Returns False if the
        application cannot acknowledge this record."""
        with self._lock:
            for each in self._ranges_with(partition, offset):
                at = offset - each.first_offset
                if at < len(each.types) and each.types[at] not in (GAP, RENEWING, DONE, PENDING):
                    each.types[at] = kind
                    return True
        return False

    def accept_all(self) -> None:
        """Accepts all delivered records."""
        self._replace(OPEN, ACCEPT)

    def leave_all_delivered(self) -> None:
        """Makes the consumer send nothing for the delivered records. A transaction can still acknowledge them at the
        broker; otherwise their locks expire."""
        self._replace(OPEN, DONE)

    # Acknowledgements in a producer's transaction.

    def find_acknowledged(self, given: Acknowledgements) -> tuple[TopicPartition, int] | None:
        """Returns the partition and offset of a record in `given` that the application has already acknowledged through
        the consumer, or None if there is no such record. The consumer would send such an acknowledgement outside the
        transaction."""
        with self._lock:
            for partition, each, start, stop in self._overlaps(given):
                if found := _UNSENT_TYPES.search(each.types, start, stop):
                    return partition, each.first_offset + found.start()
        return None

    def make_pending(self, given: Acknowledgements) -> list[PendingRun]:
        """Marks the delivered records in `given` as pending. They cannot be acknowledged through the consumer until
        `end_pending` is called with the returned list."""
        pending = []
        with self._lock:
            for partition, each, start, stop in self._overlaps(given):
                for found in _CAN_BE_PENDING.finditer(bytes(each.types[start:stop])):
                    run = PendingRun(partition, each, start + found.start(), start + found.end())
                    each.types[run.start : run.stop] = bytes([PENDING]) * (run.stop - run.start)
                    pending.append(run)
        return pending

    def end_pending(self, pending: Iterable[PendingRun], *, committed: bool) -> None:
        """Ends the transaction of these records. If it was aborted, the application may acknowledge the records
        again."""
        with self._lock:
            for run in pending:
                part = run.acquired.types[run.start : run.stop]
                run.acquired.types[run.start : run.stop] = part.replace(
                    bytes([PENDING]), bytes([DONE if committed else RETURNED])
                )
            for partition in {run.partition for run in pending}:
                self._forget_done(partition)

    def leave_returned(self) -> None:
        """Makes the consumer send nothing for the records of aborted transactions, so that their locks expire."""
        self._replace(RETURNED, DONE)

    def is_pending(self, partition: TopicPartition, offset: int) -> bool:
        with self._lock:
            return any(
                offset - each.first_offset < len(each.types) and each.types[offset - each.first_offset] == PENDING
                for each in self._ranges_with(partition, offset)
            )

    def _overlaps(self, given: Acknowledgements) -> Iterator[tuple[TopicPartition, AcquiredRange, int, int]]:
        """Yields the parts of acquired ranges that the given ranges cover, as indexes into each acquired range's
        types."""
        for partition, ranges in given.items():
            for each in self._ranges.get(partition, ()):
                end = each.first_offset + len(each.types)
                at = max(0, bisect_right(ranges, each.first_offset, key=_BY_OFFSET) - 1)
                while at < len(ranges) and ranges[at].first_offset < end:
                    start = max(0, ranges[at].first_offset - each.first_offset)
                    stop = min(len(each.types), ranges[at].last_offset + 1 - each.first_offset)
                    if start < stop:
                        yield partition, each, start, stop
                    at += 1

    @property
    def has_open(self) -> bool:
        """True if any delivered record has not been acknowledged yet."""
        return any(OPEN in each.types for ranges in self._ranges.values() for each in ranges)

    @property
    def unsent_partitions(self) -> list[TopicPartition]:
        """The partitions with acknowledgements that have not been sent yet."""
        return [
            partition
            for partition, ranges in self._ranges.items()
            if any(_TO_SEND.search(each.types) for each in ranges)
        ]

    @property
    def has_renewals(self) -> bool:
        return any(RENEW in each.types for ranges in self._ranges.values() for each in ranges)

    def take(self) -> Mapping[TopicIdPartition, SentAcknowledgements]:
        """Takes all acknowledgements that can be sent now. Each of them must later be settled or requeued."""
        taken: dict[TopicIdPartition, SentAcknowledgements] = {}
        with self._lock:
            for partition, ranges in self._ranges.items():
                # Sorted because a range that was acquired again may lie within an older range.
                if runs := [run for each in ranges for run in _runs_of(each)]:
                    taken[self._ids[partition]] = SentAcknowledgements(partition, sorted(runs, key=_BY_OFFSET))
        return taken

    def settle(self, sending: SentAcknowledgements, *, is_done: bool) -> None:
        """Applies the broker's response. The records of a failed renewal are lost."""
        if sending.renews:
            for run in sending.runs:
                self._write(run, RENEWING, bytes([RENEWED if is_done else DONE]) * len(run.types))
        self._forget_done(sending.partition)

    def requeue(self, sending: SentAcknowledgements) -> None:
        """Adds the acknowledgements to the next request, because the broker has not decided on them."""
        ranges = self._ranges.setdefault(sending.partition, [])
        for run in sending.runs:
            if run.acquired not in ranges:
                insort(ranges, run.acquired, key=_BY_OFFSET)
            run.acquired.types[run.start : run.start + len(run.types)] = run.types

    def clear(self) -> None:
        self._ranges.clear()
        self._ids.clear()

    def _ranges_with(self, partition: TopicPartition, offset: int) -> Iterable[AcquiredRange]:
        """Returns the ranges that may contain this offset, most likely first. Where two ranges overlap, the older range
        is DONE."""
        ranges = self._ranges.get(partition, [])
        at = bisect_right(ranges, offset, key=_BY_OFFSET)
        return reversed(ranges[:at])

    def _replace(self, before: int, after: int) -> None:
        for partition in list(self._ranges):
            for each in self._ranges[partition]:
                each.types[:] = each.types.replace(bytes([before]), bytes([after]))
            self._forget_done(partition)

    def _write(self, run: TypeRun, only: int, types: bytes) -> None:
        into = run.acquired.types
        for at, kind in enumerate(types, run.start):
            if into[at] == only:
                into[at] = kind

    def _forget_done(self, partition: TopicPartition) -> None:
        left = [each for each in self._ranges.get(partition, ()) if each.types.count(DONE) != len(each.types)]
        if left:
            self._ranges[partition] = left
        else:
            self._ranges.pop(partition, None)


def _runs_of(acquired: AcquiredRange) -> list[TypeRun]:
    """Collects a range's acknowledgements that can be sent and marks them as sent."""
    runs = []
    for found in _TO_SEND.finditer(bytes(acquired.types)):
        types = found.group()
        runs.append(TypeRun(acquired, found.start(), types))
        acquired.types[found.start() : found.end()] = types.translate(_WHEN_SENT)
    return runs


def ranges_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Converts offsets to ranges. Returns the first and last offset of each run of consecutive offsets."""
    found = []
    for _, group in groupby(enumerate(sorted(set(offsets))), key=lambda each: each[1] - each[0]):
        run = [offset for _, offset in group]
        found.append((run[0], run[-1]))
    return found


_OFFSET = attrgetter("offset")
MAX_OFFSETS = 1 << 24  # maximum number of offsets in one range; a broker that reports more must be faulty
_share_record_of = partial(tuple.__new__, ShareRecord)


@dataclass(slots=True)
class FetchedShareRecords:
    """One partition's records in a response. `damage` explains why records were left out. Records of a batch with a
    wrong CRC are rejected; other damaged records are released."""

    ranges: list[AcquiredRange] = field(default_factory=list)
    records: list[ShareRecord] = field(default_factory=list)
    damage: str | None = None


def read_acquired(
    partition: TopicPartition, records: Buffer, acquired: Sequence[AcquiredRecords], *, checks_crcs: bool
) -> FetchedShareRecords:
    """Reads the acquired records of one partition. Damaged records do not raise an error; they are rejected or
    released.

    acquired   the acquired ranges as listed by the broker: in ascending order, without overlaps
    """
    reading = _RecordReader(partition, memoryview(records), checks_crcs)
    for each in acquired:
        reading.read(each)
    return reading.found


class _RecordReader:
    def __init__(self, partition: TopicPartition, records: memoryview, checks_crcs: bool) -> None:
        self.found = FetchedShareRecords()
        self._partition = partition
        self._records = records
        self._checks_crcs = checks_crcs
        self._end_offset = -1  # end of the batches in the response
        try:
            self._batches = [(at, read_batch_header(records, at)) for at in whole_batches(records)]
        except MalformedMessage as error:
            self._batches = []
            self.found.damage = str(error)
        if self._batches:
            self._end_offset = self._batches[-1][1].next_offset
        self._following = 0  # index of the first batch that may overlap the next range
        self._opened_at = -1
        self._opened: list[ConsumerRecord] = []
        self._refusal: int | None = None  # acknowledge type for the last opened batch if that batch is damaged

    def read(self, acquired: AcquiredRecords) -> None:
        first, last = acquired.first_offset, acquired.last_offset
        if not 0 <= last - first < MAX_OFFSETS:
            self.found.damage = f"the broker reports an invalid range of acquired offsets, {first} to {last}"
            return
        stop = max(first, min(last + 1, self._end_offset))
        count = (acquired.delivery_count,)
        types: bytearray | None = None
        taken = 0
        while self._following < len(self._batches):
            at, header = self._batches[self._following]
            if header.base_offset >= stop:
                break
            if header.next_offset > first:
                self._open(at, header)
                if self._refusal is not None:
                    types = types or self._types(first, stop)
                    low, high = max(first, header.base_offset) - first, min(stop, header.next_offset) - first
                    types[low:high] = bytes([self._refusal]) * (high - low)
                opened = self._opened
                if header.base_offset < first or header.next_offset > stop:
                    opened = opened[bisect_left(opened, first, key=_OFFSET) : bisect_left(opened, stop, key=_OFFSET)]
                taken += len(opened)
                self.found.records += map(_share_record_of, map(add, opened, repeat(count)))
            if header.next_offset > stop:
                break  # the next range may need the rest of this batch
            self._following += 1
        if taken == stop - first:
            types = bytearray([OPEN]) * taken
        else:
            types = self._types(first, stop) if types is None else types
            for record in self.found.records[len(self.found.records) - taken :]:
                types[record.offset - first] = OPEN
        if stop <= last:  # the last records are missing for an unknown reason, so their offsets are not gaps
            missing = AcquiredRange(stop, bytearray([RELEASE]) * (last + 1 - stop))
            self.found.damage = self.found.damage or f"the answer lacks the records from offset {stop} to {last}"
            self._add(AcquiredRange(first, types))
            self._add(missing)
        else:
            self._add(AcquiredRange(first, types))

    def _add(self, acquired: AcquiredRange) -> None:
        if acquired.types:
            self.found.ranges.append(acquired)

    def _types(self, first: int, stop: int) -> bytearray:
        return bytearray([GAP]) * (stop - first)

    def _open(self, at: int, header: BatchHeader) -> None:
        if at == self._opened_at:
            return
        self._opened_at, self._opened, self._refusal = at, [], None
        end = at + header.size_bytes
        if self._checks_crcs and not crc_ok(self._records, at, header.size_bytes):
            self._refuse(REJECT, f"the CRC of the batch at offset {header.base_offset} is wrong")
        elif not header.is_control:
            try:
                self._opened = records_in(self._records[at:end], header, *self._partition)
            except MalformedMessage as error:
                self._refuse(RELEASE, f"the batch at offset {header.base_offset} cannot be read: {error}")

    def _refuse(self, kind: int, damage: str) -> None:
        self._refusal = kind
        self.found.damage = self.found.damage or damage
