"""Decodes, in portions, the records that one Fetch returned for one partition, and leaves out aborted transactions.

Every record that a consumer returns passes through this module, so it is optimised for speed. A topic's records tend to
have the same layout. A run of records with the same layout is read column by column: all values at once, then all keys
at once (0.2 µs for a record of 100 bytes). Other records are read one by one (1 µs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop
from itertools import repeat

from odradek.client.common.values import ConsumerRecord, TopicPartition
from odradek.protocol.batch_header import HEADER_BYTES, BatchHeader, batch_size_at, crc_ok, read_batch_header
from odradek.protocol.compression import DECOMPRESSED_LIMIT_BYTES, decompress
from odradek.protocol.control_records import ControlType, control_type
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.fetch_response import AbortedTransaction
from odradek.protocol.record_walk import AlikeRecords, find_run, timestamp_delta
from odradek.protocol.records import read_varint, read_varlong, records_of
from odradek.protocol.struct import Buffer

_SMALLEST_RECORD_BYTES = 7
_PAUSE = 64  # number of records to read one by one before looking for another run
# Header keys are text. With this error handler, bytes that are not UTF-8 survive a round trip.
_NOT_UTF8 = "surrogateescape"

# Equivalent to ConsumerRecord(...), but without the cost of keyword arguments.
_record_of = partial(tuple.__new__, ConsumerRecord)


def records_in(batch: memoryview, header: BatchHeader, topic: str, partition: int) -> list[ConsumerRecord]:
    """Decodes all records of one batch and decompresses it if necessary. `batch` must contain exactly one batch.

    Raises MalformedMessage. The caller checks the CRC. Keys and values are copied, so they do not keep `batch` alive.
    """
    payload = batch[HEADER_BYTES:]
    data = bytes(decompress(header.compression, payload, DECOMPRESSED_LIMIT_BYTES) if header.is_compressed else payload)
    count = header.record_count
    if count < 0 or count * _SMALLEST_RECORD_BYTES > len(data):
        raise MalformedMessage(f"{count} records cannot fit into {len(data)} bytes")
    try:
        return _read(data, count, header, topic, partition)
    except IndexError:
        raise MalformedMessage("a record is cut short") from None


def _read(data: bytes, count: int, header: BatchHeader, topic: str, partition: int) -> list[ConsumerRecord]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    end = len(data)
    found: list[ConsumerRecord] = []
    at = last_size = next_try = 0
    while len(found) < count:
        start = at
        size = data[at]  # zigzag-encoded
        if size < 0x80:
            at += 1
        elif data[at + 1] < 0x80:
            size = size & 0x7F | data[at + 1] << 7
            at += 2
        else:
            size, at = _read_zigzag(data, at)
        stop = at + (size >> 1)
        if size & 1 or stop > end:
            raise MalformedMessage("a record has a negative length, or extends beyond its batch")
        delta = data[at + 1]  # the timestamp delta; the attributes byte before it is meaningless
        if delta < 0x80:
            delta = delta >> 1 ^ -(delta & 1)
            at += 2
        else:
            delta, at = read_varlong(data, at + 1)
        timestamp = base_timestamp + delta if append_time is None else append_time
        delta = data[at]
        if delta < 0x80:
            offset = base_offset + (delta >> 1 ^ -(delta & 1))
            at += 1
        elif data[at + 1] < 0x80:
            delta = delta & 0x7F | data[at + 1] << 7
            offset = base_offset + (delta >> 1 ^ -(delta & 1))
            at += 2
        else:
            delta, at = read_varint(data, at)
            offset = base_offset + delta
        size = data[at]
        if size < 0x80:
            size = size >> 1 ^ -(size & 1)
            at += 1
        else:
            size, at = read_varint(data, at)
        key_at, key_size = at, size
        key = None
        if size >= 0:  # any negative size means null
            at += size
            key = data[key_at:at]
        size = data[at]
        if size < 0x80:
            size = size >> 1 ^ -(size & 1)
            at += 1
        elif data[at + 1] < 0x80:
            size = size & 0x7F | data[at + 1] << 7
            size = size >> 1 ^ -(size & 1)
            at += 2
        else:
            size, at = read_varint(data, at)
        value_at, value_size = at, size
        value = None
        if size >= 0:
            at += size
            value = data[value_at:at]
        headers: tuple[tuple[str, bytes | None], ...] = ()
        has_headers = data[at] != 0
        if has_headers:
            headers, at = _headers(data, at, stop)
        else:
            at += 1
        if at != stop:
            raise MalformedMessage("the parts of a record do not fill its length")
        found.append(_record_of((topic, partition, offset, timestamp, key, value, headers)))
        size, index = stop - start, len(found)
        if size == last_size and index >= next_try and not has_headers:
            run = find_run(data, start, size, index, count)
            if run.length:
                alike = memoryview(data)[at : at + run.length * size]
                at += len(alike)
                found += map(
                    _record_of,
                    zip(
                        repeat(topic),
                        repeat(partition),
                        range(base_offset + index, base_offset + index + run.length),
                        repeat(append_time) if append_time is not None else _timestamps(run, base_timestamp),
                        _column(alike, size, key_at - start, key_size),
                        _column(alike, size, value_at - start, value_size),
                        repeat(()),
                        strict=False,  # some of the iterables are infinite
                    ),
                )
            else:
                next_try = index + _PAUSE
        last_size = size
    if at != end:
        raise MalformedMessage(f"{end - at} bytes follow the last record")
    return found


def _timestamps(run: AlikeRecords, base_timestamp: int) -> Iterable[int]:
    deltas = list(run.timestamp_deltas())
    timestamps = {parts: base_timestamp + timestamp_delta(parts) for parts in set(deltas)}
    return map(timestamps.__getitem__, deltas)


def _column(records: memoryview, size: int, at: int, width: int) -> Iterable[bytes | None]:
    """Reads the `width` bytes at position `at` of each record of `size` bytes. A negative width means null."""
    if width < 0:
        return repeat(None)
    return [cell for (cell,) in struct.iter_unpack(f"{at}x{width}s{size - at - width}x", records)]


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(data, at)
    return (value << 1 if value >= 0 else ~(value << 1)), at


def _headers(data: bytes, at: int, stop: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Reads the headers at `at`, beginning with their count. Returns the headers and the position after them."""
    count, at = read_varint(data, at)
    if count < 0 or count > stop - at:
        raise MalformedMessage(f"{count} headers")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0:
            raise MalformedMessage("a header has no key")
        key = data[at : at + size].decode("utf-8", _NOT_UTF8)
        at += size
        size, at = read_varint(data, at)
        value = None
        if size >= 0:
            value = data[at : at + size]
            at += size
        found.append((key, value))
    return tuple(found), at


class AbortedFilter:
    """Determines which fetched batches belong to aborted transactions.

    Each Fetch response lists the aborted transactions of its range by producer id and first offset. A transaction
    consists of the producer's batches from that offset to its ABORT marker. `hides` must be called for every batch, in
    the order of the log.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = [(each.first_offset, each.producer_id) for each in aborted]
        heapify(self._coming)
        self._open: set[int] = set()  # ids of the producers whose current transaction was aborted

    def hides(self, header: BatchHeader, marker: ControlType | None) -> bool:
        """Returns whether the batch belongs to an aborted transaction.

        marker   the type of a control batch, or None for a batch of records
        """
        if not header.has_producer_id:
            return False
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._open.add(heappop(self._coming)[1])
        if marker is ControlType.ABORT:
            self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


@dataclass(frozen=True, slots=True)
class RawBatches:
    """Batches of one partition as they are stored in the log, for `odradek.client.columns.read_records`.

    data           encoded batches, including control batches; the first batch may begin before `start_offset`
    aborted        transactions whose records must be left out; empty with read_uncommitted
    start_offset   offset of the first requested record
    end_offset     offset at which to continue reading
    """

    data: memoryview
    aborted: tuple[AbortedTransaction, ...]
    start_offset: int
    end_offset: int


class FetchedRecords:
    """The records that one Fetch returned for one partition. Each batch is decoded only when its records are taken."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        records: Buffer,
        offset: int,
        *,
        aborted: Iterable[AbortedTransaction] | None,
        checks_crcs: bool = True,
    ) -> None:
        """Finds the batches in `records`.

        offset    offset of the first requested record, whose batch may begin earlier
        aborted   aborted transactions; None to include the records of aborted and open transactions (read_uncommitted)

        Raises MalformedMessage if `records` cannot be divided into batches.
        """
        self._topic_partition = topic_partition
        self._records = memoryview(records)
        self._batches = whole_batches(self._records)
        self._following = 0  # index of the next batch to decode
        self._batch_end = offset
        self._aborted_transactions = tuple(aborted or ())
        self._aborted = None if aborted is None else AbortedFilter(self._aborted_transactions)
        self._checks_crcs = checks_crcs
        self._left: list[ConsumerRecord] = []  # records of the last decoded batch
        self._given = 0  # number of records in `_left` that have been returned
        # Offset of the next record to take. Batches that contain no records for the application are skipped.
        self.next_offset = offset
        self.leader_epoch: int | None = None  # leader epoch of the last decoded batch
        self.end_offset = offset
        if self._batches:
            self.end_offset = max(offset, read_batch_header(self._records, self._batches[-1]).next_offset)
        self.size_bytes = len(self._records)

    @property
    def is_cut_short(self) -> bool:
        """True if not even the first batch is complete."""
        return bool(self._records) and not self._batches

    @property
    def is_exhausted(self) -> bool:
        return self._given == len(self._left) and self._following == len(self._batches)

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Returns up to `max_records` of the next records, all from one batch. Returns an empty list only if no records
        are left.

        Raises MalformedMessage for damaged records. `next_offset` is then their position.
        """
        while self._given == len(self._left):
            if self._following == len(self._batches):
                self.next_offset = self.end_offset
                return []
            position = self._batches[self._following]
            header = read_batch_header(self._records, position)
            self._left, self._given = self._open(position, header), 0
            self._batch_end = header.next_offset
            self._following += 1
            self.leader_epoch = header.leader_epoch if header.leader_epoch >= 0 else None
            if not self._left:
                self.next_offset = max(self.next_offset, header.next_offset)
        if self._given == 0 and len(self._left) <= max_records:
            delivered = self._left
        else:
            delivered = self._left[self._given : self._given + max_records]
        self._given += len(delivered)
        if self._given == len(self._left):  # compaction may have removed the last offsets of the batch
            self.next_offset = max(delivered[-1].offset + 1, self._batch_end)
        else:
            self.next_offset = delivered[-1].offset + 1
        return delivered

    def take_batches(self) -> RawBatches:
        """Returns all remaining batches without decoding or checking them."""
        delivered = RawBatches(self._records, self._aborted_transactions, self.next_offset, self.end_offset)
        if self._batches:
            epoch = read_batch_header(self._records, self._batches[-1]).leader_epoch
            self.leader_epoch = epoch if epoch >= 0 else None
        self._left, self._given, self._following = [], 0, len(self._batches)
        self.next_offset = self.end_offset
        return delivered

    def _open(self, position: int, header: BatchHeader) -> list[ConsumerRecord]:
        """Returns a batch's records that are visible to the application. Skips records before `next_offset`."""
        if header.next_offset <= self.next_offset:
            self._is_hidden(position, header)
            return []
        if self._checks_crcs and not crc_ok(self._records, position, header.size_bytes):
            raise MalformedMessage(f"the batch at offset {header.base_offset} does not match its CRC")
        if self._is_hidden(position, header):
            return []
        topic, partition = self._topic_partition
        found = records_in(self._records[position : position + header.size_bytes], header, topic, partition)
        if header.base_offset < self.next_offset:
            found = [record for record in found if record.offset >= self.next_offset]
        return found

    def _is_hidden(self, position: int, header: BatchHeader) -> bool:
        """Returns whether the batch is a control batch or belongs to an aborted transaction."""
        marker = self._marker(position) if header.is_control else None
        return (self._aborted is not None and self._aborted.hides(header, marker)) or header.is_control

    def _marker(self, position: int) -> ControlType | None:
        for record in records_of(self._records, position):
            return control_type(record.key)
        return None  # compaction has removed all records of the batch


def whole_batches(records: memoryview) -> list[int]:
    """Returns the positions of all complete batches. Leaves out an incomplete batch at the end. Raises
    MalformedMessage."""
    found: list[int] = []
    position = 0
    while position + HEADER_BYTES <= len(records):
        size_bytes = batch_size_at(records, position)
        if size_bytes < HEADER_BYTES:
            raise MalformedMessage(f"a batch has only {size_bytes} bytes, which is less than its header")
        if position + size_bytes > len(records):
            break
        found.append(position)
        position += size_bytes
    return found
