"""Checks one partition's batches, from first to last, against the rules that they must satisfy. Works on bytes and does
no I/O.

A compacted log can lack offsets and sequences, but it may become clear only in a later batch that a log is compacted.
Gaps are therefore reported at the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from odradek.files.offline.transactions import Transactions
from odradek.protocol.batch_header import CONTROL, INT32_MAX, TRANSACTIONAL, BatchHeader
from odradek.protocol.control_records import Marker, read_marker
from odradek.protocol.errors import MalformedMessage
from odradek.tools.inspect.check.findings import Flaw, LogFinding

MAX_FINDINGS = 100  # maximum number of findings reported for each kind; additional findings are only counted
_HALF = 1 << 30  # sequences wrap around, so a sequence less than this far behind is treated as earlier


class EndedTransaction(NamedTuple):
    """A transaction whose marker's epoch is one above that of its records, as with transaction.version 2. All of the
    transaction's partitions contain the same producer id and epoch, which no other transaction has."""

    producer_id: int
    producer_epoch: int  # producer epoch of its records
    is_commit: bool
    path: Path
    position: int
    offset: int  # offset of the marker


class UnfinishedTransaction(NamedTuple):
    """A transaction without a marker, identified by its first batch."""

    producer_id: int
    producer_epoch: int
    path: Path
    position: int
    offset: int
    last_offset: int
    records: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_sequence: int = -1
    coordinator_epoch: int = -1


@dataclass(slots=True)
class PartitionCheck:
    """Checks one partition. Call `check_batch` for each batch in turn and then `report_gaps`.

    has_sequences       False for the topics that coordinators write to, because all their batches have sequence 0
    ended_transactions  transactions to compare with other partitions
    """

    name: str
    is_compacted: bool
    next_offset: int
    has_sequences: bool = True
    leader_epoch: int = -1
    batches: int = 0
    records: int = 0
    transactions: Transactions = field(default_factory=Transactions)
    ended_transactions: list[EndedTransaction] = field(default_factory=list)
    found: list[LogFinding] = field(default_factory=list)
    counts: Counter[Flaw] = field(default_factory=Counter)
    _producers: dict[int, _Producer] = field(default_factory=dict)
    _gaps: list[LogFinding] = field(default_factory=list)
    _is_lost: bool = False
    _start_offsets: dict[int, tuple[Path, int]] = field(default_factory=dict)

    def check_batch(self, path: Path, position: int, header: BatchHeader, data: memoryview, crc: int) -> None:
        """Checks the next batch. `data` contains the complete batch, and `crc` is the CRC computed from its bytes."""
        base_offset, attributes = header.base_offset, header.attributes
        delta, count = header.last_offset_delta, header.record_count
        if (
            crc == header.crc
            and base_offset == self.next_offset
            and header.leader_epoch == self.leader_epoch
            and count == delta + 1
            and not attributes & CONTROL
        ):  # the usual case, in which only the producer's state changes
            self.batches += 1
            self.records += count
            self.next_offset = base_offset + count
            if header.producer_id < 0:
                return
            producer = self._producers.get(header.producer_id)
            opened = self.transactions.open.get(header.producer_id)
            sequence = header.base_sequence
            if (
                producer is not None
                and header.producer_epoch == producer.epoch
                and sequence == producer.last_sequence + 1
                and sequence + delta <= INT32_MAX
                and self.has_sequences
                and (opened is not None or not attributes & TRANSACTIONAL)
            ):
                producer.last_sequence = sequence + delta
                if opened is not None and attributes & TRANSACTIONAL:
                    opened.last_data_offset = base_offset + delta
                    opened.records += count
                return
            self._check_producer(path, position, header, data)
            return
        self._check_unusual_batch(path, position, header, data, crc)

    def _check_unusual_batch(self, path: Path, position: int, header: BatchHeader, data: memoryview, crc: int) -> None:
        self.batches += 1
        base_offset = header.base_offset
        if crc != header.crc:
            self.report(
                Flaw.CRC,
                path,
                position,
                base_offset,
                f"the batch with offsets {base_offset} to {header.last_offset} has the CRC {header.crc}, but the"
                f" CRC of its bytes is {crc}",
            )
        if base_offset != self.next_offset and not self._is_lost:
            missing = f"{self.next_offset} to {base_offset - 1}"
            self._note_gap(Flaw.OFFSET_GAP, path, position, self.next_offset, f"the offsets {missing} are missing")
        self.next_offset, self._is_lost = header.last_offset + 1, False
        if header.leader_epoch < self.leader_epoch:
            text = f"leader epoch {header.leader_epoch} follows leader epoch {self.leader_epoch}"
            self.report(Flaw.LEADER_EPOCH, path, position, base_offset, text)
        else:
            self.leader_epoch = header.leader_epoch
        held = header.last_offset_delta + 1
        if header.record_count != held:
            if header.record_count < 0 or header.record_count > held:
                text = f"the header says {header.record_count} records, but the batch has {held} offsets"
                self.report(Flaw.COUNT, path, position, base_offset, text)
            else:
                self.is_compacted = True
        if not header.is_control:
            self.records += max(header.record_count, 0)
        if header.producer_id >= 0 and crc == header.crc:
            self._check_producer(path, position, header, data)

    def report(self, kind: Flaw, path: Path, position: int, offset: int, text: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= MAX_FINDINGS:
            self.found.append(LogFinding(kind, self.name, path, position, offset, text))

    def skip_damage(self) -> None:
        """Skips a damaged part of the log, so that the next batch can have any offset and any sequence."""
        self._is_lost = True
        self._producers.clear()

    def report_gaps(self) -> None:
        """Reports gaps. Must be called after the last batch."""
        if not self.is_compacted:
            for gap in self._gaps:
                self.report(gap.kind, gap.path, gap.position, gap.offset, gap.text)

    def open(self) -> list[UnfinishedTransaction]:
        """Returns the transactions that have no marker, in the order of their first offsets."""
        found = [
            UnfinishedTransaction(
                producer_id,
                each.producer_epoch,
                *self._start_offsets[producer_id],
                each.first_offset,
                each.last_data_offset,
                each.records,
            )
            for producer_id, each in self.transactions.open.items()
        ]
        return sorted(found, key=lambda each: each.offset)

    def _note_gap(self, kind: Flaw, path: Path, position: int, offset: int, text: str) -> None:
        if not self.is_compacted:
            self._gaps.append(LogFinding(kind, self.name, path, position, offset, text))

    def _check_producer(self, path: Path, position: int, header: BatchHeader, data: memoryview) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self._producers.get(producer_id)
        if producer is None:
            # The producer's first batch in the current log can have any sequence.
            producer = self._producers[producer_id] = _Producer(epoch, header.base_sequence - 1)
        elif epoch < producer.epoch:
            text = f"epoch {epoch} of producer {producer_id} follows epoch {producer.epoch}"
            self.report(Flaw.PRODUCER_EPOCH, path, position, header.base_offset, text)
            return
        elif epoch > producer.epoch:
            producer.epoch, producer.last_sequence = epoch, -1
        if header.is_control:
            try:
                marker = read_marker(data, 0, header)
            except MalformedMessage as error:
                self.report(Flaw.UNREADABLE, path, position, header.base_offset, f"the marker cannot be read: {error}")
                return
            if marker is not None:
                self._check_marker(path, position, producer, marker)
            return
        if header.base_sequence >= 0 and self.has_sequences:
            self._check_sequence(path, position, header, producer)
        if header.is_transactional:
            if producer_id not in self.transactions.open:
                self._start_offsets[producer_id] = path, position
            self.transactions.add(header, None)

    def _check_sequence(self, path: Path, position: int, header: BatchHeader, producer: _Producer) -> None:
        expected = (producer.last_sequence + 1) & INT32_MAX
        first, last = header.base_sequence, header.last_sequence
        named = f"of producer {header.producer_id}, epoch {header.producer_epoch}"
        if first == expected:
            producer.last_sequence = last
        elif producer.last_sequence >= 0 and (expected - first) & INT32_MAX < _HALF:
            text = f"the sequences {first} to {last} {named} are repeated: the next sequence would be {expected}"
            self.report(Flaw.REPEATED, path, position, header.base_offset, text)
        else:
            text = f"sequence {first} {named} instead of {expected}"
            self._note_gap(Flaw.SEQUENCE_GAP, path, position, header.base_offset, text)
            producer.last_sequence = last

    def _check_marker(self, path: Path, position: int, producer: _Producer, marker: Marker) -> None:
        if marker.coordinator_epoch < producer.coordinator_epoch:
            text = (
                f"a marker of coordinator epoch {marker.coordinator_epoch} for producer {marker.producer_id}"
                f" follows one of coordinator epoch {producer.coordinator_epoch}"
            )
            self.report(Flaw.COORDINATOR_EPOCH, path, position, marker.offset, text)
        else:
            producer.coordinator_epoch = marker.coordinator_epoch
        transaction = self.transactions.end(marker)
        self._start_offsets.pop(marker.producer_id, None)
        if transaction is not None and marker.producer_epoch == transaction.producer_epoch + 1:
            self.ended_transactions.append(
                EndedTransaction(
                    marker.producer_id, transaction.producer_epoch, marker.is_commit, path, position, marker.offset
                )
            )
