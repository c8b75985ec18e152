"""The sink of `format("odradek")`, streaming and batch: a thin layer between Spark and `two_phase.py`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext, __version__
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from odradek.client.sync.background import background_loop
from odradek.spark.names import Sink
from odradek.spark.options import Delivery, OptionError, SinkOptions
from odradek.spark.task import write_rows
from odradek.spark.two_phase import SinkError, TwoPhaseSink, Vote

T = TypeVar("T")

# Spark's own names for what a task is not told otherwise; checked each time.
BATCH_ID, QUERY_ID, RUN_ID = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
THE_ONLY_BATCH = 0  # of a batch write

_sinks: dict[tuple[str, str], TwoPhaseSink] = {}  # with their leases, from one batch of a query to the next


@dataclass
class TaskMessage(WriterCommitMessage):  # type: ignore[misc]
    """`vote` is None for a task without rows."""

    query: str
    vote: Vote | None


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        batch, query, run = (_property(context, name) for name in (BATCH_ID, QUERY_ID, RUN_ID))
        return _write(self._options, context, query, run, int(batch), iterator)

    def commit(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:
        _end(self._options, messages, lambda sink, votes: sink.commit(votes, batchId))

    def abort(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:
        _end(self._options, messages, lambda sink, votes: sink.abort(votes, batchId))


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """With `idempotencyKey` a write that is repeated under the same key writes nothing more."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query = options.idempotency_key or str(uuid.uuid4())
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, _context(), self._query, self._run, THE_ONLY_BATCH, iterator)

    def commit(self, messages: Sequence[TaskMessage | None]) -> None:
        _end(self._options, messages, lambda sink, votes: sink.commit(votes, THE_ONLY_BATCH))

    def abort(self, messages: Sequence[TaskMessage | None]) -> None:
        _end(self._options, messages, lambda sink, votes: sink.abort(votes, THE_ONLY_BATCH))


def _write(
    options: SinkOptions, context: TaskContext, query: str, run: str, batch: int, rows: Iterator[pa.RecordBatch]
) -> TaskMessage:
    vote = write_rows(
        options,
        Sink(options.prefix, query),
        run=run,
        batch=batch,
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        rows=rows,
    )
    return TaskMessage(query, vote)


def _end(
    options: SinkOptions,
    messages: Sequence[TaskMessage | None],
    call: Callable[[TwoPhaseSink, list[Vote]], Coroutine[Any, Any, None]],
) -> None:
    """Nothing is known, and nothing can be done, where no task has answered."""
    answered = [message for message in messages if message is not None]
    if not answered or options.delivery is Delivery.AT_LEAST_ONCE:
        return
    if len({message.query for message in answered}) > 1:
        raise SinkError("votes of several queries for one batch")
    sink = Sink(options.prefix, answered[0].query)
    votes = [message.vote for message in answered if message.vote is not None]
    held = _sinks.setdefault((options.brokers.bootstrap_servers, sink.name), TwoPhaseSink(options.brokers, sink))
    background_loop().run(lambda: call(held, votes), SimpleQueue())


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise OptionError("rows are written within a task of Spark only")
    return context


def _property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    if not value:
        raise OptionError(
            f"Spark {__version__} does not tell tasks {name!r}, without which nothing can be written exactly once;"
            " the versions that do are 4.1 to 4.3"
        )
    return str(value)
