"""Implements `format("odradek")`. It reads and writes topics as batches and streams. With the `path` option, it reads
the files of a data directory instead.

Spark starts a Python worker for each step (plan, read, write, commit), and each worker imports this module. Modules
that only one step needs are imported when that step begins. Importing just Arrow, numpy and the client takes four times
as long as importing everything else.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from odradek.spark.options import OptionError, SinkOptions, SourceOptions, flag, is_of_files, require_known


class OdradekSource(DataSource):  # type: ignore[misc]
    """The data source registered with Spark under the name `odradek`."""

    @classmethod
    def name(cls) -> str:
        return "odradek"

    def schema(self) -> str:
        if is_of_files(self.options):
            from odradek.spark.files.reader import file_columns

            return file_columns(self.options)
        from odradek.spark.record_columns import COLUMNS, HEADERS

        return COLUMNS + (HEADERS if flag("includeHeaders", self.options.get("includeHeaders", "false")) else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        if is_of_files(self.options):
            from odradek.spark.files.reader import file_reader

            return file_reader(self.options, schema)
        from odradek.spark.record_columns import ARROW, chosen
        from odradek.spark.source import BatchReader

        require_known(self.options)
        return BatchReader(SourceOptions.read(self.options, is_stream=False), chosen(schema.names, ARROW))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from odradek.spark.record_columns import ARROW, chosen
        from odradek.spark.source import RefusedStream, StreamReader

        try:
            if is_of_files(self.options):
                raise OptionError("the option path supports only batches: a stream needs kafka.bootstrap.servers")
            require_known(self.options)
            return StreamReader(SourceOptions.read(self.options, is_stream=True), chosen(schema.names, ARROW))
        except OptionError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from odradek.spark.sink import BatchWriter, require_columns

        if overwrite:
            raise OptionError('a topic cannot be overwritten: use mode("append")')
        require_known(self.options)
        options = SinkOptions.read(self.options, is_stream=False)
        require_columns(schema, options.topic)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from odradek.spark.sink import StreamWriter, require_columns

        require_known(self.options)
        options = SinkOptions.read(self.options, is_stream=True)
        require_columns(schema, options.topic)
        return StreamWriter(options)
