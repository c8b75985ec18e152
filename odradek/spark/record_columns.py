"""Converts the columns of `odradek.client.columns` to the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from odradek.client.columns.records import HEADERS_TYPE
from odradek.spark.options import OptionError

COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"
TIMESTAMP = pa.timestamp("us", tz="UTC")
ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
_DECODED = {"timestampType": "timestamp_type"}


def chosen(names: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """Returns the columns that `.schema(…)` names, or all columns if it names none. Raises OptionError."""
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise OptionError(f"no such column: {', '.join(unknown)}; the columns are {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in names])


def decoded_columns(schema: pa.Schema) -> set[str]:
    """Returns the columns that `read_records` must decode to produce the columns in `schema`."""
    return {_DECODED.get(name, name) for name in schema.names} - {"topic", "partition"} | {"offset"}


def to_spark_columns(table: pa.Table, topic: str, partition: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Converts a table to Spark's columns. The table must come from `read_records`, with the columns that
    `decoded_columns` returns."""
    for batch in table.to_batches():
        if len(batch):
            yield pa.RecordBatch.from_arrays([_column(batch, each, topic, partition) for each in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, topic: str, partition: int) -> pa.Array:
    match field.name:
        case "topic":
            return pa.repeat(pa.scalar(topic), len(batch))
        case "partition":
            return pa.repeat(pa.scalar(partition, pa.int32()), len(batch))
        case "timestamp":
            return batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(field.type)
        case name:
            return batch.column(_DECODED.get(name, name)).cast(field.type)
