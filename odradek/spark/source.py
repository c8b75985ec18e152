"""The `format("odradek")` sources that read topics over the network, as batches or streams.

They read only committed records, unless `kafka.isolation.level` is read_uncommitted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from odradek.client import OffsetOutOfRange, RawBatches, TopicPartition
from odradek.client.columns import read_records
from odradek.spark.offsets import (
    OffsetRange,
    OffsetReader,
    Offsets,
    StreamPosition,
    Threshold,
    consumer,
    limit_offsets,
    limited,
    log_losses,
    losses,
    ranges,
    to_json,
)
from odradek.spark.options import OptionError, SourceOptions
from odradek.spark.record_columns import decoded_columns, to_spark_columns

POLL_MS = 1_000


class BatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        offset_reader = OffsetReader(self._options)
        try:
            partitions = offset_reader.partitions()
            start = offset_reader.resolve(self._options.starting, partitions)
            end = offset_reader.resolve(self._options.ending, partitions)
            return _tasks(start, end, offset_reader.earliest(partitions), self._options)
        finally:
            offset_reader.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark passes an empty partition if there is nothing to read
            return iter(())
        return read_range(self._options, partition.value, self._schema)


class RefusedStream(DataSourceStreamReader):  # type: ignore[misc]
    """A stream with invalid options, which raises the error on its first call.

    `streamReader` itself does not raise the error, because PySpark 4.3.0 would then try to stop a reader that does not
    exist. The query would then fail with an UnboundLocalError from PySpark, instead of the error that names the option
    to correct.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads topics as a stream. Checkpoints contain offsets in the format of Spark's Kafka source."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._offsets = OffsetReader(options)
        self._target: StreamPosition | None = None  # the offsets at which Trigger.AvailableNow stops
        least = options.min_offsets_per_trigger
        self._threshold = None if least is None else Threshold(least, options.max_trigger_delay_ms / 1000)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the driver's state, because executors only read."""
        return {"_options": self._options, "_schema": self._schema, "_target": None, "_threshold": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._offsets = OffsetReader(self._options)

    def initialOffset(self) -> dict[str, Any]:
        offsets = self._offsets.resolve(self._options.starting, self._offsets.partitions())
        return StreamPosition(offsets, self._offsets.topic_ids).json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        position = StreamPosition.read(start)
        target = self._latest() if self._target is None else self._target
        end = target.offsets
        previous_offsets = position.retained(target.topic_ids)
        earliest = self._offsets.earliest([each for each in end if each not in previous_offsets])
        log_ends = self._log_ends(previous_offsets, end)
        new = {each: offset for each, offset in earliest.items() if each not in position.offsets}
        self._log_losses(losses(position, end, target.topic_ids, new, log_ends))
        first = previous_offsets | earliest
        # If the log extends to the checkpoint but the latest offset does not, a transaction is open and an earlier run
        # has read its records with read_uncommitted. The batch is then empty, and no data is lost.
        end = {each: first[each] if log_ends.get(each, -1) >= first[each] else at for each, at in end.items()}
        # AvailableNow reads everything, no matter how few records are left.
        if self._threshold and self._target is None and self._threshold.holds_back(first, end, time.monotonic()):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(first, end, limit.max_rows)
        return StreamPosition(end, target.topic_ids).json()

    def _log_ends(self, required: Offsets, latest: Offsets) -> Offsets:
        """Returns the log end offsets of the partitions whose latest offset is before the required offset."""
        short = [each for each, offset in latest.items() if offset < required.get(each, 0)]
        return self._offsets.log_ends(short) if short else {}

    def _log_losses(self, lost: list[str]) -> None:
        log_losses(lost, fails=self._options.fail_on_data_loss)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self._latest().offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        position, planned = StreamPosition.read(start), StreamPosition.read(end)
        there = self._latest()  # when a batch is planned again, its topics may have shrunk since the first time
        log_ends = self._log_ends(planned.offsets, there.offsets)
        self._log_losses(losses(planned, there.offsets, there.topic_ids, {}, log_ends))
        kept = {each: at for each, at in planned.retained(there.topic_ids).items() if each in there.offsets}
        ended = {each: min(at, log_ends.get(each, at)) for each, at in kept.items()}
        earliest = self._offsets.earliest(list(ended))
        return _tasks(earliest | position.retained(planned.topic_ids), ended, earliest, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value, self._schema)

    def stop(self) -> None:
        self._offsets.close()

    def _latest(self) -> StreamPosition:
        offsets = self._offsets.latest(self._offsets.partitions())
        return StreamPosition(offsets, self._offsets.topic_ids)


def read_range(options: SourceOptions, range_: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Reads a range's visible records. Raises DataLost. Raises TimeoutError if the broker returns no records for longer
    than `kafkaConsumer.pollTimeoutMs`."""
    partition = TopicPartition(range_.topic, range_.partition)
    columns = decoded_columns(schema)
    at = range_.start_offset
    reader = consumer(options, range_.size)
    try:
        reader.assign([partition])
        reader.seek(partition, at)
        last_heard = time.monotonic()
        while at < range_.end_offset:
            try:
                brought = reader.getbatches(timeout_ms=POLL_MS)
            except OffsetOutOfRange:
                name = f"{range_.topic}-{range_.partition}"
                lost = f"the offset {at} of {name} is no longer in the log"
                log_losses([lost], fails=options.fail_on_data_loss)
                beginning = reader.beginning_offsets([partition])[partition]
                if beginning <= at:  # the log ends before the requested offset
                    return
                at = beginning
                reader.seek(partition, at)
                continue
            raw = brought.get(partition)
            if raw is None:
                if time.monotonic() - last_heard > options.poll_timeout_ms / 1000:
                    raise TimeoutError(
                        f"no records of {range_.topic}-{range_.partition} from {at} to {range_.end_offset} came within"
                        f" {options.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs)"
                    )
                continue
            last_heard = time.monotonic()
            yield from _columns(raw, range_, columns, schema)
            at = raw.end_offset
    finally:
        reader.close()


def _columns(raw: RawBatches, range_: OffsetRange, columns: set[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    table = read_records(
        raw.data,
        aborted=raw.aborted,
        start_offset=max(raw.start_offset, range_.start_offset),
        end_offset=range_.end_offset,
        columns=columns,
    )
    return to_spark_columns(table, range_.topic, range_.partition, schema)


def _tasks(start: Offsets, end: Offsets, earliest: Offsets, options: SourceOptions) -> list[InputPartition]:
    parts = limit_offsets(ranges(start, end, earliest, options), options.max_records_per_partition)
    return [InputPartition(each) for each in parts]
