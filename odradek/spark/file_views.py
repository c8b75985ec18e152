"""The views of a data directory: their columns, and what the tasks of each read. Knows nothing of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from odradek.protocol.batch_header import BatchHeader, batches, computed_crc
from odradek.protocol.control_records import ControlType, control_type, read_marker
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import Record, records_of
from odradek.spark import file_records
from odradek.spark.file_options import FileOptions, View
from odradek.spark.file_plan import FileTask, on_damage, plan, wanted_logs
from odradek.spark.record_columns import ARROW, COLUMNS, HEADERS, TIMESTAMP
from odradek.tools.offline import tables
from odradek.tools.offline.directories import PartitionLog
from odradek.tools.offline.walk import stretches

Task: TypeAlias = FileTask | PartitionLog
_ROWS_TOGETHER = 64 * 1024

_OF_PARTITION = [("topic", pa.string()), ("partition", pa.int32())]
BATCHES = pa.schema(
    [
        *_OF_PARTITION,
        ("file", pa.string()),
        ("position", pa.int64()),
        ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("records", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("leaderEpoch", pa.int32()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int16()),
        ("baseSequence", pa.int32()),
        ("lastSequence", pa.int32()),
        ("isTransactional", pa.bool_()),
        ("isControl", pa.bool_()),
        ("controlType", pa.string()),  # COMMIT, ABORT, or of the metadata log
        ("coordinatorEpoch", pa.int32()),
        ("compression", pa.string()),
        ("timestampType", pa.int32()),
        ("baseTimestamp", TIMESTAMP),
        ("maxTimestamp", TIMESTAMP),
        ("deleteHorizon", TIMESTAMP),
        ("crc", pa.int64()),
        ("isValid", pa.bool_()),
    ]
)
TRANSACTIONS = pa.schema(
    [
        *_OF_PARTITION,
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int16()),
        ("state", pa.string()),
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("markerOffset", pa.int64()),
        ("markerEpoch", pa.int16()),
        ("coordinatorEpoch", pa.int32()),
        ("batches", pa.int64()),
        ("records", pa.int64()),
        ("sizeInBytes", pa.int64()),
        ("firstTimestamp", TIMESTAMP),
        ("endTimestamp", TIMESTAMP),
    ]
)
PRODUCERS = pa.schema(
    [
        *_OF_PARTITION,
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int16()),
        ("lastSequence", pa.int32()),
        ("lastOffset", pa.int64()),
        ("lastTimestamp", TIMESTAMP),
        ("coordinatorEpoch", pa.int32()),
        ("currentTransactionStartOffset", pa.int64()),
    ]
)
OFFSETS = pa.schema(
    [
        *_OF_PARTITION,
        ("logStartOffset", pa.int64()),
        ("lastStableOffset", pa.int64()),
        ("endOffset", pa.int64()),
        ("records", pa.int64()),
        ("openTransactions", pa.int64()),
        ("abortedTransactions", pa.int64()),
        ("segments", pa.int32()),
        ("sizeInBytes", pa.int64()),
    ]
)
SEGMENTS = pa.schema(
    [
        *_OF_PARTITION,
        ("file", pa.string()),
        ("baseOffset", pa.int64()),
        ("nextOffset", pa.int64()),
        ("sizeInBytes", pa.int64()),
        ("tailInBytes", pa.int64()),
        ("isActive", pa.bool_()),
        ("batches", pa.int64()),
        ("controlBatches", pa.int64()),
        ("records", pa.int64()),
        ("firstTimestamp", TIMESTAMP),
        ("maxTimestamp", TIMESTAMP),
    ]
)
INTERNAL = pa.schema(
    [
        *_OF_PARTITION,
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("type", pa.string()),
        ("state", pa.string()),  # of a transaction
        ("key", pa.string()),  # JSON
        ("value", pa.string()),  # JSON; null deletes the key
    ]
)
SCHEMAS: Mapping[View, pa.Schema] = {
    View.RECORDS: ARROW,
    View.BATCHES: BATCHES,
    View.TRANSACTIONS: TRANSACTIONS,
    View.PRODUCERS: PRODUCERS,
    View.OFFSETS: OFFSETS,
    View.SEGMENTS: SEGMENTS,
    View.INTERNAL: INTERNAL,
}
_TABLES: Mapping[View, Callable[..., list[tables.Row]]] = {
    View.TRANSACTIONS: tables.transactions,
    View.PRODUCERS: tables.producers,
    View.OFFSETS: tables.offsets,
    View.SEGMENTS: tables.segments,
}
_SQL_TYPES = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    TIMESTAMP: "timestamp",
}


def columns(options: FileOptions) -> str:
    """In SQL's words, as Spark wants them."""
    if options.view is View.RECORDS:
        return COLUMNS + (HEADERS if options.include_headers else "")
    return ", ".join(f"{each.name} {_SQL_TYPES[each.type]}" for each in SCHEMAS[options.view])


def tasks(options: FileOptions) -> Sequence[Task]:
    """Views that need the order of a whole partition take one task each; the others are cut by size."""
    return wanted_logs(options) if options.view in _TABLES else plan(options)


def read(task: Task, options: FileOptions, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a task, some at a time, with columns of the view's schema."""
    match task:
        case PartitionLog():
            yield from _batched(_TABLES[options.view](task, on_damage(options)), wanted)
        case FileTask() if options.view is View.RECORDS:
            yield from file_records.read_task(task, options, wanted)
        case FileTask() if options.view is View.BATCHES:
            yield from _batched(_batch_rows(task, options, wanted), wanted)
        case FileTask():
            yield from _batched(_internal_rows(task, options), wanted)


def _batched(rows: Iterator[tables.Row] | list[tables.Row], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    together: list[tables.Row] = []
    for row in rows:
        together.append(row)
        if len(together) == _ROWS_TOGETHER:
            yield _arrow(together, wanted)
            together = []
    if together:
        yield _arrow(together, wanted)


def _arrow(rows: list[tables.Row], wanted: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for each in wanted:
        values = [row[each.name] for row in rows]
        if each.type == TIMESTAMP:
            arrays.append(pa.array(values, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP))
        else:
            arrays.append(pa.array(values, each.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _batch_rows(task: FileTask, options: FileOptions, wanted: pa.Schema) -> Iterator[tables.Row]:
    asked = task.range
    checks = "isValid" in wanted.names
    for stretch in stretches(
        task.directory,
        asked.start_offset,
        asked.end_offset,
        hint=task.hint,
        check_crcs=False,  # a wrong one is what the view shows
        on_damage=on_damage(options),
    ):
        file = str(stretch.path)
        for at, header in batches(stretch.data):
            data = stretch.data[at : at + header.size_bytes]
            if header.base_offset < asked.start_offset:
                continue  # belongs to the task before this one
            yield {
                "topic": asked.topic,
                "partition": asked.partition,
                "file": file,
                "position": stretch.position + at,
                "isValid": computed_crc(data, 0, header.size_bytes) == header.crc if checks else None,
                **_of_header(header),
                **_of_control(header, data),
            }


def _of_header(header: BatchHeader) -> tables.Row:
    try:
        compression = header.compression.name.lower()
    except MalformedMessage:
        compression = None
    has_horizon = header.has_delete_horizon
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "records": header.record_count,
        "sizeInBytes": header.size_bytes,
        "leaderEpoch": header.leader_epoch,
        "producerId": _there(header.producer_id),
        "producerEpoch": _there(header.producer_epoch),
        "baseSequence": _there(header.base_sequence),
        "lastSequence": _there(header.last_sequence),
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "compression": compression,
        "timestampType": int(header.is_log_append_time),
        "baseTimestamp": None if has_horizon else _there(header.base_timestamp),
        "maxTimestamp": _there(header.max_timestamp),
        "deleteHorizon": header.delete_horizon_ms,
        "crc": header.crc,
    }


def _of_control(header: BatchHeader, data: memoryview) -> tables.Row:
    name = coordinator_epoch = None
    if header.is_control and header.record_count > 0:
        try:
            marker = read_marker(data, 0, header)
            if marker is not None:
                kind: ControlType | None = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
                coordinator_epoch = marker.coordinator_epoch
            else:
                kind = control_type(next(records_of(data, 0)).key)
            name = None if kind is None else kind.name
        except MalformedMessage:
            name = None
    return {"controlType": name, "coordinatorEpoch": coordinator_epoch}


def _there(value: int) -> int | None:
    """The wire's -1 stands for none."""
    return None if value == -1 else value


def _internal_rows(task: FileTask, options: FileOptions) -> Iterator[tables.Row]:
    from odradek.protocol.decoded.internal_records import fields_of
    from odradek.protocol.decoded.messages import json_value

    def as_json(value: Any) -> str | None:
        return None if value is None else json.dumps(value, default=json_value, ensure_ascii=False)

    read_fields = fields_of(task.range.topic)
    for table in file_records.tables(task, options, {"offset", "timestamp", "key", "value"}):
        for row in table.to_pylist():
            record = Record(row["offset"], row["timestamp"], row["key"], row["value"])
            try:
                fields = read_fields(record)
            except MalformedMessage:
                fields = {"key": record.key, "value": record.value}
            kind = fields.get("type")
            yield {
                "topic": task.range.topic,
                "partition": task.range.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "type": None if kind is None else str(kind),
                "state": fields.get("state"),
                "key": as_json(fields.get("key")),
                "value": as_json(_content(fields)),
            }


def _content(fields: Mapping[str, Any]) -> Any:
    """Without the version in front of it."""
    if "data" in fields:  # of the metadata log
        return fields["data"]
    value = fields.get("value")
    return value["data"] if isinstance(value, dict) and value.keys() == {"version", "data"} else value
