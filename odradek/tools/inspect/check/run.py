"""Checks all logs of the given partitions. Each byte is read once, in one process."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from odradek.files.batches import describe_damage, good_header, may_end_a_log
from odradek.files.offline.directories import PartitionLog, partitions_at
from odradek.files.offline.segments import SegmentFile, position_after, segments_of
from odradek.files.offline.tables import OPEN, transactions
from odradek.files.offline.walk import (
    SegmentReplaced,
    read_stable,
    stretches,
)
from odradek.protocol.batch_header import CRC_START, HEADER_BYTES, LOG_OVERHEAD, batch_size_at, batches
from odradek.protocol.checksum import crc32c
from odradek.protocol.codec import decode_from
from odradek.protocol.decoded.internal_records import TXN_STATES
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.messages.transaction_log_value import TransactionLogValue
from odradek.protocol.records import Record, records_of
from odradek.protocol.topic_partition import INTERNAL_TOPICS, TRANSACTION_STATE
from odradek.system.files import pread
from odradek.tools.inspect.check.beside import check_snapshot, check_txn_index, index_entries, report_wrong_entry
from odradek.tools.inspect.check.findings import Flaw, LogFinding
from odradek.tools.inspect.check.partition import MAX_FINDINGS, EndedTransaction, PartitionCheck, UnfinishedTransaction

_VERSION_BYTES = 2
_PRODUCER_ID = slice(_VERSION_BYTES, _VERSION_BYTES + 8)  # the first field of a value
_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_TO_THE_END = 1 << 62


@dataclass(frozen=True, slots=True)
class Owner:
    """The transactional id that owns a producer id, and its state in the coordinators' log."""

    transactional_id: str
    state: str
    producer_epoch: int
    partitions: frozenset[tuple[str, int]]

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN


def owners_of(data: Path, producer_ids: set[int]) -> dict[int, Owner] | None:
    """Returns the owner of each producer id, or None if `data` does not contain all partitions of the coordinators'
    log. Reads every record of `__transaction_state`, but decodes only those of these producers."""
    logs = [log for log in partitions_at(data) if log.topic == TRANSACTION_STATE]
    if not logs or {log.partition for log in logs} != set(range(len(logs))):
        return None
    found: dict[int, Owner] = {}
    for log in logs:
        for stretch in stretches(log.directory, log.log_start_offset, _TO_THE_END, on_damage=lambda damage: None):
            for position, header in batches(stretch.data):
                if not header.is_control:
                    for record in records_of(stretch.data, position):
                        _replay(found, record, producer_ids)
    return found


def _replay(found: dict[int, Owner], record: Record, producer_ids: set[int]) -> None:
    if record.key is None:
        return
    if record.value is None:
        if found:
            deleted_id = _transactional_id(record.key)
            for producer_id in [each for each, owner in found.items() if owner.transactional_id == deleted_id]:
                del found[producer_id]
        return
    producer_id = int.from_bytes(record.value[_PRODUCER_ID], "big", signed=True)
    if producer_id not in producer_ids:
        return
    version = int.from_bytes(record.value[:_VERSION_BYTES], "big")
    value, _ = decode_from(TransactionLogValue, version, record.value, _VERSION_BYTES)
    found[producer_id] = Owner(
        _transactional_id(record.key),
        TXN_STATES.get(value.transaction_status, f"unknown ({value.transaction_status})"),
        value.producer_epoch,
        frozenset(
            (each.topic, partition) for each in value.transaction_partitions or () for partition in each.partition_ids
        ),
    )


def _transactional_id(key: bytes) -> str:
    return decode_from(TransactionLogKey, 0, key, _VERSION_BYTES)[0].transactional_id


_READ_BYTES = 1024 * 1024  # small enough that the copied bytes are still in the CPU cache when the CRC is computed

Progress = Callable[[str, int], None]


@dataclass(slots=True)
class PartitionReport:
    """The result for one partition. `findings` contains at most 100 findings of each kind, whereas `counts` covers all
    of them."""

    log: PartitionLog
    start_offset: int
    last_stable_offset: int
    end_offset: int
    segments: int
    batches: int
    records: int
    size_bytes: int
    is_compacted: bool
    findings: list[LogFinding]
    counts: dict[Flaw, int]
    open: list[UnfinishedTransaction]


@dataclass(slots=True)
class Report:
    partitions: list[PartitionReport] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def findings(self) -> Iterator[LogFinding]:
        for partition in self.partitions:
            yield from partition.findings

    @property
    def is_damaged(self) -> bool:
        return any(finding.is_damage for finding in self.findings)


def sizes(logs: Iterable[PartitionLog]) -> int:
    return sum(segment.size_bytes for log in logs for segment in segments_of(log.directory))


def check(logs: Iterable[PartitionLog], progress: Progress = lambda name, size_bytes: None) -> Report:
    """Checks every byte of the logs.

    progress  called with the name of the partition being read and the number of bytes read since the last call

    Raises FileNotFoundError if a partition is deleted in the meantime.
    """
    report = Report()
    ended_transactions: dict[tuple[int, int], list[tuple[PartitionReport, EndedTransaction]]] = defaultdict(list)
    for log in logs:
        check, partition = read_stable(log.directory, partial(_check_log, log, progress))
        report.partitions.append(partition)
        report.size_bytes += partition.size_bytes
        for each in check.ended_transactions:
            ended_transactions[each.producer_id, each.producer_epoch].append((partition, each))
    _compare_markers(ended_transactions)
    _judge_open(report)
    return report


def _check_log(
    log: PartitionLog, progress: Progress, segments: list[SegmentFile]
) -> tuple[PartitionCheck, PartitionReport]:
    first_offset = segments[0].base_offset if segments else log.log_start_offset
    check = PartitionCheck(str(log), log.is_compacted, first_offset, has_sequences=log.topic not in INTERNAL_TOPICS)
    ends = []
    for segment in segments:
        is_whole = _segment(check, segment, log, progress)
        check_snapshot(check, segment)
        if is_whole:
            ends.append((segment, check.next_offset))
    check.report_gaps()
    start_offset = max(log.log_start_offset, first_offset)
    for segment, segment_end in ends:
        check_txn_index(check, segment, segment_end, first_offset)
    end_offset = max(check.next_offset, start_offset)
    report = PartitionReport(
        log,
        start_offset=start_offset,
        last_stable_offset=check.transactions.last_stable_offset(end_offset),
        end_offset=end_offset,
        segments=len(segments),
        batches=check.batches,
        records=check.records,
        size_bytes=sum(each.size_bytes for each in segments),
        is_compacted=check.is_compacted,
        findings=check.found,
        counts=check.counts,
        open=check.open(),
    )
    return check, report


def _segment(check: PartitionCheck, segment: SegmentFile, log: PartitionLog, progress: Progress) -> bool:
    """Checks one segment. This is the check's hot loop. Returns whether the complete segment could be read."""
    size, position, is_whole = segment.size_bytes, 0, True
    indexed = index_entries(segment)
    path = segment.path
    buffer = bytearray(_READ_BYTES)
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        if os.fstat(descriptor).st_ino != segment.inode:
            raise SegmentReplaced(path)
        next_offset = segment.base_offset
        while position < size:
            view = memoryview(buffer)[: min(len(buffer), size - position)]
            file.seek(position)
            data = view[: file.readinto(view)]
            at, end, reason = 0, len(data), None
            while at < end:
                rest = size - position - at
                header = good_header(data, at, rest, next_offset)
                if header is None:
                    if end - at < rest and end - at < HEADER_BYTES:
                        break  # the header extends beyond the bytes read so far
                    reason = describe_damage(data, at, rest, next_offset)
                    break
                after = at + header.batch_length + LOG_OVERHEAD
                if after > end:
                    break  # the batch extends beyond the bytes read so far
                next_offset = header.base_offset + header.last_offset_delta + 1
                place = position + at
                check.check_batch(path, place, header, data[at:after], crc32c(data[at + CRC_START : after]))
                if place in indexed:
                    entry = indexed.pop(place)
                    if entry[0] != next_offset - 1:
                        report_wrong_entry(check, segment, place, entry)
                at = after
            progress(check.name, at)
            position += at
            if position >= size:
                break
            if reason is None and at:
                continue  # the next batch begins in these bytes and ends in later ones
            if reason is None:
                batch_bytes = batch_size_at(data, 0) if len(data) >= HEADER_BYTES else 0
                if len(buffer) < batch_bytes <= size - position:
                    buffer = bytearray(batch_bytes)
                    continue
                reason = "the file became shorter during the check"
            if segment.is_active and may_end_a_log(data[at:], size - position):
                tail = size - position
                kind = Flaw.UNREADABLE if log.was_stopped and not _is_zero(descriptor, position, size) else Flaw.TAIL
                check.report(kind, path, position, next_offset, f"{tail} bytes follow the last batch: {reason}")
                break
            check.report(Flaw.UNREADABLE, path, position, next_offset, reason)
            check.skip_damage()
            is_whole = False
            found = position_after(segment, position)
            progress(check.name, (found or size) - position)
            if found is None:
                return False  # the offset index cannot be checked
            position = found
            indexed = {place: entry for place, entry in indexed.items() if place >= position}
    for place, entry in sorted(indexed.items())[:1]:
        report_wrong_entry(check, segment, place, entry)
    return is_whole


def _is_zero(descriptor: int, position: int, size: int) -> bool:
    while position < size:
        data = pread(descriptor, min(_READ_BYTES, size - position), position)
        if not data or any(data):
            return False
        position += len(data)
    return True


def _compare_markers(ended_transactions: dict[tuple[int, int], list[tuple[PartitionReport, EndedTransaction]]]) -> None:
    """Reports transactions that were committed in some partitions and aborted in others."""
    for (producer_id, epoch), ends in sorted(ended_transactions.items()):
        committed = [each for each in ends if each[1].is_commit]
        aborted = [each for each in ends if not each[1].is_commit]
        if committed and aborted:
            partition, first = aborted[0]
            text = (
                f"the transaction of producer {producer_id}, epoch {epoch}, was aborted here and committed in"
                f" {', '.join(sorted({str(other.log) for other, _ in committed}))}"
            )
            _add_finding(partition, Flaw.MARKER_MISMATCH, first, text)


def _judge_open(report: Report) -> None:
    """Reports open transactions. A transaction that its coordinator does not list as open will never end and is
    reported as hanging. Hanging transactions are recognised only if the directory contains all of
    `__transaction_state`. A running broker can end a transaction during the check, so the log is read again before a
    transaction is reported as hanging."""
    by_data: dict[Path, list[PartitionReport]] = defaultdict(list)
    for partition in report.partitions:
        if partition.open:
            by_data[partition.log.directory.parent].append(partition)
    for data, partitions in by_data.items():
        owners = owners_of(data, {each.producer_id for partition in partitions for each in partition.open})
        for partition in partitions:
            for each in partition.open:
                _add_finding(partition, *_verdict(partition.log, each, owners))


def _verdict(
    log: PartitionLog, opened: UnfinishedTransaction, owners: dict[int, Owner] | None
) -> tuple[Flaw, UnfinishedTransaction, str]:
    text = (
        f"a transaction of producer {opened.producer_id}, epoch {opened.producer_epoch}, is open:"
        f" {opened.records} records from here to offset {opened.last_offset}"
    )
    if owners is None:
        return Flaw.OPEN, opened, text
    owner = owners.get(opened.producer_id)
    if owner is not None:
        text = f"{text}; transactional id {owner.transactional_id}, {owner.state}"
        # While markers are being written, the owner's epoch is one above the epoch of the records.
        is_same = owner.producer_epoch in (opened.producer_epoch, opened.producer_epoch + 1)
        if owner.is_open and is_same and (log.topic, log.partition) in owner.partitions:
            return Flaw.OPEN, opened, text
    else:
        text = f"{text}; no coordinator knows the producer"
    is_still_open = any(
        row["state"] == OPEN and (row["producerId"], row["firstOffset"]) == (opened.producer_id, opened.offset)
        for row in transactions(log, lambda damage: None)
    )
    return (Flaw.HANGING if is_still_open else Flaw.OPEN), opened, text


def _add_finding(
    partition: PartitionReport, kind: Flaw, at: UnfinishedTransaction | EndedTransaction, text: str
) -> None:
    partition.counts[kind] = partition.counts.get(kind, 0) + 1
    if partition.counts[kind] <= MAX_FINDINGS:
        partition.findings.append(LogFinding(kind, str(partition.log), at.path, at.position, at.offset, text))
