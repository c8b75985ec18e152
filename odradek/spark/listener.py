"""A session's listener. As soon as a query terminates, the listener ends the transactions that the query has left open.
It also counts the query's rows.

The sink works without the listener. However, if a query is stopped in the middle of a batch, Spark does not call the
sink (docs/spec/spark.md#s3). Without the listener, read_committed consumers would then wait for the prepared
transactions until the query is started again or `odradek spark recover` is run.

The listener recovers only the run that has terminated, because the query may have been started again since then.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from odradek.client import ClientError
from odradek.spark.brokers import Brokers
from odradek.spark.names import DEFAULT_PREFIX, Sink
from odradek.spark.options import DeliveryMode, OptionError, SinkOptions
from odradek.spark.two_phase import SinkError, TwoPhaseSink

FORMAT = "odradek"
OF_WORKERS = "odradek.spark.task"  # imports everything that workers need, except pyspark, which Spark provides
IMPORT_TIMEOUT_S = 60
TIMEOUT_MS = 15_000  # limited because the driver process waits for the listener before it exits
ROUNDS_S = (0.0, 1.0, 3.0)  # spread out, because a cancelled task's Python worker may run for another 2 s
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SinkProgress:
    """The progress of one run of a query, as reported to the listener.

    rows   number of rows in completed batches
    ended  number of transactions left open by the run that the listener has ended. None until the listener has ended
           them, or if it failed to.
    """

    query: str
    run: str
    name: str | None
    sink: Sink | None = None
    batch: int | None = None
    rows: int = 0
    batch_ms: int | None = None
    commit_ms: int | None = None
    is_active: bool = True
    error: str | None = None
    ended: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A query's destination: a cluster, and the prefix of the transactional ids."""

    brokers: Brokers
    prefix: str

    def sink(self, query: str) -> Sink:
        return Sink(self.prefix, query)


class SinkListener(StreamingQueryListener):  # type: ignore[misc]
    """A session's listener.

    written   the queries' destination if Spark does not reveal it, as under Spark Connect
    formats   the names under which the sink is registered
    rounds_s  the pause before each search for open transactions
    """

    def __init__(
        self,
        session: Any,
        written: Written | None = None,
        *,
        formats: Collection[str] = (FORMAT,),
        rounds_s: Sequence[float] = ROUNDS_S,
    ) -> None:
        self._session = session
        self._written = written
        self._formats = formats
        self._rounds_s = rounds_s
        self._progress: dict[str, SinkProgress] = {}
        self._finds: dict[str, Callable[[], Written | None]] = {}
        self._threads: list[threading.Thread] = []

    @property
    def progress(self) -> list[SinkProgress]:
        """The progress of every run that the listener has observed."""
        return list(self._progress.values())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the open transactions of terminated queries to end. Returns False on timeout."""
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        # Spark reports from a separate thread that a query has terminated, so another search can begin during the wait.
        while working := [each for each in self._threads if each.is_alive()]:
            left_s = None if ends_at is None else ends_at - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            working[0].join(left_s)
        return True

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self.watch(str(event.id), str(event.runId), event.name)

    def watch(self, query: str, run: str, name: str | None) -> None:
        """Observes a run that has just started, or was already running when the listener was added."""
        if run not in self._progress:
            self._progress[run] = SinkProgress(query, run, name)
            self._finds[run] = self._search(query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        state = self._progress.get(str(progress.runId))
        if state is None:
            return
        if state.sink is None and (written := self._finds[state.run]()) is not None:
            state.sink = written.sink(state.query)
        durations = progress.durationMs
        state.batch = progress.batchId
        state.rows += max(progress.sink.numOutputRows, 0)
        state.batch_ms = durations.get("triggerExecution")
        state.commit_ms = durations.get("commitBatch", durations.get("commitOffsets"))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        run = str(event.runId)
        state, find = self._progress.get(run), self._finds.pop(run, None)
        if state is None or find is None:
            return
        state.is_active = False
        state.error = event.exception
        written = find()
        if written is None:
            return
        state.sink = written.sink(state.query)
        # This is not a daemon thread, so a driver that exits after its query waits for it.
        thread = threading.Thread(target=self._end, args=(written.brokers, state), name="odradek-listener")
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _end(self, brokers: Brokers, state: SinkProgress) -> None:
        assert state.sink is not None
        try:
            state.ended = asyncio.run(end_run(brokers, state.sink, state.run, self._rounds_s))
        except (ClientError, SinkError, OSError) as error:
            _log.warning(
                "the transactions that run %s of %s left open could not be ended: %s; start the query again, or"
                " use `odradek spark recover %s`",
                state.run,
                state.sink.name,
                error,
                state.sink.name,
            )
            return
        if state.ended:
            _log.info("%s: ended %d transactions that run %s had left open", state.sink.name, state.ended, state.run)

    def _search(self, query: str) -> Callable[[], Written | None]:
        """Returns a function that finds a query's destination. Call that function once the query has started writing or
        has terminated."""
        if self._written is not None:
            written = self._written
            return lambda: written
        try:
            handle = self._session.streams.get(query)._jsq
        except AttributeError:  # Spark Connect
            return lambda: None
        return lambda: written_by(_write_of(self._session, handle), self._formats)


async def end_run(brokers: Brokers, sink: Sink, run: str, rounds_s: Sequence[float]) -> int:
    """Ends the transactions left open by this run's tasks, even if a task stops a little later than its query. Returns
    the number of transactions ended.

    If no transaction is open, it does not take the lease, so it does not disturb a query that is still running.
    """
    ended = 0
    for pause_s in rounds_s:
        await asyncio.sleep(pause_s)
        two_phase = TwoPhaseSink(brokers, sink)
        try:
            if count := len(await two_phase.open_ids(run)):
                await two_phase.recover(run)
                ended += count
        finally:
            await two_phase.close()
    return ended


def written_by(write: tuple[str, Mapping[str, str]] | None, formats: Collection[str]) -> Written | None:
    """Returns a query's destination, given its sink's name and options. Returns None if the query uses another sink or
    writes without transactions."""
    if write is None or write[0] not in formats:
        return None
    try:
        options = SinkOptions.read(write[1], is_stream=True)
    except OptionError:
        return None
    if options.delivery is not DeliveryMode.EXACTLY_ONCE:
        return None
    return Written(replace(options.brokers, timeout_ms=TIMEOUT_MS, bootstrap_timeout_ms=TIMEOUT_MS), options.prefix)


def _write_of(spark: Any, handle: Any) -> tuple[str, Mapping[str, str]] | None:
    """Reads the name and the options of a query's sink from Spark's plan, which is not part of Spark's API. Returns
    None if the plan does not have the expected form."""
    from py4j.protocol import Py4JError

    try:
        plan = handle.streamingQuery().logicalPlan()
        options = spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(plan.writeOptions())
        return plan.table().name(), dict(options)
    except (Py4JError, TypeError) as error:
        _log.debug("the target of a query cannot be read from its plan: %s", error)
        return None


class WrongWorkerPython(Exception):
    """The session's workers use a Python that cannot import odradek."""


def require_worker_python(executable: str) -> None:
    """Raises WrongWorkerPython, with a one-line message, if this Python cannot be started or cannot import odradek."""
    if shutil.which(executable) == sys.executable:
        return
    try:
        tried = subprocess.run(
            [executable, "-c", f"import {OF_WORKERS}"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    else:
        if tried.returncode == 0:
            return
        reason = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
    raise WrongWorkerPython(
        f"the workers of this session run {executable!r}, which cannot load odradek ({reason}): set"
        f" PYSPARK_PYTHON={sys.executable} before you create the session"
    )


def install(spark: Any, *, bootstrap_servers: str | None = None, prefix: str = DEFAULT_PREFIX) -> SinkListener:
    """Registers `format("odradek")` and the listener with a session. The listener ends a stopped query's open
    transactions immediately, rather than when the query is started again.

    Spark finds the format without this call if `pyspark_odradek` is on the path of the driver's Python. Call `install`
    if you use `--py-files`, or a Spark Connect server.

    spark              a session, which may use Spark Connect; queries that are already running are observed too
    bootstrap_servers  the cluster that the session's queries write to. The listener needs it only under Spark Connect,
                       where it does nothing without it.
    prefix             the `transactionalIdPrefix` of these queries
    returns            the listener, whose `progress` reports the rows that each query has written

    Raises WrongWorkerPython if the Python of the session's workers lacks odradek. Without this check, planning a query
    would fail with a missing data source or a worker's traceback.
    """
    from odradek.spark.data_source import OdradekSource

    # A Spark Connect session does not have this attribute, and its server's Python is not on this machine.
    context = getattr(spark, "_sc", None)
    if context is not None and not context.getConf().get("spark.submit.pyFiles", ""):
        require_worker_python(context.pythonExec)
    spark.dataSource.register(OdradekSource)
    written = None if bootstrap_servers is None else Written(Brokers(bootstrap_servers, TIMEOUT_MS, TIMEOUT_MS), prefix)
    listener = SinkListener(spark, written)
    spark.streams.addListener(listener)
    for query in spark.streams.active:
        listener.watch(str(query.id), str(query.runId), query.name)
    return listener
