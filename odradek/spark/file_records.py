"""The records of a task as Spark's columns, read from files. Knows nothing of Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from odradek.client.columns import read_records
from odradek.protocol.batch_header import batches
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.fetch_response import AbortedTransaction
from odradek.spark.file_options import FileOptions
from odradek.spark.file_plan import FileTask, on_damage
from odradek.spark.record_columns import as_spark_has_them, decoded_columns
from odradek.tools.offline.transactions import overlapping
from odradek.tools.offline.walk import DamagedLog, Stretch, stretches


def read_task(task: FileTask, options: FileOptions, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Some megabytes at a time. Raises DamagedLog."""
    for table in tables(task, options, decoded_columns(wanted)):
        yield from as_spark_has_them(table, task.range.topic, task.range.partition, wanted)


def tables(task: FileTask, options: FileOptions, columns: set[str]) -> Iterator[pa.Table]:
    """The visible records, with columns of `odradek.client.columns.RECORD_SCHEMA`."""
    asked = task.range
    for stretch in stretches(
        task.directory,
        asked.start_offset,
        asked.end_offset,
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
        check_crcs=False,  # the walk has checked them
    )


def _single_batches(stretch: Stretch) -> Iterator[Stretch]:
    for position, header in batches(stretch.data):
        data = stretch.data[position : position + header.size_bytes]
        yield Stretch(stretch.path, stretch.position + position, data, header.base_offset, header.next_offset)
