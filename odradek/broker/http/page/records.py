"""The view of the records in a partition. Shows whether each record is committed, open or aborted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.batch_header import BatchHeader, batches
from odradek.protocol.decoded.internal_records import control_fields, fields_of
from odradek.protocol.decoded.messages import json_value
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.records import Record, records_of

if TYPE_CHECKING:
    from odradek.broker.http.page.served import Job, JsonValue, Query, View, ViewedBroker
    from odradek.storage.log_reader import LogReader

SHOWN = 50
READ_BYTES = 512 * 1024
SHOWN_BYTES = 4096  # longer keys, values and headers are truncated, and shown with their size
COMMITTED, OPEN, ABORTED, CONTROL, PLAIN = "committed", "open", "aborted", "control", "plain"


class Bounds(NamedTuple):
    """Offsets of a log, as the loop reads them when the view is requested."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


def records(served: ViewedBroker, query: Query) -> Job:
    """Shows records of `topic` and `partition`. Raises KafkaError.

    `offset` or `timestamp` (ms) is the first record to show; without either, the last records are shown.
    `isolation=committed` leaves out the records that read_committed consumers do not see.
    """
    try:
        index = int(query.get("partition", "0"))
        offset = int(query["offset"]) if query.get("offset") else None
        timestamp = int(query["timestamp"]) if query.get("timestamp") else None
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Partition, offset and timestamp are whole numbers.") from None
    topic = query["topic"]
    partition = served.broker.partitions.get(topic, index)
    log = partition.log
    bounds = Bounds(log.log_start_offset, log.last_stable_offset, log.high_watermark)
    open_ids = {
        each.producer_id: each.current_txn_first_offset
        for each in log.producers()
        if each.current_txn_first_offset is not None
    }
    committed_only = query.get("isolation") == "committed"

    def job() -> View:
        start = begin(log.reader, bounds, offset, timestamp)
        shown = []
        end = bounds.last_stable_offset if committed_only else bounds.high_watermark
        next_offset = start
        for header, record in read(log.reader, start, end):
            next_offset = record.offset + 1
            status = status_of(header, record, open_ids, aborted_ranges(log.reader, start, end))
            if committed_only and status in (ABORTED, OPEN, CONTROL):
                continue
            shown.append(row(topic, header, record, status))
            if len(shown) == SHOWN:
                break
        return {
            "topic": topic,
            "partition": index,
            **bounds._asdict(),
            "start": start,
            "next": next_offset,
            "records": shown,
        }

    return job


def begin(reader: LogReader, bounds: Bounds, offset: int | None, timestamp: int | None) -> int:
    if timestamp is not None:
        found = reader.offset_for_timestamp(timestamp)
        return bounds.high_watermark if found is None else found.offset
    if offset is None:
        offset = bounds.high_watermark - SHOWN
    return min(max(offset, bounds.log_start_offset), bounds.high_watermark)


def read(reader: LogReader, start: int, end: int) -> Iterator[tuple[BatchHeader, Record]]:
    while start < end:
        read = reader.read_cold(start, max_bytes=READ_BYTES, end_offset=end)
        data = b"".join(read.chunks)
        reached = start
        for position, header in batches(data):
            reached = header.last_offset + 1
            for record in records_of(data, position):
                if start <= record.offset < end:
                    yield header, record
        if reached == start:
            return
        start = reached


def aborted_ranges(reader: LogReader, start: int, end: int) -> Sequence[tuple[int, int, int]]:
    """Returns the aborted transactions between two offsets, as (producer id, first offset, last offset)."""
    return [(each.producer_id, each.first_offset, each.last_offset) for each in reader.aborted(start, end)]


def status_of(
    header: BatchHeader, record: Record, open_ids: dict[int, int], aborted: Sequence[tuple[int, int, int]]
) -> str:
    if header.is_control:
        return CONTROL
    if not header.is_transactional:
        return PLAIN
    first_open = open_ids.get(header.producer_id)
    if first_open is not None and record.offset >= first_open:
        return OPEN
    if any(one == header.producer_id and first <= record.offset <= last for one, first, last in aborted):
        return ABORTED
    return COMMITTED


def row(topic: str, header: BatchHeader, record: Record, status: str) -> JsonValue:
    fields: dict[str, JsonValue] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "status": status,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "compression": header.compression.name.lower(),
        "headers": [[name, shown(value)] for name, value in record.headers],
    }
    try:
        decoded = control_fields(record) if header.is_control else fields_of(topic)(record)
    except MalformedMessage as error:
        decoded = {"key": record.key, "value": record.value, "damage": str(error)}
    for name, value in decoded.items():
        fields[name] = (
            shown(value)
            if value is None or isinstance(value, bytes)
            else json.loads(json.dumps(value, default=json_value))
        )
    return fields


def shown(data: bytes | None) -> JsonValue:
    """Returns bytes as text if they are UTF-8, or else as hexadecimal digits; adds their size if they are truncated."""
    if data is None:
        return None
    part = data[:SHOWN_BYTES]
    try:
        text: dict[str, JsonValue] = {"text": part.decode()}
    except UnicodeDecodeError as error:
        cut = len(data) > SHOWN_BYTES and error.start > len(part) - 4  # the truncation split a character
        text = {"text": part[: error.start].decode()} if cut else {"hex": part.hex(" ")}
    if len(data) > SHOWN_BYTES:
        text["size"] = len(data)
    return text
