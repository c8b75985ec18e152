"""The reader for `format("odradek").option("path", …)`, which reads topics from log directories without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from odradek.spark.files import views
from odradek.spark.files.options import FileOptions, pruned
from odradek.spark.record_columns import chosen


def file_columns(options: Mapping[str, str]) -> str:
    return views.columns(FileOptions.read(options))


def file_reader(options: Mapping[str, str], schema: StructType) -> FileReader:
    """Returns a reader with these options. Raises OptionError."""
    read = FileOptions.read(options)
    kind = FilteringReader if read.pushes_filters else FileReader
    return kind(read, chosen(schema.names, views.schema_of(read.view)))


class FileReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: FileOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(each) for each in views.tasks(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark passes an empty partition if there is nothing to read
            return iter(())
        return views.read(partition.value, self._options, self._schema)


class FilteringReader(FileReader):
    """The reader used if the `pushFilters` option is set.

    It is not the default for two reasons. PySpark 4.3.0 applies the filters pushed for a DataFrame's first query to the
    DataFrame's next query too, even if that query has different filters. PySpark also rejects a reader that has a
    `pushFilters` method unless spark.sql.python.filterPushdown.enabled is set.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Uses the filters to read fewer records. Returns all filters, so that Spark applies them too."""
        self._options = replace(self._options, pruning=pruned(filters))
        return filters
