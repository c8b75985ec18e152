"""The records that one ShareFetch has brought of one partition: those that were acquired, as the application gets them.

The answer holds whole batches of the log, and so also records that others have. Offsets of a range that was acquired
without a record for the application (removed by compaction, control records) are gaps, which the member acknowledges by
itself. Source: docs/spec/share-groups.md#s1-5, #s6-1 (row 7), #s6-3 (Z16).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from operator import add, attrgetter

from odradek.client.common.values import ConsumerRecord, ShareRecord, TopicPartition
from odradek.client.consuming.fetched import whole_batches
from odradek.client.consuming.record_reading import records_in
from odradek.client.sharing.acquired import GAP, OPEN, REJECT, RELEASE, AcquiredRange
from odradek.protocol.batch_header import BatchHeader, crc_ok, read_batch_header
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.share_fetch_response import AcquiredRecords
from odradek.protocol.struct import Buffer

_OFFSET = attrgetter("offset")
MOST_OFFSETS = 1 << 24  # of one range; a broker that says more is wrong
_share_record_of = partial(tuple.__new__, ShareRecord)


@dataclass(slots=True)
class Acquired:
    """`damage` says why records were left out: those of a batch with a wrong CRC are rejected, others released."""

    ranges: list[AcquiredRange] = field(default_factory=list)
    records: list[ShareRecord] = field(default_factory=list)
    damage: str | None = None


def read_acquired(
    partition: TopicPartition, records: Buffer, acquired: Sequence[AcquiredRecords], *, checks_crcs: bool
) -> Acquired:
    """acquired   as the broker lists them: ascending, without overlap

    Nothing is raised: damage becomes acknowledgements.
    """
    reading = _Reading(partition, memoryview(records), checks_crcs)
    for each in acquired:
        reading.read(each)
    return reading.found


class _Reading:
    def __init__(self, partition: TopicPartition, records: memoryview, checks_crcs: bool) -> None:
        self.found = Acquired()
        self._partition = partition
        self._records = records
        self._checks_crcs = checks_crcs
        self._end_offset = -1  # of what the answer brought
        try:
            self._batches = [(at, read_batch_header(records, at)) for at in whole_batches(records)]
        except MalformedMessage as error:
            self._batches = []
            self.found.damage = str(error)
        if self._batches:
            self._end_offset = self._batches[-1][1].next_offset
        self._following = 0  # the first batch that may reach into the next range
        self._opened_at = -1
        self._opened: list[ConsumerRecord] = []
        self._refusal: int | None = None  # how the batch that was opened last is acknowledged, if it is damaged

    def read(self, acquired: AcquiredRecords) -> None:
        first, last = acquired.first_offset, acquired.last_offset
        if not 0 <= last - first < MOST_OFFSETS:
            self.found.damage = f"the broker says that the offsets {first} to {last} were acquired"
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
                break  # the next range may want the rest
            self._following += 1
        if taken == stop - first:
            types = bytearray([OPEN]) * taken
        else:
            types = self._types(first, stop) if types is None else types
            for record in self.found.records[len(self.found.records) - taken :]:
                types[record.offset - first] = OPEN
        if stop <= last:  # whatever became of these: they are not gaps
            missing = AcquiredRange(stop, bytearray([RELEASE]) * (last + 1 - stop))
            self.found.damage = self.found.damage or f"the records from offset {stop} to {last} did not come"
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
            self._refuse(REJECT, f"the batch at offset {header.base_offset} does not have the CRC that it carries")
        elif not header.is_control:
            try:
                self._opened = records_in(self._records[at:end], header, *self._partition)
            except MalformedMessage as error:
                self._refuse(RELEASE, f"the batch at offset {header.base_offset}: {error}")

    def _refuse(self, kind: int, damage: str) -> None:
        self._refusal = kind
        self.found.damage = self.found.damage or damage
