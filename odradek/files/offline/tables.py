"""Builds table rows that describe a partition's transactions, producers, segments and bounds, from its batch headers.

Each function reads one partition. Names are Kafka's, in camelCase. Times are in milliseconds. Missing values are None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from odradek.files.offline.directories import PartitionLog
from odradek.files.offline.segments import SegmentFile
from odradek.files.offline.transactions import PartitionTransaction, Transactions
from odradek.files.offline.walk import OnDamage, headers, read_stable, refuse
from odradek.protocol.batch_header import NO_TIMESTAMP, BatchHeader
from odradek.protocol.control_records import read_marker
from odradek.protocol.struct import Buffer

Row: TypeAlias = dict[str, Any]
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


def transactions(log: PartitionLog, on_damage: OnDamage = refuse) -> list[Row]:
    """Returns the completed transactions in the order of their markers, followed by the open transactions. If a
    transaction began before the start of the log, its row describes only the remaining part."""
    return read_stable(log.directory, lambda segments: list(_transactions(log, segments, on_damage)))


def producers(log: PartitionLog, on_damage: OnDamage = refuse) -> list[Row]:
    """Returns the state of each producer that has a batch in the log, like DescribeProducers. The rows are sorted by
    producer id."""
    return read_stable(log.directory, lambda segments: list(_producers(log, segments, on_damage)))


def segments(log: PartitionLog, on_damage: OnDamage = refuse) -> list[Row]:
    return read_stable(log.directory, lambda listed: [_segment(log, each, on_damage) for each in listed])


def offsets(log: PartitionLog, on_damage: OnDamage = refuse) -> list[Row]:
    """Returns a single row with the bounds of the partition."""
    return read_stable(log.directory, lambda segments: [_offsets(log, segments, on_damage)])


def _walk_batches(segments: list[SegmentFile], on_damage: OnDamage) -> Iterator[tuple[BatchHeader, Buffer | None]]:
    for segment in segments:
        for _, header, data in headers(segment, 0, segment.base_offset, on_damage=on_damage):
            yield header, data


def _transactions(log: PartitionLog, segments: list[SegmentFile], on_damage: OnDamage) -> Iterator[Row]:
    state = Transactions()
    for header, data in _walk_batches(segments, on_damage):
        ended = state.add(header, data)
        if ended is not None:
            yield _transaction(log, ended)
    for transaction in sorted(state.open.values(), key=lambda each: each.first_offset):
        yield _transaction(log, transaction)


def _transaction(log: PartitionLog, transaction: PartitionTransaction) -> Row:
    marker = transaction.marker
    return {
        "topic": log.topic,
        "partition": log.partition,
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "state": OPEN if marker is None else COMMITTED if marker.is_commit else ABORTED,
        "firstOffset": transaction.first_offset,
        "lastOffset": transaction.last_data_offset,
        "markerOffset": None if marker is None else marker.offset,
        "markerEpoch": None if marker is None else marker.producer_epoch,
        "coordinatorEpoch": None if marker is None else marker.coordinator_epoch,
        "batches": transaction.batches,
        "records": transaction.records,
        "sizeInBytes": transaction.size_bytes,
        "firstTimestamp": transaction.first_timestamp,
        "endTimestamp": None if marker is None else marker.timestamp,
    }


@dataclass(slots=True)
class _ProducerState:
    producer_epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int | None = None


def _producers(log: PartitionLog, segments: list[SegmentFile], on_damage: OnDamage) -> Iterator[Row]:
    state, producers = Transactions(), dict[int, _ProducerState]()
    for header, data in _walk_batches(segments, on_damage):
        if not header.has_producer_id:
            continue
        state.add(header, data)
        producer = producers.setdefault(header.producer_id, _ProducerState())
        if header.is_control:
            marker = None if data is None else read_marker(data, 0, header)
            if marker is None:
                continue
            producer.coordinator_epoch = marker.coordinator_epoch
            if header.producer_epoch != producer.producer_epoch:
                producer.last_sequence, producer.last_offset = -1, -1
        else:
            producer.last_sequence, producer.last_offset = header.last_sequence, header.last_offset
        producer.producer_epoch, producer.last_timestamp = header.producer_epoch, header.max_timestamp
    for producer_id, producer in sorted(producers.items()):
        transaction = state.open.get(producer_id)
        yield {
            "topic": log.topic,
            "partition": log.partition,
            "producerId": producer_id,
            "producerEpoch": producer.producer_epoch,
            "lastSequence": None if producer.last_sequence < 0 else producer.last_sequence,
            "lastOffset": None if producer.last_offset < 0 else producer.last_offset,
            "lastTimestamp": producer.last_timestamp,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTransactionStartOffset": None if transaction is None else transaction.first_offset,
        }


def _segment(log: PartitionLog, segment: SegmentFile, on_damage: OnDamage) -> Row:
    batches = records = control_batches = end = 0
    next_offset, first_timestamp, max_timestamp = segment.base_offset, None, NO_TIMESTAMP
    for position, header, _ in headers(segment, 0, segment.base_offset, on_damage=on_damage):
        batches += 1
        if header.is_control:
            control_batches += 1
        else:
            records += header.record_count
        if first_timestamp is None:
            first_timestamp = header.base_timestamp
        max_timestamp = max(max_timestamp, header.max_timestamp)
        next_offset, end = header.next_offset, position + header.size_bytes
    return {
        "topic": log.topic,
        "partition": log.partition,
        "file": str(segment.path),
        "baseOffset": segment.base_offset,
        "nextOffset": next_offset,
        "sizeInBytes": end,
        "tailInBytes": segment.size_bytes - end,
        "isActive": segment.is_active,
        "batches": batches,
        "controlBatches": control_batches,
        "records": records,
        "firstTimestamp": first_timestamp,
        "maxTimestamp": None if max_timestamp == NO_TIMESTAMP else max_timestamp,
    }


def _offsets(log: PartitionLog, segments: list[SegmentFile], on_damage: OnDamage) -> Row:
    state, start_offset = Transactions(), log.log_start_offset
    if segments:
        start_offset = max(start_offset, segments[0].base_offset)
    end_offset = max(start_offset, segments[-1].base_offset) if segments else start_offset
    records = 0
    for header, data in _walk_batches(segments, on_damage):
        state.add(header, data)
        end_offset = max(end_offset, header.next_offset)
        if not header.is_control and header.last_offset >= start_offset:
            records += header.record_count
    return {
        "topic": log.topic,
        "partition": log.partition,
        "logStartOffset": start_offset,
        "lastStableOffset": state.last_stable_offset(end_offset),
        "endOffset": end_offset,
        "records": records,
        "openTransactions": len(state.open),
        "abortedTransactions": len(state.aborted),
        "segments": len(segments),
        "sizeInBytes": sum(each.size_bytes for each in segments),
    }
