"""Computes the outcome of a log, which is everything that clients can observe of it. Logs with equal outcomes are equal
for clients, whatever their files contain."""

from collections.abc import Iterator
from typing import NamedTuple

from odradek.protocol.control_records import read_marker
from odradek.protocol.records import BatchHeader, batches, records_of
from odradek.storage.log import Log

Record = tuple[int, bytes | None, bytes | None]  # offset, key, value


class Producer(NamedTuple):
    """A producer's state. `last` contains the sequence, offset and offset delta of the batch that a retry would
    repeat."""

    producer_epoch: int
    coordinator_epoch: int | None
    txn_first_offset: int | None
    last: tuple[int, int, int] | None


class Outcome(NamedTuple):
    topic_id: bytes | None
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    high_watermark: int
    producers: dict[int, Producer]
    records: list[Record]
    committed: list[Record]  # records that read_committed returns
    found: list[tuple[int, ...]]  # the result of `read_at` for each batch
    by_timestamp: list[int | None]
    newest: int | None
    retained_by: list[int]  # each segment's timestamp, as used by retention
    epoch_ends: list[tuple[int, int] | None]


def outcome_of(log: Log) -> Outcome:
    """Returns the outcome of a log. Raises KafkaError if a batch is damaged, because clients notice this when they
    check the batch's CRC."""
    stored = list(batches_of(log))
    headers = [header for _, header, _ in stored]
    timestamps = sorted({header.max_timestamp for header in headers})
    newest = log.reader.offset_of_max_timestamp()
    looked_up = [log.reader.offset_for_timestamp(timestamp + more) for timestamp in timestamps for more in (0, 1)]
    return Outcome(
        log.topic_id,
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        log.high_watermark,
        {each.producer_id: producer_of(log, each.producer_id) for each in log.producers()},
        [record for portion, header, at in stored if not header.is_control for record in records_in(portion, at)],
        committed_records(log, stored),
        [read_at(log, header.last_offset) for header in headers if header.last_offset >= log.log_start_offset],
        [None if each is None else each.offset for each in looked_up],
        None if newest is None else newest.offset,
        [segment.largest_timestamp() for segment in log.segments],
        [log.end_offset_for_epoch(epoch) for epoch in range(5)],
    )


def batches_of(log: Log) -> Iterator[tuple[bytes, BatchHeader, int]]:
    for portion in log.reader.scan(log.log_start_offset, checked=True):
        for at, header in batches(portion):
            yield portion, header, at


def records_in(portion: bytes, at: int) -> list[Record]:
    return [(record.offset, record.key, record.value) for record in records_of(portion, at)]


def producer_of(log: Log, producer_id: int) -> Producer:
    entry = log.producer(producer_id)
    assert entry is not None
    last = entry.batches[-1] if entry.batches else None
    return Producer(
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.current_txn_first_offset,
        None if last is None else (last.last_sequence, last.last_offset, last.offset_delta),
    )


def committed_records(log: Log, stored: list[tuple[bytes, BatchHeader, int]]) -> list[Record]:
    """Returns the committed records as consumers determine them. An aborted transaction extends from its first offset
    to its marker."""
    end_offset = log.last_stable_offset
    aborted = sorted(log.reader.aborted_transactions(log.log_start_offset, end_offset), key=lambda txn: txn[1])
    open_aborted: set[int] = set()
    records: list[Record] = []
    for portion, header, at in stored:
        if header.base_offset >= end_offset:
            break
        while aborted and aborted[0][1] <= header.last_offset:
            open_aborted.add(aborted.pop(0)[0])
        if header.is_control:
            marker = read_marker(portion, at, header)
            if marker is not None and not marker.is_commit:
                open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            records += records_in(portion, at)
    return records


def read_at(log: Log, offset: int) -> tuple[int, ...]:
    """Returns the batch's base offset, and the first offsets of the aborted transactions in the response."""
    result = log.reader.read_cold(offset, max_bytes=1)
    ((_, header),) = batches(bytes(result.chunks[0]))
    aborted = log.reader.aborted_transactions(offset, header.next_offset)
    return header.base_offset, *(first_offset for _, first_offset in aborted)
