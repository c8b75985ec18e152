"""The Spark format `odradek-faulty`. Its source and sink are those of `odradek`, but with a fault at a planned step.

The fault happens in whichever process reaches the step. The option `fault` contains the plan. A fault happens once
unless the plan allows more. Each fault creates a mark in the plan's directory, so that the test notices the fault.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from odradek.spark.data_source import OdradekSource
from odradek.spark.options import SinkOptions, SourceOptions
from odradek.spark.record_columns import ARROW, chosen
from odradek.spark.sink import BATCH_ID, BatchWriter, StreamWriter
from odradek.spark.source import BatchReader, StreamReader
from odradek.spark.steps import CommitStep, TaskStep

FORMAT = "odradek-faulty"
PATIENCE_S = 600.0
POLL_S = 0.01

# The kinds of fault: an exception, an exit of the process, or a pause until the test calls `Plan.go_on`.
RAISE, EXIT, WAIT = "raise", "exit", "wait"


class Fault(Exception):
    """The planned exception. It is handled like any other error in a task or a commit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The place, kind and number of planned faults.

    at         a step such as `commit.DECIDED`, `task.PREPARED` or `read.ROWS`
    how        kind of fault: RAISE, EXIT or WAIT
    marks      directory of the marks
    batch      the stream's batch, or None for any batch
    number     index of the transaction that the commit is ending
    partition  the task's partition, or None for any partition
    attempt    the task's attempt, or None for any attempt
    times      maximum number of faults
    """

    at: str
    how: str
    marks: str
    batch: int | None = 1
    number: int = 0
    partition: int | None = 0
    attempt: int | None = None
    times: int = 1

    def option(self) -> str:
        return json.dumps(asdict(self))

    @property
    def count(self) -> int:
        """Returns the number of times that the fault has happened."""
        return len(list(Path(self.marks).glob("fault-*")))

    def pid(self) -> int:
        """Returns the id of the process in which the fault first happened."""
        return int(Path(self.marks, "fault-0").read_text(encoding="ascii"))

    def go_on(self) -> None:
        Path(self.marks, "go-on").touch()

    def happen(self) -> None:
        """Carries out the fault in this process, unless it has already happened the planned number of times."""
        if not self._is_next():
            return
        if self.how == EXIT:
            os._exit(9)
        if self.how == RAISE:
            raise Fault(self.at)
        deadline = time.monotonic() + PATIENCE_S
        while not Path(self.marks, "go-on").exists() and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _is_next(self) -> bool:
        """Creates the next mark and returns True. Returns False if the fault has already happened the planned number of
        times.

        A mark appears with its complete content, because the test might read it immediately.
        """
        mark = Path(self.marks, f"process-{os.getpid()}-{uuid.uuid4().hex}")
        mark.write_text(str(os.getpid()), encoding="ascii")
        for number in range(self.times):
            with suppress(FileExistsError):
                os.link(mark, Path(self.marks, f"fault-{number}"))
                return True
        return False


def plan_of(options: dict[str, str]) -> Plan:
    return Plan(**json.loads(options["fault"]))


@dataclass(slots=True)
class Probe:
    """Observes the steps of a writer or reader and carries out the fault when its plan matches."""

    plan: Plan
    batch: int | None = None

    async def commit(self, step: CommitStep, number: int) -> None:
        if self.plan.at == f"commit.{step.name}" and number == self.plan.number and self._is_in_batch(self.batch):
            await asyncio.to_thread(self.plan.happen)

    def task(self, step: TaskStep) -> None:
        self.in_task(f"task.{step.name}")

    def in_task(self, at: str) -> None:
        if self.plan.at != at:
            return
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty(BATCH_ID)
        if (
            self.plan.partition in (None, context.partitionId())
            and self.plan.attempt in (None, context.attemptNumber())
            and self._is_in_batch(None if batch is None else int(batch))
        ):
            self.plan.happen()

    def in_planning(self, at: str) -> None:
        if self.plan.at == at:
            self.plan.happen()

    def _is_in_batch(self, batch: int | None) -> bool:
        return self.plan.batch in (None, batch)


# This commit worker's probes, keyed by the directory that holds a plan's marks. The worker keeps a sink for later
# batches, and the sink keeps its first probe.
_probes: dict[str, Probe] = {}


class FaultyStreamWriter(StreamWriter):
    def __init__(self, options: SinkOptions, plan: Plan) -> None:
        self._probe = probe = Probe(plan)
        super().__init__(options, observe=probe.commit, observe_task=probe.task)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Commits the batch. A worker that is going to pause ignores SIGHUP, because otherwise it would exit with its
        JVM."""
        held = self._held()
        held.batch = batchId
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN if held.plan.how == WAIT else signal.SIG_DFL)
        try:
            super().commit(messages, batchId)
        finally:
            signal.signal(signal.SIGHUP, before)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        self._held().batch = batchId
        super().abort(messages, batchId)

    def _held(self) -> Probe:
        held = _probes.setdefault(self._probe.plan.marks, self._probe)
        self._observe = held.commit
        return held


class FaultyBatchWriter(BatchWriter):
    def __init__(self, options: SinkOptions, plan: Plan) -> None:
        self._probe = probe = Probe(plan)
        super().__init__(options, observe=probe.commit, observe_task=probe.task)


class FaultyStreamReader(StreamReader):
    def __init__(self, probe: Probe, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._probe = probe

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_probe": self._probe}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        self._probe.in_planning("plan.LATEST")
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._probe.in_planning("plan.PARTITIONS")
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return interrupted(super().read(partition), self._probe)


class FaultyBatchReader(BatchReader):
    def __init__(self, probe: Probe, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._probe = probe

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return interrupted(super().read(partition), self._probe)


def interrupted(batches: Iterator[Any], probe: Probe) -> Iterator[Any]:
    probe.in_task("read.BEGUN")
    for batch in batches:
        yield batch
        probe.in_task("read.ROWS")


class FaultySource(OdradekSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: Any) -> Any:
        return FaultyBatchReader(
            self._probe, SourceOptions.read(self.options, is_stream=False), chosen(schema.names, ARROW)
        )

    def streamReader(self, schema: Any) -> Any:
        return FaultyStreamReader(
            self._probe, SourceOptions.read(self.options, is_stream=True), chosen(schema.names, ARROW)
        )

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return FaultyBatchWriter(SinkOptions.read(self.options, is_stream=False), plan_of(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return FaultyStreamWriter(SinkOptions.read(self.options, is_stream=True), plan_of(self.options))

    @property
    def _probe(self) -> Probe:
        return Probe(plan_of(self.options))
