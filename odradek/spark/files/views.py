"""Defines the columns of a data directory's views, plans their tasks and reads their rows. Independent of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from odradek.client.columns import read_records
from odradek.files.offline import tables
from odradek.files.offline.directories import PartitionLog
from odradek.files.offline.transactions import overlapping
from odradek.files.offline.walk import DamagedLog, Stretch, stretches
from odradek.protocol.batch_header import BatchHeader, batches, computed_crc
from odradek.protocol.control_records import ControlType, control_type, read_marker
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.fetch_response import AbortedTransaction
from odradek.protocol.records import Record, records_of
from odradek.spark.files.options import FileOptions, LogView
from odradek.spark.files.plan import FileTask, on_damage, plan, selected_logs
from odradek.spark.record_columns import ARROW, COLUMNS, HEADERS, TIMESTAMP, decoded_columns, to_spark_columns


def read_task(task: FileTask, options: FileOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Reads records into Spark's columns, a few megabytes at a time. Raises DamagedLog."""
    for table in record_tables(task, options, decoded_columns(schema)):
        yield from to_spark_columns(table, task.range.topic, task.range.partition, schema)


def record_tables(task: FileTask, options: FileOptions, columns: set[str]) -> Iterator[pa.Table]:
    """Reads the visible records. `columns` are columns of `odradek.client.columns.RECORD_SCHEMA`."""
    range_ = task.range
    for stretch in stretches(
        task.directory,
        range_.start_offset,
        range_.end_offset,
        hint=task.hint,
        check_crcs=options.check_crcs,
        on_damage=on_damage(options),
    ):
        try:
            yield _decoded(task, stretch, columns)
        except MalformedMessage:
            for single in _single_batches(stretch):
                try:
                    table = _decoded(task, single, columns)
                except MalformedMessage as error:
                    reason = f"the records of the batch cannot be read: {error}"
                    on_damage(options)(DamagedLog(single.path, single.position, single.first_offset, reason))
                else:
                    yield table


def _decoded(task: FileTask, stretch: Stretch, columns: set[str]) -> pa.Table:
    return read_records(
        stretch.data,
        aborted=[
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in overlapping(task.aborted, stretch.first_offset, stretch.next_offset)
        ],
        start_offset=task.range.start_offset,
        end_offset=task.range.end_offset,
        columns=columns,
        check_crcs=False,  # the CRCs have been checked by `stretches`
    )


def _single_batches(stretch: Stretch) -> Iterator[Stretch]:
    for position, header in batches(stretch.data):
        data = stretch.data[position : position + header.size_bytes]
        yield Stretch(stretch.path, stretch.position + position, data, header.base_offset, header.next_offset)


Task: TypeAlias = FileTask | PartitionLog
_ROWS_TOGETHER = 64 * 1024

_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": TIMESTAMP,
}
# SQL names and types of the columns. `controlType` is COMMIT, ABORT, or a control type of the metadata log. In the view
# of internal records, `state` is the state of a transaction, and `key` and `value` are JSON. A null value in that view
# means that the record deletes its key.
_COLUMNS: Mapping[LogView, str] = {
    LogView.BATCHES: "topic string, partition int, file string, position bigint, baseOffset bigint, lastOffset bigint,"
    " records int, sizeInBytes int, leaderEpoch int, producerId bigint, producerEpoch smallint, baseSequence int,"
    " lastSequence int, isTransactional boolean, isControl boolean, controlType string, coordinatorEpoch int,"
    " compression string, timestampType int, baseTimestamp timestamp, maxTimestamp timestamp, deleteHorizon timestamp,"
    " crc bigint, isValid boolean",
    LogView.TRANSACTIONS: "topic string, partition int, producerId bigint, producerEpoch smallint, state string,"
    " firstOffset bigint, lastOffset bigint, markerOffset bigint, markerEpoch smallint, coordinatorEpoch int,"
    " batches bigint, records bigint, sizeInBytes bigint, firstTimestamp timestamp, endTimestamp timestamp",
    LogView.PRODUCERS: "topic string, partition int, producerId bigint, producerEpoch smallint, lastSequence int,"
    " lastOffset bigint, lastTimestamp timestamp, coordinatorEpoch int, currentTransactionStartOffset bigint",
    LogView.OFFSETS: "topic string, partition int, logStartOffset bigint, lastStableOffset bigint, endOffset bigint,"
    " records bigint, openTransactions bigint, abortedTransactions bigint, segments int, sizeInBytes bigint",
    LogView.SEGMENTS: "topic string, partition int, file string, baseOffset bigint, nextOffset bigint,"
    " sizeInBytes bigint, tailInBytes bigint, isActive boolean, batches bigint, controlBatches bigint, records bigint,"
    " firstTimestamp timestamp, maxTimestamp timestamp",
    LogView.INTERNAL: "topic string, partition int, offset bigint, timestamp timestamp, type string, state string,"
    " key string, value string",
}


def schema_of(view: LogView) -> pa.Schema:
    if view is LogView.RECORDS:
        return ARROW
    named = (each.split(" ") for each in _COLUMNS[view].split(", "))
    return pa.schema([(name, _TYPES[sql_type]) for name, sql_type in named])


_TABLES: Mapping[LogView, Callable[..., list[tables.Row]]] = {
    LogView.TRANSACTIONS: tables.transactions,
    LogView.PRODUCERS: tables.producers,
    LogView.OFFSETS: tables.offsets,
    LogView.SEGMENTS: tables.segments,
}


def columns(options: FileOptions) -> str:
    """Returns the names and SQL types of the columns, in the form that Spark expects."""
    if options.view is LogView.RECORDS:
        return COLUMNS + (HEADERS if options.include_headers else "")
    return _COLUMNS[options.view]


def tasks(options: FileOptions) -> Sequence[Task]:
    """Returns a query's tasks. A view that must read a complete partition in order has one task per partition. Other
    views' tasks are cut by size."""
    return selected_logs(options) if options.view in _TABLES else plan(options)


def read(task: Task, options: FileOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Reads a task's rows in groups, with the columns in `schema`."""
    match task:
        case PartitionLog():
            yield from _batched(_TABLES[options.view](task, on_damage(options)), schema)
        case FileTask() if options.view is LogView.RECORDS:
            yield from read_task(task, options, schema)
        case FileTask() if options.view is LogView.BATCHES:
            yield from _batched(_batch_rows(task, options, schema), schema)
        case FileTask():
            yield from _batched(_internal_rows(task, options), schema)


def _batched(rows: Iterator[tables.Row] | list[tables.Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    together: list[tables.Row] = []
    for row in rows:
        together.append(row)
        if len(together) == _ROWS_TOGETHER:
            yield _arrow(together, schema)
            together = []
    if together:
        yield _arrow(together, schema)


def _arrow(rows: list[tables.Row], schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for each in schema:
        values = [row[each.name] for row in rows]
        if each.type == TIMESTAMP:
            arrays.append(pa.array(values, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP))
        else:
            arrays.append(pa.array(values, each.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _batch_rows(task: FileTask, options: FileOptions, schema: pa.Schema) -> Iterator[tables.Row]:
    range_ = task.range
    checks = "isValid" in schema.names
    for stretch in stretches(
        task.directory,
        range_.start_offset,
        range_.end_offset,
        hint=task.hint,
        check_crcs=False,  # the isValid column shows whether each CRC matches
        on_damage=on_damage(options),
    ):
        file = str(stretch.path)
        for at, header in batches(stretch.data):
            data = stretch.data[at : at + header.size_bytes]
            if header.base_offset < range_.start_offset:
                continue  # the batch belongs to the previous task
            yield {
                "topic": range_.topic,
                "partition": range_.partition,
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
    """Converts -1, which stands for a missing value, to None."""
    return None if value == -1 else value


def _internal_rows(task: FileTask, options: FileOptions) -> Iterator[tables.Row]:
    from odradek.protocol.decoded.internal_records import fields_of
    from odradek.protocol.decoded.messages import json_value

    def as_json(value: Any) -> str | None:
        return None if value is None else json.dumps(value, default=json_value, ensure_ascii=False)

    read_fields = fields_of(task.range.topic)
    for table in record_tables(task, options, {"offset", "timestamp", "key", "value"}):
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
    """Returns a record's value without the version at its start."""
    if "data" in fields:  # a record of the metadata log
        return fields["data"]
    value = fields.get("value")
    return value["data"] if isinstance(value, dict) and value.keys() == {"version", "data"} else value
