"""The sink for `format("odradek")`, for both streams and batches. It is a thin layer between Spark and `two_phase.py`.

A Python worker either plans, writes or commits, so a module that only one of these steps needs is imported when that
step begins.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import TaskContext, __version__
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from odradek.client.common.errors import ClientError
from odradek.spark.names import Sink, sink_of
from odradek.spark.options import DeliveryMode, OptionError, SinkOptions
from odradek.spark.steps import Observe, ObserveTask, observe_no_task, observe_nothing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from odradek.spark.failed_writes import FailedWrites
    from odradek.spark.two_phase import TwoPhaseSink, Vote

T = TypeVar("T")

# Local properties through which Spark passes the batch, the query and the run to a task. Tasks fail if Spark does not
# set these properties.
BATCH_ID, QUERY_ID, RUN_ID = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
THE_ONLY_BATCH = 0  # the batch number of a batch write, which has only one batch

# The columns that Spark's Kafka sink writes, with their types. All other columns are ignored.
_TEXT = ("string", "binary")
_COLUMNS = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}

_log = logging.getLogger(__name__)
_sinks: dict[tuple[str, str], TwoPhaseSink] = {}  # the sinks keep their leases between the batches of a query


@dataclass
class TaskMessage(WriterCommitMessage):  # type: ignore[misc]
    """A message from a task to the driver. `vote` is None if the task had no rows, or wrote without transactions."""

    query: str
    run: str
    vote: Vote | None


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(
        self, options: SinkOptions, *, observe: Observe = observe_nothing, observe_task: ObserveTask = observe_no_task
    ) -> None:
        self._options = options
        self._observe = observe
        self._observe_task = observe_task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        batch, query, run = (_property(context, name) for name in (BATCH_ID, QUERY_ID, RUN_ID))
        return _write(self._options, context, query, run, int(batch), iterator, self._observe_task)

    def commit(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:
        self._end(messages, lambda sink, run, votes: sink.commit(votes, batchId))

    def abort(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:
        async def abort(sink: TwoPhaseSink, run: str, votes: list[Vote]) -> None:
            await sink.abort(votes, batchId, run)

        self._end(messages, abort)

    def _end(
        self,
        messages: Sequence[TaskMessage | None],
        call: Callable[[TwoPhaseSink, str, list[Vote]], Coroutine[Any, Any, None]],
    ) -> None:
        """Ends a batch. Does nothing if no task has reported, because this process then does not know the query and the
        run."""
        answered = [message for message in messages if message is not None]
        if not answered or self._options.delivery is DeliveryMode.AT_LEAST_ONCE:
            return
        from odradek.spark.two_phase import SinkError, TwoPhaseSink

        if len({(message.query, message.run) for message in answered}) > 1:
            raise SinkError("one batch contains votes from several queries")
        sink = Sink(self._options.prefix, answered[0].query)
        of_this = (self._options.brokers.bootstrap_servers, sink.name)
        held = _sinks.setdefault(of_this, TwoPhaseSink(self._options.brokers, sink, observe=self._observe))
        _on_background_loop(call(held, answered[0].run, _votes(answered)))


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a batch. Repeating a write with the same `idempotencyKey` writes nothing more.

    Spark sends the writer that planned the batch to the process that commits or aborts it. Both processes can therefore
    name all the batch's transactions, whether or not its tasks have reported.

    failed_writes  the folder that records failed writes whose transactions may still be open; by default, one folder
                   for all of this user's sessions on this machine
    """

    def __init__(
        self,
        options: SinkOptions,
        *,
        observe: Observe = observe_nothing,
        observe_task: ObserveTask = observe_no_task,
        failed_writes: Path | None = None,
    ) -> None:
        self._options = options
        self._observe = observe
        self._observe_task = observe_task
        self._query = options.idempotency_key or str(uuid.uuid4())
        self._run = uuid.uuid4().hex
        self._failed_writes = failed_writes

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, _context(), self._query, self._run, THE_ONLY_BATCH, iterator, self._observe_task)

    def commit(self, messages: Sequence[TaskMessage | None]) -> None:
        self._end(messages, self._commit)

    def abort(self, messages: Sequence[TaskMessage | None]) -> None:
        self._end(messages, self._abort)

    def _end(
        self,
        messages: Sequence[TaskMessage | None],
        call: Callable[[TwoPhaseSink, list[Vote]], Coroutine[Any, Any, None]],
    ) -> None:
        if self._options.delivery is DeliveryMode.AT_LEAST_ONCE:
            return
        from odradek.spark.two_phase import TwoPhaseSink

        sink = TwoPhaseSink(self._options.brokers, self._sink, observe=self._observe)
        votes = _votes(message for message in messages if message is not None)

        async def end() -> None:
            try:
                await call(sink, votes)
            finally:
                await sink.close()
            await self._end_earlier_writes()

        _on_background_loop(end())

    async def _commit(self, sink: TwoPhaseSink, votes: list[Vote]) -> None:
        kept_ms = self._options.key_retention_ms if self._is_keyed else None
        await sink.commit(votes, THE_ONLY_BATCH, kept_ms=kept_ms, run=self._run)
        await _forgotten(sink, everything=not self._is_keyed)

    async def _abort(self, sink: TwoPhaseSink, votes: list[Vote]) -> None:
        from odradek.spark.failed_writes import FailedWrite

        write = FailedWrite(self._options.brokers.bootstrap_servers, self._sink.name, self._run)
        with self._remembered_writes().recorded(write):
            if not await sink.abort(votes, THE_ONLY_BATCH, self._run):
                return
            _log.warning(
                "the write to %s had already been decided when it failed, so its rows are in the output", write.sink
            )
            if not self._is_keyed:
                await _forgotten(sink, everything=True)

    async def _end_earlier_writes(self) -> None:
        """Ends the transactions left by earlier writes whose abort failed or was killed."""
        from odradek.spark.two_phase import SinkError, TwoPhaseSink

        brokers = self._options.brokers
        try:
            for write in self._remembered_writes().unfinished_writes(brokers.bootstrap_servers):
                sink = TwoPhaseSink(brokers, sink_of(write.sink))
                try:
                    await sink.abort([], THE_ONLY_BATCH, write.run)
                finally:
                    await sink.close()
                _log.warning("%s: ended the transactions that an earlier write had left open", write.sink)
        except (ClientError, SinkError, ValueError) as error:
            _log.warning("an earlier write has left transactions open: %s", error)

    def _remembered_writes(self) -> FailedWrites:
        from odradek.spark.failed_writes import FailedWrites, default_folder

        return FailedWrites(self._failed_writes or default_folder())

    @property
    def _sink(self) -> Sink:
        return Sink(self._options.prefix, self._query)

    @property
    def _is_keyed(self) -> bool:
        return self._options.idempotency_key is not None


def require_columns(schema: StructType, topic: str | None) -> None:
    """Raises OptionError if a frame cannot be written. Called when the query is planned."""
    types = {each.name.lower(): each.dataType.simpleString() for each in schema.fields}
    if "value" not in types:
        raise OptionError(f"a column 'value' (string or binary) is required; the columns are {', '.join(types)}")
    if topic is None and "topic" not in types:
        raise OptionError("the topic is missing: set the option topic, or add a column 'topic'")
    for name, type_names in _COLUMNS.items():
        found = types.get(name, type_names[0])
        strings = ("varchar", "char") if "string" in type_names else ()
        if found.partition(" ")[0].partition("(")[0] not in (*type_names, *strings):
            raise OptionError(f"the column {name!r} is {found}, but must be {' or '.join(type_names)}")


def _write(
    options: SinkOptions,
    context: TaskContext,
    query: str,
    run: str,
    batch: int,
    rows: Iterator[pa.RecordBatch],
    observe: ObserveTask,
) -> TaskMessage:
    from odradek.spark.task import write_rows

    vote = write_rows(
        options,
        Sink(options.prefix, query),
        run=run,
        batch=batch,
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        rows=rows,
        observe=observe,
    )
    return TaskMessage(query, run, vote)


def _votes(messages: Iterable[TaskMessage]) -> list[Vote]:
    return [message.vote for message in messages if message.vote is not None]


def _on_background_loop(work: Coroutine[Any, Any, None]) -> None:
    """Runs the coroutine to completion on this process's event loop, on which the leases in `_sinks` are held."""
    from odradek.client.sync.background import background_loop

    background_loop().run(lambda: work, SimpleQueue())


async def _forgotten(sink: TwoPhaseSink, *, everything: bool) -> None:
    """Erases the sink's record if `everything` is True, otherwise the records of expired keys. If this fails, it only
    logs a warning, because the write is complete whether or not the records remain in the ledger."""
    from odradek.spark.ledger import LeaseLost

    try:
        if everything:
            await sink.forget()
        else:
            await sink.forget_expired()
    except (ClientError, LeaseLost) as error:
        _log.warning("a record could not be removed from the ledger: %s", error)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise OptionError("rows can be written only within a Spark task")
    return context


def _property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    if not value:
        raise OptionError(
            f"Spark {__version__} does not give tasks the property {name!r}, which is needed to write exactly once."
            " Spark 4.1 to 4.3 do"
        )
    return str(value)
