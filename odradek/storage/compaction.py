"""Decides which records of a compacted log survive and builds the batches that contain them. Works on one batch at a
time and does not access files.

A pass reads the log twice. First it reads everything since the last pass (`collect_keys`), to find the latest offset of
each key; then it reads everything from the start of the log (`RecordFilter.filtered`). The whole pass uses a single
`PassTransactions`, because a transaction may begin in one segment and end in a later one. Source:
docs/spec/transactions.md#s7, and the output of Kafka 4.3.1's cleaner. The tests compare the output of both cleaners.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from odradek.files.indexes import AbortedTxn
from odradek.protocol.batch_header import DELETE_HORIZON, HEADER_BYTES, NO_TIMESTAMP, BatchHeader, pack_batch
from odradek.protocol.compression import NO_RECORD_LIMIT_BYTES, Bytes, compress, decompress
from odradek.protocol.control_records import ControlType, control_type
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import append_varint, read_varint, read_varlong, record_too_large, records_of
from odradek.storage.key_map import KeyMap


class PassTransactions:
    """Tracks which transactions of a pass were aborted, and which markers are still needed.

    aborted   transaction index entries of all segments that the pass covers, up to the end of the last segment
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda txn: txn.first_offset))
        self._aborting: dict[int, AbortedTxn] = {}  # by producer id, aborted transactions whose marker is still unread
        self._aborted_seen: set[int] = set()  # producers in `_aborting` with at least one record so far
        self._committed_seen: set[int] = set()  # producers with committed records whose marker has not been read yet
        # Aborted transactions that still have records, for the new transaction index. Each transaction is added when
        # its marker is read.
        self.still_indexed: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Returns whether the transaction of this data batch was aborted. Also remembers that the transaction has
        data."""
        self._advance_to(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        if producer_id in self._aborting:
            self._aborted_seen.add(producer_id)
            return True
        self._committed_seen.add(producer_id)
        return False

    def is_marker_without_data(self, header: BatchHeader, batch: memoryview) -> bool:
        """Returns whether this control batch is no longer needed, because no record of its transaction is left. Also
        remembers that the transaction has ended."""
        self._advance_to(header.last_offset)
        if header.record_count == 0:
            return True
        producer_id = header.producer_id
        match control_type(next(records_of(batch)).key):
            case ControlType.ABORT:
                txn = self._aborting.pop(producer_id, None)
                if txn is None or producer_id not in self._aborted_seen:
                    return True
                self._aborted_seen.discard(producer_id)
                self.still_indexed.append(txn)
                return False
            case ControlType.COMMIT:
                if producer_id not in self._committed_seen:
                    return True
                self._committed_seen.discard(producer_id)
                return False
            case _:
                return False

    def _advance_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0].first_offset <= offset:
            txn = self._to_come.popleft()
            self._aborting.setdefault(txn.producer_id, txn)


# The log may contain batches that decompress to more than this broker accepts from a producer, because Kafka wrote
# them.
OPENED_LIMIT_BYTES = 2**31 - 1

BatchAt = tuple[BatchHeader, memoryview]  # a header, and all bytes of the batch including the header


@dataclass(frozen=True, slots=True)
class LastProducerBatch:
    """An active producer's last batch. Compaction must keep at least its header, which holds the producer's state."""

    producer_epoch: int
    last_data_offset: int | None  # last offset of the producer's last data batch; None if its last batch was a marker
    last_marker_offset: int | None = None  # offset of the newest control batch with the producer's epoch, if known


@dataclass(frozen=True, slots=True)
class PassRules:
    """The rules for one pass of compaction.

    end_offset           exclusive end of the pass; the batch that ends there is kept even without records, so that the
                         log still ends there
    now_ms               start time of the pass
    delete_retention_ms  how long tombstones and markers are kept after the first pass in which they are no longer
                         needed
    producers            last batches of the active producers, by producer id
    max_record_bytes     maximum decompressed size of one record of a compressed batch
    """

    end_offset: int
    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, LastProducerBatch]
    max_record_bytes: int = NO_RECORD_LIMIT_BYTES


def collect_keys(
    batches: Iterable[BatchAt],
    keys: KeyMap,
    transactions: PassTransactions,
    first_dirty_offset: int,
    max_record_bytes: int = NO_RECORD_LIMIT_BYTES,
) -> bool:
    """Finds the latest offset of each key at or above `first_dirty_offset`. Ignores control records and the records of
    aborted transactions.

    returns   False if the map is full; `keys.end_offset` is then the offset at which the scan stopped, possibly within
              a batch
    raises    MalformedMessage if a batch cannot be read or holds a record larger than `max_record_bytes`
    """
    for header, batch in batches:
        if header.is_control:
            transactions.is_marker_without_data(header, batch)
        elif not transactions.is_aborted(header):
            base_offset = header.base_offset
            for part in _parts(_decompressed_records(header, batch), header, max_record_bytes):
                offset = base_offset + part.offset_delta
                if part.key is not None and offset >= first_dirty_offset:
                    if keys.is_full:
                        return False
                    keys.put(part.key, offset)
        if header.last_offset >= first_dirty_offset:
            keys.end_offset = max(keys.end_offset, header.next_offset)
    return True


class RecordFilter:
    """Filters the batches of one pass. Every batch must be passed to it, in order."""

    def __init__(self, keys: KeyMap, transactions: PassTransactions, rules: PassRules) -> None:
        self._keys = keys
        self._transactions = transactions
        self._rules = rules

    def filtered(self, header: BatchHeader, batch: memoryview) -> Bytes | None:
        """Returns the batch for the compacted log, which is the same batch or a new batch with fewer records. Returns
        None if the batch must be removed.

        Raises MalformedMessage if the batch cannot be read.
        """
        if header.is_control:
            is_superfluous = self._transactions.is_marker_without_data(header, batch)
            horizon_ms = header.delete_horizon_ms
            drops_all = is_superfluous and horizon_ms is not None and horizon_ms <= self._rules.now_ms
        else:
            is_superfluous = drops_all = self._transactions.is_aborted(header)
        keeps_empty = self._carries_state(header) or header.next_offset == self._rules.end_offset
        if drops_all or not header.record_count:
            return _empty_batch(header) if keeps_empty else None
        if header.is_control:
            if is_superfluous and not header.has_delete_horizon:
                return self._with_horizon(header, batch)
            return batch
        return self._filtered(header, batch, keeps_empty)

    def _carries_state(self, header: BatchHeader) -> bool:
        """Returns whether the sequence or epoch of an active producer would be lost without this batch."""
        last = self._rules.producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        # Kafka keeps every control batch of the current epoch. Keeping only the newest one is sufficient.
        return (
            header.is_control
            and header.producer_epoch == last.producer_epoch
            and last.last_marker_offset in (None, header.last_offset)
        )

    def _filtered(self, header: BatchHeader, batch: memoryview, keeps_empty: bool) -> Bytes | None:
        opened = _decompressed_records(header, batch)
        horizon_ms = header.delete_horizon_ms
        keeps_tombstones = horizon_ms is None or self._rules.now_ms < horizon_ms
        retained: list[_RecordPart] = []
        has_tombstone = False
        keys, base_offset, known_end = self._keys, header.base_offset, self._keys.end_offset
        for part in _parts(opened, header, self._rules.max_record_bytes):
            offset = base_offset + part.offset_delta
            if offset < known_end and (
                part.key is None or offset < keys.latest(part.key) or not (part.has_value or keeps_tombstones)
            ):
                continue
            retained.append(part)
            has_tombstone |= not part.has_value
        if not retained:
            return _empty_batch(header) if keeps_empty else None
        if has_tombstone and horizon_ms is None:
            horizon_ms = self._rules.now_ms + self._rules.delete_retention_ms
        elif len(retained) == header.record_count:
            return batch
        return _build_batch(header, opened, retained, horizon_ms)

    def _with_horizon(self, header: BatchHeader, batch: memoryview) -> bytearray:
        opened = _decompressed_records(header, batch)
        horizon_ms = self._rules.now_ms + self._rules.delete_retention_ms
        return _build_batch(header, opened, list(_parts(opened, header, self._rules.max_record_bytes)), horizon_ms)


# --- batches and records ---------------------------------------------------------------------------------------------


class _RecordPart(NamedTuple):
    """The parts of a record that determine whether it is kept, and its position in the batch."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool
    attributes_at: int
    key_at: int  # position of the key's length field
    end: int


def _decompressed_records(header: BatchHeader, batch: memoryview) -> bytes:
    return bytes(decompress(header.compression, batch[HEADER_BYTES : header.size_bytes], OPENED_LIMIT_BYTES))


def _parts(opened: bytes, header: BatchHeader, max_record_bytes: int) -> Iterator[_RecordPart]:
    if not header.is_compressed:
        max_record_bytes = NO_RECORD_LIMIT_BYTES
    count = header.record_count
    at = 0
    try:
        for _ in range(count):
            length, attributes_at = read_varint(opened, at)
            end = attributes_at + length
            timestamp_delta, at = read_varlong(opened, attributes_at + 1)
            offset_delta, key_at = read_varint(opened, at)
            size, at = read_varint(opened, key_at)
            key = None
            if size >= 0:
                key = opened[at : at + size]
                at += size
            value_size = opened[at]
            if length > max_record_bytes:
                raise record_too_large(length, max_record_bytes)
            if length < 0 or end > len(opened) or at >= end:
                raise MalformedMessage("the parts of a record extend beyond its length")
            yield _RecordPart(offset_delta, timestamp_delta, key, not value_size & 1, attributes_at, key_at, end)
            at = end
    except IndexError:
        raise MalformedMessage("a record is cut short") from None


def _build_batch(header: BatchHeader, opened: bytes, retained: list[_RecordPart], horizon_ms: int | None) -> bytearray:
    """Returns a batch that contains only these records. Its header still covers the offsets and sequences of the
    removed records."""
    has_append_time = header.is_log_append_time
    timestamps = [
        header.max_timestamp if has_append_time else header.base_timestamp + p.timestamp_delta for p in retained
    ]
    base_timestamp = timestamps[0] if horizon_ms is None else horizon_ms
    payload = bytearray()
    for part, timestamp in zip(retained, timestamps, strict=True):
        start = bytearray(opened[part.attributes_at : part.attributes_at + 1])
        append_varint(start, timestamp - base_timestamp)
        append_varint(start, part.offset_delta)
        append_varint(payload, len(start) + part.end - part.key_at)
        payload += start
        payload += opened[part.key_at : part.end]
    attributes = header.attributes & ~DELETE_HORIZON | (DELETE_HORIZON if horizon_ms is not None else 0)
    return pack_batch(
        replace(
            header,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if has_append_time else max(NO_TIMESTAMP, *timestamps),
            record_count=len(retained),
        ),
        compress(header.compression, payload),
    )


def _empty_batch(header: BatchHeader) -> bytearray:
    """Returns a batch without records. Its header preserves the producer state, offsets and sequences."""
    kept_bits = header.attributes & ~(DELETE_HORIZON | 0x07) & 0x7F
    return pack_batch(replace(header, attributes=kept_bits, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
